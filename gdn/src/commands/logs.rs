//! `gdn logs`: logs of the daemon, its agents and its connectors (`OBS-2`).
//!
//! A background daemon writes log files, which are read directly: lines from before its last start are available, with
//! or without a running daemon, and following continues across restarts. A daemon that logs to stdout keeps its latest
//! lines in memory and is queried for them.

use clap::{Args, ValueEnum};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use goondan_config::nearest_name;
use goondan_protocol::control::{EmptyResult, FollowLogs, LogLevel, LogProcess};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::client::{CallError, Client, ConnectError, Notice, RequestTimeout};
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::invisible::harmless_json;
use crate::output::style::Palette;
use crate::output::text;

mod files;
mod filter;
mod keys;
mod live_filter;
pub(super) mod render;

use super::completion_values;
use super::names;
use files::{Follower, LogFiles};
use filter::Filter;
use keys::KeyTerminal;
use live_filter::{Change, Key, LiveFilter};
use render::Details;

/// Number of lines shown by default.
const DEFAULT_LOG_LINES: usize = 50;

/// Show the logs of the daemon, agents and connectors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn logs -f                            follow this project
  gdn logs -n 200 --agent clerk
  gdn logs --since 2h --level warn       recent problems
  gdn logs -v                            with the ids of traces, events and turns
  gdn logs --trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn logs --all --json | jq 'select(.level == \"error\")'

On a terminal, keys narrow what --follow shows: `/` begins a text that lines must contain, Enter applies
it, 1 to 5 select the lowest level (1 is error, 5 is trace), and Esc shows all lines again.")]
pub(crate) struct LogsArgs {
    /// Follow new lines as they arrive
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Number of latest lines to start with [default: 50; all with --since or --until]
    #[arg(long, short = 'n', short_alias = 'l', value_name = "N")]
    lines: Option<usize>,
    /// Only lines since this time: `2026-01-31T12:00:00Z`, `2026-01-31`, or `90s`, `15m`, `2h`, `7d` ago
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<Timestamp>,
    /// Only lines before this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "follow")]
    until: Option<Timestamp>,
    /// Minimum log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    level: Option<Level>,
    /// Only lines of this kind of process: orchestrator, agent, connector or replica; or of one, such as connector-hook
    #[arg(long, short, value_name = "KIND")]
    process: Option<ProcessArg>,
    /// Only lines of this agent
    #[arg(long, short, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only lines of this conversation
    #[arg(long = "conversation", short = 'i', value_name = "KEY", aliases = ["instance", "instance-key"])]
    instance: Option<InstanceKey>,
    /// Only lines about this event
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,
    /// Only lines of this trace
    #[arg(long, value_name = "ID")]
    trace: Option<TraceId>,
    /// Include every workspace and the daemon itself; the default outside a project
    #[arg(long)]
    all: bool,
    /// Has no effect, because every process has one log
    #[arg(long, value_name = "STREAM", hide = true)]
    stream: Option<String>,
}

/// Values of `--level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Value of `--process`: a kind of process, and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessArg {
    kind: LogProcess,
    name: Option<String>,
}

impl FromStr for ProcessArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const KINDS: [(&str, LogProcess); 4] = [
            ("orchestrator", LogProcess::Orchestrator),
            ("agent", LogProcess::Agent),
            ("connector", LogProcess::Connector),
            ("replica", LogProcess::Replica),
        ];
        let (kind, name) = match text.split_once('-') {
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (text, None),
        };
        if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == kind) {
            return Ok(Self { kind: *kind, name });
        }
        let known = KINDS.map(|(known, _)| known);
        let near = nearest_name(kind, known);
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Err(format!("expected one of: {}{near}", known.join(", ")))
    }
}

impl LogsArgs {
    /// Number of latest lines to show.
    pub(crate) fn lines(&self) -> usize {
        let is_of_a_time = self.since.is_some() || self.until.is_some();
        let usual = match is_of_a_time {
            true => usize::MAX,
            false => DEFAULT_LOG_LINES,
        };
        self.lines.unwrap_or(usual)
    }

    /// Agent in `--process agent-NAME`.
    fn agent_of_process(&self) -> Option<AgentName> {
        let process = self.process.as_ref()?;
        let name = process.name.as_ref()?;
        let is_agent = process.kind == LogProcess::Agent;
        is_agent.then(|| name.parse().ok()).flatten()
    }

    /// Connection in `--process connector-NAME`.
    fn connection(&self) -> Option<String> {
        let process = self.process.as_ref()?;
        let is_connector = process.kind == LogProcess::Connector;
        process.name.clone().filter(|_| is_connector)
    }

    /// Line filter from the arguments, without the workspace.
    pub(crate) fn chosen(&self) -> FollowLogs {
        FollowLogs {
            agent: self.agent.clone().or_else(|| self.agent_of_process()),
            instance_key: self.instance.clone(),
            event_id: self.event.clone(),
            trace_id: self.trace,
            process: self.process.as_ref().map(|process| process.kind),
            level: self.level.map(|level| match level {
                Level::Error => LogLevel::Error,
                Level::Warn => LogLevel::Warn,
                Level::Info => LogLevel::Info,
                Level::Debug => LogLevel::Debug,
                Level::Trace => LogLevel::Trace,
            }),
            since: self.since,
            until: self.until,
            ..FollowLogs::default()
        }
    }
}

/// Parses a time, a date (its start in UTC), or a duration before now.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let units = [
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000_i64),
    ];
    for (unit, unit_ms) in units {
        if let Some(Ok(count)) = text.strip_suffix(unit).map(str::parse::<u32>) {
            let ago_ms = unit_ms.saturating_mul(i64::from(count));
            let now_ms = text::now().as_unix_millis();
            return Ok(Timestamp::from_unix_millis(now_ms.saturating_sub(ago_ms)));
        }
    }
    text.parse()
        .or_else(|_| format!("{text}T00:00:00Z").parse())
        .map_err(|_| {
            format!(
                "invalid time `{text}`: expected 2026-01-31T12:00:00Z, 2026-01-31, or an age such as 90s, 15m, 2h or 7d"
            )
        })
}

/// Polling interval while files are followed, in milliseconds.
const LOOK_MS: u64 = 100;

/// Interval between checks for a running daemon, in milliseconds.
const RECONNECT_MS: u64 = 500;

/// Keys while the log is followed.
const KEYS: &str = "Keys: / text, 1 to 5 level, Esc all lines, Ctrl-C end.";

/// Number of the signal that continues a stopped process.
const CONTINUED: i32 = nix::sys::signal::Signal::SIGCONT as i32;

pub(crate) async fn run(mut args: LogsArgs, context: &Context) -> Result<(), Failure> {
    args.all = context.covers_all(args.all);
    if args.stream.is_some() {
        let note = "`--stream` has no effect: a process has one log for both of its streams.";
        context.output.note(note);
    }
    let usual = LogFiles::of(daemon::log_dir(&context.state_root));
    let mut client = match Client::connect(&context.endpoint).await {
        Ok(client) => Some(client),
        Err(ConnectError::NotRunning { .. } | ConnectError::NotListening { .. })
            if context.remote().is_none() && usual.exist() =>
        {
            context.check_format()?;
            None
        }
        Err(error) => return Err(error.into()),
    };
    let workspaces = match args.all {
        true => None,
        false => Some(of_project(client.as_mut(), context).await?),
    };
    let reader = LogPrinter {
        filter: Filter {
            workspaces,
            connection: args.connection(),
            chosen: args.chosen(),
        },
        args,
        context,
        has_shown: Cell::new(false),
        live_filter: RefCell::new(None),
    };
    let unknown = match client.as_mut() {
        Some(client) if !reader.args.all => reader.unknown_name(client).await?,
        _ => None,
    };
    if let Some(unknown) = &unknown
        && reader.args.follow
    {
        // Lines with this name may still arrive.
        reader.note(&format!("{}. Hint: {}", unknown.message, unknown.hint));
    }
    let shown = reader.show_all(client, &usual, unknown);
    let is_narrowed_by_keys = reader.args.follow && context.output.is_watched();
    let terminal = is_narrowed_by_keys.then(KeyTerminal::take).flatten();
    let Some(terminal) = terminal else {
        return shown.await;
    };
    *reader.live_filter.borrow_mut() = Some(LiveFilter::default());
    reader.note(KEYS);
    tokio::select! {
        shown = shown => shown,
        ended = reader.narrow(&terminal, terminal.keys()) => ended,
    }
}

/// Workspaces of the current project: the running one, or all that have run before.
async fn of_project(
    mut client: Option<&mut Client>,
    context: &Context,
) -> Result<Vec<WorkspaceId>, Failure> {
    if let Some(client) = client.as_deref_mut()
        && context.remote().is_some()
    {
        return Ok(vec![context.find(client).await?.workspace_id]);
    }
    let not_running = match client {
        Some(client) => match context.find(client).await {
            Ok(found) => return Ok(vec![found.workspace_id]),
            Err(failure) => failure,
        },
        None => Failure::from(ConnectError::NotRunning {
            state_root: context.state_root.clone(),
        }),
    };
    // A workspace named by its id may have logged even if all its other data was deleted.
    let known: Vec<WorkspaceId> = match context.workspace_id() {
        Some(id) => vec![id],
        None => completion_values::of(context)?
            .into_iter()
            .map(|it| it.id)
            .collect(),
    };
    match (not_running.exit, known.is_empty()) {
        (Exit::NotFound | Exit::DaemonNotRunning, false) => Ok(known),
        _ => Err(not_running),
    }
}

/// Shows lines from files and from the daemon's memory.
struct LogPrinter<'c> {
    args: LogsArgs,
    filter: Filter,
    context: &'c Context,
    /// True if a line was shown.
    has_shown: Cell<bool>,
    /// Filter that the user types; none without a terminal.
    live_filter: RefCell<Option<LiveFilter>>,
}

impl LogPrinter<'_> {
    /// Shows the lines of the current daemon and, with `--follow`, of all later ones.
    async fn show_all(
        &self,
        mut client: Option<Client>,
        usual: &LogFiles,
        unknown: Option<Failure>,
    ) -> Result<(), Failure> {
        let mut lines = self.args.lines();
        loop {
            let log_dir = client.as_ref().map(|client| {
                let log_dir = client.daemon().log_dir.clone();
                // The files of another machine cannot be read from here.
                log_dir.filter(|_| self.context.remote().is_none())
            });
            let next = match (client, log_dir) {
                (Some(client), Some(None)) => self.of_daemon(client, lines).await?,
                (client, Some(Some(dir))) => {
                    self.of_files(&LogFiles::of(dir), client, lines).await?
                }
                (client, _) => self.of_files(usual, client, lines).await?,
            };
            let Some(next) = next else {
                // An agent or conversation that no longer exists may have logged.
                let unknown = unknown.or_else(|| self.nothing_about());
                return match unknown.filter(|_| !self.has_shown.get()) {
                    Some(unknown) => Err(unknown),
                    None => Ok(()),
                };
            };
            // All lines of another daemon are new.
            (client, lines) = (Some(next), usize::MAX);
        }
    }

    /// Narrows the lines by keys until a signal ends this process, which then restores the terminal first.
    async fn narrow(
        &self,
        terminal: &KeyTerminal,
        mut keys: UnboundedReceiver<Key>,
    ) -> Result<(), Failure> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut resume = signal(SignalKind::from_raw(CONTINUED))?;
        let mut is_open = true;
        loop {
            tokio::select! {
                key = keys.recv(), if is_open => match key {
                    Some(key) => self.press(key)?,
                    None => is_open = false,
                },
                _ = resume.recv() => terminal.apply(),
                _ = interrupt.recv() => return Err(interrupted()),
                _ = hang_up.recv() => return Err(interrupted()),
                _ = terminate.recv() => return Err(interrupted()),
                _ = quit.recv() => return Err(interrupted()),
            }
        }
    }

    fn press(&self, key: Key) -> Result<(), Failure> {
        let change = match self.live_filter.borrow_mut().as_mut() {
            Some(filter) => filter.press(key),
            None => Change::Nothing,
        };
        let output = self.context.output;
        match change {
            Change::Nothing => {}
            Change::Typed(typed) => output.replace_line(&format!("/{typed}")),
            Change::Shown { title, lines } => {
                output.replace_line("");
                if let Some(title) = title {
                    output.note(title);
                }
                for line in lines {
                    output.data(line)?;
                }
            }
        }
        Ok(())
    }

    /// Failure if a named agent or conversation does not exist now.
    async fn unknown_name(&self, client: &mut Client) -> Result<Option<Failure>, Failure> {
        let args = &self.args;
        if args.agent.is_none() && args.instance.is_none() {
            return Ok(None);
        }
        let Ok(workspace) = self.context.find(client).await else {
            return Ok(None);
        };
        let (key, id) = (args.instance.as_ref(), &workspace.workspace_id);
        let known = match names::check_agent(args.agent.as_ref(), &workspace) {
            Ok(()) => names::check_conversation(key, client, id, self.context).await,
            unknown => unknown,
        };
        match known {
            Err(failure) if failure.exit == Exit::NotFound => Ok(Some(failure)),
            known => known.map(|()| None),
        }
    }

    /// Failure of a search that found no line of an event or a trace; none if other arguments can be
    /// the reason.
    fn nothing_about(&self) -> Option<Failure> {
        let args = &self.args;
        let (subject, everywhere) = match (&args.event, args.trace) {
            (Some(event), None) => (
                format!("event `{event}`"),
                self.context.command(&format!("logs --all --event {event}")),
            ),
            (None, Some(trace)) => (
                format!("trace `{trace}`"),
                self.context.command(&format!("logs --all --trace {trace}")),
            ),
            _ => return None,
        };
        let is_narrowed = args.follow
            || args.lines() == 0
            || args.since.is_some()
            || args.until.is_some()
            || args.level.is_some()
            || args.process.is_some()
            || args.agent.is_some()
            || args.instance.is_some();
        if is_narrowed {
            return None;
        }
        let message = format!("no log line of {subject}");
        let hint = match args.all {
            true => format!(
                "check the id: `{}`; older log files may have been deleted",
                self.context.command("event list")
            ),
            false => format!("search every workspace: `{everywhere}`"),
        };
        Some(Failure::new(Exit::NotFound, message, hint))
    }

    fn show(&self, line: &str) -> Result<(), Failure> {
        self.has_shown.set(true);
        let output = self.context.output;
        if output.is_json() {
            return output.raw(&harmless_json(line));
        }
        let details = Details {
            ids: output.is_verbose(),
            workspace: self.args.all,
        };
        let painted = render::render(line, details, output.out);
        match self.live_filter.borrow_mut().as_mut() {
            None => output.data(painted),
            Some(filter) => {
                let plain = render::render(line, details, Palette::new(false));
                let shown = filter.take(line, painted, &plain);
                shown.map_or(Ok(()), |shown| output.data(shown))
            }
        }
    }

    /// Shows the lines in the files. With `--follow`, runs until a daemon starts that logs elsewhere, and returns its
    /// connection.
    async fn of_files(
        &self,
        files: &LogFiles,
        client: Option<Client>,
        lines: usize,
    ) -> Result<Option<Client>, Failure> {
        let read = files.latest(lines, &self.filter);
        let (latest, follower) = read.map_err(|error| unreadable(files.dir(), &error))?;
        if client.is_none() {
            let dir = files.dir().display();
            self.note(&format!("No daemon runs; reading the files in {dir}."));
        }
        for line in latest {
            self.show(&line)?;
        }
        if !self.args.follow {
            return Ok(None);
        }
        self.follow_files(files.dir(), follower, client).await
    }

    async fn follow_files(
        &self,
        dir: &Path,
        mut follower: Follower,
        client: Option<Client>,
    ) -> Result<Option<Client>, Failure> {
        let mut watch = DaemonWatch::of(client);
        loop {
            let news = follower.look().map_err(|error| unreadable(dir, &error))?;
            if news.has_lost {
                self.note("Some lines are missing: files were rotated away before they were read.");
            }
            for line in news.lines.iter().filter(|line| self.filter.takes(line)) {
                self.show(line)?;
            }
            if let Some(client) = watch.look(self.context).await {
                match client.daemon().log_dir.as_deref() {
                    Some(other) if other == dir => watch = DaemonWatch::of(Some(client)),
                    _ => return Ok(Some(client)),
                }
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }

    /// Shows the lines in a daemon's memory. With `--follow`, runs until another daemon starts, and returns its
    /// connection.
    async fn of_daemon(&self, mut client: Client, lines: usize) -> Result<Option<Client>, Failure> {
        let follow = FollowLogs {
            tail: lines,
            follow: self.args.follow,
            workspace_id: self.filter.workspaces.iter().flatten().next().cloned(),
            ..self.filter.chosen.clone()
        };
        let request_timeout = match self.args.follow {
            true => RequestTimeout::Endless,
            false => RequestTimeout::Query,
        };
        // Printing fails if the reader of stdout is gone; then no more lines are needed.
        let stop = Notify::new();
        let mut failed = None;
        let mut print = |notice| {
            if let Notice::Line(line) = notice
                && self.filter.takes_connection(line.get())
                && let Err(failure) = self.show(line.get())
            {
                failed.get_or_insert(failure);
                stop.notify_one();
            }
        };
        let ended = tokio::select! {
            ended = client.watch(follow, request_timeout, &mut print) => ended,
            () = stop.notified() => Ok(EmptyResult {}),
        };
        if let Some(failure) = failed {
            return Err(failure);
        }
        match ended {
            Err(CallError::Lost { .. }) if self.args.follow && self.context.remote().is_none() => {
                drop(client);
                let mut watch = DaemonWatch::gone(self.context);
                loop {
                    tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
                    if let Some(next) = watch.look(self.context).await {
                        return Ok(Some(next));
                    }
                }
            }
            ended => Ok(ended.map(|_| None)?),
        }
    }

    fn note(&self, text: &str) {
        self.context.output.note(text);
    }
}

/// Tracks if a daemon runs, and notifies the user when that changes.
struct DaemonWatch {
    /// Waits for the end of the daemon's connection; empty while no daemon runs.
    running: JoinSet<()>,
    looked: tokio::time::Instant,
}

impl DaemonWatch {
    fn of(client: Option<Client>) -> Self {
        let mut running = JoinSet::new();
        if let Some(client) = client {
            running.spawn(client.closed());
        }
        Self {
            running,
            looked: tokio::time::Instant::now(),
        }
    }

    fn gone(context: &Context) -> Self {
        context
            .output
            .note("The daemon has ended; waiting for the next one.");
        Self::of(None)
    }

    /// Returns a daemon that has started since the last check.
    async fn look(&mut self, context: &Context) -> Option<Client> {
        if self.running.try_join_next().is_some() {
            *self = Self::gone(context);
        }
        if !self.running.is_empty() {
            return None;
        }
        if self.looked.elapsed() < Duration::from_millis(RECONNECT_MS) {
            return None;
        }
        self.looked = tokio::time::Instant::now();
        let client = Client::connect(&context.endpoint).await.ok()?;
        let pid = client.daemon().pid;
        context
            .output
            .note(format!("A daemon runs again: pid {pid}."));
        Some(client)
    }
}

fn unreadable(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Internal,
        format!("cannot read the log files in {}", dir.display()),
        format!("check their permissions: `ls -l {}`", dir.display()),
    )
    .caused_by(Some(error))
}

/// The end by Ctrl-C or another signal, which needs no words.
fn interrupted() -> Failure {
    Failure {
        silent: true,
        ..Failure::new(
            Exit::Interrupted,
            "interrupted",
            "continue with `gdn logs -f`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_kind_and_perhaps_a_name() {
        let process = |text: &str| text.parse::<ProcessArg>();
        let hook = process("connector-my-hook").unwrap();
        assert_eq!(hook.kind, LogProcess::Connector);
        assert_eq!(hook.name.as_deref(), Some("my-hook"));
        assert_eq!(process("agent").unwrap().name, None);
        let error = process("conector").unwrap_err();
        assert!(error.contains("did you mean `connector`?"), "{error}");
    }

    #[test]
    fn a_time_is_written_out_or_counted_back_from_now() {
        for written in ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"] {
            assert_eq!(
                parse_time(written).unwrap().to_string(),
                "2026-01-31T12:00:00.000Z"
            );
        }
        assert_eq!(
            parse_time("2026-01-31").unwrap().to_string(),
            "2026-01-31T00:00:00.000Z"
        );
        let now_ms = text::now().as_unix_millis();
        let hour_ago_ms = parse_time("60m").unwrap().as_unix_millis();
        assert!((3_590_000..=3_600_000).contains(&(now_ms - hour_ago_ms)));
        for bad in ["", "s", "-1d", "7", "2026-02-30", "yesterday", "1w"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
