//! Everything that needs a person, in every workspace of a daemon or in one.

use std::collections::HashSet;

use goondan_protocol::budget::{BudgetPeriod, BudgetState};
use goondan_protocol::control::{
    ApprovalInfo, BLOCKED_BY_APPROVAL, ControlError, EventInfo, ListApprovals, ListEvents,
    ListProposals, ListQuestions, ListTasks, ListUnknownCalls, ListWaitingChangesets,
    ListWorkspaces, MERGE_QUEUE, ProposalInfo, ProposalState, QuestionInfo, ReadUsage, SandboxRef,
    TaskInfo, UnknownCallInfo, UsageGrouping, WaitingChangeset, WorkspaceInfo, WorkspacePermission,
};
use goondan_protocol::ids::{
    ApprovalId, ChangesetId, EventId, InstanceKey, QuestionId, ToolCallId, WorkspaceId,
};
use goondan_protocol::task::{TaskId, TaskStatus};
use goondan_protocol::time::Timestamp;
use serde::Serialize;

use crate::client::{CallError, Client};
use crate::commands::approval::approved_by;
use crate::commands::health;
use crate::context::Context;
use crate::output::text::{self, shell_quoted};

/// Part of a budget from which it is listed, in percent.
const NEARLY_SPENT_PERCENT: u64 = 90;

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct InboxItem {
    pub(in crate::commands) kind: &'static str,
    pub(in crate::commands) workspace_id: WorkspaceId,
    /// Identifies it within its kind and workspace.
    pub(in crate::commands) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) conversation: Option<InstanceKey>,
    /// The agent, connection or program that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) since: Option<Timestamp>,
    /// Time at which the default applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) until: Option<Timestamp>,
    /// The decision, on one line.
    pub(in crate::commands) subject: String,
    /// The result without a decision.
    pub(in crate::commands) default: &'static str,
    /// Commands that decide it.
    pub(in crate::commands) commands: Vec<String>,
    #[serde(skip)]
    pub(in crate::commands) target: Target,
}

/// Identifies an item among all. Two conversations of a workspace can have an event of the same id.
pub(in crate::commands) type ItemKey = (&'static str, WorkspaceId, Option<InstanceKey>, String);

impl InboxItem {
    pub(in crate::commands) fn key(&self) -> ItemKey {
        let at = self.conversation.clone();
        (self.kind, self.workspace_id.clone(), at, self.id.clone())
    }
}

/// Names of the subject of an item, as the control API takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum Target {
    Approval(ApprovalId),
    Question(QuestionId),
    Task(TaskId),
    Proposal(SandboxRef),
    Changeset(InstanceKey, ChangesetId),
    UnknownCall(InstanceKey, ToolCallId),
    ParkedEvent(InstanceKey, EventId),
    Permission(WorkspacePermission),
    /// Decided elsewhere: the item's commands show where.
    Elsewhere,
}

/// All items, and what could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::commands) struct Inbox {
    /// Longest wait first; those of unknown age are last.
    pub(in crate::commands) items: Vec<InboxItem>,
    pub(in crate::commands) failures: Vec<String>,
}

impl Inbox {
    /// Replaces the items of a workspace.
    pub(super) fn replace(&mut self, id: &WorkspaceId, items: Vec<InboxItem>) {
        self.items.retain(|item| item.workspace_id != *id);
        self.items.extend(items);
        self.sort();
    }

    /// Sorts the items. Those of the same age have an order, too, so that an item does not move when
    /// another workspace changes.
    fn sort(&mut self) {
        self.items.sort_by(|a, b| {
            let place = |item: &InboxItem| (item.since.is_none(), item.since);
            let by_age = place(a).cmp(&place(b));
            by_age.then_with(|| a.workspace_id.cmp(&b.workspace_id))
        });
    }
}

/// Reads the items of one workspace, or of all.
pub(in crate::commands) async fn read(
    client: &mut Client,
    only: Option<&WorkspaceId>,
    context: &Context,
) -> Result<Inbox, CallError> {
    let mut reader = Reader {
        context,
        inbox: Inbox::default(),
    };
    let workspaces = client
        .all(ListWorkspaces {
            workspace_id: only.cloned(),
            ..ListWorkspaces::default()
        })
        .await?;
    let approvals = client
        .all(ListApprovals {
            workspace_id: only.cloned(),
            ..ListApprovals::default()
        })
        .await;
    for info in reader.unless_refused(approvals)? {
        reader.approval(info);
    }
    let questions = client
        .all(ListQuestions {
            workspace_id: only.cloned(),
            ..ListQuestions::default()
        })
        .await;
    for info in reader.unless_refused(questions)? {
        reader.question(info);
    }
    let calls = client
        .all(ListUnknownCalls {
            workspace_id: only.cloned(),
            ..ListUnknownCalls::default()
        })
        .await;
    for info in reader.unless_refused(calls)? {
        reader.unknown_call(info);
    }
    let tasks = client
        .all(ListTasks {
            workspace_id: only.cloned(),
            // Also tasks that need no person, because their proposals are not items themselves.
            needs_me: false,
            ..ListTasks::default()
        })
        .await;
    let tasks = reader.unless_refused(tasks)?;
    for workspace in &workspaces {
        reader.workspace(workspace);
    }
    let with_parked: Vec<WorkspaceId> = workspaces
        .iter()
        .filter(|workspace| workspace.parked_events > 0)
        .map(|workspace| workspace.workspace_id.clone())
        .collect();
    let lists = with_parked.iter().map(|id| ListEvents {
        workspace_id: id.clone(),
        instance_key: None,
        parked: true,
        after: None,
        limit: None,
    });
    let parked = client.all_of_each(lists).await?;
    for (id, info) in reader.accepted(&with_parked, parked) {
        reader.parked_event(id, info);
    }
    let ids: Vec<WorkspaceId> = workspaces
        .iter()
        .map(|workspace| workspace.workspace_id.clone())
        .collect();
    let lists = ids.iter().map(|id| ListProposals {
        workspace_id: id.clone(),
        run_id: None,
        after: None,
        limit: None,
    });
    let proposals = client.all_of_each(lists).await?;
    // The proposal of a task is decided with the task.
    let of_tasks: HashSet<(&WorkspaceId, &str)> = tasks
        .iter()
        .map(|task| (&task.workspace_id, task.task_id.as_str()))
        .collect();
    for (id, info) in reader.accepted(&ids, proposals) {
        let is_of_task = of_tasks.contains(&(id, info.at.run_id.as_str()));
        // The merge queue decides its own.
        let is_attempt = info.at.run_id.as_str() == MERGE_QUEUE;
        if info.state == ProposalState::Open && !is_of_task && !is_attempt {
            reader.proposal(id, info);
        }
    }
    let lists = ids.iter().map(|id| ListWaitingChangesets {
        workspace_id: id.clone(),
        after: None,
        limit: None,
    });
    let changesets = client.all_of_each(lists).await?;
    for (id, waiting) in reader.accepted(&ids, changesets) {
        reader.changeset(id, waiting);
    }
    for info in tasks {
        // The pending call is listed itself.
        let is_approval = info.blocked_by.as_deref() == Some(BLOCKED_BY_APPROVAL);
        if info.needs_person() && !is_approval {
            reader.task(info);
        }
    }
    let usage = client
        .query(ReadUsage {
            workspace_id: only.cloned(),
            by: UsageGrouping::Agent,
            since: None,
            after: None,
            limit: Some(1),
        })
        .await;
    let budgets = reader.unless_refused(usage.map(|usage| usage.budgets))?;
    for state in budgets {
        reader.budget(&state);
    }
    let mut inbox = reader.inbox;
    inbox.sort();
    Ok(inbox)
}

struct Reader<'c> {
    context: &'c Context,
    inbox: Inbox,
}

impl Reader<'_> {
    /// The items of a list. A refused list is reported beside the others; a lost connection is a failure.
    fn unless_refused<T>(&mut self, list: Result<Vec<T>, CallError>) -> Result<Vec<T>, CallError> {
        match list {
            Err(CallError::Refused(refused)) => {
                self.inbox.failures.push(refused.message);
                Ok(Vec::new())
            }
            list => list,
        }
    }

    /// The items of one list of each workspace. Refused lists are reported beside the others.
    fn accepted<'w, T>(
        &mut self,
        ids: &'w [WorkspaceId],
        lists: Vec<Result<Vec<T>, ControlError>>,
    ) -> Vec<(&'w WorkspaceId, T)> {
        let mut accepted = Vec::new();
        for (id, list) in ids.iter().zip(lists) {
            match list {
                Ok(items) => accepted.extend(items.into_iter().map(|item| (id, item))),
                Err(refused) => self.inbox.failures.push(refused.message),
            }
        }
        accepted
    }

    fn add(&mut self, item: InboxItem) {
        self.inbox.items.push(item);
    }

    /// Commands about a workspace.
    fn commands<const N: usize>(&self, id: &WorkspaceId, commands: [String; N]) -> Vec<String> {
        let about = |command| format!("--workspace {id} {command}");
        let commands = commands.into_iter().map(about);
        commands
            .map(|command| self.context.daemon_command(&command))
            .collect()
    }

    fn approval(&mut self, info: ApprovalInfo) {
        let id = &info.approval_id;
        let commands = [
            format!("inbox approve {id}"),
            format!("inbox deny {id} --reason '…'"),
        ];
        let call = format!("{} {}", info.tool_name, info.summary);
        let subject = match info.needs_two {
            true => format!("[approved: {}] {call}", approved_by(&info)),
            false => call,
        };
        let item = InboxItem {
            kind: "approval",
            commands: self.commands(&info.workspace_id, commands),
            id: id.to_string(),
            conversation: Some(info.instance_key),
            from: Some(info.agent_name.to_string()),
            since: Some(info.asked_at),
            until: info.denied_at,
            subject,
            default: match info.denied_at {
                Some(_) => "the call is denied",
                None => "the call waits",
            },
            target: Target::Approval(info.approval_id),
            workspace_id: info.workspace_id,
        };
        self.add(item);
    }

    fn question(&mut self, info: QuestionInfo) {
        let id = &info.question_id;
        let commands = [
            format!("inbox question answer {id} --set NAME=VALUE"),
            format!("inbox question decline {id}"),
        ];
        let item = InboxItem {
            kind: "question",
            commands: self.commands(&info.workspace_id, commands),
            id: id.to_string(),
            conversation: Some(info.instance_key),
            from: Some(info.source.in_words()),
            since: Some(info.asked_at),
            until: Some(info.expires_at),
            subject: info.message,
            default: "the call continues without an answer",
            target: Target::Question(info.question_id),
            workspace_id: info.workspace_id,
        };
        self.add(item);
    }

    fn unknown_call(&mut self, info: UnknownCallInfo) {
        let (key, call) = (&info.instance_key, &info.tool_call_id);
        let key_word = shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let commands = [
            format!("conversation history {key_word}"),
            format!("inbox settle {key_word} {call} --note '…'"),
        ];
        let item = InboxItem {
            kind: "unknownCall",
            commands: self.commands(&info.workspace_id, commands),
            id: call.to_string(),
            conversation: Some(key.clone()),
            from: Some(info.agent_name.to_string()),
            since: Some(info.at),
            until: None,
            subject: format!("{}: {}", info.tool_name, info.detail),
            default: "the call is not repeated",
            target: Target::UnknownCall(info.instance_key, info.tool_call_id),
            workspace_id: info.workspace_id,
        };
        self.add(item);
    }

    fn parked_event(&mut self, workspace_id: &WorkspaceId, info: EventInfo) {
        let id = &info.event_id;
        let commands = [format!("event retry {id}"), format!("event drop {id}")];
        let reason = info.reason.unwrap_or_default();
        let item = InboxItem {
            kind: "parkedEvent",
            commands: self.commands(workspace_id, commands),
            id: id.to_string(),
            conversation: Some(info.instance_key.clone()),
            from: Some(info.agent_name.to_string()),
            since: Some(info.since),
            until: None,
            subject: format!("{reason}; input: {}", info.input),
            default: "the conversation continues without it",
            target: Target::ParkedEvent(info.instance_key, info.event_id),
            workspace_id: workspace_id.clone(),
        };
        self.add(item);
    }

    fn proposal(&mut self, workspace_id: &WorkspaceId, info: ProposalInfo) {
        let SandboxRef { run_id, agent_id } = &info.at;
        let commands = [
            format!("proposal apply {run_id} {agent_id}"),
            format!("proposal reject {run_id} {agent_id} --reason '…'"),
        ];
        let changes = text::count(info.changed_files, "changed file");
        let item = InboxItem {
            kind: "proposal",
            commands: self.commands(workspace_id, commands),
            id: format!("{run_id}/{agent_id}"),
            conversation: None,
            from: Some(agent_id.to_string()),
            since: Some(info.created_at),
            until: None,
            subject: format!("{changes}: {}", info.notes),
            default: "the project stays unchanged",
            target: Target::Proposal(info.at),
            workspace_id: workspace_id.clone(),
        };
        self.add(item);
    }

    fn changeset(&mut self, workspace_id: &WorkspaceId, waiting: WaitingChangeset) {
        let key = shell_quoted(waiting.instance_key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let id = &waiting.changeset.changeset_id;
        let commands = [
            format!("conversation bundle approve {id} --key {key}"),
            format!("conversation bundle reject {id} --key {key} --reason '…'"),
        ];
        let changeset = &waiting.changeset;
        let message = [changeset.message.clone(), changeset.summary.join("; ")];
        let message: Vec<String> = message.into_iter().filter(|it| !it.is_empty()).collect();
        let item = InboxItem {
            kind: "changeset",
            commands: self.commands(workspace_id, commands),
            id: id.to_string(),
            conversation: Some(waiting.instance_key.clone()),
            from: Some(waiting.agent_name.to_string()),
            since: Some(changeset.opened_at),
            until: None,
            subject: message.join(": "),
            default: "the agent keeps its configuration",
            target: Target::Changeset(waiting.instance_key, waiting.changeset.changeset_id),
            workspace_id: workspace_id.clone(),
        };
        self.add(item);
    }

    fn task(&mut self, info: TaskInfo) {
        let id = &info.task_id;
        let show = format!("task show {id}");
        let commands = match &info.held {
            Some(_) => self.commands(
                &info.workspace_id,
                [
                    format!("task queue release {id}"),
                    format!("task queue drop {id}"),
                    show,
                ],
            ),
            None => self.commands(&info.workspace_id, [show]),
        };
        let held = info
            .held
            .map(|why| format!("held in the merge queue: {why}"));
        // The warning of a task in review says why it waits longer than expected.
        let reason = info.damaged.or(held);
        let reason = match info.status {
            TaskStatus::WaitingReview => reason.or(info.warning).or(info.blocked_by),
            _ => reason.or(info.blocked_by).or(info.warning),
        };
        let reason = reason.unwrap_or_else(|| info.status.as_str().to_owned());
        let phase = match info.total_phases {
            0 => String::new(),
            total => format!(", phase {} of {total}", info.current_phase),
        };
        let item = InboxItem {
            kind: "task",
            commands,
            id: id.to_string(),
            conversation: None,
            from: Some(info.agent.to_string()),
            since: info.updated_at,
            until: None,
            subject: format!("{}: {reason}{phase}", info.title),
            default: "the task waits",
            target: Target::Task(info.task_id),
            workspace_id: info.workspace_id,
        };
        self.add(item);
    }

    /// Items that the workspace itself reports.
    fn workspace(&mut self, workspace: &WorkspaceInfo) {
        let id = &workspace.workspace_id;
        let item = |kind, about: &str, subject: String, default, commands| InboxItem {
            kind,
            workspace_id: id.clone(),
            id: about.to_owned(),
            conversation: None,
            from: None,
            since: None,
            until: None,
            subject,
            default,
            commands,
            target: Target::Elsewhere,
        };
        let mut items = Vec::new();
        if let Some(problem) = &workspace.problem {
            let root = workspace.project_root.to_string_lossy();
            let root = shell_quoted(&root).unwrap_or_else(|| "DIR".to_owned());
            let default = match workspace.last_known_good {
                true => "the last known good configuration runs",
                false => "the project does not run",
            };
            let validate = self
                .context
                .daemon_command(&format!("--project {root} validate"));
            let message = problem.message.clone();
            items.push(item(
                "configuration",
                "configuration",
                message,
                default,
                vec![validate],
            ));
        }
        for process in &workspace.unhealthy {
            let commands = self.commands(id, ["ps".to_owned(), "logs --level warn".to_owned()]);
            let subject = health::unhealthy_text(process);
            let default = "the daemon tries again";
            items.push(item("process", &process.name, subject, default, commands));
        }
        for app in &workspace.consents {
            let name = app.strip_prefix("OAuthApp/").unwrap_or(app);
            let commands = self.commands(id, [format!("secret oauth login {name}")]);
            let subject = format!("{app} requires a login");
            let default = "calls that need the token wait";
            items.push(item("login", name, subject, default, commands));
        }
        for permission in &workspace.undecided_permissions {
            let name = permission.as_str();
            let commands = [
                format!("workspace permission allow {name}"),
                format!("workspace permission deny {name}"),
            ];
            let commands = self.commands(id, commands);
            let subject = format!("the project can use the permission `{name}`");
            let default = "the permission is not granted";
            items.push(InboxItem {
                target: Target::Permission(*permission),
                ..item("permission", name, subject, default, commands)
            });
        }
        self.inbox.items.extend(items);
    }

    fn budget(&mut self, state: &BudgetState) {
        let taken = state.spent.percent_of(state.limit);
        if taken < NEARLY_SPENT_PERCENT {
            return;
        }
        let whose = match (&state.instance_key, &state.agent_name) {
            (Some(key), _) => format!("conversation {key}"),
            (None, Some(agent)) => format!("agent {agent}"),
            (None, None) => "workspace".to_owned(),
        };
        let default = match state.period {
            BudgetPeriod::Ever => "models are not called once it is exhausted",
            BudgetPeriod::Day => {
                "models are not called until the next day (UTC) once it is exhausted"
            }
        };
        let commands = ["usage".to_owned(), "config reload".to_owned()];
        let item = InboxItem {
            kind: "budget",
            commands: self.commands(&state.workspace_id, commands),
            workspace_id: state.workspace_id.clone(),
            id: whose.clone(),
            conversation: state.instance_key.clone(),
            from: None,
            since: None,
            until: None,
            subject: format!(
                "{taken} % of the budget of {whose} is spent; raise `budgets` in goondan.yaml"
            ),
            default,
            target: Target::Elsewhere,
        };
        self.add(item);
    }
}
