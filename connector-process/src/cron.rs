//! Schedules: send a configured text to an agent at configured times.
//!
//! [`goondan_connectors::schedule`] computes occurrences and due ones without a clock; this module
//! supplies the clock. The orchestrator stores the ledgers. A ledger advances only after an event
//! was accepted, and an event's id is derived from its occurrence, so every occurrence produces one
//! event even if any process is killed in between.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use goondan_connectors::Values;
use goondan_connectors::schedule::{CatchUp, LATE_MS, Ledger, Ledgers, Schedule, decide};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey, InvalidId};
use goondan_protocol::time::Timestamp;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, span_within};
use crate::limits::{CLOCK_LOOK_MS, REPLY_TIMEOUT_MS};

/// Name of every schedule event.
const EVENT_NAME: &str = "tick";

/// The schedules of one connection.
#[derive(Debug)]
pub(crate) struct Cron {
    connection: ConnectionName,
    schedules: Vec<CronJob>,
}

#[derive(Debug)]
struct CronJob {
    name: String,
    schedule: Schedule,
    input: String,
    instance_key: Option<InstanceKey>,
}

impl Cron {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of the invalid schedule.
    pub(crate) fn new(connection: &ConnectionName, config: &JsonObject) -> Result<Self, String> {
        let values = Values::of("cron", config);
        let schedules = values.list("schedules");
        let schedules: Result<_, _> = schedules.iter().map(CronJob::new).collect();
        Ok(Self {
            connection: connection.clone(),
            schedules: schedules?,
        })
    }

    /// Submits due occurrences until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let mut work = CronRun {
            cron: &self,
            gateway: &gateway,
            ledgers: None,
            said: None,
        };
        loop {
            let pause = tokio::select! {
                () = stop.cancelled() => return,
                pause = work.look() => pause,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }
}

impl CronJob {
    fn new(values: &Values<'_>) -> Result<Self, String> {
        let text = |name| values.text(name).unwrap_or_default();
        let catch_up = match text("catchUp") {
            "none" => CatchUp::None,
            "all" => CatchUp::All(values.number("catchUpMax").unwrap_or(1)),
            _ => CatchUp::Latest,
        };
        let key = values.text("instanceKey").map(InstanceKey::new);
        Ok(Self {
            name: text("name").to_owned(),
            schedule: Schedule::new(text("cron"), text("timeZone"), catch_up)?,
            input: text("input").to_owned(),
            instance_key: key.transpose().map_err(|error| error.to_string())?,
        })
    }
}

struct CronRun<'a> {
    cron: &'a Cron,
    gateway: &'a Gateway,
    /// Ledgers as last stored; `None` until they could be read.
    ledgers: Option<Ledgers>,
    said: Option<(bool, String)>,
}

impl CronRun<'_> {
    /// Checks the clock once and returns the time until the next check.
    async fn look(&mut self) -> Duration {
        let outcome = self.hand_in_what_is_due().await;
        let now = now();
        let (is_ready, detail, next) = match outcome {
            Ok(next) => (true, next_words(next.as_ref()), next.map(|(at, _)| at)),
            Err(reason) => (false, reason, None),
        };
        if self.said.as_ref() != Some(&(is_ready, detail.clone())) {
            self.gateway.report(is_ready, detail.clone()).await;
            self.said = Some((is_ready, detail));
        }
        let until = next.map_or(CLOCK_LOOK_MS, |at| {
            let until_ms = at.as_unix_millis().saturating_sub(now.as_unix_millis());
            u64::try_from(until_ms).unwrap_or(0).min(CLOCK_LOOK_MS)
        });
        Duration::from_millis(until.max(1))
    }

    /// Submits everything that is due and returns the next occurrence.
    async fn hand_in_what_is_due(&mut self) -> Result<Option<(Timestamp, String)>, String> {
        let mut ledgers = match self.ledgers.take() {
            Some(ledgers) => ledgers,
            None => read_ledgers(self.gateway).await?,
        };
        let mut next: Option<(Timestamp, String)> = None;
        let mut problem = None;
        for entry in &self.cron.schedules {
            match self.hand_in(entry, &mut ledgers).await {
                Ok(Some(at)) if next.as_ref().is_none_or(|(first, _)| at < *first) => {
                    next = Some((at, entry.name.clone()));
                }
                Ok(_) => {}
                Err(reason) => problem = Some(format!("schedule `{}`: {reason}", entry.name)),
            }
        }
        match problem {
            None => {
                self.ledgers = Some(ledgers);
                Ok(next)
            }
            // The stored ledgers must be read again, because the failed write may have succeeded.
            Some(problem) => Err(problem),
        }
    }

    async fn hand_in(
        &self,
        entry: &CronJob,
        ledgers: &mut Ledgers,
    ) -> Result<Option<Timestamp>, String> {
        let now = now();
        let decision = decide(&entry.schedule, ledgers.get(&entry.name), now);
        let mut ledger = decision.ledger;
        if decision.keep_first {
            self.keep(entry, ledgers, ledger.clone()).await?;
        }
        if decision.skipped > 0 {
            tracing::warn!(
                schedule = entry.name,
                skipped = decision.skipped,
                "skipped missed occurrences"
            );
        }
        for occurrence in decision.due {
            let is_late = now.as_unix_millis() - occurrence.as_unix_millis() > LATE_MS;
            let event = entry
                .event(&self.cron.connection, occurrence, is_late)
                .map_err(|error| error.to_string())?;
            let trace = span_within(None, uuid::Uuid::now_v7());
            let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
            let verdict = self
                .gateway
                .submit_within(reply_timeout, event, trace)
                .await;
            let accepted = verdict.map_err(|refused| refused.message)?;
            tracing::info!(
                schedule = entry.name,
                event_id = accepted.event_id.as_str(),
                trace_id = %trace.trace_id,
                is_late,
                duplicate = accepted.duplicate,
                "occurrence submitted"
            );
            ledger = ledger.with(occurrence);
            self.keep(entry, ledgers, ledger.clone()).await?;
        }
        Ok(decision.next)
    }

    /// Stores a schedule's ledger. Ledgers of deleted schedules are dropped.
    async fn keep(
        &self,
        entry: &CronJob,
        ledgers: &mut Ledgers,
        ledger: Ledger,
    ) -> Result<(), String> {
        ledgers.insert(entry.name.clone(), ledger);
        let known = |name: &String| self.cron.schedules.iter().any(|entry| entry.name == *name);
        ledgers.retain(|name, _| known(name));
        let state = serde_json::value::to_raw_value(ledgers).map_err(|error| error.to_string())?;
        self.gateway
            .keep(state)
            .await
            .map_err(|reason| format!("failed to store the ledger: {reason}"))
    }
}

async fn read_ledgers(gateway: &Gateway) -> Result<Ledgers, String> {
    let state = gateway
        .state()
        .await
        .map_err(|reason| format!("failed to load the ledgers: {reason}"))?;
    let Some(state) = state else {
        return Ok(BTreeMap::new());
    };
    serde_json::from_str(state.get())
        .map_err(|error| format!("failed to parse the ledgers: {error}"))
}

fn next_words(next: Option<&(Timestamp, String)>) -> String {
    next.map_or_else(
        || "no schedule has another occurrence".to_owned(),
        |(at, name)| format!("next: {name} at {at}"),
    )
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

impl CronJob {
    /// The event of one occurrence. The same occurrence always produces the same event.
    fn event(
        &self,
        connection: &ConnectionName,
        occurrence: Timestamp,
        is_late: bool,
    ) -> Result<ConnectorEvent, InvalidId> {
        // Seconds, because an expression has no finer resolution and the id stays within its limit.
        let at = occurrence.to_string().replace(".000Z", "Z");
        let name = &self.name;
        Ok(ConnectorEvent {
            id: Some(EventId::new(format!("cron:{connection}:{name}:{at}"))?),
            name: EVENT_NAME.to_owned(),
            input: self.input.clone(),
            instance_key: self.instance_key.clone(),
            properties: JsonObject::from_iter([
                ("schedule".to_owned(), json!(name)),
                ("scheduledAt".to_owned(), json!(occurrence)),
                ("isLate".to_owned(), json!(is_late)),
            ]),
            auth: None,
            metadata: JsonObject::from_iter([("scheduledAt".to_owned(), json!(occurrence))]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occurrence_is_always_the_same_event_and_its_id_fits() {
        let connection = ConnectionName::new("c".repeat(128)).unwrap();
        let name = "n".repeat(goondan_connectors::schedule::NAME_BYTES_MAX);
        let config = json!({"schedules": [{"name": name, "cron": "* * * * *", "input": "x",
            "instanceKey": "k"}]});
        let cron = Cron::new(&connection, config.as_object().unwrap()).unwrap();
        let at: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let event = cron.schedules[0].event(&connection, at, true).unwrap();
        let again = cron.schedules[0].event(&connection, at, false).unwrap();
        assert_eq!(event.id, again.id);
        let id = event.id.unwrap();
        assert!(id.as_str().ends_with(":2026-01-01T10:00:00Z"), "{id}");
        assert_eq!(event.properties["isLate"], true);
        assert_eq!(event.instance_key.unwrap().as_str(), "k");
    }
}
