//! Where what a person says comes from: a terminal with an editor, or a pipe.

use std::io::{BufRead as _, Read as _};

use goondan_protocol::limits::MAX_INPUT_BYTES;
use tokio::sync::mpsc;

use super::editor::{Editor, Said};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Messages `/history` shows when no number is given.
pub(super) const HISTORY_LINES: usize = 20;

/// Where it comes from.
#[derive(Debug)]
pub(super) enum Lines {
    Piped(mpsc::Receiver<Result<String, Failure>>),
    Edited(Editor),
}

impl Lines {
    /// From an editor where a person sees what they type, else as it is read.
    pub(super) fn open(is_terminal: bool, output: Output) -> Self {
        match is_terminal && output.is_watched() {
            true => Self::Edited(Editor::start(output)),
            false => Self::Piped(stdin_lines()),
        }
    }

    /// Whether a person at an editor is on the other side.
    pub(super) fn are_edited(&self) -> bool {
        matches!(self, Self::Edited(_))
    }

    /// The next. It can be given up, and asked for again.
    pub(super) async fn next(&mut self) -> Result<Said, Failure> {
        match self {
            Self::Edited(editor) => editor.next().await,
            Self::Piped(lines) => match lines.recv().await {
                Some(line) => Ok(Said::Line(line?)),
                None => Ok(Said::End),
            },
        }
    }

    /// Shows text, above what is being typed if something is.
    pub(super) fn show(&self, text: &str, output: Output) {
        match self {
            Self::Edited(editor) if editor.show(text) => {}
            Self::Edited(_) | Self::Piped(_) => output.note(text),
        }
    }
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Empty,
    Say(&'a str),
    History(usize),
    Help,
    Quit,
    Unknown(&'a str),
}

pub(super) fn parse(line: &str) -> Line<'_> {
    let line = line.trim();
    let Some(command) = line.strip_prefix('/') else {
        return if line.is_empty() {
            Line::Empty
        } else {
            Line::Say(line)
        };
    };
    if command.starts_with('/') {
        return Line::Say(command);
    }
    let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
    match (name, argument.trim()) {
        ("quit" | "exit" | "q", "") => Line::Quit,
        ("help" | "h" | "?", "") => Line::Help,
        ("history", "") => Line::History(HISTORY_LINES),
        ("history", number) => number.parse().map_or(Line::Unknown(line), Line::History),
        _ => Line::Unknown(line),
    }
}

/// The lines of stdin, read by a thread of their own: a read that blocks cannot be given up, and the
/// thread ends with the process.
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
                    "pass text in UTF-8, one question a line",
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
    fn lines_are_said_unless_they_are_commands() {
        assert_eq!(parse("  \n"), Line::Empty);
        assert_eq!(parse("hello\n"), Line::Say("hello"));
        assert_eq!(parse("//etc/passwd"), Line::Say("/etc/passwd"));
        assert_eq!(parse("/history"), Line::History(HISTORY_LINES));
        assert_eq!(parse("/history 3"), Line::History(3));
        assert_eq!(parse("/history x"), Line::Unknown("/history x"));
        assert_eq!(parse("/quit"), Line::Quit);
        assert_eq!(parse("/wat"), Line::Unknown("/wat"));
    }
}
