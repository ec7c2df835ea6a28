//! Register of the documents below `system/`: secrets, tokens and consents (`MSG-11`).
//!
//! A document that was removed leaves nothing behind, and consents that lost their end may still be a list of consents.
//! So a [register](goondan_durable::register) in `system/known/` has a claim of each.

use std::path::{Path, PathBuf};

use goondan_durable::disk::EntryKind;
use goondan_durable::register::{REGISTERS, Register};
use goondan_durable::{Finding, IoContext as _, Severity};
use goondan_vault::{Document, Identities};

use super::rotation::EncryptedDocuments;
use super::{KeepError, SecretKeeper};

/// The directory of tokens, and of their registers.
const OAUTH: &str = "oauth";

/// The register of a token, by the first characters of the token's name, which is a hash or random.
/// There are at most a few hundred registers.
fn shard_of(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    let is_plain = |char: &char| char.is_ascii_alphanumeric();
    let start: String = file.chars().take(2).filter(is_plain).collect();
    match start.is_empty() {
        true => "other".to_owned(),
        false => start,
    }
}

impl SecretKeeper {
    /// The register of a document below `system/`, by its name there.
    pub(super) fn register_of(&self, name: &str) -> Register<'_> {
        let group = match name.strip_prefix(OAUTH) {
            // Sharded, because a change rewrites a whole register, and each user of a project can
            // have a token.
            Some(name) => Path::new(OAUTH).join(shard_of(name)),
            None => PathBuf::new(),
        };
        self.register_in(&group)
    }

    fn register_in(&self, group: &Path) -> Register<'_> {
        let system = self.vault.system_dir();
        Register::in_group(self.disk.as_ref(), system, group, system)
    }

    fn registers(&self) -> Result<Vec<Register<'_>>, KeepError> {
        let shards = self.vault.system_dir().join(REGISTERS).join(OAUTH);
        let shards = self.entries(&shards)?.into_iter();
        let groups = shards.map(|entry| Path::new(OAUTH).join(entry.name));
        let groups = std::iter::once(PathBuf::new()).chain(groups);
        Ok(groups.map(|group| self.register_in(&group)).collect())
    }

    /// The name of a document in the register; none if it is not below `system/`.
    pub(super) fn name_in_system(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(self.vault.system_dir()).ok()?;
        name.to_str().map(str::to_owned)
    }

    /// Adds claims for documents without one: those of earlier versions, and those that a user
    /// added.
    pub(in crate::shell) fn note_documents(&self) {
        let mut documents = self.documents_in_system().documents;
        for path in [self.vault.consents_file(), self.vault.permissions_file()] {
            let stat = self.disk.stat(&path);
            if stat.is_ok_and(|stat| stat.is_some_and(|stat| stat.kind == EntryKind::File)) {
                documents.push(path);
            }
        }
        let names = documents
            .iter()
            .filter_map(|path| self.name_in_system(path));
        for name in names {
            self.register_of(&name).note_new(&[&name]);
        }
    }

    /// The encrypted documents below `system/`.
    pub(super) fn documents_in_system(&self) -> EncryptedDocuments {
        let mut found = EncryptedDocuments::default();
        found.look_below(self, &self.vault.secrets_dir());
        found.look_below(self, &self.oauth_dir());
        found
    }

    /// Replaces an encrypted document below `system/`. A document that can be decrypted is not
    /// lost, even if a person changed it with `sops` after the last write.
    pub(super) fn replace_in_system(
        &self,
        path: &Path,
        content: &[u8],
        identities: &Identities,
    ) -> Result<(), KeepError> {
        let Some(name) = self.name_in_system(path) else {
            return Ok(goondan_durable::files::replace(
                self.disk.as_ref(),
                path,
                content,
            )?);
        };
        let register = self.register_of(&name);
        if self.opens(path, identities) {
            register.take_as_it_is(&name)?;
        }
        Ok(register.replace(&name, content)?)
    }

    /// Removes a document below `system/`, durably.
    pub(super) fn delete_in_system(&self, path: &Path) -> Result<(), KeepError> {
        if let Some(name) = self.name_in_system(path) {
            self.register_of(&name).release(&name)?;
        }
        self.disk.remove_file(path).during("remove", path)?;
        if let Some(dir) = path.parent() {
            self.disk.sync_dir(dir).during("sync", dir)?;
        }
        Ok(())
    }

    fn opens(&self, path: &Path, identities: &Identities) -> bool {
        let bytes = self.bytes_at(path).ok().flatten();
        bytes.is_some_and(|bytes| Document::open(&bytes, identities).is_ok())
    }

    /// Compares the documents below `system/` with the register, and acknowledges losses if a
    /// person requests it. `reported`: the findings of reading the documents.
    pub(super) fn check_known(
        &self,
        reported: &[Finding],
        identities: Option<&Identities>,
        repair: bool,
    ) -> Result<Vec<Finding>, KeepError> {
        let registers = self.registers()?;
        let (mut findings, mut now) = (Vec::new(), Vec::new());
        for register in &registers {
            findings.extend(register.check()?);
            now.extend(register.compare()?);
        }
        let is_reported = |path: &PathBuf| reported.iter().any(|finding| finding.path == *path);
        findings.retain(|finding| !is_reported(&finding.path));
        for finding in &mut findings {
            let is_now = now.iter().any(|now| now.path == finding.path);
            let opens = identities.is_some_and(|identities| self.opens(&finding.path, identities));
            let is_consents = finding.path == self.vault.consents_file();
            let is_permissions = finding.path == self.vault.permissions_file();
            if repair {
                finding.severity = Severity::Warning;
                "acknowledged: it is not reported again".clone_into(&mut finding.advice);
            } else if is_now && opens {
                // Older copies can be opened as well; they cannot be distinguished from an edit.
                finding.severity = Severity::Warning;
                finding.advice =
                    "changed with `sops`, or replaced by an older copy: check its content; its \
                     next change is recorded"
                        .to_owned();
            } else {
                finding.severity = Severity::Error;
                finding.advice = match is_consents {
                    false if is_permissions => {
                        "restore it from a backup, or decide again: `gdn workspace permission allow`; then \
                             `gdn daemon verify --all --repair` acknowledges the loss"
                            .to_owned()
                    }
                    true => {
                        "restore it from a backup, or allow each secret again: `gdn secret allow`; \
                             then `gdn daemon verify --all --repair` acknowledges the loss"
                            .to_owned()
                    }
                    false => self.advice_for_missing(&finding.path),
                };
            }
        }
        if repair {
            for register in registers {
                register.acknowledge()?;
            }
        }
        Ok(findings)
    }
}
