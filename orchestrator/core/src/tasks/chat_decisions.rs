//! Open points of tasks in chats (`NEED-2`): questions, dependencies that are not secret, and
//! reviews.
//!
//! A point has the same id as long as it is open, also after a restart, because the id is a digest
//! of the task and of the point. A person's answer is an input of the task like a client's, and
//! becomes durable together with the person and the outcome.

use goondan_config::{ApprovalChat, DecisionClass, DecisionKind};
use goondan_protocol::control::{ApproveTask, TaskAsk, TaskAskKind};
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionChoice, DecisionDefault, DecisionForm, DecisionShow,
    DecisionSubject, DecisionText, DecisionVerdict,
};
use goondan_protocol::ids::{DecisionId, WorkspaceId};
use goondan_protocol::limits::MAX_DECISION_CHOICES;
use goondan_protocol::time::Timestamp;
use goondan_tasks::decisions::{ChatDecision, OpenPoint, OpenPointKind};
use goondan_tasks::fact::Provision;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::State;

use super::Tasks;
use super::entry::{ChatRequester, PendingTaskRequest, TaskEntry, TaskRequester};
use super::proposals::what_by;
use super::runs::is_ending;
use crate::chat_proposals::digest_id;
use crate::exchange::{ChildRequest, TaskRef};
use crate::fleet::Fleet;

/// Advice for a request for changes without a text, which needs comments on the proposal.
const NO_CHANGES: &str = "to request changes, reply to the message with them";

/// Id of a point. The creation time distinguishes tasks that have the same id one after the other.
fn id_of(state: &State, key: &str) -> DecisionId {
    let created_at = state.created_at().as_unix_millis();
    let task = state.task.task_id.as_str();
    digest_id(&format!("{task}\0{created_at}\0{key}"))
}

/// Buttons for the options of an ask; empty if they do not fit.
fn choices_of(ask: &TaskAsk) -> Vec<DecisionChoice> {
    let mut options = ask.options.iter();
    let are_labels = options.all(|option| DecisionChoice::is_label(option));
    if ask.options.len() > MAX_DECISION_CHOICES || !are_labels {
        return Vec::new();
    }
    let options = (0_u8..).zip(&ask.options);
    let choices = options.map(|(number, option)| DecisionChoice {
        answer: DecisionButton::Option(number),
        label: option.clone(),
    });
    choices.collect()
}

fn shown_ask(state: &State, ask: &TaskAsk) -> (DecisionSubject, DecisionForm) {
    let task = &state.task.task_id;
    let choices = choices_of(ask);
    let mut text = ask.text.clone();
    if ask.kind == TaskAskKind::Dependency {
        text = format!("needs {text}");
    }
    if !ask.description.is_empty() {
        text.push_str(": ");
        text.push_str(&ask.description);
    }
    if choices.is_empty() {
        for option in &ask.options {
            text.push_str("\n- ");
            text.push_str(option);
        }
    }
    // One of several options is enough for a permission, which a reply cannot widen.
    let is_free = ask.options.is_empty() || choices.is_empty();
    let reply = match ask.kind {
        TaskAskKind::Dependency => "describe how it is provided",
        TaskAskKind::Question | TaskAskKind::Permission | TaskAskKind::Secret => "answer",
    };
    let form = DecisionForm {
        choices,
        reply: is_free.then(|| reply.to_owned()),
    };
    let about = about(state, text, format!("task show {task}"));
    (DecisionSubject::Question(about), form)
}

fn about(state: &State, text: String, command: String) -> DecisionText {
    DecisionText {
        agent_name: state.task.agent.clone(),
        of: format!("task {}, {}", state.task.task_id, state.task.title),
        text,
        command,
    }
}

fn shown_review(state: &State, summary: String) -> (DecisionSubject, DecisionForm) {
    let choice = |answer, label: &str| DecisionChoice {
        answer,
        label: label.to_owned(),
    };
    let form = DecisionForm {
        choices: vec![
            choice(DecisionButton::Approve, "Approve"),
            choice(DecisionButton::Deny, "Request changes"),
        ],
        reply: Some("request changes".to_owned()),
    };
    let command = format!("task show {}", state.task.task_id);
    let about = about(state, summary, command);
    (DecisionSubject::Review(about), form)
}

fn shown(state: &State, point: OpenPoint) -> DecisionShow {
    let expires = match &point.what {
        OpenPointKind::Ask(ask) => ask.until.map(|at| DecisionDefault {
            at,
            outcome: match &ask.default {
                Some(default) => format!("the answer is `{default}`"),
                None => "the task continues without an answer".to_owned(),
            },
        }),
        OpenPointKind::Review { .. } => None,
    };
    let decision_id = id_of(state, &point.key);
    let (about, form) = match point.what {
        OpenPointKind::Ask(ask) => shown_ask(state, &ask),
        OpenPointKind::Review { summary, .. } => shown_review(state, summary),
    };
    DecisionShow {
        decision_id,
        about,
        form,
        expires,
    }
}

/// The task input and the recorded decision of an answer, or the reason why it does not fit.
enum Answered {
    Input(Box<TaskInput>),
    Approve(u32),
    Rework(u32, String),
}

fn read_answer(
    point: OpenPoint,
    by: String,
    answer: &DecisionAnswer,
) -> Result<(Answered, ChatDecision), String> {
    let key = point.key;
    let ask = match (point.what, answer) {
        (OpenPointKind::Ask(ask), _) => ask,
        (OpenPointKind::Review { phase, .. }, DecisionAnswer::Button(DecisionButton::Approve)) => {
            return Ok((Answered::Approve(phase), ChatDecision::approved(&key, by)));
        }
        (OpenPointKind::Review { phase, .. }, DecisionAnswer::Button(DecisionButton::Deny)) => {
            let decision = ChatDecision::sent_back(&key, by, "");
            return Ok((Answered::Rework(phase, String::new()), decision));
        }
        (OpenPointKind::Review { phase, .. }, DecisionAnswer::Text(text)) => {
            let text = text.trim().to_owned();
            let decision = ChatDecision::sent_back(&key, by, &text);
            return Ok((Answered::Rework(phase, text), decision));
        }
        (OpenPointKind::Review { .. }, DecisionAnswer::Button(DecisionButton::Option(_))) => {
            return Err("a review has no options".to_owned());
        }
    };
    let text = match answer {
        DecisionAnswer::Text(text) => text.trim().to_owned(),
        DecisionAnswer::Button(DecisionButton::Option(number)) => {
            let option = ask.options.get(usize::from(*number));
            option.ok_or("it has no such option")?.clone()
        }
        DecisionAnswer::Button(DecisionButton::Approve | DecisionButton::Deny) => {
            return Err("it needs an answer".to_owned());
        }
    };
    let decision = ChatDecision::answered(&key, by, &text);
    let id = ask.id;
    let input = match ask.kind {
        TaskAskKind::Dependency => TaskInput::Provide {
            id,
            provision: Provision::Ready(text),
        },
        TaskAskKind::Question | TaskAskKind::Permission | TaskAskKind::Secret => {
            TaskInput::Answer { id, text }
        }
    };
    Ok((Answered::Input(Box::new(input)), decision))
}

impl Tasks {
    /// True if the tasks of a workspace are read.
    pub(crate) fn are_read(&self, id: &WorkspaceId) -> bool {
        self.spaces.get(id).is_none_or(|space| space.is_loaded)
    }

    fn entries_of(&self, id: &WorkspaceId) -> impl Iterator<Item = (TaskRef, &TaskEntry)> {
        let space = self.spaces.get(id).into_iter();
        let entries = space.flat_map(|space| &space.entries);
        let id = id.clone();
        entries.map(move |(task, entry)| (TaskRef::new(&id, task), entry))
    }

    /// Durable open points of a workspace's tasks, as chats show them, with the time since when each
    /// is open.
    pub(crate) fn open_points(&self, id: &WorkspaceId) -> Vec<(Timestamp, DecisionShow)> {
        let states = self.entries_of(id).filter_map(|(_, entry)| entry.durable());
        let live = states.filter(|state| !state.status().is_final());
        let points = live.flat_map(|state| {
            let points = state.open_points().into_iter();
            points.map(|point| (point.since, shown(state, point)))
        });
        points.collect()
    }

    /// Task and key of a point with this id, open or not.
    fn point(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<(TaskRef, String)> {
        self.entries_of(id).find_map(|(at, entry)| {
            let state = entry.state().or(entry.durable())?;
            let mut keys = state.point_keys();
            let key = keys.find(|key| id_of(state, key) == *decision_id)?;
            Some((at, key))
        })
    }

    /// Outcome of a point that is no longer open, for people to read; `None` if it is unknown.
    pub(crate) fn outcome_of_point(
        &self,
        id: &WorkspaceId,
        decision_id: &DecisionId,
    ) -> Option<String> {
        let (at, key) = self.point(id, decision_id)?;
        let entry = self.entry(&at)?;
        entry.state().or(entry.durable())?.outcome_of(&key)
    }

    /// Carries out the decision of an authorized person in a chat. The connection receives the
    /// result once it is durable.
    ///
    /// # Errors
    ///
    /// The reason why nothing changes; `None` if no task has a point with this id.
    pub(crate) fn decide_in_chat(
        &mut self,
        fleet: &mut Fleet,
        (id, decision_id): (&WorkspaceId, &DecisionId),
        press: ChildRequest,
        (by, answer): (String, &DecisionAnswer),
        chat: &ApprovalChat,
    ) -> Result<(), Option<DecisionVerdict>> {
        let not_allowed = |message: String| Some(DecisionVerdict::NotAllowed { message });
        let (at, key) = self.point(id, decision_id).ok_or(None)?;
        let entry = self.entry(&at).ok_or(None)?;
        let Some(state) = entry.state() else {
            let message = format!("task `{}` cannot be used now", at.task_id);
            return Err(Some(DecisionVerdict::NotNow { message }));
        };
        if is_ending(fleet, &at) {
            let message = "the workspace is being stopped".to_owned();
            return Err(Some(DecisionVerdict::NotNow { message }));
        }
        let class = DecisionClass {
            agent: Some(&state.task.agent),
            kind: match state.is_review_key(&key) {
                true => DecisionKind::Review,
                false => DecisionKind::Question,
            },
        };
        if let Some(reason) = chat.refusal(class) {
            return Err(not_allowed(reason.to_owned()));
        }
        if let Some(how) = state.outcome_of(&key) {
            return Err(Some(DecisionVerdict::DecidedBefore { how }));
        }
        let under_way = entry.decision_under_way();
        if let Some(under_way) = under_way.or_else(|| self.landing_in_words(&at)) {
            // It may be about another point of the task, and it may fail.
            let message = format!("task `{}` is busy: {under_way}", at.task_id);
            return Err(Some(DecisionVerdict::NotNow { message }));
        }
        let mut points = state.open_points().into_iter();
        let point = points.find(|point| point.key == key);
        let point = point.ok_or(Some(DecisionVerdict::Over {}))?;
        let (answered, decision) = read_answer(point, by, answer).map_err(not_allowed)?;
        let what = format!("answer {key}");
        let needs_text = matches!(&answered, Answered::Rework(_, text) if text.is_empty());
        let asker = TaskRequester::Chat(ChatRequester {
            press,
            decision,
            hint: needs_text.then_some(NO_CHANGES),
        });
        match answered {
            Answered::Input(input) => {
                let what = what_by(&asker, what);
                let request = PendingTaskRequest::new(asker, what);
                self.input(fleet, &at, *input, Some(request));
            }
            Answered::Approve(phase) => {
                let approval = ApproveTask {
                    workspace_id: at.workspace_id.clone(),
                    task_id: at.task_id.clone(),
                    phase: Some(phase),
                    without_delivery: false,
                    allow_moved_base: false,
                };
                self.approve(fleet, asker, &at, phase, &approval);
            }
            Answered::Rework(phase, text) => self.rework(fleet, asker, &at, phase, text),
        }
        Ok(())
    }
}
