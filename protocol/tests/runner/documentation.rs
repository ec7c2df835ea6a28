//! `docs/protocol.md` and `docs/control-api.md` are true and complete: every JSON example in them is
//! decoded by the type it names and written back unchanged, and nothing that exists is left out.

use std::collections::BTreeSet;

use goondan_protocol::call::CallErrorCode;
use goondan_protocol::control::{
    self, Call, ErrorCode, EventStanding, Method, ProcessState, Readiness, RpcRequest,
    ServerMessage,
};
use goondan_protocol::definition::{AgentAssignment, ConnectorAssignment, ModelAssignment};
use goondan_protocol::envelope::Envelope;
use goondan_protocol::event::{AgentEvent, ConnectorEvent, TurnOutcome};
use goondan_protocol::ipc::{
    EnvelopeHeader, RefusalCode, ToAgent, ToConnector, ToOrchestrator, ToTask,
};
use goondan_protocol::limits;
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use goondan_protocol::task::AssignedTask;
use goondan_protocol::version::PROTOCOL_VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const PROTOCOL: &str = include_str!("../../../docs/protocol.md");
const CONTROL_API: &str = include_str!("../../../docs/control-api.md");

/// One JSON example: its heading, its type, and its text.
struct Example {
    heading: String,
    type_name: String,
    json: String,
}

/// Returns the type of an example: from its address, or the heading for a record.
fn type_of(heading: &str, json: &str) -> String {
    let message = value(json);
    let has = |field: &str| message.get(field).is_some();
    let name = match message.get("to").and_then(Value::as_str) {
        Some("orchestrator") => "ToOrchestrator",
        Some(to) if to.starts_with("agent:") => "ToAgent",
        Some(to) if to.starts_with("task:") => "ToTask",
        Some(_) => "ToConnector",
        None if !has("jsonrpc") => heading,
        None if !has("method") => "Response",
        None if has("id") => "Request",
        None => "Notification",
    };
    name.to_owned()
}

/// Every line of every `json` fence.
fn examples(page: &str) -> Vec<Example> {
    let (mut heading, mut language) = (String::new(), None::<String>);
    let mut found = Vec::new();
    for line in page.lines() {
        match (&language, line.strip_prefix("```")) {
            (None, Some(info)) => language = Some(info.to_owned()),
            (Some(_), Some(_)) => language = None,
            (None, None) => {
                if let Some(title) = line.strip_prefix("### ") {
                    title.clone_into(&mut heading);
                }
            }
            (Some(info), None) if info == "json" => found.push(Example {
                type_name: type_of(&heading, line),
                heading: heading.clone(),
                json: line.to_owned(),
            }),
            (Some(_), None) => {}
        }
    }
    assert!(!found.is_empty());
    found
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

/// Decodes an example as `T` and demands that writing it gives the example again.
fn round_trip<T: Serialize + DeserializeOwned>(json: &str) -> T {
    let read: T = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), value(json));
    read
}

fn head_of(envelope: &Envelope) -> EnvelopeHeader {
    EnvelopeHeader {
        id: envelope.id,
        in_reply_to: envelope.in_reply_to,
        from: envelope.from.clone(),
        to: envelope.to.clone(),
        trace: envelope.trace,
    }
}

/// Decodes a frame's body and demands that writing it gives the same bytes; returns its type.
macro_rules! frame_round_trip {
    ($direction:ty, $json:expr) => {{
        let envelope = Envelope::from_frame($json.as_bytes())
            .unwrap_or_else(|error| panic!("{error} in {}", $json));
        let message = <$direction>::from_envelope(&envelope)
            .unwrap_or_else(|error| panic!("{error:?} in {}", $json));
        let again = message.to_frame(&head_of(&envelope)).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), $json);
        message.kind()
    }};
}

#[test]
fn every_protocol_page_example_matches_its_type() {
    let mut from_child = BTreeSet::new();
    let (mut to_agent, mut to_connector) = (BTreeSet::new(), BTreeSet::new());
    let mut to_task = BTreeSet::new();
    for Example {
        heading,
        type_name,
        json,
    } in examples(PROTOCOL)
    {
        let kind = match type_name.as_str() {
            "ToOrchestrator" => {
                let kind = frame_round_trip!(ToOrchestrator, json);
                from_child.insert(kind);
                kind
            }
            "ToAgent" => {
                let kind = frame_round_trip!(ToAgent, json);
                to_agent.insert(kind);
                kind
            }
            "ToConnector" => {
                let kind = frame_round_trip!(ToConnector, json);
                to_connector.insert(kind);
                kind
            }
            "ToTask" => {
                let kind = frame_round_trip!(ToTask, json);
                to_task.insert(kind);
                kind
            }
            record => {
                match record {
                    "Message" => drop(round_trip::<Message>(&json)),
                    "MessageEvent" => drop(round_trip::<MessageEvent>(&json)),
                    "ConnectorEvent" => drop(round_trip::<ConnectorEvent>(&json)),
                    "AgentEvent" => drop(round_trip::<AgentEvent>(&json)),
                    "TurnOutcome" => drop(round_trip::<TurnOutcome>(&json)),
                    "RuntimeEvent" => drop(round_trip::<RuntimeEvent>(&json)),
                    "AgentAssignment" => drop(round_trip::<AgentAssignment>(&json)),
                    "AssignedTask" => drop(round_trip::<AssignedTask>(&json)),
                    "ConnectorAssignment" => drop(round_trip::<ConnectorAssignment>(&json)),
                    "ModelAssignment" => drop(round_trip::<ModelAssignment>(&json)),
                    other => panic!("an example of the unknown type `{other}`"),
                }
                continue;
            }
        };
        assert!(
            heading.starts_with(&format!("`{kind}`")),
            "{kind} under {heading}"
        );
    }
    assert_eq!(from_child, ToOrchestrator::KINDS.iter().copied().collect());
    // Each message to children is documented once.
    let mut shown: BTreeSet<_> = to_agent.union(&to_connector).copied().collect();
    shown.extend(to_task);
    let kinds = ToAgent::KINDS.iter().chain(ToConnector::KINDS);
    let kinds = kinds.chain(ToTask::KINDS);
    assert_eq!(shown, kinds.copied().collect());
}

#[test]
fn protocol_page_lists_refusals_call_errors_and_runtime_events() {
    for code in [
        RefusalCode::Invalid,
        RefusalCode::Unroutable,
        RefusalCode::Overloaded,
        RefusalCode::Unavailable,
        RefusalCode::Damaged,
    ] {
        // A code that is added here must be added above.
        match code {
            RefusalCode::Invalid
            | RefusalCode::Unroutable
            | RefusalCode::Overloaded
            | RefusalCode::Unavailable
            | RefusalCode::Damaged => assert_shown("### `event.refused`", &code),
        }
    }
    use CallErrorCode as Code;
    for code in [
        Code::Invalid,
        Code::NotFound,
        Code::Unauthorized,
        Code::Refused,
        Code::OverBudget,
        Code::TooLarge,
        Code::RateLimited,
        Code::Overloaded,
        Code::Unavailable,
        Code::TimedOut,
        Code::Interrupted,
        Code::Cancelled,
        Code::Internal,
    ] {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        match code {
            Code::Invalid
            | Code::NotFound
            | Code::Unauthorized
            | Code::Refused
            | Code::OverBudget
            | Code::TooLarge
            | Code::RateLimited
            | Code::Overloaded
            | Code::Unavailable
            | Code::TimedOut
            | Code::Interrupted
            | Code::Cancelled
            | Code::Internal => assert_shown("## Outgoing calls", &code),
        }
    }
    use RuntimeEventKind as Kind;
    for kind in [
        Kind::TurnStarted,
        Kind::TurnResumed,
        Kind::TurnCompleted,
        Kind::TurnFailed,
        Kind::TurnParked,
        Kind::StepStarted,
        Kind::StepCompleted,
        Kind::StepFailed,
        Kind::ToolCalled,
        Kind::ToolCompleted,
        Kind::ToolFailed,
        Kind::QuestionAsked,
        Kind::QuestionClosed,
        Kind::ApprovalAsked,
        Kind::ApprovalClosed,
        Kind::BudgetWarning,
        Kind::MessageWarning,
    ] {
        match kind {
            Kind::TurnStarted
            | Kind::TurnResumed
            | Kind::TurnCompleted
            | Kind::TurnFailed
            | Kind::TurnParked
            | Kind::StepStarted
            | Kind::StepCompleted
            | Kind::StepFailed
            | Kind::ToolCalled
            | Kind::ToolCompleted
            | Kind::ToolFailed
            | Kind::QuestionAsked
            | Kind::QuestionClosed
            | Kind::ApprovalAsked
            | Kind::ApprovalClosed
            | Kind::BudgetWarning
            | Kind::MessageWarning => assert_shown("### RuntimeEvent", &kind),
        }
    }
}

/// The section of the protocol page shows this value as it is written.
fn assert_shown(heading: &str, written: &impl Serialize) {
    let (_, section) = PROTOCOL.split_once(&format!("\n{heading}\n")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let name = serde_json::to_value(written).unwrap();
    let shown = format!("`{}`", name.as_str().unwrap());
    assert!(section.contains(&shown), "{heading} does not show {shown}");
}

#[test]
fn the_limits_on_the_protocol_page_are_the_ones_the_program_has() {
    for text in [
        format!("{} bytes (`MAX_FRAME_BYTES`)", limits::MAX_FRAME_BYTES),
        format!("{} ms from its start", limits::HANDSHAKE_TIMEOUT_MS),
        format!(
            "The conversation has {} events waiting",
            limits::MAX_PENDING_EVENTS_PER_INSTANCE
        ),
        format!("at most {} bytes", limits::MAX_INPUT_BYTES),
        format!("* {} bytes: instance keys", limits::MAX_INSTANCE_KEY_BYTES),
        format!("* {} bytes: names of", limits::MAX_NAME_BYTES),
        format!("* {} bytes: ids of", limits::MAX_ID_BYTES),
        format!("* {} bytes: workspace ids", limits::MAX_WORKSPACE_ID_BYTES),
        format!("`PROTOCOL_VERSION`, which is {PROTOCOL_VERSION}."),
    ] {
        let page = PROTOCOL.replace('\n', " ");
        assert!(
            page.contains(&text),
            "docs/protocol.md does not say: {text}"
        );
    }
    assert_eq!(limits::HISTORY_PAGE_BYTES, 1024 * 1024, "\"about 1 MiB\"");
}

/// Decodes the result of a method and demands that writing it gives the same again.
fn result_round_trip<M: Method>(result: &str) {
    round_trip::<M::Output>(result);
}

/// Checks the example of a result against the type that its method returns.
fn check_result(method: &str, result: &str) {
    match method {
        control::Connect::NAME => result_round_trip::<control::Connect>(result),
        control::CheckDaemon::NAME => result_round_trip::<control::CheckDaemon>(result),
        control::HoldWrites::NAME => result_round_trip::<control::HoldWrites>(result),
        control::ReleaseWrites::NAME => result_round_trip::<control::ReleaseWrites>(result),
        control::ResumeDaemon::NAME => result_round_trip::<control::ResumeDaemon>(result),
        control::ReadMetrics::NAME => result_round_trip::<control::ReadMetrics>(result),
        control::CheckNodes::NAME => result_round_trip::<control::CheckNodes>(result),
        control::ListNodes::NAME => result_round_trip::<control::ListNodes>(result),
        control::Status::NAME => result_round_trip::<control::Status>(result),
        control::Stop::NAME => result_round_trip::<control::Stop>(result),
        control::WatchProcesses::NAME => result_round_trip::<control::WatchProcesses>(result),
        control::ListProcesses::NAME => result_round_trip::<control::ListProcesses>(result),
        control::OpenWorkspace::NAME => result_round_trip::<control::OpenWorkspace>(result),
        control::ListWorkspaces::NAME => result_round_trip::<control::ListWorkspaces>(result),
        control::CloseWorkspace::NAME => result_round_trip::<control::CloseWorkspace>(result),
        control::Restart::NAME => result_round_trip::<control::Restart>(result),
        control::Reload::NAME => result_round_trip::<control::Reload>(result),
        control::ReadAudit::NAME => result_round_trip::<control::ReadAudit>(result),
        control::ReadUsage::NAME => result_round_trip::<control::ReadUsage>(result),
        control::InstanceTurns::NAME => result_round_trip::<control::InstanceTurns>(result),
        control::PageTrace::NAME => result_round_trip::<control::PageTrace>(result),
        control::ExportInstance::NAME => result_round_trip::<control::ExportInstance>(result),
        control::ImportInstance::NAME => result_round_trip::<control::ImportInstance>(result),
        control::SendEvent::NAME => result_round_trip::<control::SendEvent>(result),
        control::ListEvents::NAME => result_round_trip::<control::ListEvents>(result),
        control::RetryEvent::NAME => result_round_trip::<control::RetryEvent>(result),
        control::DropEvent::NAME => result_round_trip::<control::DropEvent>(result),
        control::MergeProposal::NAME => result_round_trip::<control::MergeProposal>(result),
        control::PauseEvent::NAME => result_round_trip::<control::PauseEvent>(result),
        control::ResumeEvent::NAME => result_round_trip::<control::ResumeEvent>(result),
        control::MoveEvent::NAME => result_round_trip::<control::MoveEvent>(result),
        control::CancelEvent::NAME => result_round_trip::<control::CancelEvent>(result),
        control::VerifyInstances::NAME => result_round_trip::<control::VerifyInstances>(result),
        control::VerifyRoot::NAME => result_round_trip::<control::VerifyRoot>(result),
        control::PruneInstances::NAME => result_round_trip::<control::PruneInstances>(result),
        control::ListQuestions::NAME => result_round_trip::<control::ListQuestions>(result),
        control::ListApprovals::NAME => result_round_trip::<control::ListApprovals>(result),
        control::ShowApproval::NAME => result_round_trip::<control::ShowApproval>(result),
        control::DecideApproval::NAME => result_round_trip::<control::DecideApproval>(result),
        control::ListStandingApprovals::NAME => {
            result_round_trip::<control::ListStandingApprovals>(result);
        }
        control::RevokeStandingApproval::NAME => {
            result_round_trip::<control::RevokeStandingApproval>(result);
        }
        control::ShowQuestion::NAME => result_round_trip::<control::ShowQuestion>(result),
        control::AnswerQuestion::NAME => result_round_trip::<control::AnswerQuestion>(result),
        control::DeclineQuestion::NAME => result_round_trip::<control::DeclineQuestion>(result),
        control::ListWaitingChangesets::NAME => {
            result_round_trip::<control::ListWaitingChangesets>(result);
        }
        control::ListInstances::NAME => result_round_trip::<control::ListInstances>(result),
        control::ShowInstance::NAME => result_round_trip::<control::ShowInstance>(result),
        control::InstanceHistory::NAME => result_round_trip::<control::InstanceHistory>(result),
        control::InstancePage::NAME => result_round_trip::<control::InstancePage>(result),
        control::GetMessage::NAME => result_round_trip::<control::GetMessage>(result),
        control::ListUnknownCalls::NAME => result_round_trip::<control::ListUnknownCalls>(result),
        control::SettleCall::NAME => result_round_trip::<control::SettleCall>(result),
        control::ListSchedules::NAME => result_round_trip::<control::ListSchedules>(result),
        control::RemoveSchedule::NAME => result_round_trip::<control::RemoveSchedule>(result),
        control::DeleteInstance::NAME => result_round_trip::<control::DeleteInstance>(result),
        control::PrepareSandbox::NAME => result_round_trip::<control::PrepareSandbox>(result),
        control::ListSandboxes::NAME => result_round_trip::<control::ListSandboxes>(result),
        control::ShowSandbox::NAME => result_round_trip::<control::ShowSandbox>(result),
        control::RemoveSandbox::NAME => result_round_trip::<control::RemoveSandbox>(result),
        control::CreateProposal::NAME => result_round_trip::<control::CreateProposal>(result),
        control::ListProposals::NAME => result_round_trip::<control::ListProposals>(result),
        control::ShowProposal::NAME => result_round_trip::<control::ShowProposal>(result),
        control::DiffProposal::NAME => result_round_trip::<control::DiffProposal>(result),
        control::CheckProposal::NAME => result_round_trip::<control::CheckProposal>(result),
        control::ReviewProposal::NAME => result_round_trip::<control::ReviewProposal>(result),
        control::ApplyProposal::NAME => result_round_trip::<control::ApplyProposal>(result),
        control::RejectProposal::NAME => result_round_trip::<control::RejectProposal>(result),
        control::RevertProposal::NAME => result_round_trip::<control::RevertProposal>(result),
        control::CommentProposal::NAME => result_round_trip::<control::CommentProposal>(result),
        control::UncommentProposal::NAME => result_round_trip::<control::UncommentProposal>(result),
        control::ShowBundle::NAME => result_round_trip::<control::ShowBundle>(result),
        control::ReadBundleLog::NAME => result_round_trip::<control::ReadBundleLog>(result),
        control::ShowChangeset::NAME => result_round_trip::<control::ShowChangeset>(result),
        control::RehearseBundle::NAME => result_round_trip::<control::RehearseBundle>(result),
        control::ApproveChangeset::NAME => result_round_trip::<control::ApproveChangeset>(result),
        control::RejectChangeset::NAME => result_round_trip::<control::RejectChangeset>(result),
        control::RevertBundle::NAME => result_round_trip::<control::RevertBundle>(result),
        control::PinBundle::NAME => result_round_trip::<control::PinBundle>(result),
        control::CreateTask::NAME => result_round_trip::<control::CreateTask>(result),
        control::ListTasks::NAME => result_round_trip::<control::ListTasks>(result),
        control::ShowTask::NAME => result_round_trip::<control::ShowTask>(result),
        control::StartTask::NAME => result_round_trip::<control::StartTask>(result),
        control::PauseTask::NAME => result_round_trip::<control::PauseTask>(result),
        control::ResumeTask::NAME => result_round_trip::<control::ResumeTask>(result),
        control::CancelTask::NAME => result_round_trip::<control::CancelTask>(result),
        control::ProvideTask::NAME => result_round_trip::<control::ProvideTask>(result),
        control::AnswerTask::NAME => result_round_trip::<control::AnswerTask>(result),
        control::ApproveTask::NAME => result_round_trip::<control::ApproveTask>(result),
        control::ReworkTask::NAME => result_round_trip::<control::ReworkTask>(result),
        control::ListQueue::NAME => result_round_trip::<control::ListQueue>(result),
        control::ChangeQueue::NAME => result_round_trip::<control::ChangeQueue>(result),
        control::SendTask::NAME => result_round_trip::<control::SendTask>(result),
        control::SetTaskBudget::NAME => result_round_trip::<control::SetTaskBudget>(result),
        control::ReadTaskLog::NAME => result_round_trip::<control::ReadTaskLog>(result),
        control::WatchTask::NAME => result_round_trip::<control::WatchTask>(result),
        control::CheckpointTask::NAME => result_round_trip::<control::CheckpointTask>(result),
        control::CheckpointInstance::NAME => {
            result_round_trip::<control::CheckpointInstance>(result);
        }
        control::ListInstanceCheckpoints::NAME => {
            result_round_trip::<control::ListInstanceCheckpoints>(result);
        }
        control::RewindInstance::NAME => result_round_trip::<control::RewindInstance>(result),
        control::ListCheckpoints::NAME => result_round_trip::<control::ListCheckpoints>(result),
        control::RestoreTask::NAME => result_round_trip::<control::RestoreTask>(result),
        control::DrillTask::NAME => result_round_trip::<control::DrillTask>(result),
        control::PruneTasks::NAME => result_round_trip::<control::PruneTasks>(result),
        control::ImportTask::NAME => result_round_trip::<control::ImportTask>(result),
        control::RemoveTask::NAME => result_round_trip::<control::RemoveTask>(result),
        control::ListSecrets::NAME => result_round_trip::<control::ListSecrets>(result),
        control::SetSecret::NAME => result_round_trip::<control::SetSecret>(result),
        control::RemoveSecret::NAME => result_round_trip::<control::RemoveSecret>(result),
        control::AllowSecret::NAME => result_round_trip::<control::AllowSecret>(result),
        control::DenySecret::NAME => result_round_trip::<control::DenySecret>(result),
        control::RotateSecrets::NAME => result_round_trip::<control::RotateSecrets>(result),
        control::ListPermissions::NAME => result_round_trip::<control::ListPermissions>(result),
        control::DecidePermission::NAME => {
            result_round_trip::<control::DecidePermission>(result);
        }
        control::StorePackage::NAME => result_round_trip::<control::StorePackage>(result),
        control::PrunePackages::NAME => result_round_trip::<control::PrunePackages>(result),
        control::ListGrants::NAME => result_round_trip::<control::ListGrants>(result),
        control::ShowGrant::NAME => result_round_trip::<control::ShowGrant>(result),
        control::BeginLogin::NAME => result_round_trip::<control::BeginLogin>(result),
        control::FinishLogin::NAME => result_round_trip::<control::FinishLogin>(result),
        control::RefreshGrant::NAME => result_round_trip::<control::RefreshGrant>(result),
        control::RevokeGrant::NAME => result_round_trip::<control::RevokeGrant>(result),
        control::WatchWorkspace::NAME => result_round_trip::<control::WatchWorkspace>(result),
        control::FollowTurns::NAME => result_round_trip::<control::FollowTurns>(result),
        control::MoveWorkspace::NAME => result_round_trip::<control::MoveWorkspace>(result),
        control::VerifyReplica::NAME => result_round_trip::<control::VerifyReplica>(result),
        control::LeaveNodes::NAME => result_round_trip::<control::LeaveNodes>(result),
        control::DrainNode::NAME => result_round_trip::<control::DrainNode>(result),
        control::CreateSchedule::NAME => result_round_trip::<control::CreateSchedule>(result),
        control::MoveSchedule::NAME => result_round_trip::<control::MoveSchedule>(result),
        control::ReadTraffic::NAME => result_round_trip::<control::ReadTraffic>(result),
        control::FollowLogs::NAME => result_round_trip::<control::FollowLogs>(result),
        other => panic!("this test does not know what `{other}` returns"),
    }
}

#[test]
fn every_method_has_a_request_and_a_result() {
    let (mut asked, mut answered, mut notified) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Example {
        heading,
        type_name,
        json,
    } in examples(CONTROL_API)
    {
        let title = heading.trim_matches('`').to_owned();
        match type_name.as_str() {
            "Request" => {
                let request: RpcRequest = round_trip(&json);
                let call = serde_json::to_value(&request.call).unwrap();
                assert_eq!(call["method"], title.as_str(), "under {heading}");
                // A method with alternatives has an example of each.
                asked.insert(title);
            }
            "Response" => {
                let incoming: ServerMessage = serde_json::from_str(&json).unwrap();
                if let Some(error) = incoming.error {
                    let written = serde_json::to_value(&error).unwrap();
                    assert_eq!(written, value(&json)["error"]);
                    let again = control::RpcError::from(control::ControlError::from(error));
                    assert_eq!(serde_json::to_value(again).unwrap(), value(&json)["error"]);
                } else {
                    check_result(&title, incoming.result.unwrap().get());
                    answered.insert(title);
                }
            }
            "Notification" => {
                let incoming: ServerMessage = serde_json::from_str(&json).unwrap();
                assert_eq!(incoming.method.as_deref(), Some(title.as_str()));
                let params = incoming.params.unwrap();
                match title.as_str() {
                    control::LOG_LINE => {
                        round_trip::<control::LogLine>(params.get());
                    }
                    control::TURN_PROGRESS => {
                        round_trip::<control::TurnProgress>(params.get());
                    }
                    control::WORKSPACE_CHANGE => {
                        round_trip::<control::WorkspaceChange>(params.get());
                    }
                    control::PROCESS_CHANGE => {
                        round_trip::<control::ProcessChange>(params.get());
                    }
                    control::TURN_PIECE => {
                        // Raw JSON has no equality of its own; its text is compared.
                        round_trip::<control::TurnPiece>(params.get());
                    }
                    other => panic!("an unknown notification `{other}`"),
                }
                notified.insert(title);
            }
            other => panic!("an example of the unknown type `{other}`"),
        }
    }
    let all: BTreeSet<String> = Call::NAMES.iter().map(ToString::to_string).collect();
    assert_eq!(asked, all);
    assert_eq!(answered, all);
    assert_eq!(notified.len(), 5);
}

#[test]
fn every_field_of_a_request_is_shown() {
    // Optional fields are left out when they are not set, so the examples must set them all.
    let shown: BTreeSet<String> = examples(CONTROL_API)
        .iter()
        .filter(|example| example.type_name == "Request")
        .flat_map(|example| {
            let params = value(&example.json)["params"].clone();
            let method = example.heading.trim_matches('`').to_owned();
            let names: Vec<String> = params.as_object().unwrap().keys().cloned().collect();
            names
                .into_iter()
                .map(move |name| format!("{method}.{name}"))
        })
        .collect();
    // Each method's fields, from the errors of its type: `deny_unknown_fields` lists what it knows.
    for example in examples(CONTROL_API)
        .iter()
        .filter(|e| e.type_name == "Request")
    {
        let method = example.heading.trim_matches('`');
        let mut request = value(&example.json);
        request["params"]["no such field"] = Value::Null;
        let error = serde_json::from_value::<RpcRequest>(request)
            .unwrap_err()
            .to_string();
        let known = error.split("expected ").nth(1).unwrap_or_default();
        for (at, name) in known.split('`').enumerate() {
            assert!(
                at % 2 == 0 || shown.contains(&format!("{method}.{name}")),
                "{method}: no example sets `{name}`"
            );
        }
    }
}

#[test]
fn every_error_code_is_described() {
    let (_, errors) = CONTROL_API.split_once("\n## Errors\n").unwrap();
    let (errors, _) = errors.split_once("\n## ").unwrap();
    let (permanent, retryable) = errors.split_once("\nRetryable, ").unwrap();
    for code in [
        ErrorCode::InvalidRequest,
        ErrorCode::VersionMismatch,
        ErrorCode::WorkspaceNotFound,
        ErrorCode::InvalidConfiguration,
        ErrorCode::WorkspaceConflict,
        ErrorCode::WorkspaceElsewhere,
        ErrorCode::AgentNotFound,
        ErrorCode::InstanceNotFound,
        ErrorCode::InstanceKeyTaken,
        ErrorCode::CheckpointNotFound,
        ErrorCode::InstanceBusy,
        ErrorCode::EventNotFound,
        ErrorCode::EventParked,
        ErrorCode::QuestionNotFound,
        ErrorCode::ApprovalNotFound,
        ErrorCode::CallNotFound,
        ErrorCode::ScheduleNotFound,
        ErrorCode::ApprovalDecided,
        ErrorCode::SandboxNotFound,
        ErrorCode::SandboxTaken,
        ErrorCode::ProposalNotFound,
        ErrorCode::ProposalRefused,
        ErrorCode::TaskNotFound,
        ErrorCode::TaskTaken,
        ErrorCode::TaskRefused,
        ErrorCode::PersonNeeded,
        ErrorCode::Overloaded,
        ErrorCode::Stopping,
        ErrorCode::Storage,
        ErrorCode::SecretNotFound,
        ErrorCode::SecretUnreadable,
        ErrorCode::SecretNotAllowed,
        ErrorCode::OauthNotFound,
        ErrorCode::OauthRefused,
        ErrorCode::OauthUnavailable,
        ErrorCode::PackageRefused,
        ErrorCode::Damaged,
        ErrorCode::Cancelled,
        ErrorCode::Internal,
    ] {
        // A code that is added here must be added above.
        match code {
            ErrorCode::InvalidRequest
            | ErrorCode::VersionMismatch
            | ErrorCode::WorkspaceNotFound
            | ErrorCode::InvalidConfiguration
            | ErrorCode::WorkspaceConflict
            | ErrorCode::WorkspaceElsewhere
            | ErrorCode::AgentNotFound
            | ErrorCode::InstanceNotFound
            | ErrorCode::InstanceKeyTaken
            | ErrorCode::CheckpointNotFound
            | ErrorCode::InstanceBusy
            | ErrorCode::EventNotFound
            | ErrorCode::EventParked
            | ErrorCode::QuestionNotFound
            | ErrorCode::ApprovalNotFound
            | ErrorCode::CallNotFound
            | ErrorCode::ScheduleNotFound
            | ErrorCode::ApprovalDecided
            | ErrorCode::SandboxNotFound
            | ErrorCode::SandboxTaken
            | ErrorCode::ProposalNotFound
            | ErrorCode::ProposalRefused
            | ErrorCode::TaskNotFound
            | ErrorCode::TaskTaken
            | ErrorCode::TaskRefused
            | ErrorCode::PersonNeeded
            | ErrorCode::Overloaded
            | ErrorCode::Stopping
            | ErrorCode::Storage
            | ErrorCode::SecretNotFound
            | ErrorCode::SecretUnreadable
            | ErrorCode::SecretNotAllowed
            | ErrorCode::OauthNotFound
            | ErrorCode::OauthRefused
            | ErrorCode::OauthUnavailable
            | ErrorCode::PackageRefused
            | ErrorCode::Damaged
            | ErrorCode::Cancelled
            | ErrorCode::Internal => {}
        }
        let error = control::ControlError::new(code, "x");
        let name = serde_json::to_value(code).unwrap();
        let shown = format!("`{}`", name.as_str().unwrap());
        let is_retryable = retryable.contains(&format!("* {shown}: "));
        assert_eq!(is_retryable, error.is_retryable(), "{shown}");
        assert!(is_retryable || permanent.contains(&shown), "{shown}");
    }
    for standing in [
        EventStanding::Waiting,
        EventStanding::Processing,
        EventStanding::Paused,
        EventStanding::Joining,
        EventStanding::Parked,
    ] {
        let name = serde_json::to_value(standing).unwrap();
        let shown = format!("`{}`", name.as_str().unwrap());
        assert!(CONTROL_API.contains(&shown), "{shown} is not described");
        assert_eq!(name, standing.as_str());
    }
    for state in [
        ProcessState::Spawning,
        ProcessState::Idle,
        ProcessState::Processing,
        ProcessState::Draining,
        ProcessState::Terminated,
        ProcessState::Crashed,
        ProcessState::CrashLoopBackOff,
    ] {
        assert!(
            CONTROL_API.contains(&format!("`{}`", state.as_str())),
            "{state:?}"
        );
    }
    for readiness in [Readiness::Starting, Readiness::Ready, Readiness::NotReady] {
        let name = serde_json::to_value(readiness).unwrap();
        let shown = format!("`{}`", name.as_str().unwrap());
        assert!(CONTROL_API.contains(&shown), "{shown} is not described");
    }
}
