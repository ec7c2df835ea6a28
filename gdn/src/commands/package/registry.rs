//! Client for package registries: selects the registry and token, and parses responses.

use std::collections::BTreeSet;
use std::io::Seek as _;
use std::path::PathBuf;

use goondan_packages::limits::{ARCHIVE_BYTES_MAX, METADATA_BYTES_MAX};
use goondan_packages::{
    Integrity, InvalidRegistry, PackageName, Packument, Registries, RegistryUrl,
};
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::ids::{SecretKey, SecretName};
use goondan_vault::RealFiles;
use reqwest::{Method, Url};
use secrecy::SecretString;
use tempfile::NamedTempFile;

use super::web::{Web, WebError, WebRequest, host_key, shown};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Maximum size of a response other than a packument, in bytes.
pub(super) const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Environment variable for the default registry of packages for which the project names none. There is no built-in
/// default, because anyone could have registered the name there.
const REGISTRY_VAR: &str = "GOONDAN_REGISTRY";

/// Environment variable with the token for that registry only.
const TOKEN_VAR: &str = "GOONDAN_REGISTRY_TOKEN";

/// Secret with the tokens of registries, by host.
const SECRET: &str = "registry";

pub(super) struct Registry<'r> {
    context: &'r Context,
    by_project: Registries,
    usual: Option<RegistryUrl>,
    /// URLs named by the user in a requirement.
    named: BTreeSet<String>,
    web: Web,
}

impl<'r> Registry<'r> {
    pub(super) fn new(context: &'r Context, by_project: Registries) -> Result<Self, Failure> {
        let said = std::env::var(REGISTRY_VAR).ok().filter(|it| !it.is_empty());
        let usual = said.map(|said| said.parse()).transpose();
        let usual = usual.map_err(|error: InvalidRegistry| {
            Failure::of(Exit::Usage, &error, format!("correct `${REGISTRY_VAR}`"))
        })?;
        Ok(Self {
            context,
            by_project,
            usual,
            named: BTreeSet::new(),
            web: Web::default(),
        })
    }

    /// Records a URL named by the user.
    pub(super) fn name(&mut self, address: &str) {
        if let Ok(address) = Url::parse(address) {
            self.named.insert(address.to_string());
        }
    }

    /// Returns the registry of a package.
    ///
    /// # Errors
    ///
    /// A failure if no registry is configured.
    pub(super) fn of(&self, name: &PackageName) -> Result<&RegistryUrl, Failure> {
        let named = self.by_project.of(name).or(self.usual.as_ref());
        named.ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!("no registry is configured for `{name}`"),
                format!(
                    "add one in goondan.yaml, in `spec` of the Package: `registries: [{{url: \"https://HOST\"}}]`; \
                     or set `${REGISTRY_VAR}`"
                ),
            )
        })
    }

    /// True if a URL has the origin of one of the registries.
    fn is_registry(&self, url: &Url) -> bool {
        let mut all = self.by_project.all().chain(&self.usual);
        all.any(|it| Url::parse(it.as_str()).is_ok_and(|it| it.origin() == url.origin()))
    }

    /// Fetches a package's versions; empty if the registry has no such package.
    pub(super) async fn packument(&self, name: &PackageName) -> Result<Packument, Failure> {
        let registry = self.of(name)?;
        let url = address(&registry.of_package(name))?;
        let mut answer = Vec::new();
        let asked = self.ask(
            Method::GET,
            url.clone(),
            None,
            METADATA_BYTES_MAX,
            &mut answer,
        );
        match asked.await {
            Ok(()) => {}
            Err(RegistryError::Web(WebError::Status { status: 404, .. })) => {
                answer = format!("{{\"name\":\"{name}\"}}").into_bytes();
            }
            Err(error) => return Err(error.into()),
        }
        let mut found = Packument::read(name, &answer, BASE_PACKAGE).map_err(|error| {
            let failure = Failure::of(
                Exit::Conflict,
                &error,
                "nothing was changed: check the registry's address",
            );
            Failure {
                message: format!("{} cannot be used: {}", shown(&url), failure.message),
                ..failure
            }
        })?;
        found.pass_over(|_, offer| {
            let archive = Url::parse(&offer.archive).ok();
            let is_own = archive.is_some_and(|it| it.origin() == url.origin());
            (!is_own).then(|| {
                let archive = crate::output::text::one_line(&offer.archive);
                format!("its archive is not on its registry, but at {archive}")
            })
        });
        Ok(found)
    }

    /// Downloads an archive and verifies its integrity.
    pub(super) async fn download(
        &self,
        archive: &str,
        integrity: Option<&Integrity>,
    ) -> Result<NamedTempFile, Failure> {
        let url = address(archive)?;
        let mut file = download_file().map_err(|error| keep(&error))?;
        self.ask(Method::GET, url.clone(), None, ARCHIVE_BYTES_MAX, &mut file)
            .await?;
        let Some(wanted) = integrity else {
            return Ok(file);
        };
        file.rewind().map_err(|error| keep(&error))?;
        let found = Integrity::of_reader(file.as_file()).map_err(|error| keep(&error))?;
        if found == *wanted {
            return Ok(file);
        }
        Err(Failure::new(
            Exit::Conflict,
            format!(
                "the archive {} does not match the registry: expected the SHA-512 {wanted}, found {found}",
                shown(&url)
            ),
            "nothing was changed: if the problem persists, ask the operator of the registry",
        ))
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        bytes_max: u64,
        answer: &mut impl std::io::Write,
    ) -> Result<(), RegistryError> {
        let is_registry = self.is_registry(&url);
        let token = if is_registry { self.token(&url)? } else { None };
        let question = WebRequest {
            follows: method == Method::GET && bytes_max == ARCHIVE_BYTES_MAX,
            is_named: is_registry || self.named.contains(url.as_str()),
            method,
            url,
            token: token.as_ref(),
            body,
            bytes_max,
        };
        self.web
            .ask(&question, answer)
            .await
            .map_err(RegistryError::Web)
    }

    /// Returns the token for a registry, if there is one: from the environment for the default registry, otherwise
    /// from the secret store.
    pub(super) fn token(&self, url: &Url) -> Result<Option<SecretString>, Failure> {
        let usual = self.usual.as_ref();
        let usual = usual.and_then(|it| Url::parse(it.as_str()).ok());
        let is_usual = usual.is_some_and(|it| it.origin() == url.origin());
        let said = std::env::var(TOKEN_VAR).ok().filter(|it| !it.is_empty());
        if let (true, Some(token)) = (is_usual, said) {
            return Ok(Some(token.into()));
        }
        let key = host_key(url).and_then(|host| SecretKey::new(&host).ok());
        let (Ok(name), Some(key)) = (SecretName::new(SECRET), key) else {
            return Ok(None);
        };
        let vault = self.context.vault();
        if !vault.document_file(&name).exists() {
            return Ok(None);
        }
        let unreadable = |error: &(dyn std::error::Error + 'static)| {
            let hint = format!("check the secret: `gdn secret list`; or set ${TOKEN_VAR}");
            Failure::of(Exit::Damaged, error, hint)
        };
        let found = vault.identities(&RealFiles);
        let Some(found) = found.map_err(|error| unreadable(&error))? else {
            return Ok(None);
        };
        let document = vault.open(&RealFiles, &name, &found.identities);
        let Some(document) = document.map_err(|error| unreadable(&error))? else {
            return Ok(None);
        };
        document
            .get(key.as_str())
            .map_err(|error| unreadable(&error))
    }
}

pub(super) enum RegistryError {
    Web(WebError),
    Other(Failure),
}

impl From<Failure> for RegistryError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<RegistryError> for Failure {
    fn from(asked: RegistryError) -> Self {
        match asked {
            RegistryError::Web(error) => error.into(),
            RegistryError::Other(failure) => failure,
        }
    }
}

/// Parses a URL for the client.
pub(super) fn address(text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|error| {
        let text = crate::output::text::one_line(text);
        Failure::of(Exit::Usage, &error, format!("invalid URL `{text}`"))
    })
}

/// Temporary file for a download, deleted on drop. It is in the user's cache directory, because a daemon that runs as
/// a service has another `/tmp`.
fn download_file() -> std::io::Result<NamedTempFile> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|dir| dir.is_absolute());
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let dir = cache.unwrap_or_else(std::env::temp_dir).join("goondan");
    std::fs::create_dir_all(&dir)?;
    tempfile::Builder::new().suffix(".tgz").tempfile_in(dir)
}

fn keep(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut failure = Failure::new(
        Exit::Internal,
        "cannot store the download",
        "check that `~/.cache` is writable and the disk is not full: `df -h ~`",
    );
    failure.causes.push(error.to_string());
    failure
}
