//! The first bytes that a program sends to a host.

use goondan_protocol::sandbox::Host;
use rustls::server::Acceptor;

use super::target::Target;
use crate::limits::EGRESS_HELLO_BYTES_MAX;

/// The port that requires TLS.
const HTTPS_PORT: u16 = 443;

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// TLS alert that rejects a client: fatal, `access_denied`.
pub(super) const ACCESS_DENIED: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 49];

/// Verdict on the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PreambleVerdict {
    /// More bytes are needed.
    More,
    Good,
    /// The connection is denied, for this reason.
    Bad(String),
}

/// Checks the bytes that a program has sent so far. A TLS handshake must name the requested host,
/// and port 443 requires one.
pub(super) fn judge(said: &[u8], target: &Target) -> PreambleVerdict {
    match said.first() {
        None => PreambleVerdict::More,
        Some(&HANDSHAKE) => judge_handshake(said, target),
        Some(_) if target.port == HTTPS_PORT => {
            PreambleVerdict::Bad(format!("the connection to `{target}` does not use TLS"))
        }
        Some(_) => PreambleVerdict::Good,
    }
}

fn judge_handshake(said: &[u8], target: &Target) -> PreambleVerdict {
    let no_hello = || {
        PreambleVerdict::Bad(format!(
            "the connection to `{target}` starts with an invalid TLS handshake"
        ))
    };
    let (mut acceptor, mut rest) = (Acceptor::default(), said);
    while !rest.is_empty() {
        if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
            return no_hello();
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return judge_name(hello.server_name(), target);
            }
            Ok(None) => {}
            Err(_) => return no_hello(),
        }
    }
    if said.len() < EGRESS_HELLO_BYTES_MAX {
        PreambleVerdict::More
    } else {
        no_hello()
    }
}

fn judge_name(named: Option<&str>, target: &Target) -> PreambleVerdict {
    match (&target.host, named) {
        (Host::Name(name), Some(named)) if name.eq_ignore_ascii_case(named) => {
            PreambleVerdict::Good
        }
        // An address has no name to send.
        (Host::Address(_), None) => PreambleVerdict::Good,
        (_, Some(named)) => {
            PreambleVerdict::Bad(format!("TLS to `{target}` names another host, `{named}`"))
        }
        (Host::Name(_), None) => PreambleVerdict::Bad(format!("TLS to `{target}` names no host")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn target(host: &str, port: u16) -> Target {
        Target::read(host, port).unwrap()
    }

    /// The first bytes of a real client.
    fn hello(name: &'static str) -> Vec<u8> {
        crate::http::install_cryptography();
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = name.try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut said = Vec::new();
        client.write_tls(&mut said).unwrap();
        said
    }

    #[test]
    fn sec_3_tls_is_spoken_to_the_host_that_was_asked_for() {
        for (name, host) in [
            ("a.org", "a.org"),
            ("a.org", "A.ORG"),
            ("10.0.0.7", "10.0.0.7"),
        ] {
            for port in [443, 8443] {
                let judged = judge(&hello(name), &target(host, port));
                assert_eq!(judged, PreambleVerdict::Good, "{name} {host}");
            }
        }
        for (name, host) in [
            ("b.org", "a.org"),
            ("a.org", "10.0.0.7"),
            ("10.0.0.7", "a.org"),
        ] {
            for port in [443, 8443] {
                let judged = judge(&hello(name), &target(host, port));
                assert!(matches!(judged, PreambleVerdict::Bad(_)), "{name} {host}");
            }
        }
    }

    #[test]
    fn sec_3_a_beginning_is_waited_for_and_not_for_ever() {
        let said = hello("b.org");
        for count in 0..said.len() {
            let begun = said.get(..count).unwrap();
            assert_eq!(judge(begun, &target("a.org", 443)), PreambleVerdict::More);
        }
        let http = b"GET / HTTP/1.1\r\n";
        assert!(matches!(
            judge(http, &target("a.org", 443)),
            PreambleVerdict::Bad(_)
        ));
        assert_eq!(judge(http, &target("a.org", 80)), PreambleVerdict::Good);
        let mut endless = vec![HANDSHAKE, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        endless.resize(EGRESS_HELLO_BYTES_MAX + 1, 0);
        assert!(matches!(
            judge(&endless, &target("a.org", 443)),
            PreambleVerdict::Bad(_)
        ));
        let other = [HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 0];
        assert!(matches!(
            judge(&other, &target("a.org", 8443)),
            PreambleVerdict::Bad(_)
        ));
    }
}
