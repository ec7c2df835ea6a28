//! Keys pressed while the log is followed. The terminal keeps its output and its signals, such as Ctrl-C, and only does
//! not echo or wait for a whole line.

use std::io::{IsTerminal as _, stdin};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::live_filter::Key;

/// Interval of checks while another program has the terminal, in milliseconds.
const BACKGROUND_MS: u64 = 200;
/// Most bytes that are read at once.
const READ_BYTES: usize = 1_024;

/// A terminal that passes each key on. Restored on drop.
pub(super) struct KeyTerminal {
    usual: Termios,
}

impl KeyTerminal {
    /// Takes the terminal at stdin; none if there is none, or if another program has it: changing it, or reading from
    /// it, would stop this process.
    pub(super) fn take() -> Option<Self> {
        if !stdin().is_terminal() || !has_terminal() {
            return None;
        }
        let terminal = Self {
            usual: tcgetattr(stdin()).ok()?,
        };
        terminal.apply();
        Some(terminal)
    }

    /// Sets the modes, also after a shell has set its own in the meantime.
    pub(super) fn apply(&self) {
        if !has_terminal() {
            return;
        }
        let mut modes = self.usual.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Without it, keys are echoed and arrive after Enter.
        tcsetattr(stdin(), OptionalActions::Now, &modes).ok();
    }

    /// Reads keys until the terminal or the receiver is gone.
    pub(super) fn keys(&self) -> UnboundedReceiver<Key> {
        let (pressed, keys) = unbounded_channel();
        // The thread ends with the process, because a blocking read of the terminal cannot be stopped.
        thread::spawn(move || read(&pressed));
        keys
    }
}

impl Drop for KeyTerminal {
    fn drop(&mut self) {
        // After a hang-up, the terminal is gone and needs no restore; in the background, it is not ours.
        if has_terminal() {
            tcsetattr(stdin(), OptionalActions::Now, &self.usual).ok();
        }
    }
}

/// True if this process is in the foreground of its terminal.
fn has_terminal() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

fn read(pressed: &UnboundedSender<Key>) {
    let terminal = stdin();
    let mut bytes = [0; READ_BYTES];
    loop {
        match poll(&mut [PollFd::new(&terminal, PollFlags::IN)], None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !has_terminal() {
            thread::sleep(Duration::from_millis(BACKGROUND_MS));
            continue;
        }
        let read = match rustix::io::read(&terminal, &mut bytes) {
            Ok(read @ 1..) => read,
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => return,
        };
        let text = bytes.get(..read).unwrap_or_default();
        for key in keys_of(&String::from_utf8_lossy(text)) {
            if pressed.send(key).is_err() {
                return;
            }
        }
    }
}

/// Keys in the text that a terminal sent at once.
fn keys_of(text: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            // An arrow or a function key, up to its last character.
            '\u{1b}' if chars.next_if(|next| matches!(next, '[' | 'O')).is_some() => {
                while chars.next().is_some_and(|next| !matches!(next, '@'..='~')) {}
            }
            '\u{1b}' => keys.push(Key::Escape),
            '\r' | '\n' => keys.push(Key::Enter),
            '\u{7f}' | '\u{8}' => keys.push(Key::Backspace),
            char if char.is_control() => {}
            char => keys.push(Key::Char(char)),
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obs_2_keys_are_read_without_those_of_arrows() {
        let keys = keys_of("/가\u{1b}[A\u{1b}OB\u{1b}[5~x\u{7f}\r\u{1b}");
        let expected = [
            Key::Char('/'),
            Key::Char('가'),
            Key::Char('x'),
            Key::Backspace,
            Key::Enter,
            Key::Escape,
        ];
        assert_eq!(keys, expected);
        assert_eq!(keys_of("\u{4}\u{1b}["), []);
    }
}
