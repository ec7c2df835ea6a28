//! Usage of tasks and of calls that ended without a recorded reply. Writing it to the ledger is
//! retried until it is durable. Until then it counts as reserved, so each budget includes it
//! exactly once. A failed write may still have reached the file; the entry's id prevents a
//! duplicate.

use std::collections::BTreeMap;

use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::trace::SpanId;
use goondan_protocol::usage::{Charge, ReplyCost, Usage};
use goondan_store::StoreError;
use goondan_store::ledger::{LedgerEntry, ReplyPurpose};
use goondan_store::writer::operation::RecordUsage;
use uuid::Uuid;

use super::accounts::{BudgetOwner, payers_of_line};
use super::model_replies::cost_of;
use super::{CallId, Calls};
use crate::LogEvent;
use crate::fleet::Fleet;
use crate::jobs::continuation;
use crate::limits::CHARGE_RETRY_MS;

/// A ledger entry that is not durable yet.
#[derive(Debug)]
struct PendingCharge {
    at: InstanceRef,
    entry: Box<LedgerEntry>,
    payers: Vec<BudgetOwner>,
    charge: Charge,
    /// Time of the next attempt, after a failed one.
    retry_at_ms: Option<u64>,
    is_told: bool,
}

/// Entries that are not durable yet, by id.
#[derive(Debug, Default)]
pub(super) struct Charges {
    pending: BTreeMap<Uuid, PendingCharge>,
}

impl Charges {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Usage of an account that is not durable yet.
    pub(super) fn of<'a>(
        &'a self,
        id: &'a WorkspaceId,
        payer: &'a BudgetOwner,
    ) -> impl Iterator<Item = Charge> + 'a {
        self.pending
            .values()
            .filter(move |it| it.at.workspace_id == *id && it.payers.contains(payer))
            .map(|it| it.charge)
    }

    fn add(&mut self, at: InstanceRef, entry: Box<LedgerEntry>) {
        let line = LedgerEntry::clone(&entry).into_line();
        let pending = PendingCharge {
            at,
            payers: payers_of_line(&line).collect(),
            charge: line.charge(),
            retry_at_ms: None,
            is_told: false,
            entry,
        };
        self.pending.insert(pending.entry.id, pending);
    }

    /// Schedules a retry. True if this is the first failure, which is logged.
    fn postpone(&mut self, id: Uuid, retry_at_ms: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else {
            return false;
        };
        pending.retry_at_ms = Some(retry_at_ms);
        !std::mem::replace(&mut pending.is_told, true)
    }

    /// Takes the entries whose retry is due.
    fn take_due(&mut self, now_ms: u64) -> Vec<(InstanceRef, Box<LedgerEntry>)> {
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
    /// Records the usage of a failed call.
    CountingFailure { entry: Box<LedgerEntry> } after RecordUsage => core.calls.on_failure_counted in fleet
}

fn store_charge(fleet: &mut Fleet, instance: InstanceRef, entry: Box<LedgerEntry>) {
    let record = RecordUsage {
        workspace_id: instance.workspace_id.clone(),
        entry: entry.clone(),
    };
    fleet
        .cx()
        .store(record, CountingFailure { instance, entry });
}

impl Calls {
    /// Records the usage of a failed call like that of a reply, if the provider reports it.
    pub(super) fn count_failure(&mut self, fleet: &mut Fleet, id: CallId, usage: Option<Usage>) {
        let Some((call, usage)) = self.open.get(&id).zip(usage) else {
            return;
        };
        let at = call.at.clone();
        let cost = cost_of(fleet, call, &usage);
        let usage = Some(usage);
        if let Some(entry) = self.bill_of(fleet, id, ReplyCost { usage, cost }) {
            self.put_down(fleet, at, Box::new(entry));
        }
    }

    /// Records the usage of a call, independent of the call's outcome.
    pub(super) fn put_down(&mut self, fleet: &mut Fleet, at: InstanceRef, entry: Box<LedgerEntry>) {
        self.charges.add(at.clone(), entry.clone());
        store_charge(fleet, at, entry);
    }

    /// Handles the result of recording a failed call's usage.
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
                    ReplyPurpose::Step { step_id, .. } => Some(SpanId::of_step(step_id)),
                    ReplyPurpose::Task { .. } => None,
                };
                self.charge(fleet, at, &entry.into_line(), step);
            }
            // The ledger is read again when the workspace is reopened.
            Err(_) if !self.accounts.contains_key(&at.workspace_id) => {
                self.charges.pending.remove(&entry.id);
            }
            Err(error) => {
                let retry_at_ms = fleet.now().mono_ms.saturating_add(CHARGE_RETRY_MS);
                if self.charges.postpone(entry.id, retry_at_ms) {
                    let event = LogEvent::warn(
                        "failed to record the usage of a call; its reservation stays and the write is retried",
                    );
                    let event = event.of(at);
                    fleet.log(event.with("error", goondan_log::error_chain(&error)));
                }
            }
        }
    }

    /// Retries failed ledger writes.
    pub(crate) fn retry_charges(&mut self, fleet: &mut Fleet) {
        for (at, entry) in self.charges.take_due(fleet.now().mono_ms) {
            store_charge(fleet, at, entry);
        }
    }
}
