//! Source of chat input: a terminal with an editor, or a pipe.

use std::io::{BufRead as _, Read as _};

use goondan_protocol::limits::MAX_INPUT_BYTES;
use tokio::sync::mpsc;

use super::editor::{Editor, EditorInput};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Number of messages that `/history` shows by default.
pub(super) const HISTORY_LINES: usize = 20;

#[derive(Debug)]
pub(super) enum InputLines {
    Piped(mpsc::Receiver<Result<String, Failure>>),
    Edited(Editor),
}

impl InputLines {
    /// Opens the editor if input and output are a terminal, otherwise reads stdin.
    pub(super) fn open(is_terminal: bool, output: Output) -> Self {
        match is_terminal && output.is_watched() {
            true => Self::Edited(Editor::start(output)),
            false => Self::Piped(stdin_lines()),
        }
    }

    pub(super) fn are_edited(&self) -> bool {
        matches!(self, Self::Edited(_))
    }

    /// Returns the next input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<EditorInput, Failure> {
        match self {
            Self::Edited(editor) => editor.next().await,
            Self::Piped(lines) => match lines.recv().await {
                Some(line) => Ok(EditorInput::Line(line?)),
                None => Ok(EditorInput::End),
            },
        }
    }

    /// Shows text, above the edited line if there is one.
    pub(super) fn show(&self, text: &str, output: Output) {
        match self {
            Self::Edited(editor) if editor.show(text) => {}
            Self::Edited(_) | Self::Piped(_) => output.note(text),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatInput<'a> {
    Empty,
    Say(&'a str),
    History(usize),
    Help,
    Quit,
    Unknown(&'a str),
}

pub(super) fn parse(line: &str) -> ChatInput<'_> {
    let line = line.trim();
    let Some(command) = line.strip_prefix('/') else {
        return if line.is_empty() {
            ChatInput::Empty
        } else {
            ChatInput::Say(line)
        };
    };
    if command.starts_with('/') {
        return ChatInput::Say(command);
    }
    let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
    match (name, argument.trim()) {
        ("quit" | "exit" | "q", "") => ChatInput::Quit,
        ("help" | "h" | "?", "") => ChatInput::Help,
        ("history", "") => ChatInput::History(HISTORY_LINES),
        ("history", number) => number
            .parse()
            .map_or(ChatInput::Unknown(line), ChatInput::History),
        _ => ChatInput::Unknown(line),
    }
}

/// Lines of stdin, read on a separate thread: a blocking read cannot be canceled, and the thread ends with the
/// process.
fn stdin_lines() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let most = u64::try_from(MAX_INPUT_BYTES).unwrap_or(u64::MAX);
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = stdin.by_ref().take(most).read_line(&mut line);
            let item = match read {
                Ok(0) => return,
                Ok(_) => Ok(line),
                Err(error) => Err(Failure::new(
                    Exit::Usage,
                    "cannot read the next line from stdin",
                    "pass UTF-8 text, one message per line",
                )
                .caused_by(Some(&error))),
            };
            let is_last = item.is_err();
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_unless_they_are_commands() {
        assert_eq!(parse("  \n"), ChatInput::Empty);
        assert_eq!(parse("hello\n"), ChatInput::Say("hello"));
        assert_eq!(parse("//etc/passwd"), ChatInput::Say("/etc/passwd"));
        assert_eq!(parse("/history"), ChatInput::History(HISTORY_LINES));
        assert_eq!(parse("/history 3"), ChatInput::History(3));
        assert_eq!(parse("/history x"), ChatInput::Unknown("/history x"));
        assert_eq!(parse("/quit"), ChatInput::Quit);
        assert_eq!(parse("/wat"), ChatInput::Unknown("/wat"));
    }
}
