//! `gdn restart`.

use goondan_protocol::control;

use super::confirm::confirm;
use crate::cli::Restart;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text::{self, shell_quoted};
use crate::schemas;

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
