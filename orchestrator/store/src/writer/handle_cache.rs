//! Closing the files of conversations that nobody has needed for a while, though a process works with them.

use std::time::Instant;

use goondan_protocol::ids::InstanceRef;

use super::Worker;

impl Worker {
    /// Closes the instances that were used longest ago, until no more than `max` are open; one with an
    /// open turn stays. Whatever is done to a closed one opens it again.
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

    /// Closes the instances that nobody has needed for [`INSTANCE_REST_DELAY_MS`]; `all` closes all that
    /// are at rest. One with an open turn stays until it is used again and quiet after that.
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
        // What was promised is durable; this is for people to read, and the next change tries again.
        if let Err(error) = held.store.flush_metadata() {
            super::report_stale_metadata(instance, &error);
        }
        if held.is_kept {
            self.resting.insert(instance.clone());
        }
    }
}
