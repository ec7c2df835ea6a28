//! What a writer thread does with its jobs, without the thread (group commit).
//!
//! A thread takes all that waits, has it done at once, so that each file is synced once for many jobs, and
//! only then reports every job. What nobody waits for is done after that, or put off. The threads are
//! `goondan_writers`; a test or a simulation calls the same worker itself. Where files are kept elsewhere, too, the
//! reports wait for that, and the next batch does not ([`Done::Later`]).

use std::fmt;
use std::time::Instant;

/// Does the jobs of one writer thread, in batches.
///
/// # Contract
///
/// * Each job of a batch has exactly one completion, after what it wrote is durable or after it failed. It is told, or
///   what tells it is returned; whoever is told in their order has those of a route in the order of its jobs.
/// * Jobs of one [route](Self::route) are done in the order they were submitted, all by one worker.
pub trait BatchWorker: Send + 'static {
    /// What is to be done.
    type Job: Send + 'static;
    /// What came of it.
    type Completion: Send + 'static;

    /// Which jobs belong together: those of one route come to one worker. A number as even as a hash.
    fn route(job: &Self::Job) -> u64;

    /// Does a batch and leaves it empty. Says what came of each job, in parts.
    fn work(&mut self, batch: &mut Vec<Self::Job>) -> Vec<Done<Self::Completion>>;

    /// Does what follows a batch and nobody waits for.
    fn settle(&mut self);

    /// When something that was put off is due; none if nothing was.
    fn next_due(&self) -> Option<Instant>;

    /// Does what was put off and is due.
    fn tidy(&mut self);

    /// Does what must not be left undone. No job comes after it.
    fn finish(&mut self);
}

/// What came of a part of a batch.
pub enum Done<C> {
    /// This.
    Now(Vec<C>),
    /// What this returns, after it has waited for as long as that takes.
    Later(Box<dyn FnOnce() -> Vec<C> + Send>),
}

impl<C> Done<C> {
    /// Waits for it.
    #[must_use]
    pub fn wait(self) -> Vec<C> {
        match self {
            Self::Now(completions) => completions,
            Self::Later(wait) => wait(),
        }
    }
}

impl<C> fmt::Debug for Done<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
        })
    }
}
