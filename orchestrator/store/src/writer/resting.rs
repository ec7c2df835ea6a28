//! Closing the files of conversations that nobody has needed for long, though a process works with them.

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
            let Some(mut held) = self.open.remove(&instance) else {
                continue;
            };
            // What was promised is durable; this is for people to read, and the next change tries again.
            if let Err(error) = held.store.flush_metadata() {
                super::report_stale_metadata(&instance, &error);
            }
            if held.is_kept {
                self.resting.insert(instance);
            }
        }
    }
}
