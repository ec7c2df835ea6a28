//! The archive of a conversation: one file of JSON lines that can be imported elsewhere.
//!
//! ```text
//! {"format":"goondan.conversation/1","instanceKey":…,"agentName":…,"createdAt":…,"exportedAt":…,"goondan":…}
//! {"message":…}                                             as in base.jsonl, byte for byte
//! {"extension":{"name":…,"state":…}}                        by rising names
//! {"end":{"messages":2,"extensions":1,"crc32":"89abcdef"}}  the checksum of every byte before this line
//! ```
//!
//! The last line is compared byte for byte with what it must be, and nothing may follow it: an archive
//! that was cut anywhere, or of which a bit was flipped, is no archive.

use goondan_protocol::ids::{AgentName, ExtensionName, InstanceKey};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::StoreError;

/// What the first line says in `format`. Any change of the format gives it another number.
pub(super) const FORMAT: &str = "goondan.conversation/1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Head {
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
pub(super) enum Record<'a> {
    #[serde(borrow)]
    Message(&'a RawValue),
    #[serde(borrow)]
    Extension(ExtensionState<'a>),
    End(End),
}

/// What an extension remembers.
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
pub(super) struct End {
    pub messages: u64,
    pub extensions: u64,
    pub crc32: String,
}

/// What stands before the last line, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub messages: u64,
    pub extensions: u64,
    /// Of all bytes so far.
    pub crc32: u32,
}

impl Sum {
    /// Takes in more bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.crc32);
        hasher.update(bytes);
        self.crc32 = hasher.finalize();
    }

    /// The last line, with its newline.
    pub(super) fn end(self) -> Result<Vec<u8>, StoreError> {
        super::json_line(&Record::End(End {
            messages: self.messages,
            extensions: self.extensions,
            crc32: format!("{:08x}", self.crc32),
        }))
    }
}
