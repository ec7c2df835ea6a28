//! `gdn task logs`.

use clap::{Args, ValueEnum};
use goondan_protocol::control::{ErrorCode, ReadTaskLog, TaskLog};

use super::TaskAtArgs;
use crate::client::{CallError, RequestTimeout};
use crate::commands::following;
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

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
    /// Go on with what is added, from near its end, until the task has ended
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
    let (mut client, mut workspace) = context.open().await?;
    let mut offset = if args.follow { -FOLLOW_BYTES } else { 0 };
    let timeout = match args.follow {
        true => RequestTimeout::Endless,
        false => RequestTimeout::Query,
    };
    let mut has_read = false;
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
                context.output.note(following::LOST);
                (client, workspace) = following::reopened(context).await;
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
                context.output.piece(&part.text)?;
            }
        }
        offset = i64::try_from(part.next).unwrap_or(i64::MAX);
        if part.is_over || (part.is_end && !args.follow) {
            return Ok(());
        }
    }
}
