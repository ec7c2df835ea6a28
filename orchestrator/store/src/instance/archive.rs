//! Archive format of a conversation: one importable file of JSON lines.
//!
//! ```text
//! {"format":"goondan.conversation/1","instanceKey":…,"agentName":…,"createdAt":…,"exportedAt":…,"goondan":…}
//! {"message":…}                                             as in base.jsonl, byte for byte
//! {"extension":{"name":…,"state":…}}                        in ascending order of names
//! {"end":{"messages":2,"extensions":1,"crc32":"89abcdef"}}  the checksum of every byte before this line
//! ```
//!
//! The last line must match the expected line byte for byte, and nothing may follow it. So an
//! archive that was truncated or has a flipped bit is invalid.

use goondan_protocol::ids::{AgentName, ExtensionName, InstanceKey};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::StoreError;

/// Value of `format` in the first line. Every change of the format gets a new number.
pub(super) const FORMAT: &str = "goondan.conversation/1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArchiveHead {
    pub format: String,
    pub instance_key: InstanceKey,
    pub agent_name: AgentName,
    pub created_at: Timestamp,
    pub exported_at: Timestamp,
    /// The version that wrote it.
    pub goondan: String,
}

/// Every other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum ArchiveRecord<'a> {
    #[serde(borrow)]
    Message(&'a RawValue),
    #[serde(borrow)]
    Extension(ExtensionState<'a>),
    End(ArchiveTrailer),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtensionState<'a> {
    pub name: ExtensionName,
    #[serde(borrow)]
    pub state: &'a RawValue,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchiveTrailer {
    pub messages: u64,
    pub extensions: u64,
    pub crc32: String,
}

/// Running totals of the lines before the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub messages: u64,
    pub extensions: u64,
    /// Checksum of all bytes so far.
    pub crc32: u32,
}

impl Sum {
    /// Adds more bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.crc32);
        hasher.update(bytes);
        self.crc32 = hasher.finalize();
    }

    /// Returns the last line, with its newline.
    pub(super) fn end(self) -> Result<Vec<u8>, StoreError> {
        super::json_line(&ArchiveRecord::End(ArchiveTrailer {
            messages: self.messages,
            extensions: self.extensions,
            crc32: format!("{:08x}", self.crc32),
        }))
    }
}
