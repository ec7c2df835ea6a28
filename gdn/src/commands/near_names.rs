//! Adds a similar name to the hint of failures about unknown names: `did you mean `main`?`.
//!
//! A command passes the kind of name to [`Failure::unknown`]; for names that the daemon looks up, the kind follows
//! from the error code. The existing names are listed only after the command has failed, so that successful commands
//! do not pay for it.

use goondan_protocol::control::{
    ListApprovals, ListCheckpoints, ListEvents, ListGrants, ListInstanceCheckpoints, ListInstances,
    ListNodes, ListProposals, ListQuestions, ListSandboxes, ListSchedules, ListSecrets, ListTasks,
    ListUnknownCalls, ListWorkspaces, SandboxRef, ShowBundle, WorkspaceInfo,
};

use super::names;
use crate::client::Client;
use crate::context::Context;
use crate::failure::{Failure, NameKind};

/// Adds a similar name to the hint if the failure is about an unknown name and a similar one exists.
pub(crate) async fn near_name(failure: Failure, context: &Context) -> Failure {
    let Some(kind) = failure.unknown else {
        return failure;
    };
    let given: Vec<String> = std::env::args().skip(1).collect();
    let written = written_names(kind, &failure.message, &given);
    if written.is_empty() {
        return failure;
    }
    // The failure is reported without the similar name.
    let Ok(known) = known_names(kind, &given, context).await else {
        return failure;
    };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let unknown = written
        .iter()
        .filter(|word| !known.contains(&word.as_str()));
    let hint = unknown.fold(failure.hint.clone(), |hint, word| {
        names::with_near_name(word, known.iter().copied(), hint)
    });
    failure.with_hint(hint)
}

type Names = Vec<String>;

/// Names on the command line that the message quotes. Names of sandboxes, proposals and calls consist of two words.
fn written_names(kind: NameKind, message: &str, given: &[String]) -> Names {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let is_quoted = |word: &&str| quoted.contains(word) || names_workspace(kind, message, word);
    let before = std::iter::once("").chain(given.iter().map(String::as_str));
    // The workspace exists if something in it is unknown, and is no part of that name.
    let of_kind = before
        .zip(given)
        .filter(|(before, word)| kind == NameKind::Workspace || !gives_workspace(before, word));
    let values = of_kind.map(|(_, word)| value_of(word));
    let words: Vec<&str> = values.filter(is_quoted).collect();
    if words.is_empty() {
        return Names::new();
    }
    match kind {
        NameKind::Sandbox | NameKind::Proposal | NameKind::Call => vec![words.join(" ")],
        _ => words.into_iter().map(str::to_owned).collect(),
    }
}

/// True if a message about a workspace contains the word; such messages do not quote the id.
fn names_workspace(kind: NameKind, message: &str, word: &str) -> bool {
    kind == NameKind::Workspace && message.split(' ').any(|part| part == word)
}

/// True if a word is the workspace on the command line, given the word before it.
fn gives_workspace(before: &str, word: &str) -> bool {
    before == "--workspace" || word.starts_with("--workspace=")
}

/// Returns `b` for `--to=b`.
fn value_of(word: &str) -> &str {
    match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => value,
        _ => word,
    }
}

async fn known_names(
    kind: NameKind,
    given: &[String],
    context: &Context,
) -> Result<Names, Failure> {
    let mut client = context.connect().await?;
    match kind {
        NameKind::Workspace => {
            let all = client.all(ListWorkspaces::default()).await?;
            return Ok(all.iter().map(|it| it.workspace_id.to_string()).collect());
        }
        NameKind::Secret => return secrets(&mut client, given).await,
        NameKind::Node => {
            let nodes = client.query(ListNodes::default()).await?.nodes;
            return Ok(nodes.into_iter().map(|it| it.node).collect());
        }
        _ => {}
    }
    let workspace = context.find(&mut client).await?;
    let id = workspace.workspace_id.clone();
    let of_workspace = Some(id.clone());
    Ok(match kind {
        NameKind::Workspace | NameKind::Secret | NameKind::Node => Names::new(),
        NameKind::Agent => {
            let agents = workspace.agents.iter().chain(&workspace.task_agents);
            agents.map(ToString::to_string).collect()
        }
        NameKind::Conversation => conversations(&mut client, &workspace).await?,
        NameKind::ConversationCheckpoint => {
            conversation_checkpoints(&mut client, &workspace, given).await?
        }
        NameKind::Event => {
            let list = ListEvents {
                workspace_id: id,
                instance_key: None,
                parked: false,
                after: None,
                limit: None,
            };
            let events = client.all(list).await?;
            events.iter().map(|it| it.event_id.to_string()).collect()
        }
        NameKind::Question => {
            let list = ListQuestions {
                workspace_id: of_workspace,
                ..ListQuestions::default()
            };
            let questions = client.all(list).await?;
            let ids = questions.iter().map(|it| it.question_id.to_string());
            ids.collect()
        }
        NameKind::Approval => {
            let list = ListApprovals {
                workspace_id: of_workspace,
                ..ListApprovals::default()
            };
            let approvals = client.all(list).await?;
            let ids = approvals.iter().map(|it| it.approval_id.to_string());
            ids.collect()
        }
        NameKind::Call => {
            let list = ListUnknownCalls {
                workspace_id: of_workspace,
                ..ListUnknownCalls::default()
            };
            let calls = client.all(list).await?;
            let names = calls
                .iter()
                .map(|it| format!("{} {}", it.instance_key, it.tool_call_id));
            names.collect()
        }
        NameKind::Schedule => {
            let list = ListSchedules {
                workspace_id: of_workspace,
                ..ListSchedules::default()
            };
            let schedules = client.all(list).await?;
            let ids = schedules.iter().map(|it| it.schedule_id.to_string());
            ids.collect()
        }
        NameKind::Sandbox => {
            let list = ListSandboxes {
                workspace_id: id,
                run_id: None,
                after: None,
                limit: None,
            };
            let sandboxes = client.all(list).await?;
            sandboxes.iter().map(|it| pair(&it.at)).collect()
        }
        NameKind::Proposal => {
            let list = ListProposals {
                workspace_id: id,
                run_id: None,
                after: None,
                limit: None,
            };
            let proposals = client.all(list).await?;
            proposals.iter().map(|it| pair(&it.at)).collect()
        }
        NameKind::Changeset => {
            let mut names = Names::new();
            for key in given_conversations(&mut client, &workspace, given).await? {
                let show = ShowBundle {
                    instance_key: key,
                    workspace_id: workspace.workspace_id.clone(),
                };
                let changesets = client.query(show).await?.changesets;
                names.extend(changesets.iter().map(|it| it.changeset_id.to_string()));
            }
            names
        }
        NameKind::Task => tasks(&mut client, &workspace).await?,
        NameKind::TaskCheckpoint => {
            let mut names = Names::new();
            for task in tasks(&mut client, &workspace).await? {
                if let Ok(task_id) = task.parse()
                    && given.contains(&task)
                {
                    let list = ListCheckpoints {
                        workspace_id: id.clone(),
                        task_id,
                        after: None,
                        limit: None,
                    };
                    let checkpoints = client.all(list).await?.into_iter();
                    names.extend(
                        checkpoints.flat_map(|it| it.name.into_iter().chain([it.checkpoint_id])),
                    );
                }
            }
            names
        }
        NameKind::OAuthApp => {
            let list = ListGrants {
                workspace_id: of_workspace,
            };
            let grants = client.query(list).await?;
            grants.iter().map(|it| it.app.to_string()).collect()
        }
    })
}

fn pair(at: &SandboxRef) -> String {
    format!("{} {}", at.run_id, at.agent_id)
}

async fn tasks(client: &mut Client, workspace: &WorkspaceInfo) -> Result<Names, Failure> {
    let list = ListTasks {
        workspace_id: Some(workspace.workspace_id.clone()),
        all: true,
        ..ListTasks::default()
    };
    let tasks = client.all(list).await?;
    Ok(tasks.iter().map(|it| it.task_id.to_string()).collect())
}

async fn conversations(client: &mut Client, workspace: &WorkspaceInfo) -> Result<Names, Failure> {
    let list = ListInstances {
        workspace_id: Some(workspace.workspace_id.clone()),
        ..ListInstances::default()
    };
    let instances = client.all(list).await?;
    let keys = instances.iter().map(|it| it.instance_key.to_string());
    Ok(keys.collect())
}

/// Conversations named on the command line; the default one if there is none.
async fn given_conversations(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    given: &[String],
) -> Result<Vec<goondan_protocol::ids::InstanceKey>, Failure> {
    let known = conversations(client, workspace).await?;
    let is_given = |key: &String| given.iter().any(|word| value_of(word) == key);
    let keys = known.into_iter().filter(is_given);
    let keys: Vec<_> = keys.filter_map(|key| key.parse().ok()).collect();
    Ok(match keys.is_empty() {
        true => vec![workspace.conversation(None)],
        false => keys,
    })
}

async fn conversation_checkpoints(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    given: &[String],
) -> Result<Names, Failure> {
    let mut names = Names::new();
    for instance_key in given_conversations(client, workspace, given).await? {
        let list = ListInstanceCheckpoints {
            workspace_id: workspace.workspace_id.clone(),
            instance_key,
            after: None,
            limit: None,
        };
        let checkpoints = client.all(list).await?.into_iter();
        names.extend(checkpoints.flat_map(|it| it.name.into_iter().chain([it.checkpoint_id])));
    }
    Ok(names)
}

/// Secrets, and the entries of the secrets named on the command line.
async fn secrets(client: &mut Client, given: &[String]) -> Result<Names, Failure> {
    let mut names = Names::new();
    for secret in client.query(ListSecrets {}).await?.secrets {
        let name = secret.name.to_string();
        if given.contains(&name) {
            names.extend(secret.keys.iter().map(ToString::to_string));
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Names {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_name_that_the_message_quotes_is_compared() {
        let message = "there is no task `shp` in workspace `w`";
        for given in ["task show --workspace=w shp", "--workspace w task show shp"] {
            let written = written_names(NameKind::Task, message, &words(given));
            assert_eq!(written, ["shp"]);
        }
        let given = words("task show shp");
        let message = "there is no task `x`";
        assert!(written_names(NameKind::Task, message, &given).is_empty());
    }

    #[test]
    fn two_words_are_compared_as_one_name() {
        let given = words("proposal show r1 codr");
        let message = "there is no sandbox of `codr` in run `r1`";
        let written = written_names(NameKind::Sandbox, message, &given);
        assert_eq!(written, ["r1 codr"]);
    }
}
