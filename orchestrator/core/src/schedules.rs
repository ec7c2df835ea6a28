//! Inputs of conversations that become due later.
//!
//! An agent creates a schedule for its own conversation with the tool `schedule`; people list, move
//! and remove it, and create their own schedules (`people`). Each occurrence becomes an input of
//! the conversation. Due occurrences are a function of the stored schedules and the time
//! ([`record`], which uses the rules of the connector `cron`); this module stores, submits and
//! reports.
//!
//! # Invariants
//!
//! * A change is acknowledged after it is durable, and a removed schedule submits nothing.
//! * An occurrence is accepted at most once: its input has an id derived from the schedule and the
//!   instant, and the schedule's ledger advances after the input is durable.
//! * Nothing is skipped silently: skipped occurrences, unknown agents and unreadable files are
//!   reported, except occurrences before the one that the policy `latest` submits.

use std::collections::BTreeMap;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::control::{ControlError, ErrorCode, ScheduleInfo};
use goondan_protocol::ids::{InstanceKey, InstanceRef, ScheduleId, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_SCHEDULED_INPUT_BYTES;
use goondan_protocol::schedule::{RequestedTime, ScheduleCatchUp, ScheduleChange, id_of_request};
use goondan_protocol::task::is_of_task;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_store::StoreError;
use goondan_store::workspace::StoredSchedules;
use goondan_store::writer::operation::KeepSchedules;
use serde_json::json;

use crate::exchange::schedules::{Occurrence, SubmittedOccurrence};
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::fleet::event_queue::EventOrigin;
use crate::fleet::scheduled_inputs::ScheduleCreator;
use crate::fleet::{Fleet, Workspace, bundle_of};
use crate::jobs::continuation;
use crate::limits::{
    SCHEDULE_METADATA_BYTES_MAX, SCHEDULE_RETRY_MS, SCHEDULES_PER_CONVERSATION_MAX,
    SCHEDULES_PER_WORKSPACE_MAX,
};
use crate::refusals::AgentRequestError;
use crate::{LogEvent, control_error};

mod book;
mod calendar;
mod people;
mod record;
#[cfg(test)]
mod tests;

use self::book::{Book, BookChange};
use self::calendar::{Calendar, ChangeReply, QueuedChange, Step, info_of};
use self::record::{ScheduleRecord, time_of};

/// A schedule as requested.
#[derive(Debug)]
struct NewSchedule {
    schedule_id: ScheduleId,
    time: RequestedTime,
    catch_up: ScheduleCatchUp,
    input: String,
    /// True if a person creates it.
    by_person: bool,
}

/// Reason why a schedule is not created or changed.
#[derive(Debug)]
enum ScheduleRefusal {
    /// The request has no valid form.
    Invalid(String),
    /// A limit, or a rule of the conversation.
    NotAllowed(String),
    /// The conversation belongs to another agent.
    Taken(String),
    /// The schedules of the conversation cannot be changed now.
    Unusable(String),
}

impl From<ScheduleRefusal> for AgentRequestError {
    fn from(refusal: ScheduleRefusal) -> Self {
        match refusal {
            ScheduleRefusal::Invalid(message) => Self::new("E_INVALID_REQUEST", message),
            ScheduleRefusal::NotAllowed(message) => Self::new("E_SCHEDULE_REFUSED", message),
            ScheduleRefusal::Taken(message) | ScheduleRefusal::Unusable(message) => {
                Self::new("E_FAILED", message)
            }
        }
    }
}

continuation! {
    /// A change of a conversation's schedules on its way to disk.
    KeepingSchedules { } after KeepSchedules => &core.schedules.on_kept in fleet
}

/// The schedules of all workspaces.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    workspaces: BTreeMap<WorkspaceId, BTreeMap<InstanceKey, Calendar>>,
    /// Time of the latest check.
    checked_at: Option<Timestamp>,
}

/// Reason why the conversations of an agent get no inputs now.
fn obstacle(workspace: &Workspace, calendar: &Calendar) -> Option<String> {
    match bundle_of(workspace) {
        Err(error) => Some(error.message),
        Ok(bundle) if !bundle.agents.contains_key(&calendar.agent) => Some(format!(
            "agent `{}` is not in the configuration",
            calendar.agent
        )),
        Ok(_) => None,
    }
}

fn later(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(now.as_unix_millis().saturating_add(ms))
}

impl Schedules {
    /// Loads the schedules of a workspace. If it runs already, only files that could not be read are
    /// read again, because what is in memory is newer than the files.
    pub(crate) fn load(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        is_new: bool,
        stored: Vec<StoredSchedules>,
    ) {
        let now = fleet.now().wall;
        let calendars = self.workspaces.entry(id.clone()).or_default();
        let is_damaged = |_: &InstanceKey, calendar: &mut Calendar| calendar.damage.is_some();
        let damaged: BTreeMap<InstanceKey, Calendar> =
            calendars.extract_if(.., is_damaged).collect();
        if is_new {
            calendars.clear();
        }
        for found in stored {
            // Others may have been deleted after they were read.
            if !is_new && !damaged.contains_key(&found.instance_key) {
                continue;
            }
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: found.instance_key,
            };
            let book = match &found.content {
                Ok(content) => {
                    serde_json::from_str::<Book>(content.get()).map_err(|error| error.to_string())
                }
                Err(error) => Err(goondan_log::error_chain(error)),
            };
            let (book, damage) = match book {
                Ok(book) => (book, None),
                Err(problem) => {
                    let event = LogEvent::error(
                        "failed to read schedules; run `gdn daemon verify --repair`, then `gdn config reload`",
                    );
                    fleet.log(event.of(&at).with("error", problem.clone()));
                    (Book::default(), Some(problem))
                }
            };
            let mut calendar = Calendar::new(found.agent_name, book, now);
            calendar.damage = damage;
            calendars.insert(at.instance_key, calendar);
        }
    }

    /// Removes the schedules of a deleted conversation; the store has removed their file.
    pub(crate) fn forget(&mut self, fleet: &mut Fleet, at: &InstanceRef) {
        let calendars = self.workspaces.get_mut(&at.workspace_id);
        let Some(calendar) = calendars.and_then(|calendars| calendars.remove(&at.instance_key))
        else {
            return;
        };
        let writing = calendar.writing.into_iter().map(|(change, _)| change);
        for queued in writing.chain(calendar.changes) {
            let text = format!("conversation `{}` was deleted", at.instance_key);
            let error = ControlError::new(ErrorCode::Cancelled, text);
            refuse(fleet, &queued.reply, error);
        }
    }

    /// Number of schedules of a conversation.
    pub(crate) fn count(&self, at: &InstanceRef) -> usize {
        let calendar = self.calendar(at);
        calendar.map_or(0, |calendar| calendar.book.schedules.len())
    }

    /// Submits due occurrences.
    pub(crate) fn on_time(&mut self, fleet: &mut Fleet) {
        let now = fleet.now().wall;
        let has_stepped_back = self.checked_at.is_some_and(|before| now < before);
        self.checked_at = Some(now);
        let open = fleet.workspaces();
        self.workspaces.retain(|id, _| open.contains_key(id));
        let mut due = Vec::new();
        for (id, calendars) in &self.workspaces {
            for (key, calendar) in calendars {
                // After a step back, occurrences may be nearer than they were.
                let is_due = calendar.check_at.is_some_and(|at| at <= now);
                if is_due || (has_stepped_back && !calendar.is_empty()) {
                    due.push(InstanceRef {
                        workspace_id: id.clone(),
                        instance_key: key.clone(),
                    });
                }
            }
        }
        for at in due {
            self.advance(fleet, &at);
        }
    }

    /// Handles a tool call about the schedules of its own conversation.
    pub(crate) fn on_agent_ask(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        creator: ScheduleCreator,
        ask: AgentAsk,
    ) {
        let request = ask.event_id();
        let result = match ask.question {
            AgentQuestion::CreateSchedule {
                time,
                input,
                catch_up,
            } => match request.and_then(|request| id_of_request(&request)) {
                Ok(schedule_id) => {
                    let new = NewSchedule {
                        schedule_id,
                        time,
                        catch_up,
                        input,
                        by_person: false,
                    };
                    self.create(fleet, requester, creator, new)
                }
                Err(error) => Err(AgentRequestError::new(
                    "E_INVALID_REQUEST",
                    error.to_string(),
                )),
            },
            AgentQuestion::ListSchedules {} => {
                let mut schedules = self.infos(fleet, &requester.at);
                schedules.retain(|schedule| !schedule.by_person);
                fleet.answer_agent(requester, AgentAnswer::Schedules { schedules });
                Ok(())
            }
            AgentQuestion::RemoveSchedule { schedule_id } => {
                self.remove_for_agent(fleet, requester, schedule_id)
            }
            // Not about schedules.
            _ => Ok(()),
        };
        if let Err(refused) = result {
            fleet.answer_agent(requester, refused.into());
        }
    }

    fn create(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        creator: ScheduleCreator,
        new: NewSchedule,
    ) -> Result<(), AgentRequestError> {
        let at = &requester.at;
        if is_of_task(&at.instance_key) {
            let message = "an agent that works on a task cannot create schedules";
            return Err(ScheduleRefusal::NotAllowed(message.to_owned()).into());
        }
        if self.answer_repeated(fleet, requester, &new.schedule_id, fleet.now().wall) {
            return Ok(());
        }
        let reply = ChangeReply::Agent(requester.clone());
        Ok(self.add(fleet, at, creator, new, reply)?)
    }

    /// Adds a schedule to a conversation.
    fn add(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        creator: ScheduleCreator,
        new: NewSchedule,
        reply: ChangeReply,
    ) -> Result<(), ScheduleRefusal> {
        let refused = |message: String| Err(ScheduleRefusal::NotAllowed(message));
        let now = fleet.now().wall;
        self.check_usable(fleet, at)?;
        if new.input.trim().is_empty() || new.input.len() > MAX_SCHEDULED_INPUT_BYTES {
            let message = format!("the input must have 1 to {MAX_SCHEDULED_INPUT_BYTES} bytes");
            return Err(ScheduleRefusal::Invalid(message));
        }
        let times = time_of(new.time, new.catch_up, now);
        let (time, ledger) = times.map_err(ScheduleRefusal::Invalid)?;
        if self.calendar(at).map_or(0, Calendar::count) >= SCHEDULES_PER_CONVERSATION_MAX {
            return refused(format!(
                "this conversation already has {SCHEDULES_PER_CONVERSATION_MAX} schedules; remove \
                 one first"
            ));
        }
        let calendars = self.workspaces.entry(at.workspace_id.clone()).or_default();
        let of_workspace: usize = calendars.values().map(Calendar::count).sum();
        if of_workspace >= SCHEDULES_PER_WORKSPACE_MAX {
            return refused(format!(
                "the project already has {SCHEDULES_PER_WORKSPACE_MAX} schedules; a person can \
                 remove some with `gdn event schedule remove`"
            ));
        }
        let metadata = json!([&creator.metadata, &creator.auth]).to_string();
        if metadata.len() > SCHEDULE_METADATA_BYTES_MAX {
            return refused(format!(
                "the metadata of the event that you answer has {} bytes; at most \
                 {SCHEDULE_METADATA_BYTES_MAX} can be stored with a schedule",
                metadata.len()
            ));
        }
        let record = ScheduleRecord {
            schedule_id: new.schedule_id,
            time,
            catch_up: new.catch_up,
            input: new.input,
            created_at: now,
            agent_name: creator.agent.clone(),
            by_person: new.by_person,
            auth: creator.auth,
            connection: creator.connection,
            metadata: creator.metadata,
            ledger,
        };
        let calendar = calendars
            .entry(at.instance_key.clone())
            .or_insert_with(|| Calendar::new(creator.agent, Book::default(), now));
        calendar.changes.push_back(QueuedChange {
            change: BookChange::Add(Box::new(record)),
            reply,
        });
        self.advance(fleet, at);
        Ok(())
    }

    /// Answers a tool call that is repeated after a crash. Returns false if it is new.
    fn answer_repeated(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        id: &ScheduleId,
        now: Timestamp,
    ) -> bool {
        let at = &requester.at;
        let Some(calendar) = self.calendar_mut(at) else {
            return false;
        };
        if let Some(queued) = calendar.addition_of(id) {
            queued.reply = ChangeReply::Agent(requester.clone());
            return true;
        }
        let answer = if let Some(record) = calendar.book.get(id) {
            AgentAnswer::Schedule {
                schedule: Box::new(info_of(at, record, now, None)),
            }
        } else if calendar.book.has_ended(id) {
            AgentAnswer::ScheduleEnded {
                schedule_id: id.clone(),
            }
        } else {
            return false;
        };
        fleet.answer_agent(requester, answer);
        true
    }

    /// Checks that the schedules of a conversation can be changed.
    fn check_usable(&self, fleet: &Fleet, at: &InstanceRef) -> Result<(), ScheduleRefusal> {
        let failed = |message: String| Err(ScheduleRefusal::Unusable(message));
        let workspace = fleet.workspaces().get(&at.workspace_id);
        if fleet.is_stopping() || workspace.is_none_or(|it| it.closing.is_some()) {
            return failed("the workspace is being stopped".to_owned());
        }
        match self.calendar(at).and_then(|it| it.damage.as_ref()) {
            Some(problem) => failed(format!(
                "the stored schedules of this conversation are damaged: {problem}"
            )),
            None => Ok(()),
        }
    }

    fn remove_for_agent(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        schedule_id: ScheduleId,
    ) -> Result<(), AgentRequestError> {
        let at = &requester.at;
        self.check_usable(fleet, at)?;
        let calendar = self.calendar_mut(at);
        // An agent cannot remove the schedules of a person.
        let is_own = |calendar: &Calendar| {
            let record = calendar.book.get(&schedule_id);
            record.is_some_and(|record| !record.by_person)
        };
        let known = calendar.filter(|calendar| is_own(calendar));
        let Some(calendar) = known else {
            let has_ended = self.calendar(at).map(|it| it.book.has_ended(&schedule_id));
            if has_ended == Some(true) {
                // The call is repeated after a crash, or a person was faster.
                fleet.answer_agent(requester, AgentAnswer::ScheduleEnded { schedule_id });
                return Ok(());
            }
            let message = format!("this conversation has no schedule `{schedule_id}`");
            return Err(AgentRequestError::new("E_NO_SCHEDULE", message));
        };
        calendar.changes.push_back(QueuedChange {
            change: BookChange::Remove(schedule_id),
            reply: ChangeReply::Agent(requester.clone()),
        });
        self.advance(fleet, at);
        Ok(())
    }

    fn infos(&self, fleet: &Fleet, at: &InstanceRef) -> Vec<ScheduleInfo> {
        let (Some(calendar), Some(workspace)) =
            (self.calendar(at), fleet.workspaces().get(&at.workspace_id))
        else {
            return Vec::new();
        };
        let now = fleet.now().wall;
        let problem = obstacle(workspace, calendar);
        let records = calendar.book.schedules.iter();
        records
            .map(|record| info_of(at, record, now, problem.clone()))
            .collect()
    }

    fn calendar(&self, at: &InstanceRef) -> Option<&Calendar> {
        self.workspaces.get(&at.workspace_id)?.get(&at.instance_key)
    }

    fn calendar_mut(&mut self, at: &InstanceRef) -> Option<&mut Calendar> {
        self.workspaces
            .get_mut(&at.workspace_id)?
            .get_mut(&at.instance_key)
    }

    /// Performs the next step of a conversation: writes a queued change, else submits a due
    /// occurrence.
    fn advance(&mut self, fleet: &mut Fleet, at: &InstanceRef) {
        let now = fleet.now().wall;
        let Some(calendar) = self.calendar_mut(at) else {
            return;
        };
        // A removal is not acknowledged while an input is on its way.
        if calendar.writing.is_some() || calendar.submitting.is_some() {
            return;
        }
        while let Some(queued) = calendar.changes.pop_front() {
            // Its last occurrence was submitted meanwhile, or another client removed it.
            if calendar.book.is_late(&queued.change) {
                report_missing(fleet, queued);
                continue;
            }
            return write(fleet, at, calendar, queued);
        }
        if calendar.damage.is_some() {
            calendar.check_at = None;
            return;
        }
        let (step, check_at) = calendar.step(now);
        calendar.check_at = check_at;
        if step == Step::Wait {
            calendar.is_reported = false;
            return;
        }
        if !may_submit(fleet, at, calendar, now) {
            return;
        }
        let change = match step {
            Step::Wait => return,
            Step::Settle {
                schedule_id,
                ledger,
                skipped,
            } => {
                log_skipped(fleet, at, &schedule_id, skipped);
                BookChange::Settle(schedule_id, ledger)
            }
            Step::End {
                schedule_id,
                skipped,
            } => {
                log_skipped(fleet, at, &schedule_id, skipped);
                BookChange::Remove(schedule_id)
            }
            Step::Submit {
                occurrence,
                is_late,
                skipped,
            } => {
                log_skipped(fleet, at, &occurrence.schedule_id, skipped);
                return submit(fleet, at, calendar, occurrence, is_late);
            }
            Step::Unreadable {
                schedule_id,
                problem,
            } => {
                if !std::mem::replace(&mut calendar.is_reported, true) {
                    let event = LogEvent::error(
                        "schedule is not usable; remove it with `gdn event schedule remove`",
                    );
                    let event = event.of(at).with("scheduleId", schedule_id.as_str());
                    fleet.log(event.with("error", problem));
                }
                return;
            }
        };
        let reply = ChangeReply::None;
        write(fleet, at, calendar, QueuedChange { change, reply });
    }

    /// Handles the results of submissions.
    pub(crate) fn on_submitted(&mut self, fleet: &mut Fleet, submitted: SubmittedOccurrence) {
        let at = &submitted.instance;
        let now = fleet.now().wall;
        let Some(calendar) = self.calendar_mut(at) else {
            return;
        };
        calendar.submitting = None;
        let Occurrence {
            schedule_id,
            at: instant,
        } = submitted.occurrence;
        match submitted.result {
            Ok(()) => {
                // Before queued changes, which may remove the schedule.
                calendar.changes.push_front(QueuedChange {
                    change: BookChange::Submitted(schedule_id, instant),
                    reply: ChangeReply::None,
                });
                self.advance(fleet, at);
            }
            Err(reason) => {
                calendar.check_at = Some(later(now, SCHEDULE_RETRY_MS));
                let event = LogEvent::warn("failed to submit scheduled input; retrying");
                let event = event.of(at).with("scheduleId", schedule_id.as_str());
                fleet.log(event.with("error", reason));
                if !calendar.changes.is_empty() {
                    self.advance(fleet, at);
                }
            }
        }
    }

    /// Handles the result of a write.
    pub(crate) fn on_kept(
        &mut self,
        fleet: &mut Fleet,
        keeping: &KeepingSchedules,
        result: Result<bool, StoreError>,
    ) {
        let at = &keeping.instance;
        let now = fleet.now().wall;
        let Some(calendar) = self.calendar_mut(at) else {
            return forget_if_done(fleet, at);
        };
        let Some((queued, book)) = calendar.writing.take() else {
            return;
        };
        match result {
            Ok(is_new_conversation) => {
                calendar.book = book;
                if is_new_conversation {
                    let created = LifecycleEvent::InstanceCreated {
                        instance_key: at.instance_key.clone(),
                        agent_name: Some(calendar.agent.clone()),
                    };
                    fleet.announce(&at.workspace_id, created, None);
                }
                report_change(fleet, at, calendar, queued);
                self.advance(fleet, at);
            }
            // Refused before anything changed.
            Err(error @ StoreError::KeyTaken { .. }) => {
                let error = control_error(&error).suggest(
                    "choose another `--conversation` key, or pass that agent with `--agent`",
                );
                refuse(fleet, &queued.reply, error);
                if calendar.is_empty()
                    && let Some(calendars) = self.workspaces.get_mut(&at.workspace_id)
                {
                    calendars.remove(&at.instance_key);
                }
            }
            Err(error) => {
                let event = LogEvent::error("failed to store schedules").of(at);
                fleet.log(event.with("error", goondan_log::error_chain(&error)));
                refuse(fleet, &queued.reply, control_error(&error));
                // The file may have the new content: it is written again before anything is due.
                let is_rewritten = |queued: &QueuedChange| queued.change == BookChange::Rewrite;
                if !calendar.changes.iter().any(is_rewritten) {
                    calendar.changes.push_back(QueuedChange {
                        change: BookChange::Rewrite,
                        reply: ChangeReply::None,
                    });
                }
                calendar.check_at = Some(later(now, SCHEDULE_RETRY_MS));
            }
        }
        forget_if_done(fleet, at);
    }
}

/// True if occurrences can be submitted now. Otherwise sets the time of the next check.
fn may_submit(
    fleet: &mut Fleet,
    at: &InstanceRef,
    calendar: &mut Calendar,
    now: Timestamp,
) -> bool {
    let Some(workspace) = fleet.workspaces().get(&at.workspace_id) else {
        return false;
    };
    let is_ending = fleet.is_stopping() || workspace.closing.is_some();
    let waits = is_ending || workspace.is_deleting(&at.instance_key);
    let obstacle = obstacle(workspace, calendar);
    if !waits && obstacle.is_none() {
        return true;
    }
    calendar.check_at = Some(later(now, SCHEDULE_RETRY_MS));
    if let Some(problem) = obstacle
        && !waits
        && !std::mem::replace(&mut calendar.is_reported, true)
    {
        let event = LogEvent::warn("scheduled input is due but cannot be submitted; waiting");
        fleet.log(event.of(at).with("problem", problem));
    }
    false
}

fn log_skipped(fleet: &mut Fleet, at: &InstanceRef, id: &ScheduleId, skipped: u64) {
    if skipped > 0 {
        let event = LogEvent::warn("skipped missed occurrences").of(at);
        let event = event.with("scheduleId", id.as_str());
        fleet.log(event.with("skipped", skipped));
    }
}

fn submit(
    fleet: &mut Fleet,
    at: &InstanceRef,
    calendar: &mut Calendar,
    occurrence: Occurrence,
    is_late: bool,
) {
    let Some(record) = calendar.book.get(&occurrence.schedule_id) else {
        return;
    };
    let trace = TraceContext::root(
        TraceId::from_uuid(fleet.cx().uuid()),
        SpanId::from_uuid(fleet.cx().uuid()),
    );
    let now = fleet.now().wall;
    let agent = record.agent_name.clone();
    let event = record.event(&at.instance_key, (occurrence.at, is_late), now, trace);
    let event = match event {
        Ok(event) => event,
        Err(error) => {
            let log = LogEvent::error("failed to submit scheduled input").of(at);
            return fleet.log(log.with("error", error.to_string()));
        }
    };
    let log = LogEvent::info("occurrence submitted").of(at);
    let log = log.with("scheduleId", occurrence.schedule_id.as_str());
    let log = log.with("eventId", event.id.as_str());
    fleet.log(log.with("isLate", is_late).in_trace(Some(trace)));
    calendar.is_reported = false;
    calendar.submitting = Some(occurrence.clone());
    let origin = EventOrigin::Schedule(Box::new(SubmittedOccurrence {
        instance: at.clone(),
        occurrence,
        result: Ok(()),
    }));
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) {
        workspace.accept(cx, at.clone(), &agent, event, origin);
    }
}

/// Removes an idle conversation without a process.
fn forget_if_done(fleet: &mut Fleet, at: &InstanceRef) {
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) {
        workspace.forget_if_done(cx, &at.instance_key);
    }
}

/// Writes a change to disk.
fn write(fleet: &mut Fleet, at: &InstanceRef, calendar: &mut Calendar, queued: QueuedChange) {
    let book = calendar.book.after(&queued.change);
    let schedules = match serde_json::value::to_raw_value(&book) {
        Ok(schedules) => schedules,
        Err(error) => {
            let error = ControlError::new(ErrorCode::Internal, error.to_string());
            return refuse(fleet, &queued.reply, error);
        }
    };
    // A conversation may begin with an input that a person has become due later.
    let created_for = if let BookChange::Add(record) = &queued.change
        && record.by_person
    {
        Some((record.agent_name.clone(), record.created_at))
    } else {
        None
    };
    let keep = KeepSchedules {
        instance: at.clone(),
        created_for,
        schedules,
    };
    calendar.writing = Some((queued, book));
    let instance = at.clone();
    fleet.cx().store(keep, KeepingSchedules { instance });
}

/// Reports a durable change.
fn report_change(fleet: &mut Fleet, at: &InstanceRef, calendar: &Calendar, queued: QueuedChange) {
    let now = fleet.now().wall;
    let (change, id) = match &queued.change {
        BookChange::Add(record) => (ScheduleChange::Created, &record.schedule_id),
        BookChange::Move(id, _) => (ScheduleChange::Moved, id),
        BookChange::Remove(id) if queued.reply != ChangeReply::None => {
            (ScheduleChange::Removed, id)
        }
        BookChange::Submitted(id, _) => (ScheduleChange::Sent, id),
        BookChange::Remove(_) | BookChange::Rewrite | BookChange::Settle(..) => return,
    };
    let changed = LifecycleEvent::ScheduleChanged {
        instance_key: at.instance_key.clone(),
        schedule_id: id.clone(),
        change,
    };
    fleet.announce(&at.workspace_id, changed, None);
    let audit = match change {
        ScheduleChange::Created => "scheduleCreated",
        ScheduleChange::Moved => "scheduleMoved",
        ScheduleChange::Removed => "scheduleRemoved",
        ScheduleChange::Sent => return,
    };
    let details = match &queued.reply {
        ChangeReply::Person { pid, .. } => json!({"scheduleId": id, "clientPid": pid}),
        ChangeReply::Agent(_) | ChangeReply::None => json!({"scheduleId": id}),
    };
    fleet.audit(at, audit, details);
    let record = calendar.book.get(id);
    let schedule = record.map(|record| info_of(at, record, now, None));
    match queued.reply {
        ChangeReply::None => {}
        ChangeReply::Person { token, before, .. } => {
            people::answer(fleet, token, before, schedule);
        }
        ChangeReply::Agent(requester) => {
            let answer = match schedule {
                Some(schedule) => AgentAnswer::Schedule {
                    schedule: Box::new(schedule),
                },
                None => AgentAnswer::ScheduleEnded {
                    schedule_id: id.clone(),
                },
            };
            fleet.answer_agent(&requester, answer);
        }
    }
}

/// Reports that the schedule to change no longer exists.
fn report_missing(fleet: &mut Fleet, queued: QueuedChange) {
    let (BookChange::Remove(id) | BookChange::Move(id, _)) = queued.change else {
        return;
    };
    match queued.reply {
        ChangeReply::None => {}
        ChangeReply::Person { token, .. } => fleet.respond_error(token, people::not_found(&id)),
        ChangeReply::Agent(requester) => {
            let answer = AgentAnswer::ScheduleEnded { schedule_id: id };
            fleet.answer_agent(&requester, answer);
        }
    }
}

/// Reports a change that was not made.
fn refuse(fleet: &mut Fleet, reply: &ChangeReply, error: ControlError) {
    match reply {
        ChangeReply::None => {}
        ChangeReply::Person { token, .. } => fleet.respond_error(*token, error),
        ChangeReply::Agent(requester) => {
            let refused = AgentRequestError::new("E_FAILED", error.message);
            fleet.answer_agent(requester, refused.into());
        }
    }
}
