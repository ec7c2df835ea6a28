//! The options of `gdn logs`.

use clap::{Args, ValueEnum};
use goondan_protocol::control::{FollowLogs, LogLevel, LogProcess};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;

use crate::output::text;

/// How many lines are shown when nothing is said of it.
const DEFAULT_LOG_LINES: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Go on with new lines as they come
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How many of the latest lines to begin with [default: 50, with --since or --until all]
    #[arg(long, short = 'n', value_name = "N")]
    lines: Option<usize>,
    /// Only lines from this time on: `2026-01-31T12:00:00Z`, `2026-01-31`, or `90s`, `15m`, `2h`, `7d` ago
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<Timestamp>,
    /// Only lines of before this time, written in the same ways
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "follow")]
    until: Option<Timestamp>,
    /// Only lines that weigh as much or more: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    level: Option<Level>,
    /// Only lines of such processes: orchestrator, agent or connector
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    process: Option<Kind>,
    /// Only lines of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only lines of this conversation
    #[arg(long, value_name = "KEY")]
    instance: Option<InstanceKey>,
    /// Only lines about this event
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,
    /// Only lines of this trace
    #[arg(long, value_name = "ID")]
    trace: Option<TraceId>,
    /// Lines of every workspace and of the daemon itself
    #[arg(long)]
    pub(crate) all: bool,
}

/// What `--level` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// What `--process` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Orchestrator,
    Agent,
    Connector,
}

impl Logs {
    /// How many of the latest lines are wanted.
    pub(crate) fn lines(&self) -> usize {
        let is_of_a_time = self.since.is_some() || self.until.is_some();
        let usual = match is_of_a_time {
            true => usize::MAX,
            false => DEFAULT_LOG_LINES,
        };
        self.lines.unwrap_or(usual)
    }

    /// Which lines are wanted, but for the workspace.
    pub(crate) fn chosen(&self) -> FollowLogs {
        FollowLogs {
            agent: self.agent.clone(),
            instance_key: self.instance.clone(),
            event_id: self.event.clone(),
            trace_id: self.trace,
            process: self.process.map(|kind| match kind {
                Kind::Orchestrator => LogProcess::Orchestrator,
                Kind::Agent => LogProcess::Agent,
                Kind::Connector => LogProcess::Connector,
            }),
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

/// Reads a moment, a day (its begin in UTC), or how long ago it was.
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
                "`{text}` is no time; write it like 2026-01-31T12:00:00Z, 2026-01-31, or 90s, 15m, 2h or 7d \
                 for so long ago"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

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
