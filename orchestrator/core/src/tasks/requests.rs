//! Requests of clients about tasks. Only a person changes anything.

use goondan_config::ProjectConfig;
use goondan_protocol::control::{
    AnswerTask, Call, ControlError, CreateTask, ErrorCode, ImportTask, MERGE_QUEUE, ProvideTask,
    RemoveTask, TaskRemoved,
};
use goondan_protocol::ids::{AgentName, InstanceKey, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::task::{RepositorySource, TaskId};
use goondan_protocol::time::Timestamp;
use goondan_tasks::fact::{NewTask, Provision, Runtime};
use goondan_tasks::machine::{Task, TaskInput};
use goondan_tasks::state::{PersonInputKind, State};
use uuid::Uuid;

use super::disk::MeasurementFollowUp;
use super::entry::{PendingTaskRequest, TaskEntry, TaskRequester};
use super::proposals::remove_sandbox;
use super::workers::{fallbacks_for, worker_for};
use super::{Tasks, WorkspaceTasks, not_found, refused, views};
use crate::RequestToken;
use crate::bus::queue::{Message, Notice};
use crate::exchange::tasks::{Clear, LoadedTask, LogPosition, RemovalCaller, TaskCreationFailure};
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::workspaces::being_stopped;
use crate::fleet::{Fleet, bundle_of};
use crate::limits::{TASK_REQUESTS_MAX, TASKS_PER_WORKSPACE_MAX};

/// Characters of an id that are random.
const ID_RANDOM_CHARS: usize = 6;

/// A request about one task: which, and true if it changes it.
fn subject_of(call: &Call) -> Option<(TaskRef, bool)> {
    macro_rules! about {
        ($call:expr, $changes:expr) => {
            Some((TaskRef::new(&$call.workspace_id, &$call.task_id), $changes))
        };
    }
    match call {
        Call::ShowTask(call) => about!(call, false),
        Call::ReadTaskLog(call) => about!(call, false),
        Call::WatchTask(call) => about!(call, false),
        Call::ListCheckpoints(call) => about!(call, false),
        Call::StartTask(call) => about!(call, true),
        Call::PauseTask(call) => about!(call, true),
        Call::ResumeTask(call) => about!(call, true),
        Call::CancelTask(call) => about!(call, true),
        Call::ProvideTask(call) => about!(call, true),
        Call::AnswerTask(call) => about!(call, true),
        Call::ApproveTask(call) => about!(call, true),
        Call::ReworkTask(call) => about!(call, true),
        Call::SendTask(call) => about!(call, true),
        Call::SetTaskBudget(call) => about!(call, true),
        Call::CheckpointTask(call) => about!(call, true),
        Call::RestoreTask(call) => about!(call, true),
        Call::DrillTask(call) => about!(call, true),
        Call::RemoveTask(call) => about!(call, true),
        _ => None,
    }
}

/// The workspace, and true if something changes there.
fn workspace_of(call: &Call) -> (Option<WorkspaceId>, bool) {
    match call {
        Call::CreateTask(call) => (Some(call.workspace_id.clone()), true),
        Call::ImportTask(call) => (Some(call.workspace_id.clone()), true),
        Call::ListTasks(call) => (call.workspace_id.clone(), false),
        Call::PruneTasks(call) => (Some(call.workspace_id.clone()), !call.dry_run),
        Call::ListQueue(call) => (Some(call.workspace_id.clone()), false),
        Call::ChangeQueue(call) => (Some(call.workspace_id.clone()), true),
        other => match subject_of(other) {
            Some((at, changes)) => (Some(at.workspace_id), changes),
            None => (None, false),
        },
    }
}

/// Why a phase that is not named cannot be approved, nor be done better.
fn nothing_to_review(at: &TaskRef) -> ControlError {
    let task = &at.task_id;
    let text = format!("task `{task}`: no phase waits for a review");
    ControlError::new(ErrorCode::TaskRefused, text)
        .suggest(format!("see its status: `gdn task show {task}`"))
}

impl Tasks {
    pub(crate) fn on_request(&mut self, fleet: &mut Fleet, token: RequestToken, call: Call) {
        let (id, changes) = workspace_of(&call);
        if let Some(id) = &id {
            let problem = match fleet.workspace(id) {
                Ok(workspace) if changes && workspace.closing.is_some() => Some(being_stopped(id)),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(error) = problem {
                return fleet.respond_error(token, error);
            }
        }
        if let Some(unread) = self.unread(id.as_ref())
            && let Some(space) = self.spaces.get_mut(&unread)
        {
            if space.held.len() >= TASK_REQUESTS_MAX {
                let error = views::too_many(&unread, TASK_REQUESTS_MAX);
                return fleet.respond_error(token, error);
            }
            space.held.push((token, call));
            return;
        }
        match call {
            Call::ListTasks(list) => {
                let page = self.list(fleet, &list);
                fleet.respond(token, &page);
            }
            Call::CreateTask(create) => self.create(fleet, token, create),
            Call::ImportTask(import) => self.import(fleet, token, import),
            Call::PruneTasks(prune) => self.prune(fleet, token, &prune),
            queue @ (Call::ListQueue(_) | Call::ChangeQueue(_)) => {
                if let Some(id) = id {
                    self.on_queue_request(fleet, token, &id, queue);
                }
            }
            other => {
                if let Some((at, changes)) = subject_of(&other) {
                    let under_way = self.entry(&at).and_then(TaskEntry::decision_under_way);
                    let under_way = under_way.or_else(|| self.landing_in_words(&at));
                    if let Some(under_way) = under_way.filter(|_| changes) {
                        let error = super::busy(&at, under_way);
                        return fleet.respond_error(token, error);
                    }
                    self.on_request_about(fleet, token, &at, other);
                }
            }
        }
    }

    fn on_request_about(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        call: Call,
    ) {
        if self.entry(at).is_none() {
            return fleet.respond_error(token, not_found(at));
        }
        let state = self.entry(at).and_then(TaskEntry::state);
        let review = state.and_then(State::review);
        let stopped = state.and_then(State::stopped_phase);
        let (input, what) = match call {
            Call::ShowTask(_) => return self.show(fleet, token, at),
            Call::ResumeTask(_) if self.is_over_quota(fleet, at) => {
                // A user may have freed disk space since the last measurement.
                return self.look(fleet, at, Some(MeasurementFollowUp::Resume(token)));
            }
            Call::ReadTaskLog(read) => {
                let (log, offset) = (read.log, read.offset);
                let position = LogPosition::Log { log, offset };
                return self.read_log(fleet, token, at, (position, read.wait));
            }
            Call::WatchTask(watch) => {
                let position = LogPosition::Stream { after: watch.after };
                return self.read_log(fleet, token, at, (position, watch.wait));
            }
            Call::ProvideTask(provide) => return self.provide(fleet, token, at, provide),
            Call::RemoveTask(remove) => return self.remove(fleet, token, at, &remove),
            Call::CheckpointTask(make) => {
                return self.make_checkpoint(fleet, at, "manual", make.name, Some(token));
            }
            Call::ListCheckpoints(list) => {
                let copy = self.copy_of_project(fleet, at);
                return Self::work(
                    fleet,
                    TaskWork::ListCheckpoints {
                        token,
                        at: at.clone(),
                        copy,
                        list,
                    },
                );
            }
            Call::RestoreTask(restore) => return self.restore(fleet, token, at, restore),
            Call::DrillTask(_) => return self.drill(fleet, at, Some(token)),
            Call::StartTask(_) => (TaskInput::Start, "start".to_owned()),
            Call::PauseTask(_) => (TaskInput::Pause, "pause".to_owned()),
            Call::ResumeTask(_) => (TaskInput::Resume, "resume".to_owned()),
            Call::CancelTask(_) => (TaskInput::Cancel, "cancel".to_owned()),
            Call::AnswerTask(AnswerTask { id, text, .. }) => {
                let found = self.only_ask(at, id.as_deref(), |what| {
                    matches!(what, PersonInputKind::Question(..))
                });
                match found {
                    Ok(id) => (
                        TaskInput::Answer {
                            id: id.clone(),
                            text,
                        },
                        format!("answer {id}"),
                    ),
                    Err(error) => return fleet.respond_error(token, error),
                }
            }
            Call::ApproveTask(approve) => {
                let Some(phase) = approve.phase.or(review).or(stopped) else {
                    return fleet.respond_error(token, nothing_to_review(at));
                };
                return self.approve(fleet, token.into(), at, phase, &approve);
            }
            Call::ReworkTask(rework) => {
                let Some(phase) = rework.phase.or(review) else {
                    return fleet.respond_error(token, nothing_to_review(at));
                };
                return self.rework(fleet, token.into(), at, phase, rework.text);
            }
            Call::SendTask(send) => {
                let id = send.message_id.map(|id| id.to_string());
                let input = TaskInput::Say {
                    id,
                    text: send.text,
                };
                (input, "send a message".to_owned())
            }
            Call::SetTaskBudget(set) => {
                if let Some(workspace) = fleet.workspace_mut(&at.workspace_id) {
                    workspace.task_conversations.set_budget(at, set.budget);
                }
                (TaskInput::SetBudget(set.budget), "budget".to_owned())
            }
            _ => return,
        };
        self.input(fleet, at, input, Some(PendingTaskRequest::new(token, what)));
    }

    /// Id of the open question or approval: the named one, by its id or name, or the only one.
    fn only_ask(
        &self,
        at: &TaskRef,
        named: Option<&str>,
        is_asked_for: impl Fn(&PersonInputKind) -> bool,
    ) -> Result<String, ControlError> {
        let Some(entry) = self.entry(at) else {
            return Err(not_found(at));
        };
        let Some(state) = entry.state() else {
            let why = entry.damage().unwrap_or("it is being created or removed");
            return Err(super::damaged(at, why));
        };
        let open: Vec<(&str, &PersonInputKind)> = state
            .open_asks()
            .map(|(id, ask)| (id, &ask.what))
            .filter(|(_, what)| is_asked_for(what))
            .collect();
        if let Some(named) = named {
            let by_name = open.iter().find(
                |(_, what)| matches!(what, PersonInputKind::Dependency(request, _) if request.name == named),
            );
            return Ok(by_name.map_or(named, |(id, _)| id).to_owned());
        }
        match open.as_slice() {
            [(id, _)] => Ok((*id).to_owned()),
            [] => {
                let text = format!("task `{}` has nothing of that kind to decide", at.task_id);
                Err(
                    ControlError::new(ErrorCode::TaskNotFound, text).suggest(format!(
                        "see its open decisions: `gdn task show {}`",
                        at.task_id
                    )),
                )
            }
            several => {
                let ids: Vec<&str> = several.iter().map(|(id, _)| *id).collect();
                let text = format!("task `{}` has several: {}", at.task_id, ids.join(", "));
                Err(ControlError::new(ErrorCode::TaskRefused, text)
                    .suggest("pass one id from the list"))
            }
        }
    }

    fn provide(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        provide: ProvideTask,
    ) {
        let ProvideTask { id, value, .. } = provide;
        let found = self.only_ask(at, id.as_deref(), |what| {
            matches!(what, PersonInputKind::Dependency(..))
        });
        let id = match found {
            Ok(id) => id,
            Err(error) => return fleet.respond_error(token, error),
        };
        let state = self.entry(at).and_then(TaskEntry::state);
        let ask = state.and_then(|state| state.open_asks().find(|(open, _)| *open == id));
        let is_secret = ask.is_some_and(|(_, ask)| {
            matches!(&ask.what, PersonInputKind::Dependency(request, _) if request.kind.is_environment())
        });
        if !is_secret {
            let what = format!("provide {id}");
            let provision = Provision::Ready(value);
            let input = TaskInput::Provide { id, provision };
            return self.input(fleet, at, input, Some(PendingTaskRequest::new(token, what)));
        }
        if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
            space.works += 1;
        }
        let now = fleet.now().wall;
        Self::work(
            fleet,
            TaskWork::KeepSecret {
                at: at.clone(),
                token,
                id,
                value: Clear(value),
                now,
            },
        );
    }

    pub(super) fn on_secret_kept(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        token: RequestToken,
        id: String,
        result: Result<(), ControlError>,
    ) {
        self.work_done(&at.workspace_id);
        if let Err(error) = result {
            return fleet.respond_error(token, error);
        }
        if self.entry(at).is_none() {
            return fleet.respond_error(token, not_found(at));
        }
        let what = format!("provide {id}");
        // The secret is stored under the id of the dependency.
        let provision = Provision::Secret(id.clone());
        let input = TaskInput::Provide { id, provision };
        self.input(fleet, at, input, Some(PendingTaskRequest::new(token, what)));
    }

    pub(super) fn work_done(&mut self, id: &WorkspaceId) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.works = space.works.saturating_sub(1);
        }
    }

    fn create(&mut self, fleet: &mut Fleet, token: RequestToken, create: CreateTask) {
        match self.try_create(fleet, token.into(), create, None) {
            Ok(work) => Self::work(fleet, work),
            Err(error) => fleet.respond_error(token, error),
        }
    }

    pub(super) fn try_create(
        &mut self,
        fleet: &mut Fleet,
        asker: TaskRequester,
        create: CreateTask,
        created_by: Option<&InstanceKey>,
    ) -> Result<TaskWork, ControlError> {
        let id = create.workspace_id;
        let worker = worker_for(fleet, &id, create.agent.as_ref())?;
        let fallbacks = fallbacks_for(fleet, &id, &worker, create.fallbacks)?;
        let random = fleet.cx().uuid();
        let space = self.spaces.entry(id.clone()).or_default();
        has_room(&id, space)?;
        let is_taken = |task: &TaskId| space.entries.contains_key(task);
        let task_id = match create.task_id {
            Some(task_id) => match space.entries.get(&task_id) {
                // Until its creation is durable, it is unknown if the task exists.
                Some(entry) if entry.made_for.is_some() => return Err(being_made(&id, &task_id)),
                Some(_) => return Err(taken(&id, &task_id)),
                // The queue's proofs have this name among the runs of tasks.
                None if task_id.as_str() == MERGE_QUEUE => return Err(taken(&id, &task_id)),
                None => task_id,
            },
            None => free_id(fleet.now().wall, random, is_taken)?,
        };
        let at = TaskRef::new(&id, &task_id);
        let source = create.source.unwrap_or_else(|| worker.source.clone());
        if worker.runtime == Runtime::Llm && !source.is_none() {
            return Err(without_source(&worker.name));
        }
        if let Some(Err(problem)) = source.repository().map(RepositorySource::address) {
            let error = ControlError::new(ErrorCode::TaskRefused, format!("`source`: {problem}"));
            return Err(error.suggest("name an `https` URL or an absolute path, and a `ref`"));
        }
        let checks = worker.checks(&source);
        // Changes to the project are reviewed.
        let phases_min = u32::from(!source.is_none());
        let new = NewTask {
            task_id: task_id.clone(),
            agent: worker.name,
            runtime: worker.runtime,
            title: create.title,
            kind: create.kind,
            description: create.description,
            total_phases: create.total_phases.max(phases_min),
            checks,
            source,
            budget: create.budget,
            tells_result: worker.tells_result,
            created_by: created_by.cloned(),
            fallbacks,
            model: None,
        };
        let now = fleet.now().wall;
        let (task, created) = Task::create(new.clone(), now).map_err(|why| refused(&at, &why))?;
        let made_for = PendingTaskRequest::new(asker, "new");
        let entry = TaskEntry::new(task, created, made_for, create.start);
        space.entries.insert(task_id, entry);
        Ok(TaskWork::Create {
            at,
            new: Box::new(new),
            guide: worker.guide,
            now,
        })
    }

    pub(super) fn on_created(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        result: Result<(), Box<TaskCreationFailure>>,
    ) {
        let now = fleet.now();
        let Some(space) = self.spaces.get_mut(&at.workspace_id) else {
            return;
        };
        let Some(entry) = space.entries.get_mut(&at.task_id) else {
            return;
        };
        let made_for = entry.made_for.take();
        let Some((decision, is_started)) = made_for else {
            return;
        };
        if let Err(refusal) = result {
            space.entries.remove(&at.task_id);
            let TaskCreationFailure { error, found } = *refusal;
            let Some(found) = found else {
                return Self::tell_error(fleet, &decision.asker, error);
            };
            // Otherwise its id would be taken by a task that cannot be shown or started.
            let entry = TaskEntry::found(found.result, now);
            space.entries.insert(found.task_id, entry);
            Self::tell_error(fleet, &decision.asker, there_all_the_same(at, error));
            return self.take_up(fleet, at);
        }
        entry.made();
        let what = match entry.created_by() {
            Some(key) => format!("new and start, by an agent in `{key}`"),
            None => "new and start".to_owned(),
        };
        self.enter_node(fleet, at);
        if is_started {
            let decision = PendingTaskRequest::new(decision.asker, what);
            return self.input(fleet, at, TaskInput::Start, Some(decision));
        }
        self.tell_decided(fleet, at, "new");
        self.tell_info(fleet, &decision.asker, at);
    }

    pub(super) fn tell_decided(&self, fleet: &mut Fleet, at: &TaskRef, what: &str) {
        let event = LifecycleEvent::TaskDecided {
            task_id: at.task_id.clone(),
            decision: what.to_owned(),
        };
        fleet.announce(&at.workspace_id, event, None);
    }

    fn import(&mut self, fleet: &mut Fleet, token: RequestToken, import: ImportTask) {
        let ImportTask {
            workspace_id,
            path,
            agent,
        } = import;
        let Some(space) = self.spaces.get_mut(&workspace_id) else {
            return;
        };
        if let Err(error) = has_room(&workspace_id, space) {
            return fleet.respond_error(token, error);
        }
        if space.works >= TASK_REQUESTS_MAX {
            let error = views::too_many(&workspace_id, TASK_REQUESTS_MAX);
            return fleet.respond_error(token, error);
        }
        space.works += 1;
        let bundle = fleet.workspace(&workspace_id).and_then(bundle_of);
        // Without a readable configuration, no guides are known.
        let agents = bundle.into_iter().flat_map(ProjectConfig::cli_agents);
        let guides = agents.filter_map(|agent| Some((agent.name.clone(), agent.guide.clone()?)));
        let guides = guides.collect();
        let worker = worker_for(fleet, &workspace_id, agent.as_ref()).map(Into::into);
        Self::work(
            fleet,
            TaskWork::Import {
                workspace_id,
                token,
                path,
                guides,
                worker,
            },
        );
    }

    pub(super) fn on_imported(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        token: RequestToken,
        result: Result<LoadedTask, ControlError>,
    ) {
        self.work_done(id);
        let now = fleet.now();
        let found = match result {
            Ok(found) => found,
            Err(error) => return fleet.respond_error(token, error),
        };
        let at = TaskRef::new(id, &found.task_id);
        let mut replaced = None;
        if let Some(space) = self.spaces.get_mut(id) {
            let entry = TaskEntry::found(found.result, now);
            replaced = space.entries.insert(found.task_id, entry);
        }
        // One was being made by that id, which finds the directory taken.
        if let Some((decision, _)) = replaced.and_then(|entry| entry.made_for) {
            Self::tell_error(fleet, &decision.asker, taken(id, &at.task_id));
        }
        self.tell_decided(fleet, &at, "import");
        self.tell_info(fleet, &token.into(), &at);
        self.take_up(fleet, &at);
    }

    fn remove(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        remove: &RemoveTask,
    ) {
        if let Err(error) = self.may_remove(fleet, at) {
            return fleet.respond_error(token, error);
        }
        self.begin_removal(fleet, at, RemovalCaller::Request(token), !remove.no_backup);
    }

    pub(super) fn on_removed(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        reply: RemovalCaller,
        result: Result<TaskRemoved, ControlError>,
    ) {
        self.work_done(&at.workspace_id);
        let conversations = self.conversations_of(at);
        let sandbox = self.sandbox_to_remove(at);
        if result.is_ok() {
            if let Some(sandbox) = sandbox {
                remove_sandbox(fleet, at, sandbox);
            }
            if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
                space.entries.remove(&at.task_id);
            }
            self.note_change_to_queue(fleet, at);
            fleet.post(Message::Notice(Notice::Decisions(at.workspace_id.clone())));
            self.forget_notifications(|other| other == at);
            self.forget_conversations(fleet, at, conversations);
            let what = match reply {
                RemovalCaller::Request(_) => "remove",
                RemovalCaller::Prune(_) => "remove for its age",
                RemovalCaller::Policy => "remove for its age, by policy",
            };
            self.tell_decided(fleet, at, what);
        } else if let Some(entry) = self.entry_mut(at) {
            entry.stay();
            self.take_up_notifications(fleet, at);
        }
        match (reply, result) {
            (RemovalCaller::Request(token), Ok(removed)) => fleet.respond(token, &removed),
            (RemovalCaller::Request(token), Err(error)) => fleet.respond_error(token, error),
            (reply, result) => self.on_one_of_many_removed(fleet, at, reply, result),
        }
    }
}

/// Checks that a workspace may have one more task.
fn has_room(id: &WorkspaceId, space: &WorkspaceTasks) -> Result<(), ControlError> {
    if space.entries.len() < TASKS_PER_WORKSPACE_MAX {
        return Ok(());
    }
    let text = format!("workspace `{id}` already has {TASKS_PER_WORKSPACE_MAX} tasks");
    let error = ControlError::new(ErrorCode::TaskRefused, text);
    Err(error.suggest("remove ended tasks: `gdn task rm`"))
}

/// Error for a source with an agent that is not a program.
fn without_source(agent: &AgentName) -> ControlError {
    let text = format!(
        "agent `{agent}` has `runtime.kind: llm`; its tasks work only in their work area, without \
         a copy of the project"
    );
    ControlError::new(ErrorCode::TaskRefused, text)
        .suggest("omit `--source`, or choose an agent that is a program")
}

/// Error for a task id that is in use.
pub(super) fn taken(id: &WorkspaceId, task: &TaskId) -> ControlError {
    let text = format!("task `{task}` already exists in workspace `{id}`");
    ControlError::new(ErrorCode::TaskTaken, text).suggest("choose another id, or omit it")
}

/// Error for a task id that is being created.
fn being_made(id: &WorkspaceId, task: &TaskId) -> ControlError {
    let text = format!("task `{task}` is being created in workspace `{id}`");
    ControlError::new(ErrorCode::Overloaded, text).suggest("try again in a moment")
}

/// Error for a task that was created despite a failure.
fn there_all_the_same(at: &TaskRef, error: ControlError) -> ControlError {
    if error.code == ErrorCode::TaskTaken {
        return error;
    }
    let task = &at.task_id;
    error.suggest(format!(
        "the task was created anyway: see it with `gdn task show {task}`, start it with `gdn task start {task}`"
    ))
}

/// Begins an id: the word and the day, as in `task_20240215_abc123`.
pub(super) fn id_of_day(now: Timestamp) -> String {
    let day = now.day().to_string().replace('-', "");
    format!("task_{day}_")
}

/// Returns an id of the day that is not taken: `random` gives its last part.
fn free_id(
    now: Timestamp,
    random: Uuid,
    is_taken: impl Fn(&TaskId) -> bool,
) -> Result<TaskId, ControlError> {
    let day = id_of_day(now);
    // A workspace cannot have enough tasks to use all these ids.
    let ids = (0..=TASKS_PER_WORKSPACE_MAX as u128).filter_map(|beyond| {
        let part = random_part(random.as_u128().wrapping_add(beyond));
        TaskId::try_from(format!("{day}{part}")).ok()
    });
    let mut free = ids.filter(|task| !is_taken(task));
    free.next().ok_or_else(|| {
        let text = format!("no free id begins with `{day}`");
        ControlError::new(ErrorCode::TaskTaken, text).suggest("choose an id")
    })
}

/// Writes the lowest bits of a number, which are random in a UUID, as digits and letters.
fn random_part(mut number: u128) -> String {
    const DIGITS: [char; 36] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h',
        'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
    ];
    let digits = (0..ID_RANDOM_CHARS).filter_map(|_| {
        let digit = usize::try_from(number % 36).ok()?;
        number /= 36;
        DIGITS.get(digit)
    });
    digits.collect()
}
