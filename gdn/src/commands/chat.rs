//! `gdn chat`: an interactive conversation that survives daemon restarts (`STEER-4`).

mod arrivals;
mod editor;
mod lines;

use clap::Args;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{
    ApprovalDetail, ApprovalInfo, DecideApproval, ListApprovals, Method, SendResult, ShowApproval,
    WorkspaceInfo,
};
use goondan_protocol::ids::{EventId, InstanceKey};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::arrivals::{Arrival, ChatProgress};
use self::editor::EditorInput;
use self::lines::{ChatInput, InputLines, decision, is_yes, parse};
use super::approval::FIRST_OF_TWO;
use super::ask::{AgentInput, RecipientArgs, is_shown, reply_of};
use super::transcript::{self, Transcript};
use super::{approval, call_arguments, cancel, images, instance, names, rewind, turns, usage};
use crate::client::{CallError, Client, ConnectError};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::{StreamMode, TurnView};
use crate::output::{style, text};
use crate::schemas;

/// Chat with an agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn chat
  gdn chat --agent clerk --conversation order-17
  gdn chat < questions.txt               one answer per line

In the chat: /history shows the conversation, /help the commands and keys, /quit or Ctrl-D ends it.
Ctrl-C stops waiting for the agent; pressed again, it cancels the turn.
Messages from other sources are shown as they arrive.
If the daemon restarts, the chat reconnects and resends the question in progress under the
same id, so that it is answered once.")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    to: RecipientArgs,
}

impl ChatArgs {
    /// Chat with the entry agent in the default conversation.
    pub(crate) fn usual() -> Self {
        Self {
            to: RecipientArgs::default(),
        }
    }
}

/// Maximum time to wait for the daemon to come back, in milliseconds.
const RECONNECT_LIMIT_MS: u64 = 60_000;

/// Interval between reconnect attempts, in milliseconds.
const RECONNECT_POLL_MS: u64 = 200;

/// Maximum number of times an event is sent again after the connection is lost.
const LOSSES_MAX: u32 = 20;

const HELP: &str = "\
/history [N]   show the latest messages of this conversation
/status        show its state
/budget        show the budgets of the project
/rewind [ID]   list its checkpoints, or roll it back to one
/attach FILE   send an image, a file or URL, with the next message
/approve       approve the tool call that waits (or: y)
/deny [REASON] deny it (or: n)
/always        approve it, and the same call from now on (or: always); /always workspace
/edit [N=V]    approve it with changed arguments, in $EDITOR, or with N set to V (or: edit)
/help          show this
/quit          end (so does Ctrl-D)
Ctrl-C         stop waiting for the answer, for example to approve a call; again: cancel the turn
//text         send a text that starts with a slash";

/// Additional keys of the line editor.
const KEYS: &str = "\
Alt-Enter      start a new line; pasted text is one message, too
↑ ↓, Ctrl-R    search earlier messages, of all chats
Ctrl-C twice   end, unless an answer is awaited";

pub(crate) async fn run(args: ChatArgs, context: &Context) -> Result<(), Failure> {
    let (client, workspace) = context.open().await?;
    names::check_agent(args.to.agent.as_ref(), &workspace)?;
    let is_terminal = std::io::stdin().is_terminal();
    let key = workspace.conversation(args.to.instance.clone());
    let session = ChatSession {
        context,
        workspace,
        to: args.to,
        client: Some(client),
        is_terminal,
        lines: InputLines::open(is_terminal, context.output),
        left: None,
        seen: ChatProgress::nothing(text::now()),
        failed: None,
        has_interrupted: false,
        attached: Vec::new(),
        unconfirmed: None,
    };
    let (arrivals, arrived) = mpsc::unbounded_channel();
    match session.lines.are_edited() {
        false => session.run(arrived).await,
        true => tokio::select! {
            ended = session.run(arrived) => ended,
            () = arrivals::watch(context, &key, &arrivals) => Ok(()),
        },
    }
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

/// Silent failure after a signal or Ctrl-C, because the user already knows why the chat ended.
fn ended() -> Failure {
    Failure {
        silent: true,
        ..Failure::new(Exit::Interrupted, "interrupted", "continue with `gdn chat`")
    }
}

/// A decision about a tool call.
enum Verdict {
    /// With these arguments instead of its own, if any.
    Approve(Option<Value>),
    Always(ApprovalScope),
    /// With a reason, which may be empty.
    Deny(String),
}

/// Next step after a line of input.
enum LoopStep {
    Continue,
    End,
}

struct ChatSession<'a> {
    context: &'a Context,
    workspace: WorkspaceInfo,
    to: RecipientArgs,
    /// None after the connection is lost or a wait is abandoned.
    client: Option<Client>,
    is_terminal: bool,
    lines: InputLines,
    /// Latest event whose reply was not awaited.
    left: Option<EventId>,
    seen: ChatProgress,
    /// Failure of the latest event that failed.
    failed: Option<Failure>,
    /// True if the latest input was Ctrl-C.
    has_interrupted: bool,
    /// Images for the next message: files and URLs.
    attached: Vec<String>,
    /// Standing approval that waits for a confirmation.
    unconfirmed: Option<(ApprovalInfo, ApprovalScope)>,
}

impl ChatSession<'_> {
    async fn run(mut self, mut arrived: mpsc::UnboundedReceiver<Arrival>) -> Result<(), Failure> {
        self.greet();
        self.begin().await?;
        // From here on, Ctrl-C ends the wait or the chat, not this process.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            self.prompt();
            let said = tokio::select! {
                said = self.lines.next() => said?,
                _ = interrupt.recv() => EditorInput::Interrupted,
                _ = hang_up.recv() => return Err(ended()),
                _ = terminate.recv() => return Err(ended()),
                Some(arrival) = arrived.recv() => {
                    self.tell_of(arrival).await;
                    continue;
                }
            };
            let next = tokio::select! {
                next = self.take(said, &mut interrupt) => next,
                _ = hang_up.recv() => return Err(ended()),
                _ = terminate.recv() => return Err(ended()),
            };
            match next {
                Ok(LoopStep::Continue) => {}
                Ok(LoopStep::End) => break,
                // A failed event does not end the chat; a lost daemon does.
                Err(failure) if !failure.silent && goes_on_after(&failure) => {
                    self.context.output.failure(&failure);
                    self.failed = Some(Failure {
                        silent: true,
                        ..failure
                    });
                }
                Err(failure) => return Err(failure),
            }
        }
        if self.is_terminal {
            return Ok(());
        }
        // A script that pipes its input learns from the exit code that an event failed.
        self.failed.map_or(Ok(()), Err)
    }

    /// Prints what needs the user's attention in the conversation, and marks the existing messages as seen.
    async fn begin(&mut self) -> Result<(), Failure> {
        let key = self.conversation();
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        approval::report_of(client, &self.workspace, key, self.context).await?;
        if self.lines.are_edited()
            && let Some(latest) = self.latest(1).await
        {
            self.seen.begin(&latest.messages);
        }
        Ok(())
    }

    /// Prints an arrival from outside this chat.
    async fn tell_of(&mut self, arrival: Arrival) {
        let output = self.context.output;
        match arrival {
            Arrival::Told {
                event_id: Some(event_id),
                ..
            } if self.seen.is_own(&event_id) => {}
            Arrival::Failed {
                event_id, turn_id, ..
            } if !self.seen.take_failed(Some(&event_id), &turn_id) => {}
            Arrival::Told { text: told, .. } | Arrival::Failed { text: told, .. } => {
                let told = output.err.paint(style::WARN, &text::printable(&told));
                self.lines.show(&told, output);
            }
            Arrival::Messages => self.tell_of_messages().await,
            Arrival::Anew => {
                self.tell_of_messages().await;
                self.tell_of_failures().await;
            }
        }
    }

    /// Prints turns that failed while no client was waiting for them.
    async fn tell_of_failures(&mut self) {
        // This connection was just used. If it is lost, the failures are read after the reconnect.
        let Some(mut client) = self.client.take() else {
            return;
        };
        let (id, key) = (&self.workspace.workspace_id, self.conversation());
        if let Ok(turns) = turns::read(&mut client, id, &key, None).await {
            self.client = Some(client);
            let output = self.context.output;
            for turn in self.seen.take_all_failed(turns.unanswered()) {
                let shown = transcript::without_answer(&turn, output.err);
                self.lines.show(shown.trim_end(), output);
            }
        }
    }

    /// Returns the latest messages. None if the conversation does not exist or the daemon is gone; in that case the
    /// watcher reports the daemon's return and the messages are read then.
    async fn latest(&mut self, limit: usize) -> Option<Transcript> {
        let (id, key) = (self.workspace.workspace_id.clone(), self.conversation());
        if let Some(mut client) = self.client.take() {
            let latest = transcript::latest(&mut client, (&id, &key), limit).await;
            if !latest.as_ref().is_err_and(CallError::is_lost) {
                self.client = Some(client);
                return latest.ok();
            }
        }
        // The existing connection dates from before the daemon was lost.
        let mut client = Client::connect(&self.context.endpoint).await.ok()?;
        let latest = transcript::latest(&mut client, (&id, &key), limit).await;
        self.client = Some(client);
        latest.ok()
    }

    async fn tell_of_messages(&mut self) {
        let Some(latest) = self.latest(arrivals::MESSAGES_MAX).await else {
            return;
        };
        let output = self.context.output;
        for message in self.seen.take_new(latest.messages) {
            let shown = transcript::paragraph(&message, "", output.err);
            self.lines.show(shown.trim_end(), output);
        }
    }

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

    fn prompt(&self) {
        if self.is_terminal && !self.lines.are_edited() {
            let output = self.context.output;
            output.prompt(&output.err.paint(style::HINT, "you> "));
        }
    }

    /// Ends the prompt line after Ctrl-D.
    fn end_line(&self) {
        if self.is_terminal && !self.lines.are_edited() {
            self.context.output.note("");
        }
    }

    async fn take(
        &mut self,
        said: EditorInput,
        interrupt: &mut Signal,
    ) -> Result<LoopStep, Failure> {
        let left = self.left.take();
        let has_interrupted = std::mem::replace(&mut self.has_interrupted, false);
        let line = match (said, left) {
            (EditorInput::Line(line), _) => line,
            (EditorInput::End, _) => {
                self.end_line();
                return Ok(LoopStep::End);
            }
            (EditorInput::Interrupted, Some(event)) => {
                self.end_line();
                self.cancel(event).await?;
                return Ok(LoopStep::Continue);
            }
            (EditorInput::Interrupted, None) if self.lines.are_edited() && !has_interrupted => {
                self.has_interrupted = true;
                let output = self.context.output;
                output.note("Press Ctrl-C again or Ctrl-D to end the chat.");
                return Ok(LoopStep::Continue);
            }
            // Pressed twice in an editor, this is the usual way to leave.
            (EditorInput::Interrupted, None) if self.lines.are_edited() => {
                self.end_line();
                return Ok(LoopStep::End);
            }
            (EditorInput::Interrupted, None) => {
                self.end_line();
                return Err(ended());
            }
        };
        let output = self.context.output;
        let unconfirmed = self.unconfirmed.take();
        let input = match (parse(&line), unconfirmed) {
            (ChatInput::Say(text), Some((call, scope))) if is_yes(text) => {
                self.decide(call, Verdict::Always(scope)).await?;
                return Ok(LoopStep::Continue);
            }
            (ChatInput::Say(text), Some(_)) if decision(text).is_some() => {
                output.note("Nothing was decided.");
                return Ok(LoopStep::Continue);
            }
            (ChatInput::Say(text), _) => {
                let decides = decision(text).filter(|_| self.lines.are_edited());
                match decides {
                    None => ChatInput::Say(text),
                    Some(decides) => match self.pending().await? {
                        Some(_) => decides,
                        None => ChatInput::Say(text),
                    },
                }
            }
            (input, _) => input,
        };
        match input {
            ChatInput::Empty => {}
            ChatInput::Quit => return Ok(LoopStep::End),
            ChatInput::Help => output.note(self.help()),
            ChatInput::Unknown(line) => {
                output.note(format!("Unknown command: {line}\n{}", self.help()));
            }
            ChatInput::History(limit) => self.history(limit).await?,
            ChatInput::Status => instance::show_of(self.conversation(), self.context).await?,
            ChatInput::Budget => usage::show_budgets(self.context).await?,
            ChatInput::Rewind(to) => {
                rewind::in_chat(self.conversation(), to.map(str::to_owned), self.context).await?;
            }
            ChatInput::Attach(image) => self.attach(image)?,
            ChatInput::Approve => self.decide_pending(Verdict::Approve(None)).await?,
            ChatInput::Deny(reason) => {
                self.decide_pending(Verdict::Deny(reason.to_owned()))
                    .await?;
            }
            ChatInput::Always(scope) => self.propose_always(scope).await?,
            ChatInput::Edit(assignment) => self.edit_pending(assignment).await?,
            ChatInput::Say(text) => self.say(text, interrupt).await?,
        }
        Ok(LoopStep::Continue)
    }

    fn help(&self) -> String {
        match self.lines.are_edited() {
            true => format!("{HELP}\n{KEYS}"),
            false => HELP.to_owned(),
        }
    }

    /// Attaches an image to the next message, if it can be read now.
    fn attach(&mut self, image: &str) -> Result<(), Failure> {
        let mut all = self.attached.clone();
        all.push(image.to_owned());
        images::read(&all)?;
        self.attached = all;
        let count = text::count(self.attached.len(), "image");
        let output = self.context.output;
        output.note(format!("{count} will be sent with the next message."));
        Ok(())
    }

    /// Sends a request. A lost connection does not end the chat.
    async fn request<M: Method>(&mut self, request: M) -> Result<M::Output, Failure> {
        let mut client = self.connected(None).await?;
        match client.change(request).await {
            Err(error) if error.is_lost() => Err(Failure::of(
                Exit::TryAgain,
                &error,
                "try again when the daemon is back",
            )),
            answered => {
                self.client = Some(client);
                Ok(answered?)
            }
        }
    }

    /// The oldest tool call of the conversation that waits for approval.
    async fn pending(&mut self) -> Result<Option<ApprovalInfo>, Failure> {
        let list = ListApprovals {
            workspace_id: Some(self.workspace.workspace_id.clone()),
            instance_key: Some(self.conversation()),
            after: None,
            limit: Some(1),
        };
        Ok(self.request(list).await?.approvals.into_iter().next())
    }

    /// The waiting call with all its arguments; prints that none waits.
    async fn pending_in_full(&mut self) -> Result<Option<ApprovalDetail>, Failure> {
        let Some(info) = self.pending().await? else {
            self.note_none();
            return Ok(None);
        };
        let show = ShowApproval {
            workspace_id: info.workspace_id,
            approval_id: info.approval_id,
        };
        Ok(Some(self.request(show).await?))
    }

    fn note_none(&self) {
        let output = self.context.output;
        output.note("No tool call of this conversation waits for approval.");
    }

    async fn decide_pending(&mut self, verdict: Verdict) -> Result<(), Failure> {
        match self.pending().await? {
            Some(call) => self.decide(call, verdict).await,
            None => {
                self.note_none();
                Ok(())
            }
        }
    }

    /// Shows the calls that a standing approval would cover, and asks for a confirmation.
    async fn propose_always(&mut self, scope: ApprovalScope) -> Result<(), Failure> {
        let Some(detail) = self.pending_in_full().await? else {
            return Ok(());
        };
        let info = detail.approval;
        let output = self.context.output;
        output.note(format!(
            "{}\n{}",
            text::one_line(&info.tool_name),
            approval::arguments(&detail.input).trim_end(),
        ));
        output.wrapped_note(&format!(
            "From now on, this call of {} runs without asking in {}, with exactly these arguments. \
             y approves it.",
            text::one_line(info.agent_name.as_str()),
            approval::scope_words(scope),
        ));
        self.unconfirmed = Some((info, scope));
        Ok(())
    }

    /// Approves the waiting call with changed arguments.
    async fn edit_pending(&mut self, assignment: &str) -> Result<(), Failure> {
        let Some(detail) = self.pending_in_full().await? else {
            return Ok(());
        };
        let output = self.context.output;
        let input = if assignment.is_empty() {
            let Some(editor) = call_arguments::editor() else {
                output.note("Set an argument: /edit NAME=VALUE. For an editor, set $EDITOR.");
                return Ok(());
            };
            call_arguments::edit(&editor, &detail, self.context)?
        } else {
            match call_arguments::parse_assignment(assignment) {
                Ok(assignment) => Some(call_arguments::set_all(&detail, &[assignment])?),
                Err(problem) => {
                    output.note(problem);
                    return Ok(());
                }
            }
        };
        match input {
            Some(input) => {
                self.decide(detail.approval, Verdict::Approve(Some(input)))
                    .await
            }
            None => {
                output.note("The arguments were not changed; the call still waits.");
                Ok(())
            }
        }
    }

    async fn decide(&mut self, call: ApprovalInfo, verdict: Verdict) -> Result<(), Failure> {
        let (decision, word) = match &verdict {
            Verdict::Approve(None) => (ApprovalDecision::Approved, "Approved"),
            Verdict::Approve(Some(_)) => (
                ApprovalDecision::Approved,
                "Approved with changed arguments",
            ),
            Verdict::Always(_) => (ApprovalDecision::Approved, "Approved from now on"),
            Verdict::Deny(_) => (ApprovalDecision::Denied, "Denied"),
        };
        let (input, always, reason) = match verdict {
            Verdict::Approve(input) => (input, None, None),
            Verdict::Always(scope) => (None, Some(scope), None),
            Verdict::Deny(reason) => (None, None, Some(reason)),
        };
        let summary = input.as_ref().map_or(call.summary, ToString::to_string);
        let revoke = format!("inbox revoke {}", call.approval_id);
        let decide = DecideApproval {
            workspace_id: call.workspace_id,
            approval_id: call.approval_id,
            decision,
            reason: reason.filter(|reason| !reason.is_empty()),
            input,
            always,
        };
        let decided = self.request(decide).await?;
        let output = self.context.output;
        output.note(format!(
            "{word}: {} {}",
            text::one_line(&call.tool_name),
            text::one_line(&summary)
        ));
        if decided.needs_another {
            output.note(FIRST_OF_TWO);
        }
        if always.is_some() {
            output.note(format!("Revoke that: {}", self.context.command(&revoke)));
        }
        Ok(())
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
        let attached = std::mem::take(&mut self.attached);
        // An image that became unreadable is not attached to later messages.
        let images = images::read(&attached)?;
        let question = AgentInput::new(
            &self.workspace,
            self.to.agent.clone(),
            self.to.instance.clone(),
            text.to_owned(),
            None,
        )?
        .with_images(attached, images);
        self.seen.ask(question.event_id().clone());
        let output = self.context.output;
        let (sent, is_shown) = tokio::select! {
            _ = interrupt.recv() => {
                let message = "stopped waiting; the agent continues; Ctrl-C again cancels its turn";
                self.left = Some(question.event_id().clone());
                self.seen.leave(question.event_id());
                return Err(question.left(Exit::Interrupted, message, self.context));
            }
            sent = self.answer(&question) => sent?,
        };
        output.object(schemas::SEND, &sent)?;
        let reply = reply_of(&sent, self.context)?;
        if !is_shown {
            if self.is_terminal {
                output.name(sent.agent.as_str());
            }
            output.reply(reply)?;
        }
        if self.lines.are_edited() {
            self.tell_what_it_took(&sent.event_id).await;
        }
        Ok(())
    }

    async fn tell_what_it_took(&mut self, event_id: &EventId) {
        let Some(latest) = self.latest(arrivals::MESSAGES_MAX).await else {
            return;
        };
        let spending = arrivals::spent_on(event_id, &latest.messages);
        if spending.usage.total() > 0 {
            let tokens = text::count(spending.usage.total(), "token");
            let took = format!("{tokens} · {}", text::cost(&spending));
            let output = self.context.output;
            output.note(output.err.paint(style::FAINT, &took));
        }
    }

    /// Cancels the turn in progress or a queued event.
    async fn cancel(&mut self, event: EventId) -> Result<(), Failure> {
        // Reported here.
        self.seen.ask(event.clone());
        let mut client = self.connected(None).await?;
        let id = self.workspace.workspace_id.clone();
        let cancelled = cancel::cancel_event(&mut client, id, event, self.context).await;
        self.client = Some(client);
        cancelled
    }

    /// Sends the event until it is answered, again under the same event id after each lost connection. Also returns
    /// whether the reply has been streamed.
    async fn answer(&mut self, question: &AgentInput) -> Result<(SendResult, bool), Failure> {
        let output = self.context.output;
        let streaming = match StreamMode::usual(output) {
            StreamMode::Text if self.is_terminal => StreamMode::Named,
            usual => usual,
        };
        let view = TurnView::start(self.context, output.is_json(), streaming);
        let mut losses = 0;
        loop {
            // Taken out while in use, because an interrupted connection cannot be reused.
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
                        "Connection lost; the message will be resent when the daemon is back …",
                    );
                    tokio::time::sleep(Duration::from_millis(RECONNECT_POLL_MS)).await;
                }
                Err(error) if error.is_lost() => return Err(question.failed(error, self.context)),
                Err(error) => {
                    self.client = Some(client);
                    return Err(error.into());
                }
            }
        }
    }

    /// Returns the connection or a new one; waits a limited time for the daemon to come back.
    async fn connected(
        &mut self,
        asking: Option<(&TurnView, &AgentInput)>,
    ) -> Result<Client, Failure> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        let deadline = Instant::now() + Duration::from_millis(RECONNECT_LIMIT_MS);
        loop {
            let error = match Client::connect(&self.context.endpoint).await {
                Ok(client) => return Ok(client),
                Err(
                    error @ (ConnectError::NotRunning { .. }
                    | ConnectError::NotListening { .. }
                    | ConnectError::Handshake(_)),
                ) => error,
                Err(error @ ConnectError::Remote { .. }) if error.may_pass() => error,
                Err(error) => return Err(error.into()),
            };
            if Instant::now() >= deadline {
                let message = "the daemon did not return";
                return Err(match asking {
                    Some((_, question)) => {
                        self.seen.leave(question.event_id());
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
