//! A connector on another machine: its events reach the real daemon, and agents answer through it,
//! even if the link fails.

use std::net::{SocketAddr, TcpListener};

use goondan_tests::binaries::bin;
use goondan_tests::home::CONNECTOR;
use goondan_tests::processes::{self, Signal};
use goondan_tests::relay::{FAR, FarSide, NetworkLine, RELAY};
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

use crate::replies::{history, last_result, project};

/// A project whose Connection `telegram` is a relay at this address.
fn relay_home(address: SocketAddr) -> Home {
    let config = json!({
        "host": address.ip(), "port": address.port(), "connector": "telegram",
        "certificate": RELAY.certificate,
        "clients": [{"name": "dmz", "fingerprint": FAR.fingerprint()}],
    });
    let key = json!({"key": {"value": RELAY.key}});
    let connection = format!("  config: {config}\n  secrets: {key}");
    let project = project(("telegram", "send", "text"), "telegram", "", &connection);
    Home::new(&project.replace(
        "kind: Connector, name: telegram",
        "kind: Connector, name: relay",
    ))
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Waits until `gdn ps` shows this detail for the Connection.
fn wait_for_detail(home: &Home, said: &str) {
    wait_until(said, || {
        let shown = home.ps().into_iter();
        let mut shown = shown.filter(|process| process["name"] == "telegram");
        shown.any(|process| process["detail"].to_string().contains(said))
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "files that the test prepares need not be durable"
)]
fn far_side(directory: &tempfile::TempDir, line: &NetworkLine, telegram: &Telegram) -> FarSide {
    std::fs::write(directory.path().join("token"), TOKEN).unwrap();
    let work = json!({
        "connector": "telegram",
        "config": {"endpoint": telegram.endpoint(), "pollSeconds": 1, "chats": [2]},
        "secrets": {"botToken": {"file": "token"}},
    });
    let link = (line.address(), FAR);
    FarSide::start(&bin(CONNECTOR), directory.path(), link, &work)
}

/// A user sends messages during faults: nothing is lost, and nothing is sent twice.
#[test]
fn rep_1_remote_connector_loses_and_repeats_nothing_over_faults() {
    let (telegram, elsewhere) = (Telegram::start(), tempfile::tempdir().unwrap());
    let address = free_address();
    let line = NetworkLine::to(address);
    let home = relay_home(address);
    let daemon = Daemon::serving(&home);
    wait_for_detail(&home, "no client is connected");
    let far = far_side(&elsewhere, &line, &telegram);
    telegram.write(2, "say one");
    let messages = history(&home, "telegram:2", 4);
    assert!(
        last_result(&messages).contains("\"messages\":["),
        "{messages:?}"
    );
    wait_for_detail(&home, "`dmz` at 127.0.0.1: ");

    line.cut();
    wait_for_detail(&home, "no client is connected");
    telegram.write(2, "say two");
    let polls = telegram.polls();
    wait_until("the other machine goes on alone", || {
        telegram.polls() > polls
    });
    line.mend();
    history(&home, "telegram:2", 8);

    // The near end is killed, and the link ends with it.
    let near = home
        .ps()
        .into_iter()
        .find(|process| process["name"] == "telegram");
    let pid = near.unwrap()["pid"].as_u64().unwrap();
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    telegram.write(2, "say three");
    history(&home, "telegram:2", 12);

    // The daemon is killed too, and starts again.
    drop(daemon.kill());
    telegram.write(2, "say four");
    let daemon = Daemon::start(&home);
    history(&home, "telegram:2", 16);
    assert_eq!(telegram.written_to(2), ["one", "two", "three", "four"]);
    wait_until("each was taken", || telegram.kept() == 0);

    assert!(!far.log().contains(TOKEN));
    assert!(far.stop().success());
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains("PRIVATE KEY"));
}
