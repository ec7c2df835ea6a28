//! The inbox on a terminal: one item after another, each decided with a key.

use std::collections::HashSet;
use std::io::{self, BufRead as _};
use std::thread;
use std::time::{Duration, Instant};

use goondan_protocol::approval::ApprovalScope;
use goondan_protocol::control::ApprovalDetail;
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::question::QuestionForm;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use serde_json::Value;
use tokio::sync::oneshot;

use super::changes::{LiveChanges, Stale};
use super::decisions::{self, Choice, EnteredText, Key};
use super::details::{self, Subject};
use super::items::{self, Inbox, InboxItem, Target};
use super::shown;
use crate::client::CallError;
use crate::commands::{call_arguments, question};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{style, text};

/// The end of the wait for a key.
enum Pressed {
    Decide(Choice, &'static str),
    Skip,
    Quit,
    /// No key: another person decided the item, or it is gone.
    DecidedElsewhere,
}

/// Identifies an item among all. Two conversations of a workspace can have an event of the same id.
type ItemKey = (&'static str, WorkspaceId, Option<InstanceKey>, String);

fn key_of(item: &InboxItem) -> ItemKey {
    let at = item.conversation.clone();
    (item.kind, item.workspace_id.clone(), at, item.id.clone())
}

/// Shows the items one by one until all were seen or the user quits. Items that arrive in the meantime follow, and
/// items that are decided elsewhere are passed over.
pub(super) async fn run(only: Option<&WorkspaceId>, context: &Context) -> Result<(), Failure> {
    let live = LiveChanges::default();
    tokio::select! {
        ended = review(only, &live, context) => ended,
        () = live.follow(context) => Ok(()),
    }
}

async fn review(
    only: Option<&WorkspaceId>,
    live: &LiveChanges,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    let mut keys_pressed = Keys::default();
    let mut seen = HashSet::new();
    let mut decided = 0_u64;
    let mut skipped = 0_u64;
    let mut current = CurrentInbox::read(only, live, context).await?;
    let mut is_first = true;
    loop {
        // The first frame does not wait for a second read, which follows while it is shown.
        if !std::mem::replace(&mut is_first, false) {
            current.refresh().await?;
        }
        super::tell_of_failures(&current.inbox, context);
        let new = current.inbox.items.iter();
        let mut new = new.filter(|item| !seen.contains(&key_of(item)));
        let Some(item) = new.next().cloned() else {
            break;
        };
        let item = &item;
        let total = new.count() + 1;
        let mut client = context.connect().await?;
        let details = match details::read(&mut client, item, output.canvas(), context).await {
            Ok(details) => details,
            // Someone else decided it in the meantime.
            Err(failure) => {
                seen.insert(key_of(item));
                live.mark_workspace(&item.workspace_id);
                output.failure(&failure);
                continue;
            }
        };
        drop(client);
        let count = format!("{total} to decide");
        output.data(format!("\n{}", output.out.paint(style::FAINT, &count)))?;
        output.data(shown::item(item, Some(&details.text), None, context))?;
        let keys = decisions::keys(item, &details.subject);
        let waiting = WaitingItem {
            key: key_of(item),
            seen: &seen,
            total,
            current: &mut current,
            live,
            context,
        };
        let pressed = waiting.press(keys, &mut keys_pressed).await?;
        seen.insert(key_of(item));
        match pressed {
            Pressed::DecidedElsewhere => {}
            Pressed::Quit => {
                skipped += 1;
                break;
            }
            Pressed::Skip => skipped += 1,
            Pressed::Decide(choice, name) => {
                let Some(entered) = enter(item, &details.subject, choice, context)? else {
                    skipped += 1;
                    continue;
                };
                // The connection may have ended while the user was thinking.
                let mut client = context.connect().await?;
                live.mark_workspace(&item.workspace_id);
                let subject = &details.subject;
                let carried_out =
                    decisions::decide(&mut client, item, subject, choice, entered, context).await;
                match carried_out {
                    Ok(done) => {
                        decided += 1;
                        output.data(output.out.paint(style::GOOD, &done))?;
                    }
                    Err(failure) => {
                        output.note(format!("Could not {name} it:"));
                        output.failure(&failure);
                    }
                }
            }
        }
    }
    match (decided, skipped) {
        (0, 0) => output.data("Nothing needs you."),
        (decided, 0) => output.data(format!("{decided} decided. Nothing else needs you.")),
        (decided, skipped) => output.data(format!(
            "{decided} decided, {skipped} left. List: {}",
            context.command("inbox --list")
        )),
    }
}

/// An item that waits for a key.
struct WaitingItem<'a, 'c> {
    key: ItemKey,
    /// Items that are over, not this one.
    seen: &'a HashSet<ItemKey>,
    /// Number of items that are not over.
    total: usize,
    current: &'a mut CurrentInbox<'c>,
    live: &'a LiveChanges,
    context: &'a Context,
}

/// The inbox as it was read last.
struct CurrentInbox<'a> {
    inbox: Inbox,
    only: Option<&'a WorkspaceId>,
    live: &'a LiveChanges,
    context: &'a Context,
}

impl<'a> CurrentInbox<'a> {
    async fn read(
        only: Option<&'a WorkspaceId>,
        live: &'a LiveChanges,
        context: &'a Context,
    ) -> Result<Self, Failure> {
        let mut client = context.connect().await?;
        Ok(Self {
            inbox: items::read(&mut client, only, context).await?,
            only,
            live,
            context,
        })
    }

    /// Reads what has changed. With thousands of items, a complete read takes too long for a change to
    /// be visible at once.
    async fn refresh(&mut self) -> Result<(), Failure> {
        let stale = match self.live.take_stale() {
            Stale::Workspaces(ids) if ids.is_empty() => return Ok(()),
            // A list that could not be read belongs to no known workspace.
            Stale::Workspaces(_) if !self.inbox.failures.is_empty() => Stale::Everything,
            stale => stale,
        };
        let refreshed = self.refresh_these(&stale).await;
        if refreshed.is_err() {
            self.live.mark(stale);
        }
        refreshed
    }

    async fn refresh_these(&mut self, stale: &Stale) -> Result<(), Failure> {
        let mut client = self.context.connect().await?;
        if let Stale::Workspaces(ids) = stale {
            let mut is_complete = true;
            let wanted = |id: &&WorkspaceId| self.only.is_none_or(|only| only == *id);
            let ids: Vec<&WorkspaceId> = ids.iter().filter(wanted).collect();
            for id in ids {
                match items::read(&mut client, Some(id), self.context).await {
                    Ok(read) if read.failures.is_empty() => self.inbox.replace(id, read.items),
                    // The workspace may be closed.
                    Ok(_) | Err(CallError::Refused(_)) => is_complete = false,
                    Err(error) => return Err(error.into()),
                }
            }
            if is_complete {
                return Ok(());
            }
        }
        self.inbox = items::read(&mut client, self.only, self.context).await?;
        Ok(())
    }
}

impl WaitingItem<'_, '_> {
    /// Asks for a key that is offered, until the item is decided elsewhere.
    async fn press(mut self, keys: &[Key], pressed: &mut Keys) -> Result<Pressed, Failure> {
        let output = self.context.output;
        let offered = keys.iter().map(|(key, _, name)| format!("{key} {name}"));
        let offered: Vec<String> = offered
            .chain(["s skip".to_owned(), "q quit".to_owned()])
            .collect();
        let prompt = format!("{}: ", offered.join(", "));
        output.prompt(&prompt);
        let raw = RawMode::enter()?;
        let mut pause = Duration::ZERO;
        let mut shown_problem = false;
        let pressed = loop {
            let change = async {
                // Most of the time is left to the daemon.
                tokio::time::sleep(pause).await;
                self.live.changed.notified().await;
            };
            let key = tokio::select! {
                key = pressed.next() => key?,
                () = change => {
                    if let Some(problem) = self.live.problem() {
                        shown_problem = true;
                        output.replace_line(&format!("{problem}; {prompt}"));
                        continue;
                    }
                    let begun = Instant::now();
                    let left = match self.left().await {
                        Ok(left) => left,
                        // The daemon may be restarting.
                        Err(failure) => {
                            shown_problem = true;
                            let problem = failure.message;
                            output.replace_line(&format!("not live: {problem}; {prompt}"));
                            continue;
                        }
                    };
                    pause = begun.elapsed() * 3;
                    match left {
                        None => break Pressed::DecidedElsewhere,
                        Some(left) if left == self.total && !shown_problem => {}
                        Some(left) => {
                            self.total = left;
                            shown_problem = false;
                            output.replace_line(&format!("{left} to decide; {prompt}"));
                        }
                    }
                    continue;
                }
            };
            match key {
                None | Some('q') => break Pressed::Quit,
                Some('s' | ' ') => break Pressed::Skip,
                Some(other) => {
                    if let Some((_, choice, name)) = keys.iter().find(|(key, ..)| *key == other) {
                        break Pressed::Decide(*choice, name);
                    }
                }
            }
        };
        drop(raw);
        output.prompt(match &pressed {
            Pressed::Quit => "quit\n",
            Pressed::Skip => "skip\n",
            Pressed::DecidedElsewhere => "\nIt no longer needs you.\n",
            Pressed::Decide(_, name) => name,
        });
        if matches!(pressed, Pressed::Decide(..)) {
            output.prompt("\n");
        }
        Ok(pressed)
    }

    /// Number of items that are not over now; none if this item is.
    async fn left(&mut self) -> Result<Option<usize>, Failure> {
        self.current.refresh().await?;
        let inbox = &self.current.inbox;
        let is_there = inbox.items.iter().any(|item| key_of(item) == self.key);
        let left = inbox.items.iter();
        let left = left.filter(|item| !self.seen.contains(&key_of(item)));
        // A list that could not be read may have it.
        let is_known = is_there || !inbox.failures.is_empty();
        Ok(is_known.then(|| left.count()))
    }
}

/// Keys of the terminal. Each is read on request, because lines are read in between.
#[derive(Default)]
struct Keys {
    pending: Option<oneshot::Receiver<io::Result<Option<char>>>>,
}

impl Keys {
    /// Next key; none as for [`read_key`]. Cancel-safe: the key is kept for the next call.
    async fn next(&mut self) -> Result<Option<char>, Failure> {
        let pending = self.pending.get_or_insert_with(|| {
            let (read, pending) = oneshot::channel();
            // The thread ends with the process, because a blocking read of the terminal cannot be stopped.
            thread::spawn(move || drop(read.send(read_key())));
            pending
        });
        let key = pending.await;
        self.pending = None;
        // Only a thread that panicked sends none.
        Ok(key.unwrap_or(Ok(None))?)
    }
}

/// Keeps the terminal in raw mode, in which a key arrives without Enter.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // After a hang-up, the terminal is gone and needs no restore.
        drop(disable_raw_mode());
    }
}

/// Next character; none for Ctrl-C, Ctrl-D, Esc and a closed terminal.
fn read_key() -> io::Result<Option<char>> {
    loop {
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Esc => return Ok(None),
            KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(None),
            KeyCode::Char(char) => return Ok(Some(char.to_ascii_lowercase())),
            _ => {}
        }
    }
}

/// Asks for the text or the fields of a decision; none if the user enters none where one is required.
fn enter(
    item: &InboxItem,
    subject: &Subject,
    choice: Choice,
    context: &Context,
) -> Result<Option<EnteredText>, Failure> {
    let output = context.output;
    let mut entered = EnteredText::default();
    match (&item.target, choice, subject) {
        (Target::Question(_), Choice::Answer, Subject::Form(form)) => {
            return fields(form, context);
        }
        (_, Choice::Edit, Subject::Call(detail)) => {
            let Some(input) = arguments(detail, context)? else {
                output.note("The arguments were not changed.");
                return Ok(None);
            };
            entered.input = Some(input);
        }
        (_, Choice::Always, Subject::Call(detail)) => {
            entered.always = scope(detail, context)?;
            if entered.always.is_none() {
                return Ok(None);
            }
        }
        (_, Choice::Answer | Choice::Rework, _) => {
            output.prompt(match choice {
                Choice::Rework => "Requested changes: ",
                _ => "Answer: ",
            });
            entered.text = line()?;
            if entered.text.is_empty() {
                return Ok(None);
            }
        }
        (Target::Approval(_) | Target::Proposal(_) | Target::Changeset(..), Choice::No, _) => {
            output.prompt("Reason (optional): ");
            entered.text = line()?;
        }
        (Target::UnknownCall(..), Choice::Yes, _) => {
            output.prompt("Finding, for the audit log (optional): ");
            entered.text = line()?;
        }
        _ => {}
    }
    Ok(Some(entered))
}

/// Asks for the fields of a form, until each fits. An empty line takes the default value, or leaves an optional field
/// out.
fn fields(form: &QuestionForm, context: &Context) -> Result<Option<EnteredText>, Failure> {
    let output = context.output;
    let mut entered = EnteredText::default();
    for field in form.fields() {
        let takes = question::takes(&field.takes);
        let default = field.default.as_ref().map(question::value_of);
        let hint = match (&default, field.required) {
            (Some(default), _) => format!("{takes}; Enter: {default}"),
            (None, true) => takes,
            (None, false) => format!("{takes}; Enter: none"),
        };
        loop {
            output.prompt(&format!("{} ({hint}): ", field.name));
            let text = line()?;
            match (text.is_empty(), &field.default, field.required) {
                (true, Some(default), _) => {
                    entered.fields.insert(field.name.clone(), default.clone());
                }
                (true, None, true) => return Ok(None),
                (true, None, false) => {}
                (false, ..) => match field.read(&text) {
                    Ok(value) => {
                        entered.fields.insert(field.name.clone(), value);
                    }
                    Err(problem) => {
                        output.note(format!("`{}` {problem}", field.name));
                        continue;
                    }
                },
            }
            break;
        }
    }
    Ok(Some(entered))
}

/// Asks for changed arguments of a call: in the user's editor, or one after another.
fn arguments(detail: &ApprovalDetail, context: &Context) -> Result<Option<Value>, Failure> {
    if let Some(editor) = call_arguments::editor() {
        return call_arguments::edit(&editor, detail, context);
    }
    let output = context.output;
    let schema = detail.schema.as_ref();
    let mut input = detail.input.clone();
    loop {
        output.prompt("Change (NAME=VALUE; Enter: done): ");
        let text = line()?;
        if text.is_empty() {
            return Ok(Some(input).filter(|input| *input != detail.input));
        }
        let assignment = call_arguments::parse_assignment(&text);
        let changed = assignment.and_then(|it| call_arguments::set(&input, schema, &it));
        let checked = changed.and_then(|changed| {
            call_arguments::check(&changed, schema)?;
            Ok(changed)
        });
        match checked {
            Ok(changed) => input = changed,
            Err(problem) => output.note(problem),
        }
    }
}

/// Asks which later calls a standing approval covers. None if the user approves none.
fn scope(detail: &ApprovalDetail, context: &Context) -> Result<Option<ApprovalScope>, Failure> {
    let output = context.output;
    let info = &detail.approval;
    output.note(format!(
        "From now on, {} of {} runs without asking if its arguments are exactly those above.",
        text::one_line(&info.tool_name),
        text::one_line(info.agent_name.as_str()),
    ));
    let key = text::one_line(info.instance_key.as_str());
    output.prompt(&format!(
        "c: in conversation {key}; w: in the whole workspace; Enter: cancel: "
    ));
    Ok(match line()?.to_lowercase().as_str() {
        "c" => Some(ApprovalScope::Conversation),
        "w" => Some(ApprovalScope::Workspace),
        _ => None,
    })
}

/// A line from the terminal, without surrounding spaces.
fn line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
