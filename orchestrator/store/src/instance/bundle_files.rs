//! Integrity check and repair of swarm-bundle files. Another crate interprets them; this one
//! compares content with names (`BUNDLE-5`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::{Finding, FindingKind, IoContext as _, Severity, VerificationResult, files};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::check::{SWARM_BUNDLE, check_json, odd};
use crate::error::StoreError;

const CURSOR: &str = "cursor.yaml";
const BLOBS: &str = "store/blobs";
const REVISIONS: &str = "store/revisions";

/// Largest file that is checked, in bytes.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

const ADVICE: &str = "restore the file from a backup to have the revision back; without it the conversation starts on \
                      the last revision that proved itself, or on the project";

/// Files of a revision; a file that is only referenced has no digest.
#[derive(Deserialize)]
struct Revision {
    files: BTreeMap<String, Option<String>>,
}

/// Checks the bundle of the instance in `dir`, if it has one.
pub(super) fn check(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let dir = dir.join(SWARM_BUNDLE);
    let cursor = dir.join(CURSOR);
    if disk.stat(&cursor).during("inspect", &cursor)?.is_some() {
        check_json(disk, &cursor, out)?;
    }
    let blobs = dir.join(BLOBS);
    for (path, kind, name) in entries(disk, &blobs)? {
        match read_blob(disk, &path, kind, &name)? {
            Some(blob) => {
                out.count(blob.bytes);
                if !blob.is_whole {
                    let problem = "content does not match the digest in its name";
                    let finding = Finding::new(&path, FindingKind::ReplacedFile, problem);
                    out.findings.push(finding.advice(ADVICE));
                }
            }
            None => out.findings.push(odd(&path, kind, &name)),
        }
    }
    for (path, kind, name) in entries(disk, &dir.join(REVISIONS))? {
        if kind != EntryKind::File || !name.ends_with(".json") {
            out.findings.push(odd(&path, kind, &name));
            continue;
        }
        let before = out.findings.len();
        check_json(disk, &path, out)?;
        if out.findings.len() == before {
            check_revision(disk, &path, &blobs, out)?;
        }
    }
    Ok(())
}

/// Checks that every file of a revision exists.
fn check_revision(
    disk: &dyn Disk,
    path: &Path,
    blobs: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let mut file = disk.open_read(path).during("open", path)?;
    let text = read_all(file.as_mut(), FILE_BYTES_MAX).during("read", path)?;
    let Ok(Revision { files }) = serde_json::from_slice(&text) else {
        let finding = Finding::new(path, FindingKind::UnreadableFile, "not a valid revision");
        out.findings.push(finding.advice(ADVICE));
        return Ok(());
    };
    for digest in files.into_values().flatten() {
        let blob = blobs.join(&digest);
        if is_digest(&digest) && disk.stat(&blob).during("inspect", &blob)?.is_none() {
            let finding = Finding::new(&blob, FindingKind::MissingFile, "required by a revision");
            let finding = finding.severity(Severity::Error).advice(ADVICE);
            if !out.findings.contains(&finding) {
                out.findings.push(finding);
            }
        }
    }
    Ok(())
}

/// Renames files whose content does not match their name, and revisions with a missing file.
/// Returns the new paths.
pub(super) fn set_aside(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let dir = dir.join(SWARM_BUNDLE);
    let mut kept = Vec::new();
    let mut aside = |path: &Path| -> Result<(), StoreError> {
        let (name, _) = files::aside_name(disk, path, "damaged", None)?;
        files::install(disk, path, &name)?;
        kept.push(name);
        Ok(())
    };
    let blobs = dir.join(BLOBS);
    for (path, kind, name) in entries(disk, &blobs)? {
        if read_blob(disk, &path, kind, &name)?.is_some_and(|blob| !blob.is_whole) {
            aside(&path)?;
        }
    }
    for (path, kind, name) in entries(disk, &dir.join(REVISIONS))? {
        if kind != EntryKind::File || !name.ends_with(".json") {
            continue;
        }
        let mut found = VerificationResult::default();
        check_json(disk, &path, &mut found)?;
        if found.findings.is_empty() {
            check_revision(disk, &path, &blobs, &mut found)?;
        }
        if !found.findings.is_empty() {
            aside(&path)?;
        }
    }
    Ok(kept)
}

struct Blob {
    bytes: u64,
    is_whole: bool,
}

/// Reads a file named by its digest; `None` if the content does not match.
fn read_blob(
    disk: &dyn Disk,
    path: &Path,
    kind: EntryKind,
    name: &str,
) -> Result<Option<Blob>, StoreError> {
    if kind != EntryKind::File || !is_digest(name) {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    let content = read_all(file.as_mut(), FILE_BYTES_MAX).during("read", path)?;
    Ok(Some(Blob {
        bytes: content.len() as u64,
        is_whole: hex::encode(Sha256::digest(&content)) == name,
    }))
}

/// True if a name is a SHA-256 in hex.
fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

type BundleFileEntry = (PathBuf, EntryKind, String);

fn entries(disk: &dyn Disk, dir: &Path) -> Result<Vec<BundleFileEntry>, StoreError> {
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(Vec::new());
    }
    let listed = disk.list(dir).during("list", dir)?.into_iter();
    let entry = |it: goondan_durable::disk::DiskEntry| {
        let name = it.name.to_string_lossy().into_owned();
        (dir.join(&it.name), it.kind, name)
    };
    Ok(listed.map(entry).collect())
}
