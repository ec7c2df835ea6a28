//! Requests that only a person may make (`SEC-4`).
//!
//! [`person_only`] is their only table: it has an arm for each method, so that a new method does
//! not compile without a decision. [`Core::on_request`](crate::Core) checks it before anything else
//! handles a request. The shell determines the kind of a client ([`Peer`](crate::Peer)); only
//! clients that are known to be a person's pass.

use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::shell::shell_quoted;

use crate::{ClientOrigin, Peer};

/// Command that lists the tasks that wait for the user.
const WAITING_TASKS: &str = "gdn task list --needs-me";
/// Command that lists the proposals of a project.
const PROPOSALS: &str = "gdn proposal list";

/// A request that only a person may make.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PersonOnlyRequest {
    /// Its effect, as the beginning of a sentence.
    what: String,
    command: String,
}

fn person(what: impl Into<String>, command: impl Into<String>) -> Option<PersonOnlyRequest> {
    Some(PersonOnlyRequest {
        what: what.into(),
        command: command.into(),
    })
}

/// Requests about the configuration of a conversation, whose key is the command's last argument.
fn bundle(what: &str, command: &str, key: &InstanceKey) -> Option<PersonOnlyRequest> {
    let key = shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    person(what, format!("gdn conversation bundle {command} {key}"))
}

/// Reason why only a person may make a request; `None` if every client of the daemon's user may.
pub(crate) fn person_only(call: &Call) -> Option<PersonOnlyRequest> {
    match call {
        Call::CancelEvent(_) => person("canceling an event", "gdn conversation cancel"),
        Call::DropEvent(_) => person("dropping an event", "gdn event drop"),
        Call::RetryEvent(_) => person("retrying a parked event", "gdn event retry"),
        Call::PauseEvent(_) => person("pausing an event", "gdn event pause"),
        Call::ResumeEvent(_) => person("resuming an event", "gdn event resume"),
        Call::MoveEvent(_) => person("moving an event", "gdn event move"),

        Call::AnswerQuestion(call) => question(&call.question_id),
        Call::DeclineQuestion(call) => question(&call.question_id),
        Call::DecideApproval(call) => {
            let id = &call.approval_id;
            person(format!("deciding tool call `{id}`"), format!("gdn inbox approvals {id}"))
        }
        Call::RevokeStandingApproval(call) => {
            let id = &call.approval_id;
            person(format!("revoking standing approval `{id}`"), format!("gdn inbox revoke {id}"))
        }
        Call::SettleCall(call) => {
            person(format!("resolving tool call `{}`", call.tool_call_id), "gdn inbox calls")
        }

        Call::CreateSchedule(_) => person("scheduling an input", "gdn event inject"),
        Call::MoveSchedule(call) => {
            let id = &call.schedule_id;
            person(format!("moving schedule `{id}`"), format!("gdn event schedule move {id}"))
        }
        Call::RemoveSchedule(call) => {
            let id = &call.schedule_id;
            person(format!("removing schedule `{id}`"), format!("gdn event schedule remove {id}"))
        }

        Call::CheckpointInstance(_) => person("creating a checkpoint", "gdn conversation checkpoint"),
        Call::RewindInstance(_) => person("rewinding a conversation", "gdn conversation rewind"),

        // Not reversible, and no work of an agent needs them.
        Call::DeleteInstance(_) => person("deleting a conversation", "gdn conversation delete"),
        Call::PruneInstances(call) if !call.dry_run => {
            person("deleting conversations", "gdn conversation prune")
        }
        Call::MoveWorkspace(_) => person("moving a workspace", "gdn daemon node move"),
        Call::DrainNode(_) => person("draining a node", "gdn daemon node drain"),
        Call::LeaveNodes(_) => person("leaving the other nodes", "gdn daemon node leave"),

        Call::PrepareSandbox(call) if !call.allow.is_empty() => {
            person("allowing a sandbox files that are usually refused", PROPOSALS)
        }
        Call::RemoveSandbox(call) if call.force => {
            person("removing a sandbox with a waiting proposal", PROPOSALS)
        }
        Call::ApplyProposal(_) => person("applying a proposal", PROPOSALS),
        Call::RejectProposal(_) => person("rejecting a proposal", PROPOSALS),
        Call::RevertProposal(_) => person("reverting a proposal", PROPOSALS),
        Call::MergeProposal(_) => person("merging a proposal", PROPOSALS),
        Call::CommentProposal(_) => person("commenting on a proposal", PROPOSALS),
        Call::UncommentProposal(_) => person("removing a comment", PROPOSALS),

        // Acknowledges losses, which are not reported again.
        Call::VerifyInstances(call) if call.repair => repair(),
        Call::VerifyRoot(call) if call.repair => repair(),

        // Starts new modules.
        Call::RehearseBundle(call) => {
            let command = format!("rehearse {} --key", call.subject);
            bundle("rehearsing a changeset", &command, &call.instance_key)
        }
        Call::ApproveChangeset(call) => {
            let command = format!("approve {} --key", call.changeset_id);
            bundle("approving a changeset", &command, &call.instance_key)
        }
        Call::RejectChangeset(call) => {
            let command = format!("reject {} --key", call.changeset_id);
            bundle("rejecting a changeset", &command, &call.instance_key)
        }
        Call::RevertBundle(call) => {
            let to = call.revision.as_ref();
            let to = to.map_or_else(String::new, |to| format!(" --to {to}"));
            let command = format!("revert{to}");
            bundle("reverting a configuration", &command, &call.instance_key)
        }
        Call::PinBundle(call) => {
            let command = if call.pinned { "pin" } else { "pin --off" };
            bundle("pinning a configuration", command, &call.instance_key)
        }

        Call::CreateTask(_) => person("creating a task", WAITING_TASKS),
        Call::ImportTask(_) => person("importing a task", WAITING_TASKS),
        Call::PruneTasks(call) if !call.dry_run => person("removing tasks", WAITING_TASKS),
        Call::StartTask(_) => person("starting a task", WAITING_TASKS),
        Call::PauseTask(_) => person("pausing a task", WAITING_TASKS),
        Call::ResumeTask(_) => person("resuming a task", WAITING_TASKS),
        Call::CancelTask(_) => person("canceling a task", WAITING_TASKS),
        Call::ProvideTask(_) => person("providing a task's dependency", WAITING_TASKS),
        Call::AnswerTask(_) => person("answering a task's question", WAITING_TASKS),
        Call::ApproveTask(_) => person("approving a phase", WAITING_TASKS),
        Call::ReworkTask(_) => person("sending a phase back for rework", WAITING_TASKS),
        Call::SendTask(_) => person("sending a message to a task's agent", WAITING_TASKS),
        Call::SetTaskBudget(_) => person("setting a task's limits", WAITING_TASKS),
        Call::CheckpointTask(_) => person("creating a checkpoint", WAITING_TASKS),
        Call::RestoreTask(_) => person("restoring a task", WAITING_TASKS),
        Call::DrillTask(_) => person("drilling a restore", WAITING_TASKS),
        Call::RemoveTask(_) => person("removing a task", WAITING_TASKS),
        Call::ChangeQueue(_) => person("changing the merge queue", "gdn task queue list"),

        Call::SetSecret(_) => person("setting a secret", "gdn secret set"),
        Call::RemoveSecret(_) => person("removing a secret", "gdn secret remove"),
        Call::AllowSecret(_) => person("allowing a project to use a secret", "gdn secret allow"),
        Call::DenySecret(_) => person("denying a project a secret", "gdn secret deny"),
        Call::DecidePermission(call) => {
            let verb = if call.allowed { "allow" } else { "deny" };
            let command = format!("gdn workspace permission {verb} {}", call.permission);
            person("deciding about a permission of a workspace", command)
        }
        Call::HoldWrites(_) => person("holding the daemon's writes", "gdn daemon backup create DIR"),
        Call::ResumeDaemon(_) => person("resuming after a restore", "gdn daemon backup resume"),
        Call::RotateSecrets(_) => person("rotating the identity", "gdn secret rotate"),

        Call::StorePackage(_) => person("installing a package", "gdn package install"),
        Call::PrunePackages(_) => person("removing packages", "gdn package prune"),

        Call::BeginLogin(call) => oauth("logging in", &call.app, "login"),
        Call::FinishLogin(_) => person("logging in", "gdn secret oauth login APP"),
        Call::RefreshGrant(call) => oauth("renewing a token", &call.app, "refresh"),
        Call::RevokeGrant(call) => oauth("revoking tokens", &call.app, "revoke"),

        // Reads.
        Call::Connect(_)
        | Call::Status(_)
        | Call::CheckDaemon(_)
        | Call::ReadMetrics(_)
        | Call::ListProcesses(_)
        | Call::WatchProcesses(_)
        | Call::ListNodes(_)
        | Call::CheckNodes(_)
        | Call::VerifyReplica(_)
        | Call::ListWorkspaces(_)
        | Call::WatchWorkspace(_)
        | Call::FollowTurns(_)
        | Call::FollowLogs(_)
        | Call::ReadAudit(_)
        | Call::ReadUsage(_)
        | Call::ReadTraffic(_)
        | Call::ListEvents(_)
        | Call::ListQuestions(_)
        | Call::ShowQuestion(_)
        | Call::ListApprovals(_)
        | Call::ShowApproval(_)
        | Call::ListStandingApprovals(_)
        | Call::ListUnknownCalls(_)
        | Call::ListSchedules(_)
        | Call::ListInstances(_)
        | Call::ShowInstance(_)
        | Call::InstanceHistory(_)
        | Call::InstancePage(_)
        | Call::GetMessage(_)
        | Call::InstanceTurns(_)
        | Call::PageTrace(_)
        | Call::ExportInstance(_)
        | Call::ListInstanceCheckpoints(_)
        | Call::ListSandboxes(_)
        | Call::ShowSandbox(_)
        | Call::ListProposals(_)
        | Call::ShowProposal(_)
        | Call::DiffProposal(_)
        | Call::CheckProposal(_)
        | Call::ListWaitingChangesets(_)
        | Call::ShowBundle(_)
        | Call::ReadBundleLog(_)
        | Call::ShowChangeset(_)
        | Call::ListTasks(_)
        | Call::ShowTask(_)
        | Call::ReadTaskLog(_)
        | Call::WatchTask(_)
        | Call::ListCheckpoints(_)
        | Call::PruneTasks(_)
        | Call::ListQueue(_)
        | Call::PruneInstances(_)
        | Call::ListSecrets(_)
        | Call::ListPermissions(_)
        | Call::ListGrants(_)
        | Call::ShowGrant(_)
        // Operations on a worker's own copy, and reads of its results.
        | Call::ReviewProposal(_)
        | Call::PrepareSandbox(_)
        | Call::RemoveSandbox(_)
        | Call::CreateProposal(_)
        // Operating the daemon, which scripts and agents without a sandbox do as well: nothing here
        // deletes data or makes a decision that waits for a person, and secrets require a person's
        // consent.
        | Call::Stop(_)
        // Ends only an operation of the same connection.
        | Call::ReleaseWrites(_)
        | Call::OpenWorkspace(_)
        | Call::CloseWorkspace(_)
        | Call::Restart(_)
        | Call::Reload(_)
        | Call::SendEvent(_)
        | Call::VerifyInstances(_)
        | Call::VerifyRoot(_)
        | Call::ImportInstance(_) => None,
    }
}

fn question(id: &impl std::fmt::Display) -> Option<PersonOnlyRequest> {
    person(
        format!("answering question `{id}`"),
        format!("gdn inbox question show {id}"),
    )
}

fn repair() -> Option<PersonOnlyRequest> {
    person("repairing stored files", "gdn daemon verify --repair")
}

fn oauth(what: &str, app: &impl std::fmt::Display, command: &str) -> Option<PersonOnlyRequest> {
    person(what, format!("gdn secret oauth {command} {app}"))
}

/// Refuses a request that only a person may make, unless the client is known to be a person's.
///
/// # Errors
///
/// [`ErrorCode::PersonNeeded`].
pub fn check_person(peer: Peer, call: &Call) -> Result<(), ControlError> {
    // Most methods are for everyone, and most clients are persons.
    if peer.standing == ClientOrigin::Person {
        return Ok(());
    }
    let Some(PersonOnlyRequest { what, command }) = person_only(call) else {
        return Ok(());
    };
    Err(person_needed(&what, &command, peer.standing))
}

/// Error for a request that only a person may make.
pub(crate) fn person_needed(what: &str, command: &str, standing: ClientOrigin) -> ControlError {
    let text = match standing {
        ClientOrigin::Unknown(why) => {
            format!("{what} requires a person, and this client cannot be identified as one: {why}")
        }
        ClientOrigin::Person | ClientOrigin::BelowDaemon => format!(
            "{what} requires a person; programs started by agents or connectors must not do it"
        ),
    };
    ControlError::new(ErrorCode::PersonNeeded, text)
        .suggest(format!("run it in your own terminal: `{command}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(method: &str, more: &Value) -> Call {
        let mut params = json!({"workspaceId": "w"});
        if !method.starts_with("instance.") {
            params["sandbox"] = json!({"runId": "r", "agentId": "a"});
        }
        if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
            params.extend(more.clone());
        }
        serde_json::from_value(json!({"method": method, "params": params})).unwrap()
    }

    #[test]
    fn sec_4_parameters_make_a_request_a_persons() {
        for (method, more, is_for_a_person) in [
            ("sandbox.prepare", json!({}), false),
            ("sandbox.prepare", json!({"allow": [".env"]}), true),
            ("sandbox.remove", json!({}), false),
            ("sandbox.remove", json!({"force": true}), true),
            ("proposal.create", json!({}), false),
            ("proposal.check", json!({}), false),
            ("proposal.apply", json!({}), true),
            ("proposal.merge", json!({}), true),
            ("instance.prune", json!({"dryRun": true}), false),
            ("instance.prune", json!({}), true),
            ("instance.delete", json!({"instanceKey": "k"}), true),
        ] {
            let only = person_only(&call(method, &more));
            assert_eq!(only.is_some(), is_for_a_person, "{method} {more}");
        }
        for repair in [false, true] {
            for call in [
                json!({"method": "instance.verify", "params": {"workspaceId": "w", "repair": repair}}),
                json!({"method": "root.verify", "params": {"repair": repair}}),
            ] {
                let parsed: Call = serde_json::from_value(call.clone()).unwrap();
                assert_eq!(person_only(&parsed).is_some(), repair, "{call}");
            }
        }
    }

    #[test]
    fn sec_4_an_unknown_client_is_refused_with_the_reason() {
        let apply = call("proposal.apply", &json!({}));
        let check = |standing| {
            let pid = Some(1);
            check_person(Peer { pid, standing }, &apply)
        };
        assert_eq!(check(ClientOrigin::Person), Ok(()));
        let below = check(ClientOrigin::BelowDaemon).unwrap_err();
        assert_eq!(below.code, ErrorCode::PersonNeeded);
        let unknown = check(ClientOrigin::Unknown("its process has ended")).unwrap_err();
        assert_eq!(unknown.code, ErrorCode::PersonNeeded);
        assert!(
            unknown.message.ends_with("its process has ended"),
            "{unknown:?}"
        );
        let show = call("proposal.check", &json!({}));
        let below = Peer {
            pid: None,
            standing: ClientOrigin::BelowDaemon,
        };
        assert_eq!(check_person(below, &show), Ok(()));
    }
}
