//! Notifications to users about tasks (`TASK-8`): an outgoing call for each entry of the agent's
//! `notify`, with the limits of any other call.
//!
//! A notification request becomes durable together with its cause. A repeatable notification is
//! then sent, and sent again by the next daemon after a crash. For a notification that must not be
//! repeated, its start is made durable first; if a process dies later, the notification fails,
//! because its delivery is unknown. The task never waits for notifications.

use std::collections::BTreeMap;

use goondan_protocol::call::{CallError, CallOutcome, CallTarget};
use goondan_protocol::ids::AgentName;
use goondan_protocol::service::{ActionCall, ConnectorRequest};
use goondan_protocol::task::action_of;
use goondan_tasks::fact::{Notification, TaskEvent};
use goondan_tasks::machine::{NotificationTrigger, TaskInput};
use goondan_tasks::state::{NotificationStage, State};

use super::Tasks;
use super::entry::TaskEntry;
use crate::LogEvent;
use crate::bus::queue::Message;
use crate::exchange::TaskRef;
use crate::exchange::task_calls::{NotificationRef, TaskCall, TaskCallRef, TaskCallResult};
use crate::fleet::Fleet;
use crate::fleet::availability::Availability;
use crate::limits::TASK_NOTIFICATION_WAIT_MS;

/// Error of a notification that was in flight when the daemon ended.
const LOST: &str = "the daemon ended before the delivery was confirmed";

#[derive(Debug, Default)]
pub(super) struct NotificationQueue {
    /// Notifications that wait for their connection, with the deadline on the clock of
    /// `Now::mono_ms`.
    waiting: BTreeMap<NotificationRef, u64>,
    under_way: BTreeMap<NotificationRef, Delivery>,
}

/// The requests of a notification, sent in sequence.
#[derive(Debug)]
struct Delivery {
    requests: Vec<ConnectorRequest>,
    made: usize,
    is_repeatable: bool,
    deadline_ms: u64,
}

impl Delivery {
    fn of(of: &NotificationRef, told: &Notification) -> Result<Self, String> {
        let Notification {
            service, action, ..
        } = told;
        let declared = action_of(service, action)
            .ok_or_else(|| format!("this version has no action `{action}` of `{service}`"))?;
        let plan = (declared.plan)(&ActionCall {
            connection: &told.connection,
            call_id: &format!("{}.{}", of.at.task_id, of.id),
            args: &told.args,
            facts: None,
            file: None,
        });
        let plan = plan.map_err(|error| error.to_string())?;
        Ok(Self {
            requests: plan.requests().to_vec(),
            made: 0,
            is_repeatable: declared.is_idempotent() || plan.is_repeatable(),
            deadline_ms: plan.deadline_ms(),
        })
    }
}

/// Notifications that the agent's `notify` entries request for a fact.
pub(super) fn wanted(
    fleet: &Fleet,
    at: &TaskRef,
    state: &State,
    fact: &TaskEvent,
) -> Vec<Notification> {
    let id = &at.workspace_id;
    let bundle = fleet.bundle(id);
    let Some(entries) = bundle.and_then(|bundle| bundle.notify.get(&state.task.agent)) else {
        return Vec::new();
    };
    let Some(occasion) = NotificationTrigger::of(state, fact, id) else {
        return Vec::new();
    };
    let told = entries
        .iter()
        .filter_map(|entry| occasion.told_by(entry, state, id));
    told.collect()
}

fn error_text(error: &CallError) -> String {
    match &error.suggestion {
        Some(suggestion) => format!("{}; {suggestion}", error.message),
        None => error.message.clone(),
    }
}

impl Tasks {
    fn notification(
        &self,
        of: &NotificationRef,
    ) -> Option<(&Notification, &NotificationStage, &AgentName)> {
        let state = self.entry(&of.at).and_then(TaskEntry::state)?;
        let told = state.notification(&of.id)?;
        Some((&told.what, &told.stage, &state.task.agent))
    }

    /// Schedules a notification whose request is durable.
    pub(super) fn notify(&mut self, fleet: &mut Fleet, at: &TaskRef, id: String) {
        let of = NotificationRef { at: at.clone(), id };
        // Otherwise it starts when the task is opened again.
        if fleet.why_nobody_is_asked(&at.workspace_id).is_none() {
            let until_ms = fleet
                .now()
                .mono_ms
                .saturating_add(TASK_NOTIFICATION_WAIT_MS);
            self.notifying.waiting.insert(of.clone(), until_ms);
            self.serve_notification(fleet, &of);
        }
    }

    /// Starts a waiting notification, if its connection is ready.
    fn serve_notification(&mut self, fleet: &mut Fleet, of: &NotificationRef) {
        let Some(until_ms) = self.notifying.waiting.get(of).copied() else {
            return;
        };
        let Some((told, NotificationStage::Requested, _)) = self.notification(of) else {
            self.notifying.waiting.remove(of);
            return;
        };
        let name = told.connection.clone();
        // If the configuration cannot be read, the connection may still exist.
        let bundle = fleet.bundle(&of.at.workspace_id);
        if bundle.is_some_and(|bundle| !bundle.connections.contains_key(&name)) {
            let why = format!("the configuration no longer has a connection `{name}`");
            return self.end_notification(fleet, of, Err(why));
        }
        let delivery = match Delivery::of(of, told) {
            Ok(delivery) => delivery,
            Err(why) => return self.end_notification(fleet, of, Err(why)),
        };
        let target = CallTarget::Connection { name };
        let is_late = fleet.now().mono_ms >= until_ms;
        match fleet.availability(&of.at.workspace_id, &target) {
            Availability::Ready(_) if delivery.is_repeatable => self.send(fleet, of, delivery),
            Availability::Ready(_) => {
                self.notifying.waiting.remove(of);
                let input = TaskInput::NotificationBegun { id: of.id.clone() };
                self.input(fleet, &of.at, input, None);
            }
            Availability::Coming if is_late => {
                let why = format!("{target} was not ready in time");
                self.end_notification(fleet, of, Err(why));
            }
            Availability::Consent if is_late => {
                let why = format!("{target} waits for a login; see `gdn daemon status`");
                self.end_notification(fleet, of, Err(why));
            }
            Availability::Not(error) | Availability::Recovering(error) if is_late => {
                self.end_notification(fleet, of, Err(error_text(&error)));
            }
            Availability::Coming
            | Availability::Consent
            | Availability::Recovering(_)
            | Availability::Not(_) => {}
        }
    }

    /// Sends a notification whose start is durable.
    pub(super) fn send_notification(&mut self, fleet: &mut Fleet, at: &TaskRef, id: String) {
        let of = NotificationRef { at: at.clone(), id };
        let Some((told, NotificationStage::Begun, _)) = self.notification(&of) else {
            return;
        };
        match Delivery::of(&of, told) {
            Ok(delivery) => self.send(fleet, &of, delivery),
            Err(why) => self.end_notification(fleet, &of, Err(why)),
        }
    }

    fn send(&mut self, fleet: &mut Fleet, of: &NotificationRef, delivery: Delivery) {
        self.notifying.waiting.remove(of);
        self.notifying.under_way.insert(of.clone(), delivery);
        self.send_next(fleet, of);
    }

    /// Sends the next request of a notification; false if none is left.
    fn send_next(&self, fleet: &mut Fleet, of: &NotificationRef) -> bool {
        let Some((told, _, agent)) = self.notification(of) else {
            return false;
        };
        let (connection, agent) = (told.connection.clone(), agent.clone());
        let Some(delivery) = self.notifying.under_way.get(of) else {
            return false;
        };
        let Some(request) = delivery.requests.get(delivery.made).cloned() else {
            return false;
        };
        fleet.post(Message::TaskCall(Box::new(TaskCall {
            of: TaskCallRef::Notification(of.clone()),
            agent,
            connection,
            request,
            deadline_ms: delivery.deadline_ms,
            is_idempotent: delivery.is_repeatable,
        })));
        true
    }

    /// Handles the result of a request.
    pub(crate) fn on_called(&mut self, fleet: &mut Fleet, called: TaskCallResult) {
        let TaskCallResult { of, outcome } = called;
        let of = match of {
            TaskCallRef::Notification(of) => of,
            TaskCallRef::PullRequest(at) => return self.on_pull_request(fleet, &at, outcome),
            TaskCallRef::QueueLook { at, attempt, about } => {
                return self.on_queue_looked(fleet, &at, (attempt, about), outcome);
            }
            TaskCallRef::QueuePullRequest { at, attempt } => {
                return self.on_queue_opened(fleet, &at, attempt, outcome);
            }
        };
        let Some(delivery) = self.notifying.under_way.get_mut(&of) else {
            return;
        };
        match outcome {
            CallOutcome::Ok(_) => {
                delivery.made += 1;
                if !self.send_next(fleet, &of) {
                    self.end_notification(fleet, &of, Ok(()));
                }
            }
            CallOutcome::Error(error) => {
                let (made, all) = (delivery.made, delivery.requests.len());
                let mut why = error_text(&error);
                if made > 0 {
                    why = format!("{made} of {all} parts were delivered; then: {why}");
                }
                self.end_notification(fleet, &of, Err(why));
            }
        }
    }

    fn end_notification(
        &mut self,
        fleet: &mut Fleet,
        of: &NotificationRef,
        result: Result<(), String>,
    ) {
        self.notifying.waiting.remove(of);
        self.notifying.under_way.remove(of);
        if let (Err(why), Some((told, ..))) = (&result, self.notification(of)) {
            let event = LogEvent::warn("task notification failed");
            let event = event
                .with("workspaceId", of.at.workspace_id.as_str())
                .with("taskId", of.at.task_id.as_str())
                .with("notification", of.id.as_str())
                .with("connection", told.connection.as_str());
            fleet.log(event.with("error", why.as_str()));
        }
        let id = of.id.clone();
        let input = TaskInput::NotificationEnded { id, result };
        self.input(fleet, &of.at, input, None);
    }

    /// Resumes the notifications of a reopened task: sends those that were not begun, and fails
    /// those whose delivery is unknown.
    pub(super) fn take_up_notifications(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        let Some(state) = self.entry(at).and_then(TaskEntry::state) else {
            return;
        };
        let open = state.open_notifications();
        let open: Vec<(String, NotificationStage)> =
            open.map(|(id, told)| (id, told.stage.clone())).collect();
        for (id, stage) in open {
            let of = NotificationRef { at: at.clone(), id };
            if self.notifying.waiting.contains_key(&of)
                || self.notifying.under_way.contains_key(&of)
            {
                continue;
            }
            match stage {
                NotificationStage::Begun => self.end_notification(fleet, &of, Err(LOST.to_owned())),
                _ => self.notify(fleet, at, of.id),
            }
        }
    }

    /// Starts waiting notifications whose connections have become ready.
    pub(super) fn serve_notifications(&mut self, fleet: &mut Fleet) {
        let waiting: Vec<NotificationRef> = self.notifying.waiting.keys().cloned().collect();
        for of in waiting {
            self.serve_notification(fleet, &of);
        }
    }

    /// Drops the notifications of a closed workspace.
    pub(super) fn forget_notifications(&mut self, is_of: impl Fn(&TaskRef) -> bool) {
        let NotificationQueue { waiting, under_way } = &mut self.notifying;
        waiting.retain(|of, _| !is_of(&of.at));
        under_way.retain(|of, _| !is_of(&of.at));
    }
}
