//! The control API: JSON-RPC 2.0 in frames, between a client and the daemon (`CTL-1`).
//!
//! Each method is a separate type that names its result ([`Method`]); a server decodes any of them
//! as a [`Call`]. The first request on a connection must be [`Connect`], which checks the exact
//! version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bundle::{BundleStatus, ChangesetInfo};
use crate::metrics::MetricsSnapshot;
use crate::rehearsal::Rehearsal;

/// Declares requests about one item of a workspace, with their additional fields.
macro_rules! requests_about {
    ($about:tt $($(#[$doc:meta])* $name:ident { $($fields:tt)* })*) => {
        $(requests_about!(@one $about [$(#[$doc])*] $name { $($fields)* });)*
    };
    (
        @one { $($about:tt)* } [$(#[$doc:meta])*] $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            /// The workspace.
            pub workspace_id: WorkspaceId,
            $($about)*,
            $($(#[$field_meta])* pub $field: $type,)*
        }
    };
}

mod approval;
mod bundle;
mod call;
mod daemon;
mod event;
mod instance;
mod kind;
mod logs;
mod node;
mod oauth;
mod package;
mod pages;
mod permission;
mod process;
mod proposal;
mod question;
mod queue;
mod rewind;
mod sandbox;
mod schedule;
mod secret;
mod task;
mod trace;
mod traffic;
mod usage;
mod verification;
mod watch;
mod wire;
mod workspace;
mod workspace_permission;

pub use approval::{
    ApprovalDecided, ApprovalDetail, ApprovalInfo, ApprovalPlace, ApprovalsPage, DecideApproval,
    FirstApproval, ListApprovals, ListStandingApprovals, RevokeStandingApproval, ShowApproval,
    StandingApprovalInfo, StandingApprovalPlace, StandingApprovalRevoked, StandingApprovalsPage,
};
pub use bundle::{
    ApproveChangeset, BundleLogs, ListWaitingChangesets, PinBundle, ReadBundleLog, RehearseBundle,
    RejectChangeset, RevertBundle, ShowBundle, ShowChangeset, ShownChangeset, WaitingChangeset,
    WaitingChangesetsPage,
};
pub use call::{
    CallSettled, ListUnknownCalls, SettleCall, UnknownCallInfo, UnknownCallPlace, UnknownCallsPage,
};
pub use daemon::{
    CheckDaemon, Connect, ConnectResult, DaemonCheck, DaemonStatus, HoldWrites, OpenFiles,
    ReadMetrics, ReleaseWrites, Resource, RestoredFrom, ResumeDaemon, Status, Stop,
    WRITE_HOLD_MS_MAX, WritesReleased,
};
pub use event::{
    CancelEvent, DropEvent, EventCancelled, EventInfo, EventPlace, EventStanding, EventsPage,
    ListEvents, MoveEvent, PauseEvent, ResumeEvent, RetryEvent, SendEvent, SendResult, TurnPiece,
    TurnProgress,
};
pub use instance::{
    ConversationPage, DeleteInstance, ExportInstance, ExportPart, ExportPosition, GetMessage,
    History, ImportInstance, ImportResult, InstanceCursor, InstanceDeleteResult, InstanceDetail,
    InstanceHistory, InstanceOrder, InstancePage, InstancePruneResult, InstanceSummary,
    InstanceTurns, InstancesPage, ListInstances, Prunable, PruneInstances, ShowInstance,
    TruncatedMessage, TurnsPage, WholeMessage,
};
pub use kind::CallKind;
pub use logs::{FollowLogs, LOG_FILE_NAME, LogLevel, LogLine, LogProcess};
pub use node::{
    CheckNodes, DrainNode, LeaveNodes, ListNodes, MoveWorkspace, NodeInfo, NodesCheck, NodesPage,
    ReplicaInfo, ReplicatedWorkspace, ServerFinding, ServerVerdict, VerifyReplica,
};
pub use oauth::{
    BeginLogin, FinishLogin, GrantInfo, GrantRevoked, GrantState, ListGrants, LoginBegun,
    RefreshGrant, RevokeGrant, ShowGrant,
};
pub use package::{PackageStored, PackagesPruned, PrunePackages, PrunedPackage, StorePackage};
pub use permission::{
    DecidePermission, ListPermissions, PermissionDecided, PermissionDecision, PermissionList,
};
pub use process::{
    AchievedConfinement, Confinement, ListProcesses, ProcessChange, ProcessInfo, ProcessKey,
    ProcessState, ProcessesPage, Readiness, SandboxRefusals, WatchProcesses,
};
pub use proposal::{
    ApplyProposal, BaseCheck, CheckProposal, CommentChange, CommentProposal, CommentState,
    CreateProposal, DiffProposal, DirectoryChange, DisplacedUserFile, EntryStanding, FileStatus,
    GitCheck, ListProposals, MergeBase, MergeProposal, ModeChange, PROPOSAL_VERSION,
    ProposalApplied, ProposalComment, ProposalDetail, ProposalDiff, ProposalFile, ProposalInfo,
    ProposalMerged, ProposalPaths, ProposalRecord, ProposalRefusal, ProposalReview, ProposalsPage,
    ProposedChange, RefusalKind, RejectProposal, RevertProposal, ReviewProposal, RunEvent,
    RunEventKind, ShowProposal, UncommentProposal,
};
pub use question::{
    AnswerQuestion, DeclineQuestion, ListQuestions, QuestionClosed, QuestionDetail, QuestionInfo,
    QuestionPlace, QuestionSource, QuestionsPage, ShowQuestion,
};
pub use queue::{
    ChangeQueue, ListQueue, MERGE_QUEUE, QueueChange, QueueEntry, QueueOutcome, QueueOutcomeKind,
    QueuePlace, QueueStage, QueueView,
};
pub use rewind::{
    CheckpointInstance, InstanceCheckpoint, InstanceCheckpointsPage, InstanceRewound,
    ListInstanceCheckpoints, OtherConfiguration, PinnedConversation, RewindInstance, RewindRecord,
    RewoundMessage,
};
pub use sandbox::{
    ListSandboxes, PrepareSandbox, ProposalBase, ProposalState, RemoveSandbox, SandboxDetail,
    SandboxFile, SandboxInfo, SandboxRef, SandboxesPage, ShowSandbox, UncopiedPath,
};
pub use schedule::{
    CreateSchedule, ListSchedules, MoveSchedule, RemoveSchedule, ScheduleInfo, ScheduleKept,
    SchedulePlace, ScheduleRemoved, SchedulesPage,
};
pub use secret::{
    AllowSecret, DenySecret, ListSecrets, RemoveSecret, RotateSecrets, SecretChanged,
    SecretConsent, SecretConsentChanged, SecretIdentity, SecretInfo, SecretList, SecretsRotated,
    SetSecret,
};
pub use task::{
    AnswerTask, ApproveTask, BLOCKED_BY_APPROVAL, BLOCKED_BY_QUEUE, CancelTask, CheckpointInfo,
    CheckpointTask, CheckpointsPage, CreateTask, DrillTask, ImportTask, ListCheckpoints, ListTasks,
    PauseTask, ProvideTask, PruneTasks, PrunedTask, ReadTaskLog, RemoveTask, RestoreTask,
    ResumeTask, ReworkTask, SendTask, SetTaskBudget, ShowTask, StartTask, TaskAgent, TaskAsk,
    TaskAskKind, TaskDetail, TaskDisk, TaskDrill, TaskHistoryLine, TaskInfo, TaskLastRun, TaskLog,
    TaskLogPart, TaskNotification, TaskNotificationState, TaskPlace, TaskProposal,
    TaskProposalFile, TaskRemoved, TaskRestored, TaskRun, TaskSandbox, TaskStreamPart, TaskVerdict,
    TasksPage, TasksPruned, WatchTask,
};
pub use trace::{PageTrace, TraceCursor, TracePage};
pub use traffic::{ReadTraffic, TrafficEnd, TrafficFlow, TrafficReport};
pub use usage::{AccountUsage, ReadUsage, UsageCursor, UsageGrouping, UsageReport, UsageRow};
pub use verification::{FileFinding, FindingSeverity, Verification, VerifyInstances, VerifyRoot};
pub use watch::{
    FollowTurns, InvalidCursor, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceChange,
    WorkspaceSnapshot,
};
pub use wire::{
    ControlError, ErrorCode, JsonRpc, Notification, RpcError, RpcRequest, RpcResponse,
    ServerMessage,
};
pub use workspace::{
    AuditCursor, AuditLog, AuditRecord, ChangeKind, CloseWorkspace, ConfigurationChange,
    FileWatchMode, ListWorkspaces, ModelFailures, OpenWorkspace, ReadAudit, Reload, ReloadResult,
    ReplicationStall, Restart, RestartResult, UnhealthyProcess, WorkspaceInfo, WorkspaceProblem,
    WorkspaceReload, WorkspacesPage,
};
pub use workspace_permission::{InvalidPermission, WorkspacePermission};

/// A method of the control API.
pub trait Method: Serialize {
    /// Its name on the wire.
    const NAME: &'static str;
    /// Its result.
    type Output: Serialize + DeserializeOwned;
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $wire:literal -> $output:ty;)*) => {
        /// Any request a client can make.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "method", content = "params")]
        pub enum Call {
            $($(#[$doc])* #[serde(rename = $wire)] $name($name),)*
        }

        impl Call {
            /// Every method's name.
            pub const NAMES: &'static [&'static str] = &[$($wire),*];
        }

        $(
            impl Method for $name {
                const NAME: &'static str = $wire;
                type Output = $output;
            }
        )*
    };
}

methods! {
    /// Opens the connection, and checks the exact version.
    Connect = "daemon.connect" -> ConnectResult;
    /// Returns the daemon's state.
    Status = "daemon.status" -> DaemonStatus;
    /// Checks which operations the daemon's processes can perform in their environment.
    CheckDaemon = "daemon.check" -> DaemonCheck;
    /// Returns all metrics of the daemon.
    ReadMetrics = "daemon.metrics" -> MetricsSnapshot;
    /// Holds all changes of the daemon's files for a short time, for a backup. Only a person may.
    HoldWrites = "daemon.holdWrites" -> EmptyResult;
    /// Ends a hold of changes.
    ReleaseWrites = "daemon.releaseWrites" -> WritesReleased;
    /// Starts the processes of a restored state root. Only a person may.
    ResumeDaemon = "daemon.resume" -> EmptyResult;
    /// Stops the daemon.
    Stop = "daemon.shutdown" -> EmptyResult;
    /// Lists the processes and their states.
    ListProcesses = "daemon.processes" -> ProcessesPage;
    /// Subscribes to the processes and their changes, as `process.change` notifications under the
    /// request's id.
    WatchProcesses = "process.watch" -> EmptyResult;
    /// Lists the nodes and the workspaces that each of them runs.
    ListNodes = "node.list" -> NodesPage;
    /// Checks the settings of the server that stores the logs of workspaces.
    CheckNodes = "node.check" -> NodesCheck;
    /// Checks the files of a workspace that another node runs.
    VerifyReplica = "node.verify" -> Verification;
    /// Moves a workspace to another node.
    MoveWorkspace = "node.move" -> EmptyResult;
    /// Starts or ends draining: a draining node takes over no workspaces.
    DrainNode = "node.drain" -> EmptyResult;
    /// Makes this node leave the cluster permanently when its daemon stops.
    LeaveNodes = "node.leave" -> EmptyResult;
    /// Registers a project as a workspace and starts it; it stays registered across restarts.
    OpenWorkspace = "workspace.open" -> WorkspaceInfo;
    /// Lists the registered workspaces.
    ListWorkspaces = "workspace.list" -> WorkspacesPage;
    /// Stops a workspace's processes and removes the registration; its state stays.
    CloseWorkspace = "workspace.close" -> EmptyResult;
    /// Restarts processes of a workspace, after the turns in progress.
    Restart = "workspace.restart" -> RestartResult;
    /// Reads configurations again, and restarts the affected processes after the turns in progress.
    Reload = "workspace.reload" -> ReloadResult;
    /// Subscribes to a workspace's state and events, as `workspace.change` notifications with the
    /// request's id.
    WatchWorkspace = "workspace.watch" -> EmptyResult;
    /// Subscribes to the turns of a conversation, including partial model replies, as
    /// `turn.progress` and `turn.piece` notifications with the request's id.
    FollowTurns = "turn.follow" -> EmptyResult;
    /// Reads the end of the audit log.
    ReadAudit = "workspace.audit" -> AuditLog;
    /// Reports the usage and costs of model replies.
    ReadUsage = "workspace.usage" -> UsageReport;
    /// Counts events and calls between connections and agents.
    ReadTraffic = "workspace.traffic" -> TrafficReport;
    /// Sends an event to an agent; with `wait`, returns when its turn is committed.
    SendEvent = "event.send" -> SendResult;
    /// Lists the events that wait, are in progress, or are parked.
    ListEvents = "event.list" -> EventsPage;
    /// Requeues a parked event; its turn begins from the start.
    RetryEvent = "event.retry" -> EmptyResult;
    /// Ends a parked event without an answer.
    DropEvent = "event.drop" -> EmptyResult;
    /// Cancels a turn in progress or a pending event. Only a person may.
    CancelEvent = "event.cancel" -> EventCancelled;
    /// Pauses a waiting event: its turn does not begin before it is resumed. Only a person may.
    PauseEvent = "event.pause" -> EmptyResult;
    /// Resumes a paused event. Only a person may.
    ResumeEvent = "event.resume" -> EmptyResult;
    /// Moves a waiting event within its queue. Only a person may.
    MoveEvent = "event.move" -> EmptyResult;
    /// Lists the questions that wait for a person's answer.
    ListQuestions = "question.list" -> QuestionsPage;
    /// Shows one question, with the form of its answer.
    ShowQuestion = "question.show" -> QuestionDetail;
    /// Answers a question. Only a person may.
    AnswerQuestion = "question.answer" -> QuestionClosed;
    /// Declines a question. Only a person may.
    DeclineQuestion = "question.decline" -> QuestionClosed;
    /// Lists the tool calls that wait for a person's approval.
    ListApprovals = "approval.list" -> ApprovalsPage;
    /// Shows one approval, with the arguments of its tool call.
    ShowApproval = "approval.show" -> ApprovalDetail;
    /// Approves or denies a waiting tool call. Only a person may.
    DecideApproval = "approval.decide" -> ApprovalDecided;
    /// Lists the standing approvals: calls that a person approved in advance.
    ListStandingApprovals = "approval.standing" -> StandingApprovalsPage;
    /// Revokes a standing approval. Only a person may.
    RevokeStandingApproval = "approval.revoke" -> StandingApprovalRevoked;
    /// Lists tool calls with an unknown outcome.
    ListUnknownCalls = "call.unknown" -> UnknownCallsPage;
    /// Marks a tool call with an unknown outcome as resolved. Only a person may.
    SettleCall = "call.settle" -> CallSettled;
    /// Lists the schedules: inputs of conversations that become due later.
    ListSchedules = "schedule.list" -> SchedulesPage;
    /// Creates a schedule. Only a person may.
    CreateSchedule = "schedule.create" -> ScheduleKept;
    /// Moves a schedule to another time. Only a person may.
    MoveSchedule = "schedule.move" -> ScheduleKept;
    /// Removes a schedule. Only a person may.
    RemoveSchedule = "schedule.remove" -> ScheduleRemoved;
    /// Lists the instances of a workspace.
    ListInstances = "instance.list" -> InstancesPage;
    /// Shows one instance.
    ShowInstance = "instance.show" -> InstanceDetail;
    /// Reads messages of an instance's conversation.
    InstanceHistory = "instance.history" -> History;
    /// Reads messages of an instance's conversation, from the end backwards.
    InstancePage = "instance.page" -> ConversationPage;
    /// Shows one message of an instance's conversation in full.
    GetMessage = "message.get" -> WholeMessage;
    /// Checks the files of conversations, and moves damage aside.
    VerifyInstances = "instance.verify" -> Verification;
    /// Checks the files that belong to no workspace, and the owner of each workspace folder.
    VerifyRoot = "root.verify" -> Verification;
    /// Lists the runtime events in the turns of an instance.
    InstanceTurns = "instance.turns" -> TurnsPage;
    /// Lists everything that one event caused, across agents.
    PageTrace = "trace.page" -> TracePage;
    /// Reads one part of a conversation's archive.
    ExportInstance = "instance.export" -> ExportPart;
    /// Creates a conversation from an archive.
    ImportInstance = "instance.import" -> ImportResult;
    /// Deletes conversations that have been unused for long, or lists them.
    PruneInstances = "instance.prune" -> InstancePruneResult;
    /// Creates a joint checkpoint of an instance: its files, conversation and extensions together.
    /// Only a person may.
    CheckpointInstance = "instance.checkpoint" -> InstanceCheckpoint;
    /// Lists the joint checkpoints of an instance.
    ListInstanceCheckpoints = "instance.checkpoints" -> InstanceCheckpointsPage;
    /// Rewinds files, conversation and extensions to a joint checkpoint, or reports the changes
    /// that this would make. Only a person may.
    RewindInstance = "instance.rewind" -> InstanceRewound;
    /// Stops an instance's process and removes its state.
    DeleteInstance = "instance.delete" -> InstanceDeleteResult;
    /// Copies chosen files of the Project Root for a worker.
    PrepareSandbox = "sandbox.prepare" -> SandboxDetail;
    /// Lists the sandboxes of a workspace.
    ListSandboxes = "sandbox.list" -> SandboxesPage;
    /// Shows one sandbox, with every file that it received.
    ShowSandbox = "sandbox.show" -> SandboxDetail;
    /// Removes a sandbox with the proposal in it.
    RemoveSandbox = "sandbox.remove" -> EmptyResult;
    /// Creates a proposal from the changes in a sandbox.
    CreateProposal = "proposal.create" -> ProposalDetail;
    /// Lists the proposals of a workspace.
    ListProposals = "proposal.list" -> ProposalsPage;
    /// Shows one proposal in full.
    ShowProposal = "proposal.show" -> ProposalDetail;
    /// Reads a part of a proposal's patch.
    DiffProposal = "proposal.diff" -> ProposalDiff;
    /// Checks if a proposal can be applied, and lists the obstacles. Writes nothing.
    CheckProposal = "proposal.check" -> ProposalReview;
    /// Checks a proposal like `proposal.check`, and records the result in the run's log.
    ReviewProposal = "proposal.review" -> ProposalReview;
    /// Applies a proposal atomically. Only a person may.
    ApplyProposal = "proposal.apply" -> ProposalApplied;
    /// Rejects a proposal. Only a person may.
    RejectProposal = "proposal.reject" -> ProposalInfo;
    /// Reverts an applied proposal atomically. Only a person may.
    RevertProposal = "proposal.revert" -> ProposalApplied;
    /// Merges a stale proposal into a new one on top of the project's current files. Only a person
    /// may.
    MergeProposal = "proposal.merge" -> ProposalMerged;
    /// Adds a comment on a file of a proposal, or on one of its lines. Only a person may.
    CommentProposal = "proposal.comment" -> ProposalComment;
    /// Removes a comment that was not sent to the agent. Only a person may.
    UncommentProposal = "proposal.uncomment" -> EmptyResult;
    /// Lists the changesets that wait for a person.
    ListWaitingChangesets = "bundle.waiting" -> WaitingChangesetsPage;
    /// Shows the state of a conversation's configuration, and its agent's proposed changes.
    ShowBundle = "bundle.status" -> BundleStatus;
    /// Lists the outcome of each changeset, in order.
    ReadBundleLog = "bundle.log" -> BundleLogs;
    /// Shows one changeset with its changes.
    ShowChangeset = "bundle.show" -> ShownChangeset;
    /// Replays recorded turns with a changeset or revision before it becomes active. Only a person
    /// may.
    RehearseBundle = "bundle.rehearse" -> Rehearsal;
    /// Approves a pending changeset, which becomes the head. Only a person may.
    ApproveChangeset = "bundle.approve" -> ChangesetInfo;
    /// Rejects a changeset. Only a person may.
    RejectChangeset = "bundle.reject" -> ChangesetInfo;
    /// Reverts to a revision. Only a person may.
    RevertBundle = "bundle.revert" -> BundleStatus;
    /// Pins the active revision, so that no changeset replaces it, or removes the pin. Only a
    /// person may.
    PinBundle = "bundle.pin" -> BundleStatus;
    /// Creates a task with its own work area. Only a person may.
    CreateTask = "task.new" -> TaskInfo;
    /// Lists the tasks.
    ListTasks = "task.list" -> TasksPage;
    /// Shows one task, with everything that a person needs to act.
    ShowTask = "task.show" -> TaskDetail;
    /// Starts a task. Only a person may, as for every method that changes a task.
    StartTask = "task.start" -> TaskInfo;
    /// Pauses a task and its agent.
    PauseTask = "task.pause" -> TaskInfo;
    /// Resumes a task.
    ResumeTask = "task.resume" -> TaskInfo;
    /// Cancels a task permanently.
    CancelTask = "task.cancel" -> TaskInfo;
    /// Provides a dependency that the agent requested.
    ProvideTask = "task.provide" -> TaskInfo;
    /// Answers a question of the agent.
    AnswerTask = "task.answer" -> TaskInfo;
    /// Approves a phase.
    ApproveTask = "task.approve" -> TaskInfo;
    /// Requests changes to a phase.
    ReworkTask = "task.rework" -> TaskInfo;
    /// Sends a message to a task's agent; a task that has ended continues.
    SendTask = "task.send" -> TaskInfo;
    /// Sets the budget of a task.
    SetTaskBudget = "task.budget" -> TaskInfo;
    /// Reads a part of one of a task's logs.
    ReadTaskLog = "task.logs" -> TaskLogPart;
    /// Reads a part of a task's stream: its agent's work and its own events.
    WatchTask = "task.watch" -> TaskStreamPart;
    /// Creates a checkpoint of the work area.
    CheckpointTask = "task.checkpoint" -> CheckpointInfo;
    /// Lists the checkpoints of a task.
    ListCheckpoints = "task.checkpoints" -> CheckpointsPage;
    /// Restores the work area to a checkpoint, or reports the changes that a restore would make.
    RestoreTask = "task.restore" -> TaskRestored;
    /// Checks that the newest checkpoint can be restored.
    DrillTask = "task.drill" -> TaskDrill;
    /// Removes the tasks that ended long ago, with backups.
    PruneTasks = "task.prune" -> TasksPruned;
    /// Imports a work area.
    ImportTask = "task.import" -> TaskInfo;
    /// Removes a task that has ended, with a backup.
    RemoveTask = "task.remove" -> TaskRemoved;
    /// The merge queue of a workspace's project.
    ListQueue = "queue.list" -> QueueView;
    /// Adds a proposal to the merge queue, or changes its place. Only a person may.
    ChangeQueue = "queue.change" -> QueueView;
    /// Lists the secrets, without their values.
    ListSecrets = "secret.list" -> SecretList;
    /// Stores a value, encrypted, and restarts its users.
    SetSecret = "secret.set" -> SecretChanged;
    /// Removes a secret, or one entry.
    RemoveSecret = "secret.remove" -> SecretChanged;
    /// Allows a workspace to use a secret.
    AllowSecret = "secret.allow" -> SecretConsentChanged;
    /// Revokes the permission of a workspace to use a secret.
    DenySecret = "secret.deny" -> SecretConsentChanged;
    /// Re-encrypts everything for another identity. Only a person may.
    RotateSecrets = "secret.rotate" -> SecretsRotated;
    /// Lists the decisions of people about permissions of workspaces.
    ListPermissions = "permission.list" -> PermissionList;
    /// Allows or denies a workspace a permission. Only a person may.
    DecidePermission = "permission.decide" -> PermissionDecided;
    /// Unpacks a package into the store. Only a person may.
    StorePackage = "package.store" -> PackageStored;
    /// Removes unused packages from the store. Only a person may.
    PrunePackages = "package.prune" -> PackagesPruned;
    /// Lists the state of the tokens of applications.
    ListGrants = "oauth.list" -> Vec<GrantInfo>;
    /// Shows the state of one application's tokens.
    ShowGrant = "oauth.show" -> GrantInfo;
    /// Begins a login at an authorization server. Only a person may, as for the methods that
    /// follow.
    BeginLogin = "oauth.login" -> LoginBegun;
    /// Completes a login with the server's redirect.
    FinishLogin = "oauth.finish" -> GrantInfo;
    /// Renews a token now.
    RefreshGrant = "oauth.refresh" -> GrantInfo;
    /// Revokes tokens at the server, and removes them.
    RevokeGrant = "oauth.revoke" -> GrantRevoked;
    /// Subscribes to the daemon's log stream, as `logs.line` notifications under the request's id.
    FollowLogs = "logs.follow" -> EmptyResult;
}

/// Name of the notification that carries one log line: `params` is [`LogLine`].
pub const LOG_LINE: &str = "logs.line";
/// Name of the notification that carries one runtime event of a turn a client waits for: `params` is
/// [`TurnProgress`].
pub const TURN_PROGRESS: &str = "turn.progress";

/// Name of the notification with a partial result of a call in a followed turn: `params` is
/// [`TurnPiece`].
pub const TURN_PIECE: &str = "turn.piece";

/// Name of the notification about a watched workspace: `params` is [`WorkspaceChange`].
pub const WORKSPACE_CHANGE: &str = "workspace.change";

/// Name of the notification about watched processes: `params` is [`ProcessChange`].
pub const PROCESS_CHANGE: &str = "process.change";

/// Success without further data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptyResult {}
