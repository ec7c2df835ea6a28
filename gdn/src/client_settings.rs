//! Settings of this client: `client.json` in the user's configuration directory.
//!
//! They are not in the state root, which only the daemon writes.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client::Remote;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text::shell_quoted;

const FILE: &str = "client.json";

/// Maximum size of the file, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// Addresses of other machines.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// The default machine; `None` for this machine.
    pub(crate) remote: Option<Remote>,
    /// All saved addresses, in the order of their first use.
    pub(crate) remotes: Vec<Remote>,
}

/// Content of the file. An unknown field is an error, because this version would remove it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(default)]
    remotes: Vec<String>,
}

impl ClientSettings {
    /// Reads the settings. Without a file, they are empty.
    pub(crate) fn read() -> Result<Self, Failure> {
        match path() {
            Some(path) => Self::read_from(&path),
            None => Ok(Self::default()),
        }
    }

    fn read_from(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unreadable(path, &error)),
        };
        if text.len() > BYTES_MAX {
            let error = std::io::Error::other(format!("more than {BYTES_MAX} bytes"));
            return Err(unreadable(path, &error));
        }
        let file: SettingsFile =
            serde_json::from_str(&text).map_err(|error| unreadable(path, &error))?;
        let parsed = |text: String| {
            text.parse::<Remote>()
                .map_err(|error| unreadable(path, &error))
        };
        Ok(Self {
            remote: file.remote.map(parsed).transpose()?,
            remotes: file
                .remotes
                .into_iter()
                .map(parsed)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Writes the settings atomically.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let path = path().ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "no home directory for the settings of this client",
                "set XDG_CONFIG_HOME to a directory",
            )
        })?;
        self.write_to(&path).map_err(|error| {
            let dir = path.parent().unwrap_or(&path);
            Failure::new(
                Exit::Internal,
                format!("cannot write {}", path.display()),
                format!(
                    "check the permissions and the space: `ls -ld {}`",
                    quoted(dir)
                ),
            )
            .caused_by(Some(&error))
        })
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let file = SettingsFile {
            remote: self.remote.as_ref().map(ToString::to_string),
            remotes: self.remotes.iter().map(ToString::to_string).collect(),
        };
        let text = serde_json::to_string_pretty(&file)? + "\n";
        let dir = path.parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let mut new = tempfile::NamedTempFile::new_in(dir)?;
        new.write_all(text.as_bytes())?;
        new.as_file().sync_all()?;
        new.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Saves an address and makes it the default; `None` makes this machine the default.
    pub(crate) fn select(&mut self, remote: Option<Remote>) {
        if let Some(remote) = &remote
            && !self.remotes.contains(remote)
        {
            self.remotes.push(remote.clone());
        }
        self.remote = remote;
    }

    /// Removes an address. False if it is not saved.
    pub(crate) fn remove(&mut self, remote: &Remote) -> bool {
        let before = self.remotes.len();
        self.remotes.retain(|saved| saved != remote);
        if self.remote.as_ref() == Some(remote) {
            self.remote = None;
        }
        self.remotes.len() < before
    }
}

/// Path of the file; `None` without a home directory.
fn path() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || std::env::home_dir().filter(|home| home.is_absolute());
    let dir = named
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(home()?.join(".config")))?;
    Some(dir.join("goondan").join(FILE))
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shell_quoted(&text).unwrap_or_else(|| text.into_owned())
}

fn unreadable(path: &Path, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(
        Exit::Damaged,
        format!(
            "cannot read the settings of this client, {}",
            path.display()
        ),
        format!("correct or remove it: `rm {}`", quoted(path)),
    )
    .caused_by(Some(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rep_2_settings_of_the_client_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/client.json");
        assert_eq!(
            ClientSettings::read_from(&path).unwrap(),
            ClientSettings::default()
        );
        let remote = |text: &str| text.parse::<Remote>().unwrap();
        let mut settings = ClientSettings::default();
        settings.select(Some(remote("ssh://a")));
        settings.select(Some(remote("ssh://b")));
        settings.select(Some(remote("ssh://a")));
        settings.write_to(&path).unwrap();
        let mut read = ClientSettings::read_from(&path).unwrap();
        assert_eq!(read, settings);
        assert_eq!(read.remotes, [remote("ssh://a"), remote("ssh://b")]);
        assert!(!read.remove(&remote("ssh://c")));
        assert!(read.remove(&remote("ssh://a")));
        assert_eq!((read.remote.clone(), read.remotes.len()), (None, 1));
        read.write_to(&path).unwrap();
        assert_eq!(ClientSettings::read_from(&path).unwrap(), read);
    }

    #[test]
    fn rep_2_hostile_settings_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in [
            "",
            "[[]]",
            "{\"other\": 1}",
            "{\"remote\": \"ssh://-oProxyCommand=x\"}",
            "{\"remotes\": [\"local\"]}",
        ] {
            tempfile::NamedTempFile::new_in(dir.path())
                .and_then(|mut file| {
                    file.write_all(text.as_bytes())?;
                    file.persist(&path).map_err(|error| error.error)
                })
                .unwrap();
            let failure = ClientSettings::read_from(&path).unwrap_err();
            assert_eq!(failure.exit, Exit::Damaged, "{text}");
        }
    }
}
