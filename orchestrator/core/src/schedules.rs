//! Schedules that agents create for their own conversations.
//!
//! An agent creates a schedule with the tool `schedule`; people list and remove it. Each occurrence
//! becomes an input of the conversation. Due occurrences are a function of the stored schedules and the
//! time ([`record`], which uses the rules of the connector `cron`); this module stores, submits and
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
use goondan_protocol::control::{
    ControlError, ErrorCode, ListSchedules, RemoveSchedule, ScheduleInfo, SchedulePlace,
    ScheduleRemoved,
};
use goondan_protocol::ids::{InstanceKey, InstanceRef, ScheduleId, WorkspaceId};
use goondan_protocol::limits::MAX_SCHEDULED_INPUT_BYTES;
use goondan_protocol::schedule::{RequestedTime, ScheduleCatchUp, id_of_request};
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
use crate::refusals::{AgentRequestError, no_workspace, stopping_error};
use crate::{LogEvent, Peer, RequestToken, control_error};

mod book;
mod calendar;
mod record;
#[cfg(test)]
mod tests;

use self::book::{Book, BookChange};
use self::calendar::{Calendar, ChangeReply, QueuedChange, Step, info_of};
use self::record::{ScheduleRecord, time_of};

/// Audit event of a schedule that an agent created.
const SCHEDULE_CREATED: &str = "scheduleCreated";
/// Audit event of a schedule that a person or its agent removed.
const SCHEDULE_REMOVED: &str = "scheduleRemoved";

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

fn not_found(id: &ScheduleId) -> ControlError {
    let text = format!("schedule `{id}` does not exist; it was removed, or has ended");
    ControlError::new(ErrorCode::ScheduleNotFound, text)
        .suggest("list the schedules: `gdn schedule list`")
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
                        "failed to read schedules; run `gdn verify --repair`, then `gdn reload`",
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
                Ok(id) => self.create(fleet, requester, creator, (id, time, catch_up, input)),
                Err(error) => Err(AgentRequestError::new(
                    "E_INVALID_REQUEST",
                    error.to_string(),
                )),
            },
            AgentQuestion::ListSchedules {} => {
                let schedules = self.infos(fleet, &requester.at);
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
        (schedule_id, time, catch_up, input): (ScheduleId, RequestedTime, ScheduleCatchUp, String),
    ) -> Result<(), AgentRequestError> {
        let refused = |message: String| Err(AgentRequestError::new("E_SCHEDULE_REFUSED", message));
        let invalid = |message: String| Err(AgentRequestError::new("E_INVALID_REQUEST", message));
        let at = &requester.at;
        let now = fleet.now().wall;
        if is_of_task(&at.instance_key) {
            return refused("an agent that works on a task cannot create schedules".to_owned());
        }
        if self.answer_repeated(fleet, requester, &schedule_id, now) {
            return Ok(());
        }
        self.check_usable(fleet, at)?;
        if input.trim().is_empty() || input.len() > MAX_SCHEDULED_INPUT_BYTES {
            return invalid(format!(
                "the input must have 1 to {MAX_SCHEDULED_INPUT_BYTES} bytes"
            ));
        }
        let (time, ledger) = match time_of(time, catch_up, now) {
            Ok(times) => times,
            Err(problem) => return invalid(problem),
        };
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
                 remove some with `gdn schedule remove`"
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
            schedule_id,
            time,
            catch_up,
            input,
            created_at: now,
            agent_name: creator.agent.clone(),
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
            reply: ChangeReply::Agent(requester.clone()),
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
    fn check_usable(&self, fleet: &Fleet, at: &InstanceRef) -> Result<(), AgentRequestError> {
        let failed = |message: String| Err(AgentRequestError::new("E_FAILED", message));
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
        let known = calendar.filter(|it| it.book.get(&schedule_id).is_some());
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

    /// Lists schedules for a client.
    pub(crate) fn list(&self, fleet: &mut Fleet, token: RequestToken, list: &ListSchedules) {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only
            && let Err(error) = fleet.workspace(id)
        {
            return fleet.respond_error(token, error);
        }
        let is_behind = |place: &SchedulePlace| list.after.as_ref().is_none_or(|it| it < place);
        let workspaces = self.workspaces.iter();
        let workspaces = workspaces.filter(|(id, _)| only.is_none_or(|only| only == *id));
        let key = list.instance_key.as_ref();
        let mut listed: Vec<ScheduleInfo> = Vec::new();
        for (id, calendars) in workspaces {
            let calendars = calendars.keys();
            for own in calendars.filter(|own| key.is_none_or(|key| key == *own)) {
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: own.clone(),
                };
                listed.extend(self.infos(fleet, &at));
            }
        }
        listed.sort_by_key(ScheduleInfo::place);
        let page = list.page_of(listed.into_iter().filter(|it| is_behind(&it.place())));
        fleet.respond(token, &page);
    }

    /// Removes a schedule for a person.
    pub(crate) fn remove(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        peer: Peer,
        remove: &RemoveSchedule,
    ) {
        let RemoveSchedule {
            workspace_id: id,
            schedule_id,
        } = remove;
        let refused = match fleet.workspaces().get(id) {
            _ if fleet.is_stopping() => Some(stopping_error()),
            None => Some(no_workspace(id)),
            Some(workspace) if workspace.closing.is_some() => Some(no_workspace(id)),
            Some(_) => None,
        };
        if let Some(error) = refused {
            return fleet.respond_error(token, error);
        }
        let now = fleet.now().wall;
        let calendars = self.workspaces.get(id).into_iter().flatten();
        let mut found = calendars.filter_map(|(key, calendar)| {
            let record = calendar.book.get(schedule_id)?;
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: key.clone(),
            };
            let schedule = info_of(&at, record, now, None);
            Some((at, ScheduleRemoved { schedule }))
        });
        let Some((at, removed)) = found.next() else {
            return fleet.respond_error(token, not_found(schedule_id));
        };
        if let Some(calendar) = self.calendar_mut(&at) {
            calendar.changes.push_back(QueuedChange {
                change: BookChange::Remove(schedule_id.clone()),
                reply: ChangeReply::Person {
                    token,
                    pid: peer.pid,
                    removed: Box::new(removed),
                },
            });
        }
        self.advance(fleet, &at);
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

    /// Performs the next step of a conversation: writes a queued change, else submits what is due.
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
            if let BookChange::Remove(id) = &queued.change
                && calendar.book.get(id).is_none()
            {
                report_missing(fleet, queued.reply, id);
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
                        "schedule is not usable; remove it with `gdn schedule remove`",
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
        result: Result<(), StoreError>,
    ) {
        let at = &keeping.instance;
        let now = fleet.now().wall;
        let Some(calendar) = self.calendar_mut(at) else {
            return fleet.forget_if_done(at);
        };
        let Some((queued, book)) = calendar.writing.take() else {
            return;
        };
        match result {
            Ok(()) => {
                calendar.book = book;
                report_change(fleet, at, calendar, queued);
                self.advance(fleet, at);
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
        fleet.forget_if_done(at);
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
        TraceId::from_uuid(fleet.uuid()),
        SpanId::from_uuid(fleet.uuid()),
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
    fleet.accept(at.clone(), &agent, event, origin);
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
    let keep = KeepSchedules {
        instance: at.clone(),
        schedules,
    };
    calendar.writing = Some((queued, book));
    let instance = at.clone();
    fleet.store(keep, KeepingSchedules { instance });
}

/// Reports a durable change.
fn report_change(fleet: &mut Fleet, at: &InstanceRef, calendar: &Calendar, queued: QueuedChange) {
    let now = fleet.now().wall;
    let (audit, id) = match &queued.change {
        BookChange::Add(record) => (SCHEDULE_CREATED, &record.schedule_id),
        BookChange::Remove(id) if queued.reply != ChangeReply::None => (SCHEDULE_REMOVED, id),
        BookChange::Remove(_)
        | BookChange::Rewrite
        | BookChange::Settle(..)
        | BookChange::Submitted(..) => return,
    };
    let details = match &queued.reply {
        ChangeReply::Person { pid, .. } => json!({"scheduleId": id, "clientPid": pid}),
        ChangeReply::Agent(_) | ChangeReply::None => json!({"scheduleId": id}),
    };
    fleet.audit(at, audit, details);
    match queued.reply {
        ChangeReply::None => {}
        ChangeReply::Person { token, removed, .. } => fleet.respond(token, &*removed),
        ChangeReply::Agent(requester) => {
            let answer = match calendar.book.get(id) {
                Some(record) => AgentAnswer::Schedule {
                    schedule: Box::new(info_of(at, record, now, None)),
                },
                None => AgentAnswer::ScheduleEnded {
                    schedule_id: id.clone(),
                },
            };
            fleet.answer_agent(&requester, answer);
        }
    }
}

/// Reports that the schedule to remove no longer exists.
fn report_missing(fleet: &mut Fleet, reply: ChangeReply, id: &ScheduleId) {
    match reply {
        ChangeReply::None => {}
        ChangeReply::Person { token, .. } => fleet.respond_error(token, not_found(id)),
        ChangeReply::Agent(requester) => {
            let schedule_id = id.clone();
            fleet.answer_agent(&requester, AgentAnswer::ScheduleEnded { schedule_id });
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
