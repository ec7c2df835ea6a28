//! Problems found in files, as data (`MSG-11`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational; nothing is lost.
    Info,
    /// Unexpected, but no acknowledged data is known to be lost.
    Warning,
    Error,
}

/// Kind of a finding. Stable: scripts may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A crash cut an append short.
    TornTail,
    /// A record's bytes differ from the written ones.
    DamagedRecord,
    MissingRecords,
    /// A record is out of place.
    MisplacedRecord,
    RepeatedRecord,
    /// A record that this store did not write, or of an unknown kind.
    UnknownRecord,
    /// Records without checksums cannot be verified.
    Unverified,
    /// A file violates its format.
    UnreadableFile,
    /// A file or folder is missing.
    MissingFile,
    /// An unknown file or folder.
    UnknownFile,
    /// A file describes another object than its folder.
    WrongOwner,
    /// A file differs from the written one: an older copy, another file, or edited.
    ReplacedFile,
    /// Interrupted work; opening its object finishes it.
    UnfinishedWork,
    /// A file that was moved aside earlier for inspection.
    SetAside,
}

/// Byte range of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte, from 0.
    pub from: u64,
    /// End (exclusive).
    pub to: u64,
}

/// A problem found in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub path: PathBuf,
    pub kind: FindingKind,
    pub severity: Severity,
    /// The line it begins in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The affected bytes. An empty range marks the position of missing data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteRange>,
    pub problem: String,
    pub advice: String,
    /// Copy of the bytes, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_in: Option<PathBuf>,
}

impl Finding {
    /// Creates a finding about a whole file.
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

    /// Sets the position: bytes `from` to `to` in a line, counted from 1.
    #[must_use]
    pub fn at(mut self, line: u64, from: u64, to: u64) -> Self {
        self.line = Some(line);
        self.bytes = Some(ByteRange { from, to });
        self
    }

    /// Sets the file with a copy of the bytes.
    #[must_use]
    pub fn kept(mut self, path: &Path) -> Self {
        self.kept_in = Some(path.to_owned());
        self
    }

    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

fn defaults_of(kind: FindingKind) -> (Severity, &'static str) {
    const RESTORE: &str =
        "restore the file from a backup, or set the damage aside with `gdn daemon verify --repair`";
    match kind {
        FindingKind::TornTail => (
            Severity::Warning,
            "nothing to do: all acknowledged data is intact",
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
        FindingKind::UnknownFile => (Severity::Info, "remove it if it is not needed"),
        FindingKind::SetAside => (
            Severity::Info,
            "inspect it, and remove it when it is no longer needed",
        ),
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerificationResult {
    pub files: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Findings in the order of the files.
    pub findings: Vec<Finding>,
    /// Copies of damaged files made by a repair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<PathBuf>,
}

impl VerificationResult {
    /// Returns the highest severity of the findings, if any.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Counts a file and its bytes.
    pub fn count(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}
