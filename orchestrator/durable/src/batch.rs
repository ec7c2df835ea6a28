//! Batch processing of a writer thread, without the thread (group commit).
//!
//! A thread takes all queued jobs and executes them as one batch, so that each file is synced once
//! for many jobs, and only then reports every job. Work that no caller waits for follows later.
//! `goondan_writers` provides the threads; tests and simulations call the same worker directly. For
//! replicated files the reports wait for replication, but the next batch does not
//! ([`Completions::Later`]).

use std::fmt;
use std::time::Instant;

/// Executes the jobs of one writer thread, in batches.
///
/// # Contract
///
/// * Each job of a batch has exactly one completion, after its writes are durable or after it
///   failed. It is returned directly or by a returned closure. If the returned values are used in
///   order, the completions of a route are in the order of its jobs.
/// * One worker executes all jobs of a [route](Self::route), in the order of their submission.
pub trait BatchWorker: Send + 'static {
    type Job: Send + 'static;
    /// Result of a job.
    type Completion: Send + 'static;

    /// Returns the route of a job. All jobs of a route go to one worker. Routes are as evenly
    /// distributed as a hash.
    fn route(job: &Self::Job) -> u64;

    /// Executes a batch and leaves it empty. Returns the completions in parts.
    fn work(&mut self, batch: &mut Vec<Self::Job>) -> Vec<Completions<Self::Completion>>;

    /// Runs the work after a batch that no caller waits for.
    fn settle(&mut self);

    /// Returns the due time of the next deferred work, if any.
    fn next_due(&self) -> Option<Instant>;

    /// Runs deferred work that is due.
    fn tidy(&mut self);

    /// Runs work that must happen before exit. No job follows.
    fn finish(&mut self);
}

/// Completions of a part of a batch.
pub enum Completions<C> {
    Now(Vec<C>),
    /// Closure that waits and then returns the completions.
    Later(Box<dyn FnOnce() -> Vec<C> + Send>),
}

impl<C> Completions<C> {
    #[must_use]
    pub fn wait(self) -> Vec<C> {
        match self {
            Self::Now(completions) => completions,
            Self::Later(wait) => wait(),
        }
    }
}

impl<C> fmt::Debug for Completions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
        })
    }
}
