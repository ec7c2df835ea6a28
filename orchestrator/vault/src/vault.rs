//! Locates and reads identities and secrets.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use goondan_protocol::ids::SecretName;
use goondan_protocol::secret::IDENTITY_VAR;
use nix::fcntl::OFlag;

use crate::consent::Consents;
use crate::document::{Document, Outline};
use crate::error::VaultError;
use crate::identity::Identities;
use crate::limits::{CONSENTS_BYTES_MAX, IDENTITY_BYTES_MAX, SECRET_DOCUMENT_BYTES_MAX};
use crate::permission::PermissionDecisions;

/// The variable in which systemd names the directory of a service's credentials.
const CREDENTIALS_VAR: &str = "CREDENTIALS_DIRECTORY";
const CREDENTIAL: &str = "goondan-identity";
/// Suffix of a secret's file name.
const DOCUMENT_SUFFIX: &str = ".sops.yaml";
/// Mode bits that give others than the owner access.
const OTHERS: u32 = 0o077;

/// The reading half of a file system, so that tests can have their own.
pub trait VaultFiles: Send + Sync {
    /// Content of a file; `None` if it does not exist. A link, or a longer file, is an error.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;

    /// The names in a directory; empty if it does not exist.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// True if only its owner can open an existing file.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    fn is_private(&self, path: &Path) -> io::Result<bool>;
}

/// Files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl VaultFiles for RealFiles {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).custom_flags(flags.bits()).open(path);
        let Some(file) = found(opened)? else {
            return Ok(None);
        };
        let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let Some(entries) = found(std::fs::read_dir(path))? else {
            return Ok(Vec::new());
        };
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn is_private(&self, path: &Path) -> io::Result<bool> {
        let mode = std::fs::symlink_metadata(path)?.permissions().mode();
        Ok(mode & OTHERS == 0)
    }
}

/// Identities from outside, which replace the file.
#[derive(Debug, Clone, Default)]
pub struct ExternalIdentities {
    /// The directory of systemd's credentials.
    pub credentials: Option<PathBuf>,
    /// True if the variable [`IDENTITY_VAR`] may be used.
    pub variable: bool,
}

impl ExternalIdentities {
    #[must_use]
    pub fn to_this_process() -> Self {
        Self {
            credentials: std::env::var_os(CREDENTIALS_VAR).map(PathBuf::from),
            variable: true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityOrigin {
    Credential(PathBuf),
    Variable,
    /// The file below the System Root.
    File(PathBuf),
}

impl std::fmt::Display for IdentityOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Credential(path) | Self::File(path) => write!(f, "`{}`", path.display()),
            Self::Variable => write!(f, "`${IDENTITY_VAR}`"),
        }
    }
}

/// Identities and their source.
#[derive(Debug, Clone)]
pub struct LoadedIdentities {
    pub identities: Identities,
    pub origin: IdentityOrigin,
}

/// The secret store below one System Root.
#[derive(Debug, Clone)]
pub struct Vault {
    system: PathBuf,
    given: ExternalIdentities,
}

impl Vault {
    /// The store below this System Root. Reads nothing yet.
    #[must_use]
    pub fn new(state_root: &Path, given: ExternalIdentities) -> Self {
        Self {
            system: state_root.join("system"),
            given,
        }
    }

    /// The directory that holds the identity and the secrets' directory.
    #[must_use]
    pub fn system_dir(&self) -> &Path {
        &self.system
    }

    /// Path of the identity's file, which may not exist.
    #[must_use]
    pub fn identity_file(&self) -> PathBuf {
        self.system.join("identity.age")
    }

    /// Path of the directory of secrets, which may not exist.
    #[must_use]
    pub fn secrets_dir(&self) -> PathBuf {
        self.system.join("secrets")
    }

    /// Path of a secret's file, which may not exist.
    #[must_use]
    pub fn document_file(&self, name: &SecretName) -> PathBuf {
        self.secrets_dir().join(format!("{name}{DOCUMENT_SUFFIX}"))
    }

    /// Path of the file with the consents of projects, which may not exist.
    #[must_use]
    pub fn consents_file(&self) -> PathBuf {
        self.system.join("consents.json")
    }

    /// Reads the consents; empty if there is no file.
    ///
    /// # Errors
    ///
    /// [`VaultError`]; then nothing is allowed. A file that others can write is an error, too.
    pub fn consents(&self, files: &dyn VaultFiles) -> Result<Consents, VaultError> {
        let path = self.consents_file();
        let Some(bytes) = read_private(files, &path)? else {
            return Ok(Consents::default());
        };
        Consents::parse(&bytes).map_err(|source| VaultError::Consents { path, source })
    }

    /// Path of the file with the decisions about permissions of workspaces, which may not exist.
    #[must_use]
    pub fn permissions_file(&self) -> PathBuf {
        self.system.join("permissions.json")
    }

    /// Reads the decisions about permissions of workspaces; empty without a file.
    ///
    /// # Errors
    ///
    /// As [`Self::consents`].
    pub fn permissions(&self, files: &dyn VaultFiles) -> Result<PermissionDecisions, VaultError> {
        let path = self.permissions_file();
        let Some(bytes) = read_private(files, &path)? else {
            return Ok(PermissionDecisions::default());
        };
        let parsed = PermissionDecisions::parse(&bytes);
        parsed.map_err(|source| VaultError::Permissions { path, source })
    }

    /// Reads the identities from the first existing source: credential, variable, file. `None` if
    /// none exists.
    ///
    /// # Errors
    ///
    /// [`VaultError`]. An existing but unusable source is an error, and the next is not tried,
    /// because it may have a different identity.
    pub fn identities(
        &self,
        files: &dyn VaultFiles,
    ) -> Result<Option<LoadedIdentities>, VaultError> {
        let read = |path: &Path| {
            files
                .read(path, IDENTITY_BYTES_MAX)
                .map_err(|source| io_error(path, source))
        };
        let credential = self.given.credentials.as_ref();
        if let Some(path) = credential.map(|dir| dir.join(CREDENTIAL))
            && let Some(bytes) = read(&path)?
        {
            return identities(&bytes, IdentityOrigin::Credential(path)).map(Some);
        }
        if self.given.variable
            && let Some(text) = std::env::var_os(IDENTITY_VAR)
        {
            let text = text.into_encoded_bytes();
            return identities(&text, IdentityOrigin::Variable).map(Some);
        }
        let path = self.identity_file();
        let Some(bytes) = read(&path)? else {
            return Ok(None);
        };
        let is_private = files.is_private(&path);
        if !is_private.map_err(|source| io_error(&path, source))? {
            return Err(VaultError::Exposed { path });
        }
        identities(&bytes, IdentityOrigin::File(path)).map(Some)
    }

    /// Opens a secret; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`VaultError`].
    pub fn open(
        &self,
        files: &dyn VaultFiles,
        name: &SecretName,
        identities: &Identities,
    ) -> Result<Option<Document>, VaultError> {
        let path = self.document_file(name);
        let bytes = self.bytes(files, name)?;
        let document = bytes.map(|bytes| Document::open(&bytes, identities));
        document
            .transpose()
            .map_err(|source| VaultError::Document { path, source })
    }

    /// Unencrypted parts of a secret's file; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// [`VaultError`].
    pub fn outline(
        &self,
        files: &dyn VaultFiles,
        name: &SecretName,
    ) -> Result<Option<Outline>, VaultError> {
        let path = self.document_file(name);
        let bytes = self.bytes(files, name)?;
        let outline = bytes.map(|bytes| Outline::read(&bytes));
        outline
            .transpose()
            .map_err(|source| VaultError::Document { path, source })
    }

    fn bytes(
        &self,
        files: &dyn VaultFiles,
        name: &SecretName,
    ) -> Result<Option<Vec<u8>>, VaultError> {
        let path = self.document_file(name);
        let read = files.read(&path, SECRET_DOCUMENT_BYTES_MAX);
        read.map_err(|source| io_error(&path, source))
    }

    /// The names of all secrets, sorted. Files with other names are ignored.
    ///
    /// # Errors
    ///
    /// [`VaultError::Io`].
    pub fn names(&self, files: &dyn VaultFiles) -> Result<Vec<SecretName>, VaultError> {
        let dir = self.secrets_dir();
        let found = files.list(&dir).map_err(|source| io_error(&dir, source))?;
        let names = found.iter().filter_map(|file| {
            let name = file.to_str()?.strip_suffix(DOCUMENT_SUFFIX)?;
            SecretName::new(name).ok()
        });
        let mut names: Vec<SecretName> = names.collect();
        names.sort();
        Ok(names)
    }
}

/// Content of a file that only its owner may read and write; `None` if it does not exist.
fn read_private(files: &dyn VaultFiles, path: &Path) -> Result<Option<Vec<u8>>, VaultError> {
    let bytes = files.read(path, CONSENTS_BYTES_MAX);
    let Some(bytes) = bytes.map_err(|source| io_error(path, source))? else {
        return Ok(None);
    };
    let is_private = files.is_private(path);
    if !is_private.map_err(|source| io_error(path, source))? {
        let path = path.to_owned();
        return Err(VaultError::Exposed { path });
    }
    Ok(Some(bytes))
}

fn io_error(path: &Path, source: io::Error) -> VaultError {
    let path = path.to_owned();
    VaultError::Io { path, source }
}

fn identities(bytes: &[u8], origin: IdentityOrigin) -> Result<LoadedIdentities, VaultError> {
    match Identities::parse(bytes) {
        Ok(identities) => Ok(LoadedIdentities { identities, origin }),
        Err(source) => Err(VaultError::Identity {
            place: origin.to_string(),
            source,
        }),
    }
}
