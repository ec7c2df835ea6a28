//! Records of sandboxes and proposals, besides their files.

use std::path::Path;

use goondan_durable::disk::{Folder, append_all, read_all, read_full};
use goondan_protocol::control::{GitCheck, MergeBase, ProposalBase, SandboxRef, UncopiedPath};
use goondan_protocol::task::RepositorySource;
use goondan_protocol::time::Timestamp;
use goondan_trees::{Manifest, RelativePath};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext as _, ProposalError};
use crate::gitignore::IgnoreFile;
use crate::limits::{CUT_LINE_BYTES, RECORD_BYTES_MAX};

/// `version` of the records.
pub(crate) const RECORD_VERSION: &str = "1";

/// `sandbox.json`: the files and permissions of a worker (`BOX-4`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SandboxRecord {
    pub(crate) version: String,
    #[serde(rename = "sandbox")]
    pub(crate) at: SandboxRef,
    pub(crate) created_at: Timestamp,
    pub(crate) base: ProposalBase,
    /// Paths at which the worker may create files.
    pub(crate) may_create: MayCreate,
    pub(crate) not_given: Vec<UncopiedPath>,
    /// Source of a merged `work/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merged_from: Option<MergeBase>,
    /// Lines of the project's `.gitignore` files, for a copy of the whole project: matching paths
    /// are neither given nor proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ignored: Vec<IgnoreFile>,
    /// The repository that the files come from, if it is another one than the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repository: Option<ClonedRepository>,
    /// Digest of the proposal that the merge queue handed back, since when the baseline is another
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rebased_from: Option<String>,
    /// Every file, link and directory that was given.
    pub(crate) given: Manifest,
}

/// The repository of a clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClonedRepository {
    pub(crate) source: RepositorySource,
    /// The branch that the clone began at, or the default branch, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
}

/// Paths at which a worker may create files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MayCreate {
    /// In the whole Project Root.
    Anywhere,
    Below(Vec<RelativePath>),
}

impl SandboxRecord {
    /// True if the worker may change or create this path (`PROP-4`).
    pub(crate) fn allows(&self, path: &RelativePath) -> bool {
        self.given.get(path).is_some()
            || match &self.may_create {
                MayCreate::Anywhere => true,
                MayCreate::Below(directories) => directories
                    .iter()
                    .any(|directory| path == directory || path.is_below(directory)),
            }
    }
}

/// `details.json`: data about a proposal that its public record does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Details {
    pub(crate) git: GitCheck,
    pub(crate) left_out: Vec<UncopiedPath>,
    /// Every file, link and directory afterwards.
    pub(crate) after: Manifest,
}

/// Reads a file that may not exist.
pub(crate) fn read_file(
    folder: &dyn Folder,
    name: &str,
    max: usize,
) -> Result<Option<Vec<u8>>, ProposalError> {
    let path = Path::new(name);
    if folder.look(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = folder.read(path).during("open", path)?;
    read_all(file.as_mut(), max).during("read", path).map(Some)
}

/// Reads the end of a file that may not exist; a line in the result reports missing data. Text
/// written by this function is read in full.
pub(crate) fn read_end(
    folder: &dyn Folder,
    name: &str,
    max: usize,
) -> Result<Option<Vec<u8>>, ProposalError> {
    let path = Path::new(name);
    if folder.look(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = folder.read(path).during("open", path)?;
    let len = file.len().during("inspect", path)?;
    let whole = max + CUT_LINE_BYTES;
    let from = if len > whole as u64 {
        len - max as u64
    } else {
        0
    };
    let mut text = vec![0; whole];
    let read = read_full(file.as_mut(), &mut text, from).during("read", path)?;
    text.truncate(read);
    if from == 0 {
        return Ok(Some(text));
    }
    let line = text.iter().position(|byte| *byte == b'\n');
    let rest = line.and_then(|at| text.get(at + 1..)).unwrap_or(&text);
    let head = format!(
        "… {} bytes before this were omitted\n",
        len - rest.len() as u64
    );
    Ok(Some([head.as_bytes(), rest].concat()))
}

/// Reads one of goondan's own records; `None` if it does not exist.
pub(crate) fn read_record<T: DeserializeOwned>(
    folder: &dyn Folder,
    name: &str,
) -> Result<Option<T>, ProposalError> {
    let Some(text) = read_file(folder, name, RECORD_BYTES_MAX)? else {
        return Ok(None);
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| ProposalError::Damaged {
        path: name.into(),
        problem: error.to_string(),
    })
}

/// Writes a new file; durable when its directory is synced.
pub(crate) fn write_file(
    folder: &dyn Folder,
    name: &str,
    content: &[u8],
) -> Result<(), ProposalError> {
    let path = Path::new(name);
    let mut file = folder.create(path, 0o600).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)?;
    file.sync().during("sync", path)
}

/// Serializes a record in a readable form.
pub(crate) fn written(record: &impl Serialize) -> Result<Vec<u8>, ProposalError> {
    let mut text = serde_json::to_vec_pretty(record).map_err(|error| ProposalError::Damaged {
        path: "record".into(),
        problem: error.to_string(),
    })?;
    text.push(b'\n');
    Ok(text)
}
