//! Checks names given by the user; the error for an unknown name lists the existing ones.

use std::collections::BTreeSet;

use goondan_config::nearest_name;
use goondan_protocol::control::{
    ErrorCode, ListInstances, ListSandboxes, ShowInstance, WorkspaceInfo,
};
use goondan_protocol::ids::{AgentName, InstanceKey, RunId, WorkspaceId};

use crate::client::{CallError, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// Maximum number of names in a hint.
const NAMES_LISTED: usize = 10;

/// Fails if an agent is named that the workspace does not have.
pub(super) fn check_agent(
    agent: Option<&AgentName>,
    workspace: &WorkspaceInfo,
) -> Result<(), Failure> {
    let agents = workspace.agents.iter().chain(&workspace.task_agents);
    let known: Vec<&str> = agents.map(AgentName::as_str).collect();
    match agent {
        Some(agent) if !known.contains(&agent.as_str()) => {
            let message = format!("no agent `{agent}`");
            let hint = hint_of(agent.as_str(), &known, "agents");
            Err(Failure::new(Exit::NotFound, message, hint))
        }
        _ => Ok(()),
    }
}

/// Fails if a conversation is named that does not exist.
pub(super) async fn check_conversation(
    key: Option<&InstanceKey>,
    client: &mut Client,
    workspace_id: &WorkspaceId,
    context: &Context,
) -> Result<(), Failure> {
    let Some(key) = key else { return Ok(()) };
    let show = ShowInstance {
        workspace_id: workspace_id.clone(),
        instance_key: key.clone(),
    };
    match client.query(show).await {
        Err(CallError::Refused(refused)) if refused.code == ErrorCode::InstanceNotFound => {}
        // A damaged conversation exists.
        Ok(_) | Err(CallError::Refused(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let list = ListInstances {
        workspace_id: Some(workspace_id.clone()),
        ..ListInstances::default()
    };
    let instances = client.all(list).await?;
    let known: Vec<&str> = instances
        .iter()
        .map(|instance| instance.instance_key.as_str())
        .collect();
    let message = format!("no conversation `{}`", text::one_line(key.as_str()));
    let hint = match known.is_empty() {
        true => format!(
            "no conversation exists yet; the first message starts one: `{}`",
            context.command("send \"Hello\"")
        ),
        false => hint_of(key.as_str(), &known, "conversations"),
    };
    Err(Failure::new(Exit::NotFound, message, hint))
}

/// Fails if a run is named that has no sandbox.
pub(super) async fn check_run(
    run: Option<&RunId>,
    client: &mut Client,
    workspace_id: &WorkspaceId,
) -> Result<(), Failure> {
    let Some(run) = run else { return Ok(()) };
    let list = ListSandboxes {
        workspace_id: workspace_id.clone(),
        run_id: None,
        after: None,
        limit: None,
    };
    let sandboxes = client.all(list).await?;
    let known: BTreeSet<&str> = sandboxes.iter().map(|it| it.at.run_id.as_str()).collect();
    if known.contains(run.as_str()) {
        return Ok(());
    }
    let known: Vec<&str> = known.into_iter().collect();
    let message = format!("no run `{}`", text::one_line(run.as_str()));
    let hint = hint_of(run.as_str(), &known, "runs");
    Err(Failure::new(Exit::NotFound, message, hint))
}

/// `did you mean `main`? Otherwise, the conversations are: ann, main`.
fn hint_of(written: &str, known: &[&str], what: &str) -> String {
    let shown: Vec<String> = known
        .iter()
        .take(NAMES_LISTED)
        .map(|name| text::one_line(name))
        .collect();
    let more = known.len().saturating_sub(shown.len());
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let listed = match shown.is_empty() {
        true => format!("no {what} exist"),
        false => format!("the {what} are: {}{more}", shown.join(", ")),
    };
    with_near_name(written, known.iter().copied(), listed)
}

/// Prefixes a hint with a similar known name, if one exists.
#[expect(single_use_lifetimes, reason = "`impl Trait` cannot elide a lifetime")]
pub(super) fn with_near_name<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
    hint: String,
) -> String {
    match nearest_name(written, known) {
        Some(near) => {
            let near = text::one_line(near);
            format!("did you mean `{near}`? Otherwise, {hint}")
        }
        None => hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_near_one_and_those_there_are() {
        let known = ["clerk", "buyer"];
        assert_eq!(
            hint_of("clrek", &known, "agents"),
            "did you mean `clerk`? Otherwise, the agents are: clerk, buyer"
        );
        assert_eq!(
            hint_of("x", &known, "agents"),
            "the agents are: clerk, buyer"
        );
        assert_eq!(hint_of("x", &[], "agents"), "no agents exist");
        let many: Vec<String> = (0..12).map(|number| format!("agent-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(hint_of("nobody", &many, "agents").ends_with("agent-9 and 2 more"));
    }
}
