//! Goal: certificates are loaded for TLS connections only.
//!
//! Method: the real binary as the connector of a model, with its trusted certificates in
//! `SSL_CERT_FILE`, and a provider on the loopback, with and without TLS.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_protocol::call::{CallId, CallOrder, CallOutcome, Caller};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{json, value::to_raw_value};

use crate::orchestrator::Orchestrator;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// The answer of a model at `endpoint` if only the certificates in `trusted` count.
fn ask(endpoint: &str, trusted: &Path) -> CallOutcome {
    let mut orchestrator = Orchestrator::start_in(&[("SSL_CERT_FILE", trusted)]);
    orchestrator.hello();
    orchestrator.welcome_model(&json!({
        "name": "m", "provider": "openai", "model": "big-1", "apiKey": "sk-very-secret",
        "endpoint": endpoint,
    }));
    assert!(orchestrator.status().ready);
    let params = json!({"messages": [{"role": "user", "content": "Hi."}]});
    orchestrator.call(CallOrder {
        call_id: CallId(1),
        caller: Caller {
            agent: "a".parse().unwrap(),
            instance_key: "k".parse().unwrap(),
        },
        event_id: None,
        method: "complete".to_owned(),
        params: to_raw_value(&params).unwrap(),
        deadline_ms: 60_000,
        again_since: None,
    });
    loop {
        if let ToOrchestrator::CallResult(result) = orchestrator.receive().1 {
            return result.outcome;
        }
    }
}

fn outcome_text(outcome: &CallOutcome) -> String {
    match outcome {
        CallOutcome::Ok(answer) => answer.get().to_owned(),
        CallOutcome::Error(error) => error.to_string(),
    }
}

/// A provider that answers every TLS client with hello, for the duration of the test.
fn provider_over_tls() -> String {
    let chain = vec![CertificateDer::from_pem_file(fixture("localhost.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(fixture("localhost.key")).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // A client that does not trust this server disconnects during the handshake.
            drop(answer(StreamOwned::new(connection, stream)));
        }
    });
    format!("https://{address}/v1/")
}

fn answer(stream: StreamOwned<ServerConnection, TcpStream>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut body_bytes) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; body_bytes])?;
    let body = openai_saying(&["Hello."]);
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}

#[test]
fn plain_http_needs_no_certificates() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Hello."])));
    let outcome = ask(&provider.endpoint(), Path::new("/nonexistent"));
    assert!(
        outcome_text(&outcome).contains("Hello."),
        "{}",
        outcome_text(&outcome)
    );
}

#[test]
fn server_is_trusted_by_certificates_named_in_the_variable() {
    let outcome = ask(&provider_over_tls(), &fixture("authority.pem"));
    assert!(
        outcome_text(&outcome).contains("Hello."),
        "{}",
        outcome_text(&outcome)
    );
}

#[test]
fn missing_named_certificates_are_not_replaced_by_others() {
    let outcome = ask(&provider_over_tls(), Path::new("/nonexistent"));
    let text = outcome_text(&outcome);
    assert!(text.contains("SSL_CERT_FILE"), "{text}");
}

#[test]
fn server_with_an_unknown_issuer_is_not_trusted() {
    let outcome = ask(&provider_over_tls(), &fixture("other-authority.pem"));
    let text = outcome_text(&outcome);
    assert!(text.contains("UnknownIssuer"), "{text}");
}
