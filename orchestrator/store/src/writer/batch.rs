//! Interface between threads and workers, and the assignment of jobs to workers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

use goondan_durable::batch::{BatchWorker, Completions};

use super::{OpenInstance, StoreCompletion, StoreJob, Worker};

impl BatchWorker for Worker {
    type Job = StoreJob;
    type Completion = StoreCompletion;

    fn route(job: &StoreJob) -> u64 {
        let mut hasher = DefaultHasher::new();
        job.op.subject().hash(&mut hasher);
        hasher.finish()
    }

    fn work(&mut self, batch: &mut Vec<StoreJob>) -> Vec<Completions<StoreCompletion>> {
        self.begin(batch)
    }

    fn settle(&mut self) {
        self.settle();
    }

    fn next_due(&self) -> Option<Instant> {
        let held = self.open.values().flat_map(OpenInstance::dues);
        let folds = self.unfolded.values().map(|unfolded| unfolded.due);
        held.chain(folds).min()
    }

    fn tidy(&mut self) {
        self.tidy(false);
    }

    fn finish(&mut self) {
        self.clear_quiet(true);
        self.write_staged();
        self.flush_metadata(true);
    }
}
