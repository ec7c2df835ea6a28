//! Checks that each encrypted document can be decrypted and matches the register (`SYS-3`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use goondan_durable::{Finding, FindingKind, Severity, VerificationResult};
use goondan_log::error_chain;
use goondan_oauth::Fields;
use goondan_protocol::secret::SecretValue;
use goondan_vault::{Document, DocumentError, Identities};
use secrecy::ExposeSecret as _;

use super::{KeepError, SecretKeeper};

impl SecretKeeper {
    /// Checks everything that is encrypted for the identity, and the consents. An unreadable path
    /// is a finding. A repair acknowledges lost data.
    pub(super) fn verify(&self, repair: bool) -> Result<VerificationResult, KeepError> {
        let mut found = VerificationResult::default();
        let all = self.all_documents();
        for problem in all.problems {
            let at = self.vault.system_dir();
            let finding = Finding::new(at, FindingKind::UnreadableFile, problem);
            let advice = "make sure that the daemon's user can read everything below it";
            found.findings.push(finding.advice(advice));
        }
        if let Err(error) = self.vault.consents(self.files.as_ref()) {
            let at = self.vault.consents_file();
            let finding = Finding::new(&at, FindingKind::UnreadableFile, error_chain(&error));
            found.findings.push(finding.advice(error.help()));
        }
        if let Err(error) = self.vault.permissions(self.files.as_ref()) {
            let at = self.vault.permissions_file();
            let finding = Finding::new(&at, FindingKind::UnreadableFile, error_chain(&error));
            found.findings.push(finding.advice(error.help()));
        }
        let identities = match self.vault.identities(self.files.as_ref()) {
            Ok(identities) => identities.map(|it| it.identities),
            Err(error) => {
                let at = self.vault.identity_file();
                let finding = Finding::new(&at, FindingKind::UnreadableFile, error_chain(&error));
                found.findings.push(finding.advice(error.help()));
                None
            }
        };
        if identities.is_none() && found.findings.is_empty() && !all.documents.is_empty() {
            let count = all.documents.len();
            let problem = format!("no identity exists, but {count} documents are encrypted");
            let at = self.vault.identity_file();
            let finding = Finding::new(&at, FindingKind::MissingFile, problem);
            let advice = "restore it from your backup: only it can decrypt them";
            let finding = finding.severity(Severity::Error).advice(advice);
            found.findings.push(finding);
        }
        for path in all.documents {
            self.verify_document(&path, identities.as_ref(), &mut found);
        }
        let lost = self.check_known(&found.findings, identities.as_ref(), repair)?;
        found.findings.extend(lost);
        Ok(found)
    }

    fn verify_document(
        &self,
        path: &Path,
        identities: Option<&Identities>,
        found: &mut VerificationResult,
    ) {
        let problem = match self.bytes_at(path) {
            // The document was removed during the check.
            Ok(None) => None,
            Ok(Some(bytes)) => {
                found.count(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                identities.and_then(|identities| self.problem_of(path, &bytes, identities))
            }
            Err(error) => Some((FindingKind::UnreadableFile, error_chain(&error))),
        };
        if let Some((kind, problem)) = problem {
            let finding = Finding::new(path, kind, problem);
            found.findings.push(finding.advice(self.advice_for(path)));
        }
    }

    fn problem_of(
        &self,
        path: &Path,
        bytes: &[u8],
        identities: &Identities,
    ) -> Option<(FindingKind, String)> {
        let fields = match read(bytes, identities) {
            Ok(fields) => fields,
            Err(error) => return Some((FindingKind::UnreadableFile, error_chain(&error))),
        };
        let place = path.strip_prefix(self.oauth_dir()).ok()?;
        let problem = Fields::new(fields).problem_at(place)?;
        Some((FindingKind::WrongOwner, problem.to_owned()))
    }

    /// Suggestion for a missing document.
    pub(super) fn advice_for_missing(&self, path: &Path) -> String {
        let name = self.name_in_system(path).unwrap_or_default();
        let parts: Vec<&str> = name.split('/').collect();
        let again = match parts.as_slice() {
            ["oauth", "grants" | "sessions", app, _] => {
                format!("restore it from a backup, or log in again: `gdn secret oauth login {app}`")
            }
            ["secrets", name] => {
                let name = name.trim_end_matches(".sops.yaml");
                format!("restore it from a backup, or set it again: `gdn secret set {name} KEY`")
            }
            _ => "nothing to do: the token is renewed again when due".to_owned(),
        };
        format!("{again}; then `gdn daemon verify --all --repair` acknowledges the loss")
    }

    /// Advice for a user about an unusable document.
    fn advice_for(&self, path: &Path) -> String {
        let restore = "restore it from a backup";
        let parts = path.strip_prefix(self.vault.system_dir());
        let parts: Vec<&str> = parts.map_or_else(
            |_| Vec::new(),
            |path| path.iter().filter_map(OsStr::to_str).collect(),
        );
        match parts.as_slice() {
            ["oauth", "grants", app, _] => {
                format!("{restore}, or log in again: `gdn secret oauth login {app}`")
            }
            ["oauth", "sessions", app, _] => {
                format!("remove it, and start the login again: `gdn secret oauth login {app}`")
            }
            ["oauth", "locks", ..] => "remove it; the token is renewed again when due".to_owned(),
            ["secrets", name] => {
                let name = name.trim_end_matches(".sops.yaml");
                format!("{restore}, or remove it and set it again: `gdn secret remove {name}`")
            }
            _ => format!("{restore}, or provide the task's values again"),
        }
    }
}

/// Decrypts all values of a document.
fn read(
    bytes: &[u8],
    identities: &Identities,
) -> Result<BTreeMap<String, SecretValue>, DocumentError> {
    let document = Document::open(bytes, identities)?;
    let mut fields = BTreeMap::new();
    for key in document.keys() {
        if let Some(value) = document.get(key)? {
            let value = SecretValue::new(value.expose_secret().to_owned());
            fields.insert(key.to_owned(), value);
        }
    }
    Ok(fields)
}
