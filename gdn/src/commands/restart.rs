//! `gdn restart`.

use clap::Args;
use goondan_protocol::control;
use goondan_protocol::ids::{AgentName, InstanceKey};

use super::confirm::confirm;
use super::names;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text::{self, shell_quoted};
use crate::schemas;

/// Restart processes after the turns in progress
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn restart                            every process of this project
  gdn restart --agent clerk              only this agent's, with its edited configuration
  gdn restart --agent clerk --fresh      and delete its conversations")]
pub(crate) struct RestartArgs {
    /// Only this agent's processes
    #[arg(long, short, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only this conversation's process
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    instance: Option<InstanceKey>,
    /// Delete the conversations of the restarted processes
    #[arg(long)]
    fresh: bool,
    /// With --fresh: do not ask for confirmation
    #[arg(long, short, requires = "fresh")]
    yes: bool,
}

impl RestartArgs {
    /// Restart of one conversation's process.
    pub(crate) fn of_instance(key: InstanceKey, fresh: bool, yes: bool) -> Self {
        Self {
            agent: None,
            instance: Some(key),
            fresh,
            yes,
        }
    }
}

pub(crate) async fn run(args: RestartArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    names::check_agent(args.agent.as_ref(), &workspace)?;
    let (key, id) = (args.instance.as_ref(), &workspace.workspace_id);
    names::check_conversation(key, &mut client, id, context).await?;
    if args.fresh && !args.yes {
        let question = match (&args.agent, &args.instance) {
            (_, Some(key)) => format!("Delete the conversation {}?", text::one_line(key.as_str())),
            (Some(agent), None) => format!("Delete every conversation of agent {agent}?"),
            (None, None) => format!("Delete every conversation of {}?", workspace.workspace_id),
        };
        confirm(context, &question, &yes_command(&args))?;
    }
    let restart = control::Restart {
        workspace_id: workspace.workspace_id,
        agent: args.agent,
        instance_key: args.instance,
        fresh: args.fresh,
    };
    let restarted = client.change(restart).await?;
    let output = context.output;
    output.object(schemas::RESTART, &restarted)?;
    output.data(format!(
        "Restarting {}, each after its turn in progress.",
        text::count(restarted.processes, "process")
    ))?;
    if args.fresh {
        let removed = text::count(restarted.removed.len(), "conversation");
        output.data(format!("Deleted {removed}."))?;
    }
    Ok(())
}

fn yes_command(args: &RestartArgs) -> String {
    let mut command = "restart".to_owned();
    if let Some(agent) = &args.agent {
        command.push_str(&format!(" --agent {agent}"));
    }
    if let Some(key) = args
        .instance
        .as_ref()
        .and_then(|key| shell_quoted(key.as_str()))
    {
        command.push_str(&format!(" --conversation {key}"));
    }
    command + " --fresh --yes"
}
