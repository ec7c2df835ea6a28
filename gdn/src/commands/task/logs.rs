//! `gdn task logs`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use goondan_protocol::control::{ReadTaskLog, TaskLog};

use super::TaskAtArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

/// How often a log that is followed is looked at, in milliseconds.
const FOLLOW_INTERVAL_MS: u64 = 500;

/// How much of a log's end is shown at first, in bytes, when it is followed.
const FOLLOW_BYTES: i64 = 16 << 10;

#[derive(Debug, Args)]
pub(crate) struct TaskLogsArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Which log: agent, stdout, stderr, protocols or history
    #[arg(
        long,
        value_enum,
        value_name = "LOG",
        default_value = "agent",
        hide_possible_values = true
    )]
    log: LogName,
    /// Go on with what is added, from near its end
    #[arg(long, short)]
    follow: bool,
}

/// A log, as the command line names it.
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
    let (mut client, workspace) = context.open().await?;
    let mut offset = if args.follow { -FOLLOW_BYTES } else { 0 };
    loop {
        let read = ReadTaskLog {
            workspace_id: workspace.workspace_id.clone(),
            task_id: args.at.task.clone(),
            log: args.log.into(),
            offset,
        };
        let part = client.query(read).await?;
        if !part.text.is_empty() {
            context.output.object(schemas::TASK_LOGS, &part)?;
            if !context.output.is_json() {
                context.output.piece(&part.text)?;
            }
        }
        offset = i64::try_from(part.next).unwrap_or(i64::MAX);
        match (part.is_end, args.follow) {
            (true, false) => return Ok(()),
            (true, true) => tokio::time::sleep(Duration::from_millis(FOLLOW_INTERVAL_MS)).await,
            (false, _) => {}
        }
    }
}
