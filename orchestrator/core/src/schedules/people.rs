//! Schedules as people list, create, move and remove them.

use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    ControlError, CreateSchedule, ErrorCode, ListSchedules, MoveSchedule, RemoveSchedule,
    ScheduleInfo, ScheduleKept, SchedulePlace, ScheduleRemoved,
};
use goondan_protocol::ids::{AgentName, EventId, InstanceRef, ScheduleId, WorkspaceId};
use goondan_protocol::schedule::{RequestedTime, ScheduleTime, id_of_request};
use goondan_protocol::task::is_of_task;

use super::book::BookChange;
use super::calendar::{ChangeReply, QueuedChange, info_of};
use super::record::time_of;
use super::{NewSchedule, ScheduleRefusal, Schedules};
use crate::fleet::Fleet;
use crate::fleet::scheduled_inputs::ScheduleCreator;
use crate::refusals::{deleted_error, no_workspace, stopping_error};
use crate::{Peer, RequestToken};

impl From<ScheduleRefusal> for ControlError {
    fn from(refusal: ScheduleRefusal) -> Self {
        match refusal {
            ScheduleRefusal::Invalid(message) => Self::new(ErrorCode::InvalidRequest, message),
            ScheduleRefusal::NotAllowed(message) => Self::new(ErrorCode::InvalidRequest, message)
                .suggest("list the schedules: `gdn event schedule list --all`"),
            ScheduleRefusal::Taken(message) => Self::new(ErrorCode::InstanceKeyTaken, message)
                .suggest("choose another `--conversation` key, or pass that agent with `--agent`"),
            ScheduleRefusal::Unusable(message) => Self::new(ErrorCode::Damaged, message)
                .suggest("run `gdn daemon verify --repair`, then `gdn config reload`"),
        }
    }
}

pub(super) fn not_found(id: &ScheduleId) -> ControlError {
    let text = format!("schedule `{id}` does not exist; it was removed, or has ended");
    ControlError::new(ErrorCode::ScheduleNotFound, text)
        .suggest("list the schedules: `gdn event schedule list`")
}

/// Reason why no schedule of a workspace can be changed.
fn obstacle(fleet: &Fleet, id: &WorkspaceId) -> Option<ControlError> {
    match fleet.workspaces().get(id) {
        _ if fleet.is_stopping() => Some(stopping_error()),
        None => Some(no_workspace(id)),
        Some(workspace) if workspace.closing.is_some() => Some(no_workspace(id)),
        Some(_) => None,
    }
}

/// Id of the schedule that a request of a person creates. Requests of agents have other ids.
fn id_of(request: &EventId) -> Result<ScheduleId, ControlError> {
    let named = EventId::new(format!("client/{request}"));
    let id = named.and_then(|named| id_of_request(&named));
    id.map_err(|error| ControlError::new(ErrorCode::InvalidRequest, error.to_string()))
}

/// Answers a durable change. `before` is the schedule before it, and `after` the one after it.
pub(super) fn answer(
    fleet: &mut Fleet,
    token: RequestToken,
    before: Option<Box<ScheduleInfo>>,
    after: Option<ScheduleInfo>,
) {
    match (before, after) {
        (Some(before), None) => fleet.respond(token, &ScheduleRemoved { schedule: *before }),
        (_, schedule) => fleet.respond(token, &ScheduleKept { schedule }),
    }
}

impl Schedules {
    /// Creates a schedule for a person, in a conversation of an agent.
    pub(crate) fn create_for_person(
        &mut self,
        fleet: &mut Fleet,
        (token, peer): (RequestToken, Peer),
        (at, agent): (&InstanceRef, AgentName),
        create: CreateSchedule,
    ) {
        let request = create.event_id.unwrap_or_else(|| fleet.cx().uuid().into());
        let created = id_of(&request).and_then(|schedule_id| {
            let new = NewSchedule {
                schedule_id,
                time: create.time,
                catch_up: create.catch_up,
                input: create.input,
                by_person: true,
            };
            self.add_for_person(fleet, (token, peer), (at, agent), new)
        });
        if let Err(error) = created {
            fleet.respond_error(token, error);
        }
    }

    fn add_for_person(
        &mut self,
        fleet: &mut Fleet,
        (token, peer): (RequestToken, Peer),
        (at, agent): (&InstanceRef, AgentName),
        new: NewSchedule,
    ) -> Result<(), ControlError> {
        if let Some(error) = obstacle(fleet, &at.workspace_id) {
            return Err(error);
        }
        let workspace = fleet.workspace(&at.workspace_id)?;
        if workspace.is_deleting(&at.instance_key) {
            return Err(deleted_error(&at.instance_key));
        }
        if is_of_task(&at.instance_key) {
            let message = "a conversation of a task has no schedules";
            return Err(ScheduleRefusal::NotAllowed(message.to_owned()).into());
        }
        let reply = ChangeReply::Person {
            token,
            pid: peer.pid,
            before: None,
        };
        let now = fleet.now().wall;
        if let Some(calendar) = self.calendar_mut(at) {
            if calendar.agent != agent {
                let (key, owner) = (&at.instance_key, &calendar.agent);
                let message = format!("conversation `{key}` belongs to agent `{owner}`");
                return Err(ScheduleRefusal::Taken(message).into());
            }
            // The request was sent again.
            if let Some(queued) = calendar.addition_of(&new.schedule_id) {
                queued.reply = reply;
                return Ok(());
            }
            let record = calendar.book.get(&new.schedule_id);
            if record.is_some() || calendar.book.has_ended(&new.schedule_id) {
                let schedule = record.map(|record| info_of(at, record, now, None));
                fleet.respond(token, &ScheduleKept { schedule });
                return Ok(());
            }
        }
        let creator = ScheduleCreator {
            agent,
            auth: None,
            connection: None,
            metadata: JsonObject::new(),
        };
        Ok(self.add(fleet, at, creator, new, reply)?)
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

    /// Moves a schedule with a single occurrence, for a person.
    pub(crate) fn move_to(
        &mut self,
        fleet: &mut Fleet,
        (token, peer): (RequestToken, Peer),
        moved: &MoveSchedule,
    ) {
        let found = self.find(fleet, &moved.workspace_id, &moved.schedule_id);
        let checked = found.and_then(|(at, schedule)| {
            if let ScheduleTime::Cron { .. } = schedule.time {
                let message = format!("schedule `{}` recurs", moved.schedule_id);
                return Err(ControlError::new(ErrorCode::InvalidRequest, message)
                    .suggest("remove it, and create one with other times"));
            }
            let requested = RequestedTime::At { at: moved.at };
            time_of(requested, schedule.catch_up, fleet.now().wall)
                .map_err(ScheduleRefusal::Invalid)?;
            Ok((at, schedule))
        });
        match checked {
            Ok((at, schedule)) => {
                let change = BookChange::Move(moved.schedule_id.clone(), moved.at);
                self.change_for_person(fleet, (token, peer), (&at, schedule), change);
            }
            Err(error) => fleet.respond_error(token, error),
        }
    }

    /// Removes a schedule for a person.
    pub(crate) fn remove(
        &mut self,
        fleet: &mut Fleet,
        (token, peer): (RequestToken, Peer),
        remove: &RemoveSchedule,
    ) {
        match self.find(fleet, &remove.workspace_id, &remove.schedule_id) {
            Ok((at, schedule)) => {
                let change = BookChange::Remove(remove.schedule_id.clone());
                self.change_for_person(fleet, (token, peer), (&at, schedule), change);
            }
            Err(error) => fleet.respond_error(token, error),
        }
    }

    fn change_for_person(
        &mut self,
        fleet: &mut Fleet,
        (token, peer): (RequestToken, Peer),
        (at, schedule): (&InstanceRef, ScheduleInfo),
        change: BookChange,
    ) {
        if let Some(calendar) = self.calendar_mut(at) {
            calendar.changes.push_back(QueuedChange {
                change,
                reply: ChangeReply::Person {
                    token,
                    pid: peer.pid,
                    before: Some(Box::new(schedule)),
                },
            });
        }
        self.advance(fleet, at);
    }

    /// A schedule that can be changed, and its conversation.
    fn find(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        schedule_id: &ScheduleId,
    ) -> Result<(InstanceRef, ScheduleInfo), ControlError> {
        if let Some(error) = obstacle(fleet, id) {
            return Err(error);
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
            Some((at, schedule))
        });
        found.next().ok_or_else(|| not_found(schedule_id))
    }
}
