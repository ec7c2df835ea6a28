//! `gdn restart`.

use clap::Args;
use goondan_protocol::control;
use goondan_protocol::ids::{AgentName, InstanceKey};

use super::confirm::confirm;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text::{self, shell_quoted};
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// Only this agent's processes
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Only this conversation's process
    #[arg(long, value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
    /// Delete the conversations of what is restarted
    #[arg(long)]
    pub(crate) fresh: bool,
    /// With --fresh: ask nothing
    #[arg(long, short, requires = "fresh")]
    pub(crate) yes: bool,
}

pub(super) async fn run(args: Restart, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
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

fn yes_command(args: &Restart) -> String {
    let mut command = "restart".to_owned();
    if let Some(agent) = &args.agent {
        command.push_str(&format!(" --agent {agent}"));
    }
    if let Some(key) = args
        .instance
        .as_ref()
        .and_then(|key| shell_quoted(key.as_str()))
    {
        command.push_str(&format!(" --instance {key}"));
    }
    command + " --fresh --yes"
}
