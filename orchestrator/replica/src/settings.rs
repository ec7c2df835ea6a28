//! Parses and validates the server's URL.
//!
//! The URL has the standard form of PostgreSQL:
//! `postgres://user:password@host:port,host:port/database?option=value`. Errors repeat nothing of
//! it except option names, because an unreadable part may be the password.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use goondan_replication::names::NodeId;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};

use crate::limits::{
    CONNECT_DEADLINE_MS, KEEPALIVE_IDLE_MS, KEEPALIVE_INTERVAL_MS, KEEPALIVE_RETRIES,
    UNACKNOWLEDGED_MS,
};
use crate::tls::Tls;

/// Reason that a URL is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsFault {
    /// Not a URL of a PostgreSQL server.
    #[error(
        "expected the form `postgres://user:password@host:port/database`; in a user, password or \
         path, write characters such as `@`, `/` and `?` as `%40`, `%2F` and `%3F`"
    )]
    NotAUrl,
    #[error("unknown option `{0}`")]
    Option(&'static str),
    #[error("it has no host; for a socket in a directory, write `?host=/run/postgresql`")]
    NoHost,
    /// A TLS mode without certificate verification.
    #[error(
        "`sslmode` must be `verify-full` or `disable`: the modes between them do not verify the \
         server's identity"
    )]
    SslMode,
    /// The trusted certificates cannot be read.
    #[error(
        "failed to load the trusted certificates: `sslrootcert` must be a PEM file; without it, \
         the system's certificates are used"
    )]
    Certificates,
    /// `sslmode` is missing for a connection over the network.
    #[error(
        "a server on another machine needs `sslmode` in its URL: `verify-full`, or `disable` if \
         the network is private"
    )]
    NoSslMode,
    /// A read-only server is requested.
    #[error("`target_session_attrs` must be `read-write` because the log is written")]
    ReadOnly,
}

/// Options of other clients that would be silently ignored here.
const NOT_SUPPORTED: [&str; 26] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "tcp_user_timeout",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "passfile",
    "service",
    "servicefile",
    "gssencmode",
    "krbsrvname",
    "require_auth",
    "hostaddr",
    "load_balance_hosts",
    "requirepeer",
    "client_encoding",
    "replication",
];

/// Address of the server and connection settings.
#[derive(Clone)]
pub(crate) struct PostgresSettings {
    /// One for each host, in the order of the URL.
    hosts: Vec<HostSettings>,
}

/// The settings for the next connection. They can change at runtime, because a password can be
/// rotated.
#[derive(Clone)]
pub(crate) struct CurrentSettings(Arc<Mutex<Arc<PostgresSettings>>>);

impl CurrentSettings {
    pub(crate) fn new(settings: PostgresSettings) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(settings))))
    }

    pub(crate) fn get(&self) -> Arc<PostgresSettings> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Replaces the settings for later connections.
    pub(crate) fn replace(&self, settings: PostgresSettings) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

#[derive(Clone)]
pub(crate) struct HostSettings {
    /// The host and its port, for display.
    pub(crate) name: String,
    pub(crate) config: Config,
    /// TLS settings; `None` for a local socket or if the URL disables TLS.
    pub(crate) tls: Option<Tls>,
}

impl PostgresSettings {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`SettingsFault`] if it is rejected.
    pub(crate) fn read(url: &str, node: &NodeId) -> Result<Self, SettingsFault> {
        let is_one = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        if !is_one {
            return Err(SettingsFault::NotAUrl);
        }
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        let asked = UrlOptions::of(options)?;
        let read = format!("{place}?{}", understood(options)).parse::<Config>();
        // The library's error may quote the unreadable part.
        let config = read.map_err(|_quotes_it| SettingsFault::NotAUrl)?;
        let is_near = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(is_loopback),
        };
        let tls = match asked.ssl_mode {
            Some("disable") => None,
            Some("verify-full") => {
                let tls = Tls::trusting(asked.root_certificates);
                Some(tls.ok_or(SettingsFault::Certificates)?)
            }
            Some(_) => return Err(SettingsFault::SslMode),
            None if config.get_hosts().iter().all(is_near) => None,
            None => return Err(SettingsFault::NoSslMode),
        };
        Self::of(&config, node, tls.as_ref())
    }

    fn of(config: &Config, node: &NodeId, tls: Option<&Tls>) -> Result<Self, SettingsFault> {
        let (hosts, ports) = (config.get_hosts(), config.get_ports());
        if hosts.is_empty() {
            return Err(SettingsFault::NoHost);
        }
        if ports.len() > 1 && ports.len() != hosts.len() {
            return Err(SettingsFault::NotAUrl);
        }
        let with_port = hosts.iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            HostSettings::of(config, host, port, node, tls)
        });
        Ok(Self {
            hosts: with_port.collect(),
        })
    }

    /// The hosts, in connection order.
    pub(crate) fn hosts(&self) -> &[HostSettings] {
        &self.hosts
    }
}

impl HostSettings {
    fn of(from: &Config, host: &Host, port: u16, node: &NodeId, tls: Option<&Tls>) -> Self {
        // A local socket has no name for a certificate.
        let tls = tls.filter(|_| matches!(host, Host::Tcp(_))).cloned();
        let ssl_mode = match tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        };
        let mut config = Config::new();
        match host {
            Host::Tcp(name) => config.host(name),
            Host::Unix(path) => config.host_path(path),
        };
        config
            .port(port)
            .application_name(format!("goondan-replica {node}"))
            .ssl_mode(ssl_mode)
            .channel_binding(ChannelBinding::Disable)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(Duration::from_millis(CONNECT_DEADLINE_MS))
            .keepalives_idle(Duration::from_millis(KEEPALIVE_IDLE_MS))
            .keepalives_interval(Duration::from_millis(KEEPALIVE_INTERVAL_MS))
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(Duration::from_millis(UNACKNOWLEDGED_MS));
        if let Some(user) = from.get_user() {
            config.user(user);
        }
        if let Some(password) = from.get_password() {
            config.password(password);
        }
        if let Some(database) = from.get_dbname() {
            config.dbname(database);
        }
        if let Some(options) = from.get_options() {
            config.options(options);
        }
        let name = match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => Path::display(path).to_string(),
        };
        Self { name, config, tls }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.hosts.iter().map(|host| &host.name))
            .finish()
    }
}

fn is_loopback(address: std::net::IpAddr) -> bool {
    address.is_loopback()
}

/// Converts the options for the library, which treats a list of hosts as one name.
fn understood(options: &str) -> String {
    let mut kept = Vec::new();
    for option in options.split('&') {
        match option.strip_prefix("host=") {
            Some(hosts) => kept.extend(hosts.split(',').map(|host| format!("host={host}"))),
            None if option.starts_with("sslmode=") || option.starts_with("sslrootcert=") => {}
            None => kept.push(option.to_owned()),
        }
    }
    kept.join("&")
}

#[derive(Default)]
struct UrlOptions<'u> {
    ssl_mode: Option<&'u str>,
    root_certificates: Option<&'u str>,
}

impl<'u> UrlOptions<'u> {
    fn of(options: &'u str) -> Result<Self, SettingsFault> {
        let mut asked = Self::default();
        for option in options.split('&') {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "sslmode" => asked.ssl_mode = Some(value),
                "sslrootcert" if value != "system" => asked.root_certificates = Some(value),
                "target_session_attrs" if value != "read-write" => {
                    return Err(SettingsFault::ReadOnly);
                }
                _ => {}
            }
            if let Some(known) = NOT_SUPPORTED.iter().find(|known| **known == name) {
                return Err(SettingsFault::Option(known));
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<PostgresSettings, SettingsFault> {
        PostgresSettings::read(url, &NodeId::new("a").unwrap())
    }

    #[test]
    fn a_url_names_its_hosts_in_order() {
        let settings = read("postgres://u:p@h1:1,h2:2/d?sslmode=disable").unwrap();
        let names: Vec<_> = settings.hosts().iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["h1:1", "h2:2"]);
        let config = &settings.hosts()[1].config;
        assert_eq!(config.get_password(), Some(&b"p"[..]));
        assert_eq!(config.get_dbname(), Some("d"));
        assert_eq!(config.get_application_name(), Some("goondan-replica a"));
        assert_eq!(
            config.get_target_session_attrs(),
            TargetSessionAttrs::ReadWrite
        );
        let settings = read("postgresql:///d?host=/run/postgresql&user=u").unwrap();
        assert_eq!(settings.hosts()[0].name, "/run/postgresql");
        let settings = read("postgresql:///d?host=/run/a,/run/b&user=u").unwrap();
        assert_eq!(settings.hosts()[1].name, "/run/b");
        assert!(read("postgres://u@127.0.0.1/d").is_ok(), "nobody listens");
    }

    #[test]
    fn unsupported_database_settings_are_reported() {
        for (url, fault) in [
            ("postgres://u@h/d", SettingsFault::NoSslMode),
            ("postgres://u@h/d?sslmode=prefer", SettingsFault::SslMode),
            ("postgres://u@h/d?sslmode=require", SettingsFault::SslMode),
            (
                "postgres://u@h/d?sslmode=verify-full&sslrootcert=/nowhere",
                SettingsFault::Certificates,
            ),
            (
                "postgres://u@h/d?sslmode=verify-full&sslrootcert=Cargo.toml",
                SettingsFault::Certificates,
            ),
            (
                "postgres://u@h/d?sslmode=disable&sslkey=/x",
                SettingsFault::Option("sslkey"),
            ),
            (
                "postgres://u@h/d?sslmode=disable&target_session_attrs=any",
                SettingsFault::ReadOnly,
            ),
            ("postgres:///d", SettingsFault::NoHost),
            ("host=h user=u", SettingsFault::NotAUrl),
            (
                "postgres://u@h:99999/d?sslmode=disable",
                SettingsFault::NotAUrl,
            ),
        ] {
            assert_eq!(read(url).unwrap_err(), fault, "{url}");
        }
    }

    #[test]
    fn password_is_never_shown() {
        for url in [
            "postgres://u:hidden?x@h/d",
            "postgres://u:hidden@h:port/d?sslmode=disable",
            "postgres://u:hidden/x@h/d",
            "mysql://u:hidden@h/d",
        ] {
            let fault = read(url).unwrap_err();
            assert!(!format!("{fault} {fault:?}").contains("hidden"), "{fault}");
        }
        let settings = read("postgres://u:hidden@h/d?sslmode=disable").unwrap();
        assert!(!format!("{settings:?}").contains("hidden"));
    }
}
