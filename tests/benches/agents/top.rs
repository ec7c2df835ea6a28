//! Time until `gdn top` shows something with many conversations, and its resource usage (`OBS-4`).

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::copies::copy_conversation;
use goondan_tests::home::GDN;
use goondan_tests::{Daemon, Home};
use nix::pty::{Winsize, openpty};
use serde_json::Value;

use crate::idle::{TICKS_PER_S, number, ticks};
use crate::{AgentsBenchResult, INSTANT, knob, quantile_ms};

const ROUNDS: usize = 3;
/// Keys pressed in each round.
const KEYS: usize = 40;
/// Silence after which a terminal counts as idle.
const SILENCE: Duration = Duration::from_millis(100);
/// Maximum wait for a frame.
const PATIENCE: Duration = Duration::from_secs(30);

const SIZE: Winsize = Winsize {
    ws_row: 40,
    ws_col: 120,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Starts it with many conversations, presses keys, and then leaves it idle.
pub(crate) fn frames() -> AgentsBenchResult {
    let conversations = knob("GOONDAN_BENCH_CONVERSATIONS", 10_000);
    let hold_s = knob("GOONDAN_BENCH_HOLD_S", 20);
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "Hi."]).exits(0);
    daemon.stop();
    copy_conversation(&home, conversations)?;
    let daemon = Daemon::serving(&home).measured();
    let shown = home.gdn_json(&["top"]);
    let there = shown.get("conversationsTotal").and_then(Value::as_u64);
    let there = there.ok_or("`gdn top` prints no total")?;
    println!("top, {there} conversations, 120 by 40 characters");
    for _ in 0..ROUNDS {
        round(&home, hold_s)?;
    }
    daemon.stop();
    Ok(())
}

/// `gdn top` in a separate terminal.
struct Top {
    child: Child,
    terminal: File,
    shown: Receiver<Vec<u8>>,
}

impl Top {
    fn start(home: &Home) -> Result<Self, Box<dyn Error>> {
        let pty = openpty(Some(&SIZE), None)?;
        let side = |fd: &OwnedFd| fd.try_clone().map(Stdio::from);
        let mut command = home.command(&bin(GDN), &["top", "--view", "conversations"]);
        command.env("TERM", "xterm-256color");
        command
            .stdin(side(&pty.slave)?)
            .stdout(side(&pty.slave)?)
            .stderr(side(&pty.slave)?);
        let child = command.spawn()?;
        let terminal = File::from(pty.master);
        let mut from = terminal.try_clone()?;
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            // Reading from a terminal whose other side is closed is an error.
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                let read = buffer.get(..read).unwrap_or_default();
                if sender.send(read.to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            terminal,
            shown,
        })
    }

    /// Waits until it has shown a text.
    fn shows(&self, text: &str) -> Result<(), Box<dyn Error>> {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains(text) {
            all.extend(self.shown.recv_timeout(PATIENCE)?);
        }
        Ok(())
    }

    /// Waits until the output is idle.
    fn rests(&self) -> AgentsBenchResult {
        loop {
            match self.shown.recv_timeout(SILENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(gone) => return Err(gone.into()),
            }
        }
    }

    /// Presses a key, and returns the time until output appeared.
    fn press(&mut self, key: u8) -> Result<Duration, Box<dyn Error>> {
        self.rests()?;
        let start = Instant::now();
        self.terminal.write_all(&[key])?;
        self.shown.recv_timeout(PATIENCE)?;
        Ok(start.elapsed())
    }
}

fn round(home: &Home, hold_s: usize) -> AgentsBenchResult {
    let start = Instant::now();
    let mut top = Top::start(home)?;
    top.shows("Overview")?;
    let first = start.elapsed();
    top.shows("copy0")?;
    let listed = start.elapsed();
    let mut keys = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        // Mostly down, occasionally up.
        keys.push(top.press(if number % 4 == 3 { b'k' } else { b'j' })?);
    }
    top.rests()?;
    let pid = top.child.id();
    let before = ticks(pid)?;
    thread::sleep(Duration::from_secs(hold_s as u64));
    let idle = (ticks(pid)? - before) as f64 / TICKS_PER_S / hold_s as f64;
    let memory_mb = number(&format!("/proc/{pid}/status"), "VmRSS:")? / 1_024;
    top.terminal.write_all(b"q")?;
    let status = top.child.wait()?;
    println!(
        "top: first frame {:.1} ms, the list {:.1} ms; key to frame p50 {:.1} ms, {:.1} ms at most; idle for {hold_s} \
         s: {:.2} % of a core; RSS {memory_mb} MB; {status}",
        first.as_secs_f64() * 1_000.0,
        listed.as_secs_f64() * 1_000.0,
        quantile_ms(&mut keys, 500),
        quantile_ms(&mut keys, 1_000),
        idle * 100.0,
    );
    Ok(())
}
