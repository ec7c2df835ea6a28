//! Address of a daemon: a state root of this machine, or another machine that OpenSSH reaches (`REP-2`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Start of the address of another machine.
const SCHEME: &str = "ssh://";

/// Maximum length of a name of a host or a user, in bytes.
const NAME_MAX: usize = 255;

/// Place of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// On this machine, by its state root.
    Local(PathBuf),
    /// On another machine.
    Remote(Remote),
}

impl Endpoint {
    /// The other machine, if the daemon is not on this one.
    pub fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Local(_) => None,
            Self::Remote(remote) => Some(remote),
        }
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        endpoint.clone()
    }
}

impl From<&Path> for Endpoint {
    fn from(state_root: &Path) -> Self {
        Self::Local(state_root.to_owned())
    }
}

impl From<&PathBuf> for Endpoint {
    fn from(state_root: &PathBuf) -> Self {
        Self::Local(state_root.clone())
    }
}

/// Another machine: `ssh://[user@]host[:port][/state-root]`.
///
/// The host can be an alias of `~/.ssh/config`. No part can be an option of `ssh` or contain a character with a
/// meaning in a shell, because the address may come from a file or a web page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    state_root: Option<String>,
}

/// Reason why an address is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected ssh://[user@]host[:port][/state-root]")]
pub struct InvalidRemote(&'static str);

impl Remote {
    /// Arguments of `ssh` that select the machine.
    pub fn destination(&self) -> Vec<String> {
        let mut args = Vec::new();
        if let Some(port) = self.port {
            args.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            args.extend(["-l".to_owned(), user.clone()]);
        }
        args.extend(["--".to_owned(), self.host.clone()]);
        args
    }

    /// The same as a person types it, for messages.
    pub fn shell_command(&self, command: &str) -> String {
        let port = self
            .port
            .map_or_else(String::new, |port| format!("-p {port} "));
        let user = self
            .user
            .as_ref()
            .map_or_else(String::new, |user| format!("{user}@"));
        let command = match command {
            "" => String::new(),
            command => format!(" {command}"),
        };
        format!("ssh {port}{user}{}{command}", self.host)
    }

    /// The command line of a `gdn` command on that machine, for its shell. It needs no quotes.
    pub fn gdn(&self, command: &str) -> String {
        match &self.state_root {
            Some(dir) => format!("gdn --state-root {dir} {command}"),
            None => format!("gdn {command}"),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.state_root.as_deref().unwrap_or_default())
    }
}

impl FromStr for Remote {
    type Err = InvalidRemote;

    fn from_str(text: &str) -> Result<Self, InvalidRemote> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(InvalidRemote("not an address of OpenSSH"));
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user_of(user)?), place),
            None => (None, authority),
        };
        let (host, port) = host_and_port(place)?;
        Ok(Self {
            user,
            host,
            port,
            state_root: state_root_of(path)?,
        })
    }
}

fn user_of(user: &str) -> Result<String, InvalidRemote> {
    if user.contains(':') {
        return Err(InvalidRemote("the address contains a password"));
    }
    named(user, "._+-", "the user is not a valid name")
}

fn host_and_port(place: &str) -> Result<(String, Option<u16>), InvalidRemote> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let parts = rest.split_once(']');
            let (host, after) = parts.ok_or(InvalidRemote("the host has no `]`"))?;
            let host = named(host, ":.%", "the host is not an IPv6 address")?;
            let port = match after {
                "" => None,
                after => after
                    .strip_prefix(':')
                    .map(Some)
                    .ok_or(InvalidRemote("the port is not valid"))?,
            };
            (host, port)
        }
        None => {
            let (host, port) = match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            };
            (named(host, "._-", "the host is not a valid name")?, port)
        }
    };
    let port = port.map(|port| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| is_number && *port != 0);
        port.ok_or(InvalidRemote("the port is not a number from 1 to 65535"))
    });
    Ok((host, port.transpose()?))
}

/// Checks a name: letters, digits and `others`. It cannot begin like an option.
fn named(name: &str, others: &str, problem: &'static str) -> Result<String, InvalidRemote> {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || others.contains(char);
    let is_name = !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with('-')
        && name.chars().all(is_allowed);
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(InvalidRemote(problem)),
    }
}

fn state_root_of(path: &str) -> Result<Option<String>, InvalidRemote> {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || "/._+-".contains(char);
    match path.trim_end_matches('/') {
        "" => Ok(None),
        path if path.chars().all(is_allowed) => Ok(Some(path.to_owned())),
        _ => Err(InvalidRemote(
            "the state root has characters other than letters, digits and /._+-",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rep_2_remote_is_an_address_of_openssh() {
        let remote: Remote = "ssh://ada@desk.example:2222/var/lib/goondan"
            .parse()
            .unwrap();
        assert_eq!(
            remote.destination(),
            ["-p", "2222", "-l", "ada", "--", "desk.example"]
        );
        let command = remote.gdn("daemon dial-stdio");
        assert_eq!(
            command,
            "gdn --state-root /var/lib/goondan daemon dial-stdio"
        );
        assert_eq!(
            remote.shell_command("true"),
            "ssh -p 2222 ada@desk.example true"
        );
        for (text, shown) in [
            ("ssh://desk", "ssh://desk"),
            ("ssh://desk/", "ssh://desk"),
            ("ssh://ada@desk", "ssh://ada@desk"),
            ("ssh://[fe80::1%eth0]:22", "ssh://[fe80::1%eth0]:22"),
            ("ssh://[::1]", "ssh://[::1]"),
            ("ssh://192.0.2.7:22/srv/", "ssh://192.0.2.7:22/srv"),
        ] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), shown);
        }
        assert_eq!(
            "ssh://desk".parse::<Remote>().unwrap().destination(),
            ["--", "desk"]
        );
    }

    #[test]
    fn rep_2_hostile_remote_is_refused() {
        for text in [
            "",
            "desk",
            "http://desk",
            "ssh://",
            "ssh:///srv",
            "ssh://-oProxyCommand=touch${IFS}x",
            "ssh://-desk",
            "ssh://ada@-desk",
            "ssh://-lroot@desk",
            "ssh://@desk",
            "ssh://ada:secret@desk",
            "ssh://ada@desk@other",
            "ssh://desk:0",
            "ssh://desk:65536",
            "ssh://desk:+22",
            "ssh://desk:",
            "ssh://desk:22:22",
            "ssh://[::1",
            "ssh://[::1]22",
            "ssh://[-oProxyCommand=x]",
            "ssh://de sk",
            "ssh://desk\n",
            "ssh://de$(x)sk",
            "ssh://desk`x`",
            "ssh://desk;x",
            "ssh://désk",
            "ssh://desk/srv;x",
            "ssh://desk/srv x",
            "ssh://desk/$HOME",
            "ssh://desk/~/x",
            "ssh://desk/srv\0",
        ] {
            assert!(text.parse::<Remote>().is_err(), "{text}");
        }
        let long = format!("ssh://{}", "a".repeat(NAME_MAX + 1));
        assert!(long.parse::<Remote>().is_err());
    }
}
