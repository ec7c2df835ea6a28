//! The other machine of a command (`REP-2`): `--remote`, then `GOONDAN_REMOTE`, then the saved default.

use std::path::Path;
use std::str::FromStr;

use crate::client::{InvalidRemote, Remote};
use crate::client_settings::ClientSettings;
use crate::exit::Exit;
use crate::failure::Failure;

/// Word for this machine, instead of the address of another one.
pub(crate) const LOCAL: &str = "local";

/// Environment variable for the state root, a directory of this machine.
pub(crate) const STATE_ROOT_VAR: &str = "GOONDAN_STATE_ROOT";

/// Environment variable with the address of another machine.
const REMOTE_VAR: &str = "GOONDAN_REMOTE";

/// Value of `--remote`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemoteChoice {
    ThisMachine,
    Other(Remote),
}

impl FromStr for RemoteChoice {
    type Err = InvalidRemote;

    fn from_str(text: &str) -> Result<Self, InvalidRemote> {
        match text {
            LOCAL => Ok(Self::ThisMachine),
            text => text.parse().map(Self::Other),
        }
    }
}

/// Origin of the address of another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoteSource {
    Option,
    Environment,
    /// The default that `gdn daemon remote use` saved.
    Saved,
}

impl RemoteSource {
    /// Name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Environment => "environment",
            Self::Saved => "saved",
        }
    }

    /// Addition to a message that names the address.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Option => String::new(),
            Self::Environment => format!(" (from {REMOTE_VAR})"),
            Self::Saved => " (the saved default)".to_owned(),
        }
    }
}

/// The other machine, and why it was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedRemote {
    pub(crate) remote: Remote,
    pub(crate) source: RemoteSource,
}

/// Selects the other machine of a command; none for this one.
///
/// `state_root` has the value of `--state-root` or `GOONDAN_STATE_ROOT`, which is a directory of this machine.
pub(crate) fn select(
    option: Option<RemoteChoice>,
    state_root: Option<&Path>,
) -> Result<Option<SelectedRemote>, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_by_option = state_root.is_some_and(|root| {
        !root.as_os_str().is_empty()
            && variable(STATE_ROOT_VAR).as_deref() != Some(root.as_os_str())
    });
    match option {
        Some(RemoteChoice::ThisMachine) => return Ok(None),
        Some(RemoteChoice::Other(_)) if is_by_option => {
            return Err(Failure::new(
                Exit::Usage,
                "`--state-root` is a directory of this machine, and `--remote` names another one",
                "append the directory there to the address: `gdn --remote ssh://host/DIR …`",
            ));
        }
        Some(RemoteChoice::Other(remote)) => {
            let source = RemoteSource::Option;
            return Ok(Some(SelectedRemote { remote, source }));
        }
        None if is_by_option => return Ok(None),
        None => {}
    }
    let Some(named) = variable(REMOTE_VAR) else {
        // A state root in the environment is closer than a saved default.
        let is_named = state_root.is_some_and(|root| !root.as_os_str().is_empty());
        if is_named {
            return Ok(None);
        }
        let saved = ClientSettings::read()?.remote;
        let source = RemoteSource::Saved;
        return Ok(saved.map(|remote| SelectedRemote { remote, source }));
    };
    let named = named.to_string_lossy();
    match named.parse::<RemoteChoice>() {
        Ok(RemoteChoice::ThisMachine) => Ok(None),
        Ok(RemoteChoice::Other(remote)) => Ok(Some(SelectedRemote {
            remote,
            source: RemoteSource::Environment,
        })),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!("invalid value `{named}` of {REMOTE_VAR}: {error}"),
            format!("correct it, or use this machine: `unset {REMOTE_VAR}`"),
        )),
    }
}
