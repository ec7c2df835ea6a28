//! A person's terminal with its screen, emulated by `tmux`.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::wait::{PATIENCE, within};
use crate::wait_until;

/// Maximum lines of scrollback.
const SCROLLED_LINES_MAX: &str = "100000";
const PROMPT: &str = "$";

/// A screen on which a shell runs.
#[derive(Debug)]
pub struct Screen {
    socket: PathBuf,
    folder: tempfile::TempDir,
}

impl Screen {
    /// Starts a shell on a screen of this size, with the environment of `command`, which is not
    /// run. The shell has a different home, because processes in a test's home must end with its
    /// daemon.
    #[must_use]
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let screen = Self {
            socket: folder.path().join("tmux"),
            folder,
        };
        let size = [columns.to_string(), rows.to_string()];
        let lines = ["start-server", ";", "set-option", "-g", "history-limit"];
        let mut tmux = screen.tmux(&lines);
        tmux.args([SCROLLED_LINES_MAX, ";", "new-session", "-d"]);
        tmux.args(["-x", &size[0], "-y", &size[1]]);
        for (name, value) in command.get_envs() {
            if let (Some(name), Some(value)) = (name.to_str(), value.and_then(|it| it.to_str())) {
                tmux.args(["-e", &format!("{name}={value}")]);
            }
        }
        if let Some(dir) = command.get_current_dir() {
            tmux.arg("-c").arg(dir);
        }
        let home = format!("HOME={}", screen.folder.path().display());
        tmux.args([
            "env",
            &home,
            &format!("PS1={PROMPT} "),
            "LC_ALL=C.UTF-8",
            "sh",
        ]);
        ran(&mut tmux);
        screen.wait_for_prompt();
        screen
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-u", "-S"]).arg(&self.socket);
        tmux.env_remove("TMUX").args(args);
        tmux
    }

    /// Contents of the screen, without trailing spaces.
    #[must_use]
    pub fn shown(&self) -> String {
        let shown = ran(&mut self.tmux(&["capture-pane", "-p"]));
        String::from_utf8(shown.stdout).unwrap()
    }

    /// Contents of the screen, with the escape sequences for colors.
    #[must_use]
    pub fn painted(&self) -> String {
        let shown = ran(&mut self.tmux(&["capture-pane", "-e", "-p"]));
        String::from_utf8(shown.stdout).unwrap()
    }

    /// Contents of the screen and its scrollback.
    #[must_use]
    pub fn shown_so_far(&self) -> String {
        let shown = ran(&mut self.tmux(&["capture-pane", "-p", "-S", "-"]));
        String::from_utf8(shown.stdout).unwrap()
    }

    /// Waits until a text is on the screen.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`], with the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let is_shown = within(PATIENCE, || self.shown().contains(text).then_some(()));
        assert!(
            is_shown.is_some(),
            "no {text:?} on the screen:\n{}",
            self.shown()
        );
    }

    /// Waits for the shell's prompt at the beginning of a line: earlier input could be read by the
    /// program that is about to exit, and would appear elsewhere on the screen.
    pub fn wait_for_prompt(&self) {
        let asks = || self.shown().trim_end().lines().last() == Some(PROMPT);
        wait_until("the shell asks for a command", asks);
    }

    /// Waits until a text has disappeared from the screen.
    pub fn wait_until_gone(&self, text: &str) {
        let is_gone = || !self.shown().contains(text);
        wait_until(&format!("{text:?} is gone from the screen"), is_gone);
    }

    pub fn types(&self, text: &str) {
        ran(&mut self.tmux(&["send-keys", "-l", "--", text]));
    }

    /// Presses keys by their names: `Enter`, `C-c`, `Down`.
    pub fn press(&self, keys: &[&str]) {
        ran(self.tmux(&["send-keys"]).args(keys));
    }

    /// Pastes text as a terminal with bracketed paste.
    pub fn pastes(&self, text: &str) {
        ran(&mut self.tmux(&["set-buffer", text]));
        ran(&mut self.tmux(&["paste-buffer", "-p"]));
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let size = [columns.to_string(), rows.to_string()];
        ran(&mut self.tmux(&["resize-window", "-x", &size[0], "-y", &size[1]]));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.tmux(&["kill-server"]).output());
    }
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}
