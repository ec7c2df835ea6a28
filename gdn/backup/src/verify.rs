//! Checks backups.

use std::collections::BTreeMap;
use std::io::Read as _;

use ring::digest;
use serde::Serialize;

use crate::directory::BackupDir;
use crate::error::{BackupError, During as _};
use crate::format::{Content, StoredPack};
use crate::index::BackupFile;
use crate::pack::{self, PackReader};
use crate::seal::Identities;
use crate::stored_file::open_stored;

/// Bytes that are read together.
const READ_BYTES: usize = 1024 * 1024;

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Ids of the backups that were checked.
    pub backups: Vec<String>,
    /// Number of packs, and their size in bytes.
    pub packs: u64,
    pub bytes: u64,
    /// Backups whose contents were also decrypted and compared with their digests.
    pub opened: Vec<String>,
    /// Damage, one text each.
    pub findings: Vec<String>,
}

/// Checks all backups of a directory, or one. Without a key that decrypts them, only what is stored
/// is compared with its digests.
///
/// # Errors
///
/// [`BackupError`] if the directory cannot be read. Damage is a finding, and not an error.
pub fn verify(
    dir: &BackupDir,
    named: Option<&str>,
    identities: &Identities,
) -> Result<Checked, BackupError> {
    let ids = match named {
        Some(named) => vec![dir.select(Some(named))?],
        None => dir.ids()?,
    };
    let mut out = Checked::default();
    let mut packs: BTreeMap<String, bool> = BTreeMap::new();
    for id in ids {
        if let Err(error) = verify_one(dir, &id, identities, &mut packs, &mut out) {
            if matches!(error, BackupError::OtherIdentity { .. }) {
                return Err(error);
            }
            out.findings.push(describe(&error));
        }
        out.backups.push(id);
    }
    Ok(out)
}

fn verify_one(
    dir: &BackupDir,
    id: &str,
    identities: &Identities,
    packs: &mut BTreeMap<String, bool>,
    out: &mut Checked,
) -> Result<(), BackupError> {
    let path = dir.file_of(id);
    let file = BackupFile::read(&path)?;
    if file.header.id != id {
        return Err(BackupError::damaged(
            &path,
            "it has the id of another backup",
        ));
    }
    let mut is_intact = true;
    for stored in &file.header.packs {
        if let Some(checked) = packs.get(&stored.name) {
            is_intact &= checked;
            continue;
        }
        let checked = check_pack(dir, stored);
        packs.insert(stored.name.clone(), checked.is_ok());
        match checked {
            Ok(()) => {
                out.packs += 1;
                out.bytes += stored.bytes;
            }
            Err(error) => {
                is_intact = false;
                out.findings.push(describe(&error));
            }
        }
    }
    let (index, _) = match file.index(&path, identities) {
        Ok(opened) => opened,
        Err(BackupError::IdentityNeeded { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_intact {
        return Ok(());
    }
    let mut reader = PackReader::new(dir.path(), &index.packs);
    for entry in index.entries.values() {
        if let Content::File { chunks, .. } = &entry.content {
            for chunk in chunks {
                reader.read(chunk)?;
            }
        }
    }
    out.opened.push(id.to_owned());
    Ok(())
}

fn check_pack(dir: &BackupDir, stored: &StoredPack) -> Result<(), BackupError> {
    let path = pack::file_of(dir.path(), &stored.name);
    let mut file = open_stored(&path)?;
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; READ_BYTES];
    let mut len: u64 = 0;
    loop {
        let read = file.read(&mut buffer).during("read", &path)?;
        if read == 0 {
            break;
        }
        digest.update(buffer.get(..read).unwrap_or_default());
        len += u64::try_from(read).unwrap_or(0);
    }
    if len != stored.bytes || hex::encode(digest.finish()) != stored.sha256 {
        return Err(BackupError::damaged(&path, "it differs from its digest"));
    }
    Ok(())
}

/// The error with its cause.
fn describe(error: &BackupError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
