//! `metadata.json`: description of an instance for users and scripts (`INST-2`).

use std::path::Path;

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _};
use goondan_protocol::JsonObject;
use goondan_protocol::control::RewindRecord;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// Largest `metadata.json`, in bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceStatus {
    Idle,
    Processing,
}

impl InstanceStatus {
    /// Returns the serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Processing => "processing",
        }
    }
}

/// The content of `metadata.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub status: InstanceStatus,
    /// The owning agent (`INST-3`).
    pub agent_name: AgentName,
    pub instance_key: InstanceKey,
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parked_events: u64,
    /// Latest rewinds, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewinds: Vec<RewindRecord>,
    /// Fields of other versions and implementations, preserved unchanged.
    #[serde(flatten)]
    pub extra: JsonObject,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Metadata {
    /// The file's name in the instance's directory.
    pub const FILE: &'static str = "metadata.json";

    pub(super) fn new(agent_name: AgentName, instance_key: InstanceKey, at: Timestamp) -> Self {
        Self {
            status: InstanceStatus::Idle,
            agent_name,
            instance_key,
            created_at: at,
            updated_at: at,
            parked_events: 0,
            rewinds: Vec::new(),
            extra: JsonObject::new(),
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        super::json_line(self)
    }

    /// Reads the metadata of the instance in `dir`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`] if it is missing, [`FileError::Damaged`] if it is invalid.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, FileError> {
        let path = dir.join(Self::FILE);
        let mut file = disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), METADATA_BYTES_MAX).during("read", &path)?;
        serde_json::from_slice(&bytes).map_err(|error| FileError::Damaged {
            line: u64::try_from(error.line()).unwrap_or(0),
            problem: error.to_string(),
            path,
        })
    }
}
