//! What is found wrong with files, as data (`MSG-11`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing is lost.
    Info,
    /// Something is not as it was left, but nothing that was acknowledged is known to be lost.
    Warning,
    /// Something that was written cannot be read.
    Error,
}

/// What kind of thing was found. Stable: scripts may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A crash cut an append short.
    TornTail,
    /// A record's bytes are not those that were written.
    DamagedRecord,
    /// Records that were written are not there any more.
    MissingRecords,
    /// A record stands where it was not written.
    MisplacedRecord,
    /// A record stands there twice.
    RepeatedRecord,
    /// A record that was not written here, or of a kind this version does not know.
    UnknownRecord,
    /// Records have no checksum that could tell whether they are as they were written.
    Unverified,
    /// A file cannot be read as what it should be.
    UnreadableFile,
    /// A file or folder is not there.
    MissingFile,
    /// A file or folder nobody here knows.
    UnknownFile,
    /// A file stands for another thing than the folder it lies in.
    WrongOwner,
    /// A file is not the one that was written there: an older copy, another's, or edited.
    ReplacedFile,
    /// Work that a crash cut short; opening what it belongs to finishes it.
    UnfinishedWork,
    /// A file that was set aside earlier, for people to look at.
    SetAside,
}

/// The bytes of a file that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ByteRange {
    /// The first of them, from 0.
    pub from: u64,
    /// The one behind the last.
    pub to: u64,
}

/// Something that was found wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What kind of thing it is.
    pub kind: FindingKind,
    /// How bad it is.
    pub severity: Severity,
    /// The line it begins in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The bytes it is about. Empty, at the place, where something is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteRange>,
    /// What was found and what it means.
    pub problem: String,
    /// What to do about it.
    pub advice: String,
    /// Where a copy of the bytes is kept, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_in: Option<PathBuf>,
}

impl Finding {
    /// A finding about a file as a whole.
    pub fn new(path: &Path, kind: FindingKind, problem: impl Into<String>) -> Self {
        let (severity, advice) = defaults_of(kind);
        Self {
            path: path.to_owned(),
            kind,
            severity,
            line: None,
            bytes: None,
            problem: problem.into(),
            advice: advice.to_owned(),
            kept_in: None,
        }
    }

    /// The same, of bytes `from` up to `to` in a line, counted from 1.
    #[must_use]
    pub fn at(mut self, line: u64, from: u64, to: u64) -> Self {
        self.line = Some(line);
        self.bytes = Some(ByteRange { from, to });
        self
    }

    /// The same, of bytes that are kept in a file.
    #[must_use]
    pub fn kept(mut self, path: &Path) -> Self {
        self.kept_in = Some(path.to_owned());
        self
    }

    /// The same, as bad as that.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same, with other advice.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

fn defaults_of(kind: FindingKind) -> (Severity, &'static str) {
    const RESTORE: &str =
        "restore the file from a backup, or set the damage aside with `gdn verify --repair`";
    match kind {
        FindingKind::TornTail => (
            Severity::Warning,
            "nothing to do: what was acknowledged is whole",
        ),
        FindingKind::DamagedRecord
        | FindingKind::MissingRecords
        | FindingKind::UnreadableFile
        | FindingKind::WrongOwner
        | FindingKind::ReplacedFile => (Severity::Error, RESTORE),
        FindingKind::MisplacedRecord | FindingKind::RepeatedRecord | FindingKind::UnknownRecord => {
            (Severity::Warning, RESTORE)
        }
        FindingKind::Unverified | FindingKind::UnfinishedWork => (Severity::Info, "nothing to do"),
        FindingKind::MissingFile => (Severity::Warning, RESTORE),
        FindingKind::UnknownFile => (Severity::Info, "remove it if nobody needs it"),
        FindingKind::SetAside => (
            Severity::Info,
            "look at it, and remove it when nobody needs it",
        ),
    }
}

/// What checking found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is not as it should be, in the order of the files.
    pub findings: Vec<Finding>,
    /// Files that a repair kept as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<PathBuf>,
}

impl Verified {
    /// The worst of the findings; none if there are none.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Counts a file that was read, and its bytes.
    pub fn count(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}
