//! `gdn chat`: a conversation, line by line, that outlives the daemon's restarts.

use clap::Args;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::time::{Duration, Instant};

use goondan_protocol::control::{Sent, WorkspaceInfo};
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_protocol::limits::MAX_INPUT_BYTES;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::ask::{Question, To, is_shown, reply_of};
use super::{approval, cancel, transcript};
use crate::client::{Client, ConnectError};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::{Streaming, TurnView};
use crate::output::style;
use crate::schemas;

/// Talk to an agent, line by line
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn chat
  gdn chat --agent clerk --instance order-17
  gdn chat < questions.txt               one answer for each line

In the chat: /history shows the conversation, /help the commands, /quit or Ctrl-D ends.
Ctrl-C stops waiting for the agent; pressed again, it cancels what the agent is at.
If the daemon restarts, the chat reconnects and the question in progress is asked again under the
same id, so that it is answered once.")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    to: To,
}

impl ChatArgs {
    /// With the entry agent, in the usual conversation.
    pub(crate) fn usual() -> Self {
        Self { to: To::default() }
    }
}

/// Longest a chat waits for a daemon that went away, in milliseconds.
const RECONNECT_LIMIT_MS: u64 = 60_000;

/// How often it looks meanwhile, in milliseconds.
const RECONNECT_POLL_MS: u64 = 200;

/// How often one question is asked again after the connection was lost.
const LOSSES_MAX: u32 = 20;

/// Messages `/history` shows when no number is given.
const HISTORY_LINES: usize = 20;

const HELP: &str = "\
/history [N]   show the latest messages of this conversation
/help          show this
/quit          end (so does Ctrl-D)
Ctrl-C         stop waiting for the answer; once more: cancel the turn
//text         say a text that begins with a slash";

pub(crate) async fn run(args: ChatArgs, context: &Context) -> Result<(), Failure> {
    let (client, workspace) = context.open().await?;
    let mut session = Session {
        context,
        workspace,
        to: args.to,
        client: Some(client),
        is_terminal: std::io::stdin().is_terminal(),
        left: None,
    };
    session.greet();
    session.tell_of_approvals().await?;
    let mut lines = stdin_lines();
    // From here on Ctrl-C ends the waiting or the chat, not this process.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut failed = None;
    loop {
        session.prompt();
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = interrupt.recv() => {
                context.output.note("");
                let Some(event) = session.left.take() else {
                    return Err(Failure { silent: true, ..interrupted() });
                };
                match session.cancel(event).await {
                    Err(failure) if goes_on_after(&failure) => context.output.failure(&failure),
                    cancelled => cancelled?,
                }
                continue;
            }
        };
        session.left = None;
        let Some(line) = line else {
            session.end_line();
            break;
        };
        match session.take(&line?, &mut interrupt).await {
            Ok(Next::Continue) => {}
            Ok(Next::End) => break,
            // A question that fails does not end the conversation; a lost daemon does.
            Err(failure) if goes_on_after(&failure) => {
                context.output.failure(&failure);
                failed = Some(Failure {
                    silent: true,
                    ..failure
                });
            }
            Err(failure) => return Err(failure),
        }
    }
    if session.is_terminal {
        return Ok(());
    }
    // A script that pipes its questions in learns that not all were answered.
    failed.map_or(Ok(()), Err)
}

fn goes_on_after(failure: &Failure) -> bool {
    matches!(
        failure.exit,
        Exit::TurnFailed
            | Exit::TryAgain
            | Exit::Usage
            | Exit::NotFound
            | Exit::Conflict
            | Exit::Cancelled
            | Exit::Interrupted
    )
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted", "go on with `gdn chat`")
}

/// What follows a line.
enum Next {
    Continue,
    End,
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Empty,
    Say(&'a str),
    History(usize),
    Help,
    Quit,
    Unknown(&'a str),
}

fn parse(line: &str) -> Line<'_> {
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

struct Session<'a> {
    context: &'a Context,
    workspace: WorkspaceInfo,
    to: To,
    /// None after the connection was lost or an answer was not waited for.
    client: Option<Client>,
    is_terminal: bool,
    /// What was asked last, if its answer was not waited for.
    left: Option<EventId>,
}

impl Session<'_> {
    fn conversation(&self) -> InstanceKey {
        self.workspace.conversation(self.to.instance.clone())
    }

    fn greet(&self) {
        let output = self.context.output;
        if !self.is_terminal {
            return;
        }
        let entry = self.workspace.entry_agent.as_ref();
        let agent = self.to.agent.as_ref().or(entry);
        output.note(format!(
            "Talking to {} in conversation {}. /help shows the commands, Ctrl-D ends.",
            agent.map_or("the swarm", |agent| agent.as_str()),
            self.conversation()
        ));
    }

    /// What waits in the conversation for a person, whoever began it.
    async fn tell_of_approvals(&mut self) -> Result<(), Failure> {
        let key = self.conversation();
        match &mut self.client {
            Some(client) => approval::report_of(client, &self.workspace, key, self.context).await,
            None => Ok(()),
        }
    }

    fn prompt(&self) {
        if self.is_terminal {
            let output = self.context.output;
            output.prompt(&output.err.paint(style::HINT, "you> "));
        }
    }

    /// Leaves the line of the prompt that Ctrl-D answered.
    fn end_line(&self) {
        if self.is_terminal {
            self.context.output.note("");
        }
    }

    async fn take(&mut self, line: &str, interrupt: &mut Signal) -> Result<Next, Failure> {
        let output = self.context.output;
        match parse(line) {
            Line::Empty => {}
            Line::Quit => return Ok(Next::End),
            Line::Help => output.note(HELP),
            Line::Unknown(line) => output.note(format!("Unknown: {line}\n{HELP}")),
            Line::History(limit) => self.history(limit).await?,
            Line::Say(text) => self.say(text, interrupt).await?,
        }
        Ok(Next::Continue)
    }

    async fn history(&mut self, limit: usize) -> Result<(), Failure> {
        let mut losses = 0;
        let transcript = loop {
            let mut client = self.connected(None).await?;
            let id = &self.workspace.workspace_id;
            let read = transcript::read(&mut client, id, &self.conversation(), Some(limit)).await;
            match read {
                Err(error) if error.is_lost() && losses < LOSSES_MAX => losses += 1,
                read => {
                    self.client = Some(client);
                    break read?;
                }
            }
        };
        let output = self.context.output;
        output.data(transcript.render(output.out))
    }

    async fn say(&mut self, text: &str, interrupt: &mut Signal) -> Result<(), Failure> {
        let question = Question::new(
            &self.workspace,
            self.to.agent.clone(),
            self.to.instance.clone(),
            text.to_owned(),
            None,
        )?;
        let output = self.context.output;
        let (sent, is_shown) = tokio::select! {
            _ = interrupt.recv() => {
                let message = "stopped waiting; the agent goes on, and Ctrl-C once more cancels its turn";
                self.left = Some(question.event_id().clone());
                return Err(question.left(Exit::Interrupted, message, self.context));
            }
            sent = self.answer(&question) => sent?,
        };
        output.object(schemas::SEND, &sent)?;
        let reply = reply_of(&sent, self.context)?;
        if is_shown {
            return Ok(());
        }
        if self.is_terminal {
            output.name(sent.agent.as_str());
        }
        output.reply(reply)
    }

    /// Ends what the agent is at, or an event that waits still.
    async fn cancel(&mut self, event: EventId) -> Result<(), Failure> {
        let mut client = self.connected(None).await?;
        let id = self.workspace.workspace_id.clone();
        let cancelled = cancel::cancel_event(&mut client, id, event, self.context).await;
        self.client = Some(client);
        cancelled
    }

    /// Asks until there is an answer: after a lost connection again, under the same event id. Says
    /// too whether the reply has been shown as it came.
    async fn answer(&mut self, question: &Question) -> Result<(Sent, bool), Failure> {
        let output = self.context.output;
        let streaming = match Streaming::usual(output) {
            Streaming::Text if self.is_terminal => Streaming::Named,
            usual => usual,
        };
        let view = TurnView::start(self.context, output.is_json(), streaming);
        let mut losses = 0;
        loop {
            // Taken out while in use: what is interrupted in an answer cannot be used again.
            let mut client = self.connected(Some((&view, question))).await?;
            match question.ask(&mut client, &view).await {
                Ok(sent) => {
                    self.client = Some(client);
                    let is_shown = is_shown(&view, &sent);
                    return Ok((sent, is_shown));
                }
                Err(error) if error.is_lost() && losses < LOSSES_MAX => {
                    losses += 1;
                    view.line(
                        "The connection was lost; the question is asked again when the daemon is back …",
                    );
                    tokio::time::sleep(Duration::from_millis(RECONNECT_POLL_MS)).await;
                }
                Err(error) if error.is_lost() => return Err(question.lost(&error, self.context)),
                Err(error) => {
                    self.client = Some(client);
                    return Err(error.into());
                }
            }
        }
    }

    /// The connection, or a new one; waits for a daemon that went away, a bounded time.
    async fn connected(
        &mut self,
        asking: Option<(&TurnView, &Question)>,
    ) -> Result<Client, Failure> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        let deadline = Instant::now() + Duration::from_millis(RECONNECT_LIMIT_MS);
        loop {
            let error = match Client::connect(&self.context.state_root).await {
                Ok(client) => return Ok(client),
                Err(error @ (ConnectError::NotRunning { .. } | ConnectError::Handshake(_))) => {
                    error
                }
                Err(error) => return Err(error.into()),
            };
            if Instant::now() >= deadline {
                let message = "the daemon did not come back";
                return Err(match asking {
                    Some((_, question)) => {
                        question.left(Exit::ConnectionLost, message, self.context)
                    }
                    None => error.into(),
                });
            }
            if let Some((view, _)) = asking {
                view.status("waiting for the daemon");
            }
            tokio::time::sleep(Duration::from_millis(RECONNECT_POLL_MS)).await;
        }
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
