//! A misbehaving child process. See `goondan_tests::misbehaviour`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test program, which panics to fail a test"
)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use goondan_protocol::version::Version;
use goondan_tests::misbehaviour::{
    FLOOD_LINE_BYTES, FLOOD_LINES, FLOOD_MARK, HALF_LINE, HOARD_BYTES, Misbehaviour, SAY, TURN,
    heard_file, orders,
};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let program = PathBuf::from(std::env::args_os().next().unwrap());
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let name = program.file_name().unwrap().to_str().unwrap();
    // With arguments, it was not started as a child, but for a probe or as a supervisor of a tool.
    if std::env::args_os().len() > 1 {
        become_real(&program);
    }
    match take_order(&orders(&home, name)) {
        Some(order) => match order.strip_prefix(SAY) {
            Some(frames) => say(&program, frames, &heard_file(&home, name)),
            None => {
                let known = Misbehaviour::ALL.iter().find(|m| m.as_str() == order);
                misbehave(*known.unwrap(), &program)
            }
        },
        None => become_real(&program),
    }
}

/// Takes the first order and deletes it.
fn take_order(dir: &Path) -> Option<String> {
    loop {
        let mut waiting: Vec<PathBuf> = fs::read_dir(dir)
            .ok()?
            .map(|entry| entry.unwrap().path())
            .collect();
        waiting.sort();
        let first = waiting.first()?;
        let text = fs::read_to_string(first);
        // Another process may have taken it.
        if let Ok(text) = text
            && fs::remove_file(first).is_ok()
        {
            return Some(text);
        }
    }
}

/// The real binary is in the directory above this one's.
fn real_binary(program: &Path) -> PathBuf {
    let name = program.file_name().unwrap();
    program.ancestors().nth(2).unwrap().join(name)
}

fn become_real(program: &Path) -> ! {
    let real = real_binary(program);
    let error = Command::new(&real).args(std::env::args_os().skip(1)).exec();
    panic!("cannot run {}: {error}", real.display());
}

fn misbehave(misbehaviour: Misbehaviour, program: &Path) -> ExitCode {
    match misbehaviour {
        Misbehaviour::Flood => {
            // The real child runs in parallel, with the same socket and the same stdout.
            let mut real = Command::new(real_binary(program)).spawn().unwrap();
            flood();
            let status = real.wait().unwrap();
            return ExitCode::from(if status.success() { 0 } else { 1 });
        }
        Misbehaviour::HalfLine => {
            print!("{HALF_LINE}");
            io::stdout().flush().unwrap();
            return ExitCode::from(7);
        }
        Misbehaviour::Crash => return ExitCode::from(7),
        Misbehaviour::Silent => wait_forever(),
        Misbehaviour::Hoard => {
            let stream = greet(&hello(program));
            let hoard = vec![1_u8; HOARD_BYTES];
            drop((stream, std::hint::black_box(hoard)));
        }
        Misbehaviour::IgnoreStop => {
            ignore_signals();
            let mut stream = greet(&hello(program));
            loop {
                let message = read_frame(&mut stream);
                if message["type"] == "ping" {
                    let pong = json!({
                        "type": "pong", "from": "child", "to": "orchestrator",
                        "payload": message["payload"],
                    });
                    write_frame(&mut stream, &pong);
                }
            }
        }
        Misbehaviour::Garbage => {
            let mut stream = greet(&hello(program));
            let garbage = b"\x00\xff\xfe{{{ this is no message";
            let len = u32::try_from(garbage.len()).unwrap();
            stream.write_all(&len.to_be_bytes()).unwrap();
            stream.write_all(garbage).unwrap();
        }
        Misbehaviour::Oversized => {
            let mut stream = greet(&hello(program));
            stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
        }
        Misbehaviour::CutFrame => {
            let mut stream = greet(&hello(program));
            stream.write_all(&100_u32.to_be_bytes()).unwrap();
            stream.write_all(b"{\"type\":").unwrap();
            return ExitCode::SUCCESS;
        }
        Misbehaviour::WrongMessage => {
            let kind = if role(program) == "agent" {
                "status"
            } else {
                "conversation.load"
            };
            let payload = match kind {
                "status" => json!({"ready": true, "detail": "not for an agent"}),
                _ => json!({"offset": 0}),
            };
            let mut stream = greet(&hello(program));
            let message = json!({
                "type": kind, "from": "child", "to": "orchestrator", "payload": payload,
            });
            write_frame(&mut stream, &message);
        }
        Misbehaviour::OtherVersion => {
            let mut hello = hello(program);
            hello["version"]["goondan"] = json!("9.9.9");
            write_frame(&mut stream(), &envelope(&hello));
        }
        Misbehaviour::OtherRole => {
            let mut hello = hello(program);
            let other = if role(program) == "agent" {
                "connector"
            } else {
                "agent"
            };
            hello["role"] = json!(other);
            write_frame(&mut stream(), &envelope(&hello));
        }
    }
    wait_forever()
}

/// Greets, accepts a turn if it is an agent, and sends the ordered frames.
fn say(program: &Path, frames: &str, heard: &Path) -> ExitCode {
    let frames: Vec<Value> = serde_json::from_str(frames).unwrap();
    let mut stream = stream();
    let first = frames.first().map_or(&Value::Null, |frame| &frame["type"]);
    let is_early = first == "hello" || first == "conversation.load";
    if !is_early {
        write_frame(&mut stream, &envelope(&hello(program)));
        assert_eq!(read_frame(&mut stream)["type"], "welcome");
    }
    let is_agent = role(program) == "agent";
    let mut turn = if is_agent {
        String::new()
    } else {
        "t".to_owned()
    };
    if is_agent && !is_early {
        let load = json!({"type": "conversation.load", "id": 1, "from": "child",
            "to": "orchestrator", "payload": {"offset": 0}});
        write_frame(&mut stream, &load);
        while turn.is_empty() {
            let message = read_frame(&mut stream);
            if message["type"] == "event" {
                turn = message["payload"]["turnId"].as_str().unwrap().to_owned();
            }
        }
    }
    let mut log = fs::OpenOptions::new();
    let mut log = log.create(true).append(true).open(heard).unwrap();
    for frame in frames {
        let frame = frame.to_string().replace(TURN, &turn);
        let mut frame: Value = serde_json::from_str(&frame).unwrap();
        let mut number = |name: &str| {
            let fields = frame.as_object_mut().unwrap();
            fields.remove(name).and_then(|value| value.as_u64())
        };
        let times = number("times").unwrap_or(1);
        let fill = "x".repeat(usize::try_from(number("fillBytes").unwrap_or(0)).unwrap());
        let text = frame.to_string();
        for n in 1..=times {
            let n = n.to_string();
            let text = text.replace("\"{n}\"", &n).replace("{n}", &n);
            if write_body(&mut stream, text.replace("{fill}", &fill).as_bytes()).is_err() {
                wait_forever();
            }
        }
        if frame.get("id").is_none() && frame["type"] != "call" {
            continue;
        }
        let answer = loop {
            let message = read_frame(&mut stream);
            let is_reply = message["inReplyTo"] == frame["id"] && frame.get("id").is_some();
            if is_reply || message["type"] == "call.result" {
                break message;
            }
        };
        writeln!(log, "{answer}").unwrap();
    }
    wait_forever()
}

fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}

fn ignore_signals() {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().unwrap();
}

fn role(program: &Path) -> &'static str {
    match program.file_name().unwrap().to_str().unwrap() {
        "goondan-agent-process" => "agent",
        _ => "connector",
    }
}

fn hello(program: &Path) -> Value {
    json!({
        "version": Version::current(),
        "role": role(program),
        "pid": std::process::id(),
    })
}

fn envelope(hello: &Value) -> Value {
    json!({"type": "hello", "from": "child", "to": "orchestrator", "payload": hello})
}

/// The process's end of the socket pair, which is its standard input.
fn stream() -> UnixStream {
    UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap())
}

/// Greets, and waits for the answer: from then on the daemon relies on this process.
fn greet(hello: &Value) -> UnixStream {
    let mut stream = stream();
    write_frame(&mut stream, &envelope(hello));
    let welcome = read_frame(&mut stream);
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    stream
}

fn write_frame(stream: &mut UnixStream, message: &Value) {
    write_body(stream, &serde_json::to_vec(message).unwrap()).unwrap();
}

fn write_body(stream: &mut UnixStream, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len()).unwrap();
    stream.write_all(&len.to_be_bytes())?;
    stream.write_all(body)
}

/// Reads the next frame. Exits when the daemon disconnects, as every child must.
fn read_frame(stream: &mut UnixStream) -> Value {
    let mut len = [0; 4];
    if stream.read_exact(&mut len).is_err() {
        panic!("the orchestrator is gone");
    }
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(len)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn flood() {
    let mut out = io::stdout().lock();
    for number in 0..FLOOD_LINES {
        let mut line = format!("{FLOOD_MARK}{number} ");
        let rest = FLOOD_LINE_BYTES - line.len() - 1;
        line.extend(std::iter::repeat_n('x', rest));
        line.push('\n');
        out.write_all(line.as_bytes()).unwrap();
    }
}
