//! Closes the files of idle conversations, including those with a running process.

use std::time::Instant;

use goondan_protocol::ids::InstanceRef;

use super::Worker;

impl Worker {
    /// Closes the least recently used instances until at most `max` are open. Instances with an
    /// open turn stay open. The next operation on a closed instance reopens it.
    pub(super) fn rest_surplus(&mut self, max: usize) {
        let surplus = self.open.len().saturating_sub(max);
        if surplus == 0 {
            return;
        }
        let idle = self.open.iter().filter(|(_, held)| held.store.is_at_rest());
        let mut idle: Vec<_> = idle
            .map(|(instance, held)| (held.last_use, instance.clone()))
            .collect();
        idle.sort_unstable();
        for (_, instance) in idle.into_iter().take(surplus) {
            self.rest(&instance);
        }
    }

    /// Closes the instances that were idle for [`INSTANCE_REST_DELAY_MS`]; with `all`, every idle
    /// instance. An instance with an open turn stays open until it is used and idle again.
    ///
    /// [`INSTANCE_REST_DELAY_MS`]: crate::limits::INSTANCE_REST_DELAY_MS
    pub(super) fn rest_quiet(&mut self, all: bool) {
        let now = Instant::now();
        let mut quiet = Vec::new();
        for (instance, held) in &mut self.open {
            if all || held.rest_due.is_some_and(|due| due <= now) {
                held.rest_due = None;
                if held.store.is_at_rest() {
                    quiet.push(instance.clone());
                }
            }
        }
        for instance in quiet {
            self.rest(&instance);
        }
    }

    fn rest(&mut self, instance: &InstanceRef) {
        let Some(mut held) = self.open.remove(instance) else {
            return;
        };
        held.store.note_files();
        // All promised data is durable. Metadata is informational, and the next change retries.
        if let Err(error) = held.store.flush_metadata() {
            super::report_stale_metadata(instance, &error);
        }
        if held.is_kept {
            self.resting.insert(instance.clone());
        }
    }
}
