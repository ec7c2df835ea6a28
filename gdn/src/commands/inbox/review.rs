//! The inbox on a terminal: one item after another, each decided with a key.

use std::collections::HashSet;
use std::io::{self, BufRead as _};
use std::thread;
use std::time::{Duration, Instant};

use goondan_protocol::ids::WorkspaceId;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use tokio::sync::oneshot;

use super::changes::LiveChanges;
use super::current::CurrentInbox;
use super::decisions::{self, Choice, EnteredText, Key};
use super::details::{self, Subject};
use super::entry::{Entry, EntryStep};
use super::items::{InboxItem, ItemKey};
use super::shown;
use crate::commands::call_arguments;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;

/// The end of the wait for a key.
enum Pressed {
    Decide(Choice, &'static str),
    Skip,
    Quit,
    /// No key: another person decided the item, or it is gone.
    DecidedElsewhere,
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
        let mut new = new.filter(|item| !seen.contains(&item.key()));
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
                seen.insert(item.key());
                live.mark_workspace(&item.workspace_id);
                output.failure(&failure);
                continue;
            }
        };
        drop(client);
        let count = format!("{total} to decide");
        output.data(format!("\n{}", output.out.paint(style::FAINT, &count)))?;
        output.data(shown::item(
            item,
            Some(&details.text),
            None,
            output.out,
            context,
        ))?;
        let keys = decisions::keys(item, &details.subject);
        let waiting = WaitingItem {
            key: item.key(),
            seen: &seen,
            total,
            current: &mut current,
            live,
            context,
        };
        let pressed = waiting.press(keys, &mut keys_pressed).await?;
        seen.insert(item.key());
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
        let is_there = inbox.items.iter().any(|item| item.key() == self.key);
        let left = inbox.items.iter();
        let left = left.filter(|item| !self.seen.contains(&item.key()));
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

/// Asks for the parts that a decision needs; none if the user enters none where one is required.
fn enter(
    item: &InboxItem,
    subject: &Subject,
    choice: Choice,
    context: &Context,
) -> Result<Option<EnteredText>, Failure> {
    let output = context.output;
    if let (Choice::Edit, Subject::Call(detail)) = (choice, subject)
        && let Some(editor) = call_arguments::editor()
    {
        let input = call_arguments::edit(&editor, detail, context)?;
        if input.is_none() {
            output.note("The arguments were not changed.");
        }
        return Ok(input.map(|input| EnteredText {
            input: Some(input),
            ..EnteredText::default()
        }));
    }
    let mut step = Entry::begin(item, subject, choice);
    loop {
        let (entry, problem) = match step {
            EntryStep::Done(entered) => return Ok(Some(entered)),
            EntryStep::Canceled(reason) => {
                if let Some(reason) = reason {
                    output.note(reason);
                }
                return Ok(None);
            }
            EntryStep::Ask(entry, problem) => (entry, problem),
        };
        if let Some(note) = problem.or_else(|| entry.note()) {
            output.note(note);
        }
        output.prompt(&format!("{}: ", entry.prompt()));
        step = entry.take(&line()?);
    }
}

/// A line from the terminal, without surrounding spaces.
fn line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
