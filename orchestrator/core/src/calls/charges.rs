//! What calls took that are over without a recorded reply, and what tasks took: put down in the ledger, again and again until
//! that is durable. Until then it counts as reserved, so that it is in no budget twice and in none not at
//! all. An entry that could not be written may be in the file all the same; it is known by its id.

use std::collections::BTreeMap;

use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::trace::SpanId;
use goondan_protocol::usage::{Charge, Spent, Usage};
use goondan_store::StoreError;
use goondan_store::ledger::{Entry, Purpose};
use goondan_store::writer::operation::RecordUsage;
use uuid::Uuid;

use super::accounts::{Payer, payers_of_line};
use super::recording::cost_of;
use super::{CallId, Calls};
use crate::LogEvent;
use crate::fleet::Fleet;
use crate::jobs::continuation;
use crate::limits::CHARGE_RETRY_MS;

/// One that is not durable yet.
#[derive(Debug)]
struct Pending {
    at: InstanceRef,
    entry: Box<Entry>,
    payers: Vec<Payer>,
    charge: Charge,
    /// When it is handed to the store again, once that has failed.
    retry_at_ms: Option<u64>,
    is_told: bool,
}

/// Those that are not durable yet, by the id of their entries.
#[derive(Debug, Default)]
pub(super) struct Charges {
    pending: BTreeMap<Uuid, Pending>,
}

impl Charges {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// What is about to count in an account.
    pub(super) fn of<'a>(
        &'a self,
        id: &'a WorkspaceId,
        payer: &'a Payer,
    ) -> impl Iterator<Item = Charge> + 'a {
        self.pending
            .values()
            .filter(move |it| it.at.workspace_id == *id && it.payers.contains(payer))
            .map(|it| it.charge)
    }

    fn add(&mut self, at: InstanceRef, entry: Box<Entry>) {
        let line = Entry::clone(&entry).into_line();
        let pending = Pending {
            at,
            payers: payers_of_line(&line).collect(),
            charge: line.charge(),
            retry_at_ms: None,
            is_told: false,
            entry,
        };
        self.pending.insert(pending.entry.id, pending);
    }

    /// Has one tried again later. Whether that is worth a word: it has not failed before.
    fn postpone(&mut self, id: Uuid, retry_at_ms: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else {
            return false;
        };
        pending.retry_at_ms = Some(retry_at_ms);
        !std::mem::replace(&mut pending.is_told, true)
    }

    /// Those whose time has come.
    fn take_due(&mut self, now_ms: u64) -> Vec<(InstanceRef, Box<Entry>)> {
        let mut due = Vec::new();
        for pending in self.pending.values_mut() {
            if pending.retry_at_ms.is_some_and(|at| at <= now_ms) {
                pending.retry_at_ms = None;
                due.push((pending.at.clone(), pending.entry.clone()));
            }
        }
        due
    }
}

continuation! {
    /// What a call took that failed all the same.
    CountingFailure { entry: Box<Entry> } after RecordUsage => core.calls.on_failure_counted in fleet
}

fn store_charge(fleet: &mut Fleet, instance: InstanceRef, entry: Box<Entry>) {
    let record = RecordUsage {
        workspace_id: instance.workspace_id.clone(),
        entry: entry.clone(),
    };
    fleet.store(record, CountingFailure { instance, entry });
}

impl Calls {
    /// What a call took that failed is put down as if it had been a reply, if the provider tells it.
    pub(super) fn count_failure(&mut self, fleet: &mut Fleet, id: CallId, usage: Option<Usage>) {
        let Some((call, usage)) = self.open.get(&id).zip(usage) else {
            return;
        };
        let at = call.at.clone();
        let cost = cost_of(fleet, call, &usage);
        let usage = Some(usage);
        if let Some(entry) = self.bill_of(fleet, id, Spent { usage, cost }) {
            self.put_down(fleet, at, Box::new(entry));
        }
    }

    /// Puts down what a call took, whatever becomes of the call.
    pub(super) fn put_down(&mut self, fleet: &mut Fleet, at: InstanceRef, entry: Box<Entry>) {
        self.charges.add(at.clone(), entry.clone());
        store_charge(fleet, at, entry);
    }

    /// What a call took is durable, or could not be made so.
    fn on_failure_counted(
        &mut self,
        fleet: &mut Fleet,
        counting: CountingFailure,
        result: Result<(), StoreError>,
    ) {
        let (at, entry) = (&counting.instance, *counting.entry);
        match result {
            Ok(()) => {
                self.charges.pending.remove(&entry.id);
                let step = match &entry.purpose {
                    Purpose::Step { step_id, .. } => Some(SpanId::of_step(step_id)),
                    Purpose::Task { .. } => None,
                };
                self.charge(fleet, at, &entry.into_line(), step);
            }
            // A workspace that is opened again counts what its ledger holds.
            Err(_) if !self.accounts.contains_key(&at.workspace_id) => {
                self.charges.pending.remove(&entry.id);
            }
            Err(error) => {
                let retry_at_ms = fleet.now().mono_ms.saturating_add(CHARGE_RETRY_MS);
                if self.charges.postpone(entry.id, retry_at_ms) {
                    let event = LogEvent::warn(
                        "what a call took could not be put down; it counts as reserved, and it is tried again",
                    );
                    let event = event.of(at);
                    fleet.log(event.with("error", goondan_log::error_chain(&error)));
                }
            }
        }
    }

    /// Tries to put down again what could not be.
    pub(crate) fn retry_charges(&mut self, fleet: &mut Fleet) {
        for (at, entry) in self.charges.take_due(fleet.now().mono_ms) {
            store_charge(fleet, at, entry);
        }
    }
}
