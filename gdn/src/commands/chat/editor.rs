//! Line editor for interactive chats (`STEER-4`): history, multi-line input, paste as one message.
//!
//! It runs on its own thread because it blocks on keys, and owns the terminal only while a line is requested: other
//! threads write the agent's output in between.

use std::borrow::Cow;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::panic;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use futures_util::future::OptionFuture;
use ratatui::crossterm::event::DisableBracketedPaste;
use ratatui::crossterm::{ExecutableCommand as _, terminal};
use reedline::{
    EditCommand, Emacs, ExternalPrinter, FileBackedHistory, KeyCode, KeyModifiers, Prompt,
    PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, Signal,
    default_emacs_keybindings,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::style::{self, Palette};

/// Number of lines kept in the history across chats.
const HISTORY_LINES_MAX: usize = 1_000;
/// Maximum number of texts queued for display above the edited line.
const SHOWN_MAX: usize = 1_024;
/// Prompt of each continuation line.
const CONTINUED: &str = "...> ";

/// Next input of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditorInput {
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// Handle to the editor thread.
#[derive(Debug)]
pub(super) struct Editor {
    wanted: std::sync::mpsc::Sender<()>,
    edited: mpsc::Receiver<Result<Signal, std::io::Error>>,
    shown: SyncSender<String>,
    /// True if a line was requested and has not arrived yet.
    is_reading: bool,
    /// Fires when the terminal is closed; `None` after that, and if the system cannot watch it.
    hang_up: Option<oneshot::Receiver<()>>,
}

impl Editor {
    pub(super) fn start(output: Output) -> Self {
        give_back_on_panic();
        let (wanted, asked) = std::sync::mpsc::channel();
        let (lines, edited) = mpsc::channel(1);
        let printer = ExternalPrinter::new(SHOWN_MAX);
        let shown = printer.sender();
        let prompt = ChatPrompt(output.err);
        // The thread ends with the process, because a blocking read of the terminal cannot be stopped.
        std::thread::spawn(move || {
            let mut editor = editor(printer, output);
            while asked.recv().is_ok() {
                let line = editor.read_line(&prompt);
                // The process may end before this thread. A chat works without a history file.
                drop(editor.sync_history());
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            wanted,
            edited,
            shown,
            is_reading: false,
            hang_up: Some(hang_up()),
        }
    }

    /// Returns the next line. Cancel-safe: a line being typed is kept for the next call.
    pub(super) async fn next(&mut self) -> Result<EditorInput, Failure> {
        if !self.is_reading {
            self.is_reading = self.wanted.send(()).is_ok();
        }
        let edited = tokio::select! {
            biased;
            edited = self.edited.recv() => edited,
            Some(watched) = OptionFuture::from(self.hang_up.as_mut()) => {
                self.hang_up = None;
                if watched.is_ok() {
                    return Ok(EditorInput::End);
                }
                self.edited.recv().await
            }
        };
        self.is_reading = false;
        match edited {
            Some(Ok(Signal::Success(line) | Signal::HostCommand(line))) => {
                Ok(EditorInput::Line(line))
            }
            Some(Ok(Signal::CtrlC)) => Ok(EditorInput::Interrupted),
            Some(Ok(_)) => Ok(EditorInput::End),
            Some(Err(error)) => Err(cannot_read().caused_by(Some(&error))),
            // The editor thread panicked and has printed the panic.
            None => Err(cannot_read()),
        }
    }

    /// Shows text above the edited line; returns false if no line is being edited.
    pub(super) fn show(&self, text: &str) -> bool {
        self.is_reading && self.shown.try_send(text.to_owned()).is_ok()
    }
}

impl Drop for Editor {
    /// Restores the terminal however the chat ends.
    fn drop(&mut self) {
        if self.is_reading {
            give_back();
        }
    }
}

/// Watches the terminal until it is closed. The editor does not end then, because its library reads
/// the closed terminal in a loop.
fn hang_up() -> oneshot::Receiver<()> {
    let (closed, hang_up) = oneshot::channel();
    // The thread ends with the process. Without flags, only a hang-up or an error ends the wait.
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        loop {
            match poll(&mut terminal, None) {
                Err(Errno::INTR) => {}
                Ok(_) => {
                    closed.send(()).ok();
                    return;
                }
                Err(_) => return,
            }
        }
    });
    hang_up
}

fn cannot_read() -> Failure {
    Failure::new(
        Exit::Internal,
        "cannot read from the terminal",
        "pass the messages on stdin: `gdn chat < questions.txt`",
    )
}

/// Restores the terminal if it is in raw mode.
fn give_back() {
    // After a hang-up, the terminal is gone and needs no restore.
    if !terminal::is_raw_mode_enabled().unwrap_or(false) {
        return;
    }
    drop(terminal::disable_raw_mode());
    let mut stderr = std::io::stderr();
    drop(stderr.execute(DisableBracketedPaste).map(|_| ()));
    drop(stderr.write_all(b"\r\n"));
}

/// Restores the terminal before the panic message is printed, because no other code does it if the editor thread
/// panics.
fn give_back_on_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        give_back();
        tell(what);
    }));
}

fn editor(printer: ExternalPrinter<String>, output: Output) -> Reedline {
    let mut keys = default_emacs_keybindings();
    for modifier in [KeyModifiers::ALT, KeyModifiers::SHIFT] {
        let new_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(modifier, KeyCode::Enter, new_line);
    }
    let editor = Reedline::create()
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_ansi_colors(output.err.is_on())
        .with_external_printer(printer)
        .use_bracketed_paste(true);
    match history() {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

/// History of earlier chats. None if its directory cannot be created.
fn history() -> Option<FileBackedHistory> {
    let folder = state_dir()?.join("goondan");
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    private.create(&folder).ok()?;
    let path = folder.join("chat-history");
    FileBackedHistory::with_file(HISTORY_LINES_MAX, path).ok()
}

/// Directory for the user's own state, as opposed to configuration.
fn state_dir() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    named.or_else(|| Some(std::env::home_dir()?.join(".local/state")))
}

struct ChatPrompt(Palette);

impl Prompt for ChatPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Owned(self.0.paint(style::HINT, "you> "))
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(CONTINUED)
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use anstream::ColorChoice;
    use goondan_tests::terminal::given_back_by;

    use super::*;

    /// Prompt that panics while the editor owns the terminal.
    struct Panics;

    impl Prompt for Panics {
        fn render_prompt_left(&self) -> Cow<'_, str> {
            panic!("a panic in a chat")
        }

        fn render_prompt_right(&self) -> Cow<'_, str> {
            Cow::Borrowed("")
        }

        fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
            Cow::Borrowed("")
        }

        fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
            Cow::Borrowed("")
        }

        fn render_prompt_history_search_indicator(&self, _: PromptHistorySearch) -> Cow<'_, str> {
            Cow::Borrowed("")
        }
    }

    #[test]
    fn steer_4_a_panic_gives_the_terminal_back() {
        const ITSELF: &str =
            "commands::chat::editor::tests::steer_4_a_panic_gives_the_terminal_back";
        if let Some(shown) = given_back_by(ITSELF) {
            let (before, after) = shown.split_once("a panic in a chat").unwrap();
            // Bracketed paste is on while a line is edited and off afterwards.
            assert!(before.contains("\x1b[?2004h"), "{shown:?}");
            assert!(before.contains("\x1b[?2004l"), "{shown:?}");
            assert!(!after.contains("\x1b[?2004h"), "{shown:?}");
            return;
        }
        give_back_on_panic();
        let reading = std::thread::spawn(|| {
            let output = Output::new(false, ColorChoice::Never);
            drop(editor(ExternalPrinter::new(1), output).read_line(&Panics));
        });
        // The restore happens in the panic hook of the editor thread, not by unwinding through this thread.
        assert!(reading.join().is_err());
        std::process::abort();
    }
}
