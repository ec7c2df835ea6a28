//! Goal: the real binary accepts the requests of services by their presets.
//!
//! Method: signed requests over HTTP. For Amazon SNS, a proxy that leads to this test instead of
//! Amazon's host, with a certificate that only this test trusts.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use goondan_protocol::version::Version;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::http::{Client, post, request};
use crate::orchestrator::{Orchestrator, listening_address};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn conn_3_twilio_message_gets_an_empty_answer() {
    // The example of Twilio's libraries.
    let config = json!({"signature": {"preset": "twilio", "url": "https://mycompany.com/myapp.php"},
        "keyField": "From"});
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&config, &json!({"hmac": "12345"}));
    let body = b"Digits=1234&CallSid=CA1234567890ABCDE&Caller=%2B14158675309\
                 &From=%2B14158675309&To=%2B18005551212";
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-twilio-signature", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        ("i-twilio-idempotency-token", "token-1"),
    ];
    let mut client = Client::sending(address, &request("POST", "/?foo=1&bar=2", &headers, body));
    let pending = orchestrator.event();
    assert_eq!(pending.event.id.as_ref().unwrap().as_str(), "token-1");
    assert_eq!(
        pending.event.instance_key.as_ref().unwrap().as_str(),
        "+14158675309"
    );
    assert_eq!(pending.event.properties["Digits"], "1234");
    orchestrator.accept(&pending, "token-1", false);
    assert_eq!(client.response().status, 204);

    let mut other = Client::sending(address, &request("POST", "/?foo=1&bar=3", &headers, body));
    let response = other.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (401, "not_signed")
    );
    orchestrator.ping();
}

#[test]
fn conn_3_basic_password_is_demanded() {
    let config = json!({"signature": {"preset": "basic"}});
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&config, &json!({"hmac": "Aladdin:open sesame"}));
    for headers in [
        &[][..],
        &[("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2Ft")],
    ] {
        let mut client = Client::sending(address, &post(headers, b"hi"));
        let response = client.response();
        assert_eq!(response.status, 401);
        assert_eq!(
            response.header("www-authenticate"),
            Some("Basic realm=\"goondan\"")
        );
    }
    let right = [("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")];
    let mut client = Client::sending(address, &post(&right, b"hi"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);
}

#[test]
fn conn_3_number_of_headers_is_limited_with_an_answer() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let max = goondan_connector_process::limits::HEADERS_MAX;
    let names: Vec<String> = (0..=max).map(|n| format!("x-h{n}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    // `host` and `content-length` count, too.
    let most = headers.get(..max - 2).unwrap();
    let mut client = Client::sending(address, &post(most, b"hi"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);

    let mut client = Client::sending(address, &post(&headers, b"hi"));
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (431, "too_many_headers")
    );
    let message = response.json()["error"]["message"].clone();
    assert!(
        message.as_str().unwrap().contains(&max.to_string()),
        "{message}"
    );
    orchestrator.ping();
}

#[test]
fn conn_3_unknown_compression_is_named() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut client = Client::sending(address, &post(&[("content-encoding", "br")], b"hi"));
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (415, "unknown_encoding")
    );
    orchestrator.ping();
}

#[test]
fn conn_3_webhook_with_a_malformed_secret_does_not_start() {
    let config = json!({"signature": {"preset": "svix"}});
    let mut orchestrator =
        Orchestrator::start_as("webhook", &config, &json!({"hmac": "sword fish"}));
    let status = orchestrator.status();
    assert!(!status.ready);
    assert!(
        status.detail.contains("`hmac` must be base64"),
        "{}",
        status.detail
    );
    assert!(!status.detail.contains("sword"), "{}", status.detail);
}

/// Amazon SNS behind a proxy: serves its certificate, and confirms subscriptions.
struct Amazon {
    proxy: String,
    /// The target of each request.
    requests: Receiver<String>,
}

impl Amazon {
    fn start() -> Self {
        let chain = vec![CertificateDer::from_pem_file(fixture("sns-server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(fixture("sns-server.key")).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, sender) = (Arc::clone(&config), sender.clone());
                std::thread::spawn(move || serve(stream, config, &sender));
            }
        });
        Self { proxy, requests }
    }
}

/// Reads the head of a request, and returns its target.
fn target(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(first.split(' ').nth(1).unwrap_or_default().to_owned())
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    sender: &Sender<String>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let host = target(&mut reader)?;
    assert_eq!(host, "sns.eu-west-1.amazonaws.com:443");
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let connection = ServerConnection::new(config).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let target = target(&mut reader)?;
        sender.send(target.clone()).unwrap();
        let body = if target.ends_with(".pem") {
            std::fs::read_to_string(fixture("sns.pem"))?
        } else {
            "<ConfirmSubscriptionResponse/>".to_owned()
        };
        let len = body.len();
        let stream = reader.get_mut();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{body}"
        )?;
        stream.flush()?;
    }
}

#[test]
fn conn_3_sns_subscription_is_confirmed_and_its_messages_are_events() {
    let messages = std::fs::read_to_string(fixture("sns.json")).unwrap();
    let messages: Vec<Value> = serde_json::from_str(&messages).unwrap();
    let [first, second, confirmation] = messages.try_into().unwrap();

    let amazon = Amazon::start();
    let proxy: &OsStr = amazon.proxy.as_ref();
    let authority = fixture("sns-authority.pem");
    let mut orchestrator = Orchestrator::start_in(&[
        ("SSL_CERT_FILE", authority.as_path()),
        ("HTTPS_PROXY", Path::new(proxy)),
        ("https_proxy", Path::new(proxy)),
    ]);
    assert_eq!(orchestrator.hello().version, Version::current());
    let topics = [first["TopicArn"].clone()];
    let config = json!({"signature": {"preset": "sns", "topics": topics}});
    orchestrator.welcome("webhook", &config, &json!({}));
    let address = listening_address(&orchestrator.status());
    let send = |message: &Value| {
        let headers = [
            ("content-type", "text/plain; charset=UTF-8"),
            ("x-amz-sns-message-type", message["Type"].as_str().unwrap()),
        ];
        Client::sending(address, &post(&headers, message.to_string().as_bytes()))
    };

    let response = send(&confirmation).response();
    assert_eq!(
        (response.status, response.json()),
        (200, json!({"confirmed": true}))
    );
    let requested: Vec<String> = amazon.requests.try_iter().collect();
    let path = "/SimpleNotificationService-01.pem";
    assert_eq!(requested.len(), 2, "{requested:?}");
    assert_eq!(requested[0], path);
    assert!(
        requested[1].contains("ConfirmSubscription"),
        "{requested:?}"
    );

    for message in [&first, &second] {
        let mut client = send(message);
        let pending = orchestrator.event();
        let event = &pending.event;
        assert_eq!(json!(event.id), message["MessageId"]);
        assert_eq!(json!(event.input), message["Message"]);
        assert_eq!(event.properties["eventType"], "Notification");
        orchestrator.accept(&pending, "e", false);
        assert_eq!(client.response().status, 200);
    }
    for (field, value) in [
        ("Message", "Order 8 was paid."),
        ("TopicArn", "arn:aws:sns:eu-west-1:666666666666:mine"),
        (
            "SigningCertURL",
            "https://sns.evil.com/SimpleNotificationService-01.pem",
        ),
    ] {
        for mut altered in [first.clone(), confirmation.clone()] {
            altered[field] = json!(value);
            let response = send(&altered).response();
            assert_eq!(
                (response.status, response.error_code().as_str()),
                (401, "not_signed")
            );
        }
    }
    orchestrator.ping();
    // The certificate was requested once, and no other address at all.
    let requested: Vec<String> = amazon.requests.try_iter().collect();
    assert_eq!(requested, [""; 0]);
}
