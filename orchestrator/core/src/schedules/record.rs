//! One schedule, and its occurrences at a given time.

use goondan_connectors::schedule::{CatchUp, LATE_MS, Ledger, Schedule, check_cron, decide};
use goondan_protocol::JsonObject;
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, InstanceKey, InvalidId, ScheduleId,
};
use goondan_protocol::limits::{MAX_CRON_BYTES, MAX_SCHEDULE_DELAY_SECONDS};
use goondan_protocol::schedule::{
    RequestedTime, SCHEDULE, SCHEDULE_KIND, ScheduleCatchUp, ScheduleTime, ScheduledInput,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::limits::SCHEDULE_CATCH_UP_MAX;
use crate::router;

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScheduleRecord {
    pub(super) schedule_id: ScheduleId,
    pub(super) time: ScheduleTime,
    pub(super) catch_up: ScheduleCatchUp,
    pub(super) input: String,
    pub(super) created_at: Timestamp,
    /// The agent of the conversation.
    pub(super) agent_name: AgentName,
    /// True if a person created it, not the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_person: bool,
    /// Identity of the requester, passed on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) auth: Option<JsonObject>,
    /// The connection of the event that the agent answered when it created the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connection: Option<ConnectionName>,
    /// Metadata of that event.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub(super) metadata: JsonObject,
    /// Past occurrences of a recurring schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ledger: Option<Ledger>,
}

/// State of a schedule at a given time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ScheduleStatus {
    /// The occurrence to submit, and true if it is late.
    pub(super) due: Option<(Timestamp, bool)>,
    /// Number of occurrences that are skipped permanently.
    pub(super) skipped: u64,
    /// The ledger to store before an occurrence is submitted, if it changed.
    pub(super) ledger: Option<Ledger>,
    /// The next occurrence after the given time.
    pub(super) next: Option<Timestamp>,
    /// True if no occurrence is left.
    pub(super) is_over: bool,
}

fn catch_up_of(policy: ScheduleCatchUp) -> CatchUp {
    match policy {
        ScheduleCatchUp::None => CatchUp::None,
        ScheduleCatchUp::Latest => CatchUp::Latest,
        ScheduleCatchUp::All => CatchUp::All(SCHEDULE_CATCH_UP_MAX),
    }
}

/// Converts requested times to those of a new schedule, with its first ledger.
///
/// # Errors
///
/// The reason why there is no such occurrence.
pub(super) fn time_of(
    requested: RequestedTime,
    catch_up: ScheduleCatchUp,
    now: Timestamp,
) -> Result<(ScheduleTime, Option<Ledger>), String> {
    let after = |seconds: u64| {
        let ms = i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(now.as_unix_millis().saturating_add(ms))
    };
    let at = match requested {
        RequestedTime::At { at } => at,
        RequestedTime::In { seconds } => after(seconds),
        RequestedTime::Cron { cron, time_zone } => {
            if cron.len() > MAX_CRON_BYTES {
                return Err(format!("`cron` can have at most {MAX_CRON_BYTES} bytes"));
            }
            check_cron(&cron).map_err(|problem| format!("invalid `cron` `{cron}`: {problem}"))?;
            let schedule = Schedule::with_built_in_zone(&cron, &time_zone, catch_up_of(catch_up));
            let schedule = schedule.map_err(|problem| format!("invalid `timeZone`: {problem}"))?;
            let ledger = decide(&schedule, None, now).ledger;
            return Ok((ScheduleTime::Cron { cron, time_zone }, Some(ledger)));
        }
    };
    if at <= now {
        return Err(format!("{at} has passed; the current time is {now}"));
    }
    if at > after(MAX_SCHEDULE_DELAY_SECONDS) {
        return Err(format!(
            "{at} is too far in the future; the delay can be at most {MAX_SCHEDULE_DELAY_SECONDS} \
             seconds"
        ));
    }
    Ok((ScheduleTime::Once { at }, None))
}

impl ScheduleRecord {
    /// Determines the state of the schedule at `now`.
    ///
    /// # Errors
    ///
    /// The reason why the stored expression or time zone is not usable.
    pub(super) fn status(&self, now: Timestamp) -> Result<ScheduleStatus, String> {
        let is_late = |at: Timestamp| now.as_unix_millis() - at.as_unix_millis() > LATE_MS;
        match &self.time {
            ScheduleTime::Once { at } if *at > now => Ok(ScheduleStatus {
                next: Some(*at),
                ..ScheduleStatus::default()
            }),
            ScheduleTime::Once { at } if is_late(*at) && self.catch_up == ScheduleCatchUp::None => {
                Ok(ScheduleStatus {
                    skipped: 1,
                    is_over: true,
                    ..ScheduleStatus::default()
                })
            }
            ScheduleTime::Once { at } => Ok(ScheduleStatus {
                due: Some((*at, is_late(*at))),
                ..ScheduleStatus::default()
            }),
            ScheduleTime::Cron { cron, time_zone } => {
                let catch_up = catch_up_of(self.catch_up);
                let schedule = Schedule::with_built_in_zone(cron, time_zone, catch_up)?;
                let decision = decide(&schedule, self.ledger.as_ref(), now);
                let due = decision.due.first().map(|at| (*at, is_late(*at)));
                Ok(ScheduleStatus {
                    is_over: due.is_none() && decision.next.is_none() && !decision.keep_first,
                    due,
                    skipped: decision.skipped,
                    ledger: decision.keep_first.then_some(decision.ledger),
                    next: decision.next,
                })
            }
        }
    }

    /// The next occurrence to show: a due one, or the next.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let standing = self.status(now).ok()?;
        standing.due.map(|(at, _)| at).or(standing.next)
    }

    /// The input of an occurrence. The same occurrence always has the same id, so it is accepted at
    /// most once.
    pub(super) fn event(
        &self,
        key: &InstanceKey,
        (at, is_late): (Timestamp, bool),
        now: Timestamp,
        trace: TraceContext,
    ) -> Result<AgentEvent, InvalidId> {
        let origin = ScheduledInput {
            schedule_id: self.schedule_id.clone(),
            scheduled_at: at,
            is_late,
            created_at: self.created_at,
            connection: self.connection.clone(),
        };
        let mut metadata = self.metadata.clone();
        metadata.insert(SCHEDULE.to_owned(), json!(origin));
        Ok(AgentEvent {
            id: event_id(&self.schedule_id, at)?,
            kind: SCHEDULE_KIND.to_owned(),
            created_at: now,
            trace_id: Some(trace.trace_id),
            parent_span_id: Some(trace.span_id),
            input: Some(self.input.clone()),
            header: None,
            properties: JsonObject::new(),
            instance_key: Some(key.clone()),
            source: match self.by_person {
                true => EventSource::Connector {
                    name: ConnectionName::new(router::CLIENT_CONNECTION)?,
                },
                false => EventSource::Agent {
                    name: self.agent_name.clone(),
                    instance_key: key.clone(),
                },
            },
            auth: self.auth.clone(),
            reply_to: None,
            chain: None,
            join: None,
            metadata,
        })
    }
}

/// Id of the input of an occurrence. A connection cannot choose it, because ids of its events begin
/// with its name and a colon.
pub(super) fn event_id(schedule: &ScheduleId, at: Timestamp) -> Result<EventId, InvalidId> {
    EventId::new(format!("schedule/{schedule}/{at}"))
}
