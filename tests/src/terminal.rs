//! A person's terminal: a program that runs on one, its output, and the input.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::wait::{PATIENCE, wait_for, within};

/// A program on a separate terminal.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    person: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts a command on a terminal of that many columns, which is its stdin, stdout and stderr.
    #[must_use]
    pub fn start(mut command: Command, columns: u16) -> Self {
        // No other process may inherit it, or its end would go unnoticed.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname_r(&master).unwrap();
        let program = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(name)
            .unwrap();
        let side = || Stdio::from(program.try_clone().unwrap());
        let sized = Command::new("stty")
            .args(["cols", &columns.to_string(), "rows", "24"])
            .stdin(side())
            .status();
        assert!(sized.unwrap().success());
        command.stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        drop((command, program));
        let person = File::from(OwnedFd::from(master));
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, seen) = (person.try_clone().unwrap(), Arc::clone(&shown));
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            // Fails once no process has the other side open.
            while let Ok(length @ 1..) = screen.read(&mut part) {
                seen.lock().unwrap().extend_from_slice(&part[..length]);
            }
        });
        Self {
            child,
            person,
            shown,
            reader: Some(reader),
        }
    }

    /// All output so far, with newlines as line ends.
    #[must_use]
    pub fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap();
        String::from_utf8_lossy(&shown).replace("\r\n", "\n")
    }

    /// Waits until a text is shown.
    pub fn wait_for(&self, text: &str) {
        let is_shown = within(PATIENCE, || self.shown().contains(text).then_some(()));
        assert!(
            is_shown.is_some(),
            "{text:?} was not shown within {} s, but:\n{}",
            PATIENCE.as_secs(),
            self.shown()
        );
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.person, "{line}").unwrap();
    }

    /// Types keys without a newline, such as Ctrl-C.
    pub fn press(&mut self, keys: &[u8]) {
        self.person.write_all(keys).unwrap();
    }

    /// The program's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has exited; returns its exit code and all output. Its children must
    /// not keep the terminal open.
    pub fn ends(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status.code(), self.shown())
    }
}

/// Set in a separate process that runs one test on a terminal, which may be left in a bad state.
const ALONE: &str = "GOONDAN_TEST_ALONE_ON_TERMINAL";

/// Runs the test of this name, with its modules, on a separate terminal, where it does something
/// that ends its process, and checks that the terminal edits and echoes lines afterwards. Returns
/// all output.
///
/// The test calls this first: in the other process it returns none, and the test continues to the
/// action that ends it.
#[must_use]
pub fn given_back_by(test: &str) -> Option<String> {
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command.env(ALONE, "1").env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(command, 80);
    let mut places_told = 0;
    let ended = wait_for("it ends", || {
        // Report the cursor position, as real terminals do.
        if terminal.shown().matches("\x1b[6n").count() > places_told {
            terminal.press(b"\x1b[1;1R");
            places_told += 1;
        }
        terminal.child.try_wait().unwrap()
    });
    terminal.reader.take().unwrap().join().unwrap();
    let shown = terminal.shown();
    assert!(!ended.success(), "it ended well:\n{shown}");
    let modes = tcgetattr(&terminal.person).unwrap().local_flags;
    let usual = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
    assert!(modes.contains(usual), "{modes:?}:\n{shown}");
    Some(shown)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
