//! Values for a configuration that is being loaded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;

use goondan_protocol::ids::SecretName;
use goondan_protocol::secret::{SecretProblem, SecretStore};
use secrecy::ExposeSecret as _;

use crate::consent::{Consents, ProjectIdentity};
use crate::document::Document;
use crate::error::{DocumentError, VaultError};
use crate::identity::Identities;
use crate::vault::{RealFiles, Vault, VaultFiles};

/// Looks up values for one load. Opens each secret once, and none before it is requested.
pub struct SecretReader<'v> {
    vault: &'v Vault,
    files: &'v dyn VaultFiles,
    project: &'v ProjectIdentity,
    consents: RefCell<Option<Result<Rc<Consents>, SecretProblem>>>,
    identities: RefCell<Option<Rc<Identities>>>,
    opened: RefCell<BTreeMap<SecretName, LookupResult>>,
}

/// A secret, if it exists, or the reason why it cannot be read.
type LookupResult = Result<Option<Rc<Document>>, SecretProblem>;

impl<'v> SecretReader<'v> {
    /// Reads the values that this project may use from the current files of the store.
    #[must_use]
    pub fn new(vault: &'v Vault, project: &'v ProjectIdentity) -> Self {
        Self::with_files(vault, project, &RealFiles)
    }

    /// Like [`Self::new`], with another file system.
    #[must_use]
    pub fn with_files(
        vault: &'v Vault,
        project: &'v ProjectIdentity,
        files: &'v dyn VaultFiles,
    ) -> Self {
        Self {
            vault,
            files,
            project,
            consents: RefCell::default(),
            identities: RefCell::default(),
            opened: RefCell::default(),
        }
    }

    fn open(&self, name: &SecretName) -> LookupResult {
        let found = self.opened.borrow().get(name).cloned();
        found.unwrap_or_else(|| {
            let found = self.read(name).map_err(|error| unreadable(&error));
            self.opened.borrow_mut().insert(name.clone(), found.clone());
            found
        })
    }

    fn read(&self, name: &SecretName) -> Result<Option<Rc<Document>>, VaultError> {
        // A missing secret is reported as missing, even without an identity.
        if self.vault.outline(self.files, name)?.is_none() {
            return Ok(None);
        }
        let identities = self.identities()?;
        let opened = self.vault.open(self.files, name, &identities);
        if !is_for_another(&opened) {
            return Ok(opened?.map(Rc::new));
        }
        // The document may have been re-encrypted after the identities were read (`gdn secret
        // rotate`).
        self.identities.replace(None);
        let identities = self.identities()?;
        let document = self.vault.open(self.files, name, &identities)?;
        Ok(document.map(Rc::new))
    }

    fn identities(&self) -> Result<Rc<Identities>, VaultError> {
        if let Some(known) = &*self.identities.borrow() {
            return Ok(known.clone());
        }
        let found = self.vault.identities(self.files)?;
        let found = found.ok_or_else(|| VaultError::NoIdentity {
            path: self.vault.identity_file(),
        })?;
        let identities = Rc::new(found.identities);
        *self.identities.borrow_mut() = Some(identities.clone());
        Ok(identities)
    }
}

impl SecretReader<'_> {
    fn consents(&self) -> Result<Rc<Consents>, SecretProblem> {
        let read = || {
            let found = self.vault.consents(self.files);
            found.map(Rc::new).map_err(|error| unreadable(&error))
        };
        self.consents.borrow_mut().get_or_insert_with(read).clone()
    }

    /// An existing secret is returned only if a person has allowed it.
    fn check_consent(&self, name: &SecretName) -> Result<(), SecretProblem> {
        if self.consents()?.allows(name, self.project) {
            return Ok(());
        }
        Err(SecretProblem::NotAllowed {
            project_root: self.project.root.clone(),
        })
    }
}

impl SecretStore for SecretReader<'_> {
    fn find(&self, name: &str, key: &str) -> Result<String, SecretProblem> {
        let name = SecretName::new(name)
            .map_err(|invalid| SecretProblem::InvalidName(invalid.to_string()))?;
        let Some(document) = self.open(&name)? else {
            let names = self.vault.names(self.files);
            let names = names.map_err(|error| unreadable(&error))?;
            let names = names.iter().map(SecretName::to_string).collect();
            return Err(SecretProblem::NoSecret { names });
        };
        match document.get(key) {
            Ok(Some(value)) => {
                self.check_consent(&name)?;
                Ok(value.expose_secret().to_owned())
            }
            Ok(None) => Err(SecretProblem::NoKey {
                keys: document.keys().map(str::to_owned).collect(),
            }),
            Err(source) => Err(unreadable(&VaultError::Document {
                path: self.vault.document_file(&name),
                source,
            })),
        }
    }
}

/// True if a document is encrypted for other identities.
fn is_for_another<T>(opened: &Result<T, VaultError>) -> bool {
    matches!(
        opened,
        Err(VaultError::Document {
            source: DocumentError::OtherIdentity { .. },
            ..
        })
    )
}

fn unreadable(error: &VaultError) -> SecretProblem {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    let help = error.help();
    SecretProblem::Unreadable { message, help }
}
