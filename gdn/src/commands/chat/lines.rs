//! Source of chat input: a terminal with an editor, or a pipe.

use std::io::{BufRead as _, Read as _};

use goondan_protocol::approval::ApprovalScope;
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
    /// Shows the conversation's state.
    Status,
    /// Shows the budgets of the workspace.
    Budget,
    /// Lists the checkpoints, or rolls back to one.
    Rewind(Option<&'a str>),
    /// Attaches an image, a file or URL, to the next message.
    Attach(&'a str),
    /// Approves the tool call that waits in the conversation.
    Approve,
    /// Denies it, with a reason.
    Deny(&'a str),
    /// Approves it, and the same call from now on, after confirmation.
    Always(ApprovalScope),
    /// Approves it with one changed argument, or with arguments from the user's editor.
    Edit(&'a str),
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
        ("status", "") => ChatInput::Status,
        ("budget", "") => ChatInput::Budget,
        ("rewind", "") => ChatInput::Rewind(None),
        ("rewind", checkpoint) => ChatInput::Rewind(Some(checkpoint)),
        ("attach", image) if !image.is_empty() => ChatInput::Attach(image),
        ("approve", "") => ChatInput::Approve,
        ("deny", reason) => ChatInput::Deny(reason),
        ("always", "" | "conversation") => ChatInput::Always(ApprovalScope::Conversation),
        ("always", "workspace") => ChatInput::Always(ApprovalScope::Workspace),
        ("edit", assignment) => ChatInput::Edit(assignment),
        ("history", "") => ChatInput::History(HISTORY_LINES),
        ("history", number) => number
            .parse()
            .map_or(ChatInput::Unknown(line), ChatInput::History),
        _ => ChatInput::Unknown(line),
    }
}

/// The decision that a message consists of, if it is one.
pub(super) fn decision(text: &str) -> Option<ChatInput<'static>> {
    Some(match text.trim().to_lowercase().as_str() {
        "y" | "yes" => ChatInput::Approve,
        "n" | "no" => ChatInput::Deny(""),
        "always" => ChatInput::Always(ApprovalScope::Conversation),
        "edit" => ChatInput::Edit(""),
        _ => return None,
    })
}

/// True if a message confirms what was asked.
pub(super) fn is_yes(text: &str) -> bool {
    decision(text) == Some(ChatInput::Approve)
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
        assert_eq!(parse("/status"), ChatInput::Status);
        assert_eq!(parse("/budget now"), ChatInput::Unknown("/budget now"));
        assert_eq!(parse("/rewind"), ChatInput::Rewind(None));
        assert_eq!(parse("/rewind c-1"), ChatInput::Rewind(Some("c-1")));
        assert_eq!(parse("/attach a b.png"), ChatInput::Attach("a b.png"));
        assert_eq!(parse("/attach"), ChatInput::Unknown("/attach"));
        assert_eq!(parse("/approve"), ChatInput::Approve);
        assert_eq!(parse("/deny not now"), ChatInput::Deny("not now"));
        assert_eq!(parse("y"), ChatInput::Say("y"));
        let always = ChatInput::Always(ApprovalScope::Conversation);
        assert_eq!(parse("/always"), always);
        let workspace = ChatInput::Always(ApprovalScope::Workspace);
        assert_eq!(parse("/always workspace"), workspace);
        assert_eq!(parse("/always here"), ChatInput::Unknown("/always here"));
        assert_eq!(parse("/edit"), ChatInput::Edit(""));
        assert_eq!(parse("/edit command=a b"), ChatInput::Edit("command=a b"));
        assert_eq!(decision(" Y "), Some(ChatInput::Approve));
        assert_eq!(decision("no"), Some(ChatInput::Deny("")));
        assert_eq!(decision("Always"), Some(always));
        assert_eq!(decision("edit"), Some(ChatInput::Edit("")));
        assert_eq!(decision("yes, please"), None);
        assert!(is_yes("yes") && !is_yes("always"));
    }
}
