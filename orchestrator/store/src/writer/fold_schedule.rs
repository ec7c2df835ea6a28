//! Post-commit work: folding committed turns, and syncing the folds in idle time.

use std::time::{Duration, Instant};

use goondan_protocol::ids::InstanceRef;

use super::{OpenInstance, Worker};
use crate::error::StoreError;
use crate::instance::InstanceStore;
use crate::limits::{
    FOLD_RETRY_MAX_MS, FOLD_RETRY_MIN_MS, INSTANCE_REST_DELAY_MS, JOURNAL_CLEAR_DELAY_MS,
    METADATA_INTERVAL_MS,
};

/// A failed fold with its next retry.
#[derive(Clone, Copy)]
pub(super) struct FailedFold {
    pub(super) due: Instant,
    delay: Duration,
    /// True if the instance stays open after the fold.
    pub(super) is_kept: bool,
}

impl FailedFold {
    /// Schedules a retry after `delay`.
    fn after(delay: Duration, is_kept: bool) -> Self {
        let due = Instant::now() + delay;
        Self {
            due,
            delay,
            is_kept,
        }
    }

    /// Schedules the next retry after twice the previous delay.
    fn later(self) -> Self {
        let longest = Duration::from_millis(FOLD_RETRY_MAX_MS);
        Self::after(longest.min(self.delay * 2), self.is_kept)
    }
}

impl Worker {
    /// Folds the turns that the last batch committed; their bases are synced a little later. A turn
    /// that fails to fold stays committed, with its events. [`Self::retry_folds`] folds it, or the
    /// next use of its instance (`MSG-10`).
    pub fn settle(&mut self) {
        for instance in std::mem::take(&mut self.unsettled) {
            self.fold(&instance, InstanceStore::fold_turn);
            let Some(held) = self.open.get_mut(&instance) else {
                continue;
            };
            if !held.is_kept {
                self.fold(&instance, InstanceStore::finish_turn);
                self.fold(&instance, InstanceStore::write_out);
                self.open.remove(&instance);
                continue;
            }
            let delay = Duration::from_millis(JOURNAL_CLEAR_DELAY_MS);
            let is_due = held.store.is_clear_due();
            held.clear_due = is_due.then(|| Instant::now() + delay);
            let rest_delay = Duration::from_millis(INSTANCE_REST_DELAY_MS);
            held.rest_due = Some(Instant::now() + rest_delay);
            if held.store.metadata_is_dirty() && held.metadata_due.is_none() {
                let interval = Duration::from_millis(METADATA_INTERVAL_MS);
                held.metadata_due = Some(Instant::now() + interval);
            }
        }
        self.rest_surplus(self.open_instances_max);
    }

    /// Syncs the bases of quiet conversations and clears their journals.
    pub(super) fn clear_quiet(&mut self, all: bool) {
        let now = Instant::now();
        let is_due = |held: &OpenInstance| held.clear_due.is_some_and(|due| all || due <= now);
        let due = self.open.iter().filter(|(_, held)| is_due(held));
        let due: Vec<InstanceRef> = due.map(|(instance, _)| instance.clone()).collect();
        for instance in due {
            self.fold(&instance, InstanceStore::finish_turn);
        }
    }

    /// Writes the staged records of all conversations, such as the begin of a turn, and brings
    /// their manifests up to date.
    pub(super) fn write_staged(&mut self) {
        for (instance, held) in &mut self.open {
            if let Err(error) = held.store.write_out() {
                super::report_unwritable(instance, &error);
            }
        }
    }

    /// Folds the committed turn of an open instance, if it has one. Schedules a retry on failure.
    pub(super) fn fold(
        &mut self,
        instance: &InstanceRef,
        how: fn(&mut InstanceStore) -> Result<(), StoreError>,
    ) {
        let Some(held) = self.open.get_mut(instance) else {
            return;
        };
        held.clear_due = None;
        if let Err(error) = how(&mut held.store) {
            let first = Duration::from_millis(FOLD_RETRY_MIN_MS);
            let unfolded = FailedFold::after(first, held.is_kept);
            self.close_files(instance);
            self.postpone(instance.clone(), unfolded, &error);
        }
    }

    /// Retries failed folds that are due; with `all`, also those that are not due yet (`MSG-10`).
    pub fn retry_folds(&mut self, all: bool) {
        let now = Instant::now();
        let waiting = self.unfolded.iter();
        let due: Vec<(InstanceRef, FailedFold)> = waiting
            .filter(|(_, unfolded)| all || unfolded.due <= now)
            .map(|(instance, unfolded)| (instance.clone(), *unfolded))
            .collect();
        for (instance, unfolded) in due {
            // Opening an instance folds its committed turn.
            match self.held(&instance) {
                Ok(_) if unfolded.is_kept => {}
                Ok(_) => self.close_files(&instance),
                Err(StoreError::NoInstance { .. }) => drop(self.unfolded.remove(&instance)),
                Err(error) => self.postpone(instance, unfolded.later(), &error),
            }
        }
    }

    fn postpone(&mut self, instance: InstanceRef, unfolded: FailedFold, error: &StoreError) {
        tracing::error!(
            workspace_id = %instance.workspace_id,
            instance_key = %instance.instance_key,
            error = error as &dyn std::error::Error,
            retry_in_ms = u64::try_from(unfolded.delay.as_millis()).unwrap_or(u64::MAX),
            "failed to fold a committed turn into its conversation's base; its events are kept and the fold is retried"
        );
        self.unfolded.insert(instance, unfolded);
    }
}
