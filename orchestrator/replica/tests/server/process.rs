//! The life of the program: start, rejected input, exit.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use bytes::BytesMut;
use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_replication::log::{PutAnswer, ReadAnswer};
use goondan_replication::names::Position;
use goondan_replication::wire::{LogAnswer, LogCommand, ServerCheckVerdict};
use goondan_tests::wait::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::records::{chain, seal, workspace};
use crate::replica::{BINARY, Replica, frame, say, spawn, welcome};

/// An address without a server.
const NOBODY: &str = "postgres://u:hidden@127.0.0.1:1/d";

/// Exit code and log of a program that receives this instead of a request.
fn ends_by(said: impl FnOnce(&mut UnixStream)) -> (Option<i32>, String) {
    let (mut child, mut socket) = spawn();
    frame(&mut socket, &mut BytesMut::new()).unwrap();
    said(&mut socket);
    let mut log = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    (child.wait().unwrap().code(), log)
}

#[test]
fn invalid_message_ends_the_replica_process() {
    let greeted = |socket: &mut UnixStream| say(socket, &welcome(NOBODY).to_frame().unwrap());
    let (code, log) = ends_by(|socket| say(socket, b"nonsense"));
    assert!(code == Some(1) && log.contains("not a message"), "{log}");
    let (code, log) = ends_by(|socket| socket.write_all(b"\xff\xff\xff\xff").unwrap());
    assert!(
        code == Some(1) && log.contains("a frame of 4294967295 bytes"),
        "{log}"
    );
    let (code, log) = ends_by(|socket| {
        greeted(socket);
        say(socket, b"\0\0\0\x02{}");
    });
    assert!(code == Some(1) && log.contains("not a message"), "{log}");
    let (code, log) = ends_by(|socket| {
        let other = br#"{"version":{"protocol":99,"goondan":"9.0.0"},"server":"x"}"#;
        say(socket, other);
    });
    assert!(
        code == Some(1) && log.contains("of the same version"),
        "{log}"
    );
    let (code, log) = ends_by(|socket| {
        say(
            socket,
            &welcome("postgres://u:hidden@h/d?sslmode=require")
                .to_frame()
                .unwrap(),
        );
    });
    assert!(
        code == Some(1) && log.contains("verify-full") && !log.contains("hidden"),
        "{log}"
    );
}

#[test]
fn a_daemon_that_closes_the_socket_ends_it_well() {
    let (code, _) = ends_by(|socket| socket.shutdown(std::net::Shutdown::Both).unwrap());
    assert_eq!(code, Some(0));
    let replica = Replica::start(NOBODY);
    assert_eq!(replica.close().code(), Some(0));
}

#[test]
fn it_ends_with_its_parent_though_the_socket_is_open() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut parent = Command::new("sh")
        .args([
            "-c",
            "exec 3<&0; \"$0\" <&3 >/dev/null & echo $!; wait",
            BINARY,
        ])
        .env(IPC_FD_VAR, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(parent.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let child = Pid::from_raw(line.trim().parse().unwrap());
    let mut socket = ours.try_clone().unwrap();
    frame(&mut socket, &mut BytesMut::new()).unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        kill(child, signal).unwrap();
    }
    say(&mut socket, &welcome(NOBODY).to_frame().unwrap());
    assert!(is_running(child), "signals are its daemon's");
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until("it ends", || !is_running(child));
    drop(ours);
}

/// True if a process is running and not a zombie.
fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
}

#[test]
fn without_server_all_calls_are_unavailable_and_log_it_once() {
    let replica = Replica::start(NOBODY);
    let said = |text| move |line: &&str| line.contains(text);
    wait_until("it is said", || {
        let log = replica.log();
        log.lines().filter(said("log server unreachable")).count() == 2
    });
    let put = seal(&chain("w"), 1);
    for _ in 0..3 {
        assert_eq!(replica.put(&put), PutAnswer::Unavailable);
        let read = replica.read(&workspace("w"), Position(1));
        assert_eq!(read, ReadAnswer::Unavailable);
    }
    assert_eq!(
        replica.ask(LogCommand::Heads(vec![workspace("w")])),
        LogAnswer::Unavailable
    );
    let LogAnswer::Checked(findings) = replica.ask(LogCommand::Check) else {
        panic!("nothing was looked at");
    };
    assert_eq!(findings[0].verdict, ServerCheckVerdict::Bad);
    let log = replica.log();
    assert_eq!(
        log.lines().filter(said("log server unreachable")).count(),
        2,
        "{log}"
    );
    assert!(!log.contains("hidden"), "{log}");
}
