//! The configuration file of a relayed connector.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_connectors::{RELAYED, is_relay};
use goondan_protocol::JsonObject;
use goondan_protocol::definition::{ConnectorAssignment, ConnectorProgram};
use goondan_protocol::ids::ResourceName;
use goondan_protocol::sandbox::SandboxPolicy;
use rustls::ClientConfig;
use serde::Deserialize;

use crate::limits::RELAY_FILE_BYTES_MAX;
use crate::relay::pins::{Fingerprint, client_config};

/// Settings that require messages which are not relayed.
const NOT_RELAYED: [&str; 2] = ["approvals", "oauthCallback"];

/// The file as written. `docs/connectors/relay.md` is the reference.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RelaySettingsFile {
    /// Address of the relay: `host:port`.
    relay: String,
    /// SHA-256 of its certificate.
    fingerprint: String,
    /// File of this side's own certificate.
    certificate: PathBuf,
    key: PathBuf,
    /// The built-in connector to run here.
    connector: Option<String>,
    /// The program to run instead, relative to the file.
    program: Option<PathBuf>,
    /// Sandbox policy of the connector's programs.
    #[serde(default)]
    sandbox: SandboxPolicy,
    #[serde(default)]
    config: JsonObject,
    #[serde(default)]
    secrets: BTreeMap<String, SecretSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum SecretSource {
    Env(String),
    /// A file. A trailing newline is not part of the secret.
    File(PathBuf),
}

/// Settings of a relayed connector.
pub(crate) struct RelaySettings {
    /// `host:port`.
    pub(super) relay: String,
    pub(super) tls: Arc<ClientConfig>,
    connector: Option<ResourceName>,
    program: Option<PathBuf>,
    /// The directory of the file.
    directory: PathBuf,
    sandbox: SandboxPolicy,
    config: JsonObject,
    secrets: BTreeMap<String, String>,
}

impl RelaySettings {
    /// Reads the file and the files it names.
    ///
    /// # Errors
    ///
    /// All problems at once, described without secrets.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = read(file)?;
        let written: RelaySettingsFile = serde_json::from_str(&text)
            .map_err(|error| format!("`{}` is invalid: {error}", file.display()))?;
        let file = std::path::absolute(file).map_err(|error| error.to_string())?;
        let directory = file.parent().unwrap_or(Path::new("/")).to_owned();
        let server = Fingerprint::of_hex(&written.fingerprint)
            .ok_or("`fingerprint` must be 64 hexadecimal digits: the SHA-256 of a certificate")?;
        let certificate = read(&directory.join(&written.certificate))?;
        let key = read(&directory.join(&written.key))?;
        let tls = client_config((&certificate, &key), server)?;
        let secrets = written.secrets.into_iter().map(|(name, source)| {
            let value = source.read(&directory);
            let value = value.map_err(|why| format!("the secret `{name}`: {why}"))?;
            Ok((name, value))
        });
        let secrets: Result<_, String> = secrets.collect();
        let connector = written.connector.map(ResourceName::new).transpose();
        let settings = Self {
            relay: written.relay,
            tls: Arc::new(tls),
            connector: connector.map_err(|error| format!("`connector`: {error}"))?,
            program: written.program,
            directory,
            sandbox: written.sandbox,
            config: written.config,
            secrets: secrets?,
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let name = match (&self.connector, &self.program) {
            (Some(name), None) => name.as_str(),
            (None, Some(_)) => return Ok(()),
            (None, None) | (Some(_), Some(_)) => {
                return Err("exactly one of `connector` and `program` must be set".to_owned());
            }
        };
        let relayed = RELAYED.iter().find(|relayed| **relayed == name);
        let Some(described) = relayed.and_then(|name| goondan_connectors::find(name)) else {
            return Err(format!(
                "`connector` is `{name}`, and must be one of {}",
                RELAYED.join(", ")
            ));
        };
        if let Some(setting) = NOT_RELAYED.iter().find(|it| self.config.contains_key(**it)) {
            return Err(format!(
                "`{setting}` of `config` cannot be relayed: leave it out"
            ));
        }
        let problems = goondan_connectors::check(described, &self.config, &self.secrets);
        if problems.is_empty() {
            return Ok(());
        }
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Err(format!(
            "invalid settings of `{name}`: {}",
            problems.join("; ")
        ))
    }

    /// The assignment for the local connector, based on the one that the relay expects.
    ///
    /// # Errors
    ///
    /// If the relay expects another connector.
    pub(super) fn assignment(
        &self,
        expected: &ConnectorAssignment,
    ) -> Result<ConnectorAssignment, String> {
        let wanted = expected.connector.as_str();
        let is_wanted = match &self.connector {
            Some(own) => own.as_str() == wanted,
            // For a program, the relay expects a connector named like itself.
            None => is_relay(wanted),
        };
        if !is_wanted {
            let own = self
                .connector
                .as_ref()
                .map_or("a program", ResourceName::as_str);
            return Err(format!(
                "this is `{own}`, and connection `{}` of the daemon expects {}",
                expected.connection,
                if is_relay(wanted) {
                    "a program, without the setting `connector`"
                } else {
                    wanted
                }
            ));
        }
        let program = self.program.as_ref().map(|entry| ConnectorProgram {
            project_root: self.directory.clone(),
            entry: entry.clone(),
        });
        Ok(ConnectorAssignment {
            workspace_id: expected.workspace_id.clone(),
            connection: expected.connection.clone(),
            connector: self
                .connector
                .clone()
                .unwrap_or_else(|| expected.connector.clone()),
            program,
            project_root: Some(self.directory.clone()),
            config: self.config.clone(),
            secrets: self.secrets.clone(),
            sandbox: self.sandbox.clone(),
            egress_socket: None,
            package_cache: None,
            egress: Vec::new(),
        })
    }
}

impl SecretSource {
    fn read(self, directory: &Path) -> Result<String, String> {
        match self {
            Self::Env(name) => {
                std::env::var(&name).map_err(|_missing| format!("the variable `{name}` is not set"))
            }
            Self::File(path) => {
                let text = read(&directory.join(path))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

/// Reads a small text file. Errors never repeat its contents.
fn read(path: &Path) -> Result<String, String> {
    let told = |why: &dyn std::fmt::Display| format!("`{}` cannot be read: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| told(&error))?;
    let mut text = String::new();
    let mut limited = file.take(RELAY_FILE_BYTES_MAX + 1);
    let read = limited
        .read_to_string(&mut text)
        .map_err(|error| told(&error))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > RELAY_FILE_BYTES_MAX {
        return Err(told(&format!(
            "it has more than {RELAY_FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "files that the test prepares, and no durable state"
    )]
    fn read_with(change: impl FnOnce(&mut Value)) -> Result<RelaySettings, String> {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("hmac"), "hunter2\n").unwrap();
        let mut written = json!({
            "relay": "daemon.example.org:7443", "fingerprint": "0a".repeat(32),
            "certificate": format!("{fixtures}/localhost.pem"), "key": format!("{fixtures}/localhost.key"),
            "connector": "webhook", "config": {"port": 8080}, "secrets": {"hmac": {"file": "hmac"}},
        });
        change(&mut written);
        let file = directory.path().join("relay.json");
        std::fs::write(&file, written.to_string()).unwrap();
        RelaySettings::read(&file)
    }

    fn expected(connector: &str) -> ConnectorAssignment {
        let expected = json!({"workspaceId": "w", "connection": "hook", "connector": connector});
        serde_json::from_value(expected).unwrap()
    }

    #[test]
    fn relay_runs_only_the_connector_the_daemon_expects() {
        let settings = read_with(|_| {}).unwrap_or_else(|why| panic!("{why}"));
        let assignment = settings.assignment(&expected("webhook")).unwrap();
        assert_eq!(assignment.connection.as_str(), "hook");
        assert_eq!(assignment.secrets["hmac"], "hunter2");
        assert_eq!(assignment.config["port"], 8080);
        let why = settings.assignment(&expected("slack")).unwrap_err();
        assert!(
            why.contains("this is `webhook`") && why.contains("slack"),
            "{why}"
        );
        assert!(settings.assignment(&expected("relay")).is_err());
    }

    #[test]
    fn a_program_runs_where_the_file_is() {
        let settings = read_with(|written| {
            written.as_object_mut().unwrap().remove("connector");
            written["program"] = json!("tail.py");
        });
        let settings = settings.unwrap_or_else(|why| panic!("{why}"));
        let assignment = settings.assignment(&expected("relay")).unwrap();
        assert_eq!(assignment.program.unwrap().entry, Path::new("tail.py"));
        assert!(settings.assignment(&expected("webhook")).is_err());
    }

    #[test]
    fn invalid_relay_settings_are_reported_without_secrets() {
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 9] = [
            (
                |it| it["fingerprint"] = json!("0a"),
                "`fingerprint` must be",
            ),
            (
                |it| it["connector"] = json!("otlp"),
                "must be one of webhook",
            ),
            (|it| it["program"] = json!("a.py"), "exactly one of"),
            (
                |it| it["config"]["prot"] = json!(1),
                "unknown setting `prot`",
            ),
            (
                |it| it["config"]["oauthCallback"] = json!("/x"),
                "cannot be relayed",
            ),
            (
                |it| it["secrets"]["hmac"] = json!({"env": "GOONDAN_NOT_SET"}),
                "`GOONDAN_NOT_SET` is not set",
            ),
            (
                |it| it["secrets"]["hmac"] = json!({"file": "none"}),
                "the secret `hmac`: ",
            ),
            (|it| it["key"] = json!("hmac"), "`key` holds no private key"),
            (|it| it["surplus"] = json!(1), "unknown field `surplus`"),
        ];
        for (change, said) in changes {
            let Err(why) = read_with(change) else {
                panic!("{said}");
            };
            assert!(why.contains(said) && !why.contains("hunter2"), "{why}");
        }
    }
}
