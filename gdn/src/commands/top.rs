//! `gdn top`: full-screen live view of a project (`OBS-4`).
//!
//! [`draw`] renders the state, [`app`] handles input without a terminal, and [`feeds`] fill the state over several
//! connections: one watches the project or all workspaces, one follows the log, one reads the inbox, which `gdn inbox`
//! shows and decides in the same way, and one queries the rest when something has changed.

mod app;
mod board;
mod draw;
mod feeds;
mod input;
mod reload;
mod rows;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::time::{Duration, Instant};

use clap::Args;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::app::{App, ConnectionState};
use self::draw::RenderContext;
use self::feeds::FeedRequest;
use self::input::{FeedQuery, LogSource, Size, TopEffect, TopInput};
use self::terminal::{Screen, TerminalEvent};
use self::view::Scope;
pub(crate) use self::view::View;
use super::inbox::{self, LiveChanges};
use super::ps::{self, PsArgs};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Show a live full-screen view of the project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn top
  gdn top --view inbox                   everything that needs a person, decided with keys
  gdn top --view conversations --read-only
  gdn top --once                         one picture, for a script or a report
  gdn top --json | jq '.processes[].detail'

`?` shows what the keys do. Continues across restarts of the daemon. Outside a project, shows the
inbox and the processes of every workspace.")]
pub(crate) struct TopArgs {
    /// Initial view: overview (default), conversations, processes, events, budgets, logs or inbox
    #[arg(long, value_name = "VIEW", hide_possible_values = true)]
    view: Option<View>,
    /// Disable the keys that cancel, restart and decide
    #[arg(long)]
    read_only: bool,
    /// Print one frame and exit; so does --json
    #[arg(long)]
    once: bool,
}

/// Minimum time between frames without input, in milliseconds.
const FRAME_MS: u64 = 40;
/// Interval between redraws that update the times, in milliseconds.
const TICK_MS: u64 = 1_000;
/// Maximum number of inputs handled before a redraw.
const INPUTS_AT_ONCE_MAX: usize = 4_096;
/// Size of a printed frame if there is no terminal.
const PICTURE: Size = Size {
    columns: 100,
    rows: 30,
};

pub(crate) async fn run(args: &TopArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let is_once = args.once || output.is_json();
    if !is_once && !output.is_watched() {
        return Err(Failure::new(
            Exit::Usage,
            "`gdn top` needs a terminal",
            format!("print one picture: `{}`", context.command("top --once")),
        ));
    }
    let is_all = context.covers_all(false) && !context.is_only_remote_workspace().await?;
    let scope = match is_all {
        true => Scope::All,
        false => Scope::Project,
    };
    let view = args.view.unwrap_or_else(|| scope.first());
    if is_once && is_all && args.view.is_none_or(|view| view == View::Processes) {
        return ps::run(&PsArgs::everywhere(), context).await;
    }
    if !scope.views().contains(&view) {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the view `{}` shows one project",
                view.title().to_lowercase()
            ),
            "run it in the project, or name one: `gdn --workspace ID top`",
        ));
    }
    if is_once {
        return once(scope, view, context).await;
    }
    // Report a missing project before the terminal switches to full screen.
    drop(context.open_scope(is_all).await?);
    let mut screen = Screen::take()?;
    let (typed, keys) = mpsc::unbounded_channel();
    terminal::read_keys(typed);
    let size = screen.terminal().size().map_or(PICTURE, |size| Size {
        columns: size.width,
        rows: size.height,
    });
    let (inputs, told) = mpsc::unbounded_channel();
    let (requests, requested) = mpsc::unbounded_channel();
    let (logs, wanted_logs) = watch::channel(LogSource::Project);
    let session = TopSession {
        app: App::new(scope, view, args.read_only, size),
        context,
        requests,
        logs,
    };
    let live = LiveChanges::default();
    let watch = async {
        match scope {
            Scope::Project => feeds::watch_project(context, &inputs).await,
            Scope::All => feeds::watch_all(context, &inputs).await,
        }
    };
    tokio::select! {
        ended = session.run(&mut screen, keys, told) => ended,
        () = watch => Ok(()),
        () = feeds::follow_inbox(context, scope, &live, &inputs) => Ok(()),
        () = feeds::answer((context, scope), &live, requested, &inputs) => Ok(()),
        () = feeds::follow_logs(context, wanted_logs, &inputs) => Ok(()),
    }
}

/// Application state and the channels for its requests.
struct TopSession<'a> {
    app: App,
    context: &'a Context,
    requests: mpsc::UnboundedSender<FeedRequest>,
    logs: watch::Sender<LogSource>,
}

impl TopSession<'_> {
    async fn run(
        mut self,
        screen: &mut Screen,
        mut keys: mpsc::UnboundedReceiver<TerminalEvent>,
        mut told: mpsc::UnboundedReceiver<TopInput>,
    ) -> Result<(), Failure> {
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut tick = tokio::time::interval(Duration::from_millis(TICK_MS));
        let mut drawn_at = Instant::now();
        let mut is_drawn = false;
        if !self.draw(screen) {
            return Ok(());
        }
        loop {
            let frame = drawn_at + Duration::from_millis(FRAME_MS);
            tokio::select! {
                biased;
                _ = hang_up.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                typed = keys.recv() => {
                    match typed {
                        Some(TerminalEvent::Key(key)) => if self.take(TopInput::Key(key)) {
                            return Ok(());
                        },
                        Some(TerminalEvent::Resized(size)) => drop(self.take(TopInput::Resized(size))),
                        // The terminal is gone.
                        None => return Ok(()),
                    }
                    // Redraw immediately after a key.
                    if !self.draw(screen) {
                        return Ok(());
                    }
                    (drawn_at, is_drawn) = (Instant::now(), true);
                }
                () = tokio::time::sleep_until(frame.into()), if !is_drawn => {
                    if !self.draw(screen) {
                        return Ok(());
                    }
                    (drawn_at, is_drawn) = (Instant::now(), true);
                }
                Some(input) = told.recv() => {
                    self.take_all(input, &mut told);
                    is_drawn = false;
                }
                _ = tick.tick() => {
                    self.take(TopInput::Tick);
                    is_drawn = false;
                }
            }
        }
    }

    fn take_all(&mut self, first: TopInput, told: &mut mpsc::UnboundedReceiver<TopInput>) {
        self.take(first);
        for _ in 0..INPUTS_AT_ONCE_MAX {
            match told.try_recv() {
                Ok(more) => self.take(more),
                Err(_) => return,
            };
        }
    }

    /// Handles an input and its effects. Returns true to quit.
    fn take(&mut self, input: TopInput) -> bool {
        let mut is_over = false;
        for effect in self.app.handle(input, text::now()) {
            // The feeds live as long as this session.
            match effect {
                TopEffect::Quit => is_over = true,
                TopEffect::Load(FeedQuery::Logs(of)) => drop(self.logs.send(of)),
                TopEffect::Load(wanted) => drop(self.requests.send(FeedRequest::Load(wanted))),
                TopEffect::Act(act) => drop(self.requests.send(FeedRequest::Act(act))),
            }
        }
        is_over
    }

    /// Draws a frame. False if the terminal is closed.
    fn draw(&self, screen: &mut Screen) -> bool {
        let ink = ink(self.context, text::now());
        let terminal = screen.terminal();
        let drawn = terminal.draw(|frame| draw::draw(frame, &self.app, ink));
        drawn.is_ok()
    }
}

fn ink(context: &Context, now: Timestamp) -> RenderContext<'_> {
    RenderContext {
        context,
        now,
        has_colors: context.output.out.is_on(),
    }
}

/// Prints a single frame.
async fn once(scope: Scope, view: View, context: &Context) -> Result<(), Failure> {
    let (mut client, only) = context.open_scope(scope == Scope::All).await?;
    let Some(facts) = feeds::facts(&mut client, only.as_ref()).await? else {
        return Err(context.open().await.err().unwrap_or_else(|| {
            Failure::new(
                Exit::NotFound,
                "the project was stopped",
                "start it: `gdn run`",
            )
        }));
    };
    let output = context.output;
    let mut object = json!({ "processes": facts.processes });
    let mut inputs = Vec::new();
    let mut add = |name: &str, value: Value| {
        object
            .as_object_mut()
            .map(|object| object.insert(name.to_owned(), value));
    };
    if let Some(id) = &only {
        let page = client.query(feeds::conversations_of(id)).await?;
        let usage = client.query(feeds::usage_of(id)).await?;
        add("workspace", json!(facts.workspace()));
        add("conversations", json!(page.instances));
        add("conversationsTotal", json!(page.total));
        add("usage", json!(usage.total));
        add("budgets", json!(usage.budgets));
        inputs.push(TopInput::Conversations(Box::new(page)));
        inputs.push(TopInput::Usage(Box::new(usage)));
    }
    if view == View::Inbox {
        let inbox = inbox::read(&mut client, only.as_ref(), context).await?;
        add("inbox", json!(inbox.items));
        add("unreadable", json!(inbox.failures));
        inputs.push(TopInput::Inbox(Box::new(inbox)));
    }
    inputs.push(TopInput::Facts(Box::new(facts)));
    output.object(schemas::TOP, &object)?;
    let now = text::now();
    let size = terminal_size::terminal_size_of(std::io::stdout());
    // Leaves the last line for the shell prompt.
    let size = size.map_or(PICTURE, |(columns, rows)| Size {
        columns: columns.0,
        rows: rows.0.saturating_sub(1),
    });
    let mut app = App::new(scope, view, true, size);
    for input in inputs {
        app.handle(input, now);
    }
    app.link = ConnectionState::Up;
    output.data(draw::as_text(&app, ink(context, now), size))
}
