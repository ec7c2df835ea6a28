//! `gdn task logs`.

use std::borrow::Cow;

use clap::{Args, ValueEnum};
use goondan_protocol::control::{ErrorCode, ReadTaskLog, TaskLog};
use serde::Deserialize;

use super::TaskAtArgs;
use crate::client::{CallError, RequestTimeout};
use crate::commands::follow;
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

/// Size of the log's end that `--follow` prints first, in bytes.
const FOLLOW_BYTES: i64 = 16 << 10;

#[derive(Debug, Args)]
pub(crate) struct TaskLogsArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Log to print: agent, stdout, stderr, protocols or history
    #[arg(
        long,
        value_enum,
        value_name = "LOG",
        default_value = "agent",
        hide_possible_values = true
    )]
    log: LogName,
    /// Follow the log, from near its end, until the task has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Values of `--log`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogName {
    Agent,
    Stdout,
    Stderr,
    Protocols,
    History,
}

impl From<LogName> for TaskLog {
    fn from(name: LogName) -> Self {
        match name {
            LogName::Agent => Self::Agent,
            LogName::Stdout => Self::Stdout,
            LogName::Stderr => Self::Stderr,
            LogName::Protocols => Self::Protocols,
            LogName::History => Self::History,
        }
    }
}

pub(super) async fn run(args: TaskLogsArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, mut workspace) = context.open().await?;
    let mut offset = if args.follow { -FOLLOW_BYTES } else { 0 };
    let timeout = match args.follow {
        true => RequestTimeout::Endless,
        false => RequestTimeout::Query,
    };
    let mut has_read = false;
    let mut words = LogTextDecoder {
        is_agent_log: matches!(args.log, LogName::Agent),
        rest: String::new(),
    };
    loop {
        let read = ReadTaskLog {
            workspace_id: workspace.workspace_id.clone(),
            task_id: args.at.task.clone(),
            log: args.log.into(),
            offset,
            wait: args.follow,
        };
        let part = match client.watch(read, timeout, &mut |_| {}).await {
            Ok(part) => part,
            Err(CallError::Lost { .. }) if args.follow => {
                context.output.note(follow::LOST);
                (client, workspace) = follow::reopened(context).await;
                continue;
            }
            Err(CallError::Refused(refused))
                if has_read && refused.code == ErrorCode::WorkspaceNotFound =>
            {
                context.output.note("The project is stopped.");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        has_read = true;
        if !part.text.is_empty() {
            context.output.object(schemas::TASK_LOGS, &part)?;
            if !context.output.is_json() {
                context.output.piece(&words.of(&part.text))?;
            }
        }
        offset = i64::try_from(part.next).unwrap_or(i64::MAX);
        if part.is_over || (part.is_end && !args.follow) {
            if !context.output.is_json() {
                context.output.piece(&words.rest)?;
            }
            if args.follow {
                let task = args.at.task.clone();
                let detail = super::read(&mut client, workspace.workspace_id, task).await?;
                super::watch::check_readable(&detail, context)?;
            }
            return Ok(());
        }
    }
}

/// A line of `agent.log`.
#[derive(Deserialize)]
struct AgentLogLine<'l> {
    #[serde(borrow)]
    timestamp: Cow<'l, str>,
    #[serde(borrow)]
    level: Cow<'l, str>,
    #[serde(borrow)]
    message: Cow<'l, str>,
}

/// Log as text: lines of `agent.log` without their JSON. Lines of earlier versions are printed unchanged.
struct LogTextDecoder {
    is_agent_log: bool,
    rest: String,
}

impl LogTextDecoder {
    fn of(&mut self, part: &str) -> String {
        if !self.is_agent_log {
            return part.to_owned();
        }
        self.rest.push_str(part);
        let whole = self.rest.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        let words = lines.lines().map(|line| {
            let read: Result<AgentLogLine<'_>, _> = serde_json::from_str(line);
            match read {
                Ok(AgentLogLine {
                    timestamp,
                    level,
                    message,
                }) => format!("{timestamp} {level:<5} {message}\n"),
                Err(_) => format!("{line}\n"),
            }
        });
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_2_agent_log_is_shown_as_text_for_any_chunking() {
        let log = concat!(
            "2024-02-15T10:05:00.000Z run requested: run 1\n",
            r#"{"timestamp":"2024-02-15T10:15:00.000Z","level":"warn","message":"Question asked: \"Why?\"","taskId":"t"}"#,
            "\n",
        );
        let shown = "2024-02-15T10:05:00.000Z run requested: run 1\n\
                     2024-02-15T10:15:00.000Z warn  Question asked: \"Why?\"\n";
        for cut in 0..log.len() {
            let mut words = LogTextDecoder {
                is_agent_log: true,
                rest: String::new(),
            };
            let (first, rest) = log.split_at(cut);
            let parts = [words.of(first), words.of(rest)];
            assert_eq!(parts.concat(), shown);
            assert_eq!(words.rest, "");
        }
    }
}
