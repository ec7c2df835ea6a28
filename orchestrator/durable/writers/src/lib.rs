//! Writer threads: many jobs, few syncs (group commit).
//!
//! A fixed number of threads, each with its own worker ([`BatchWorker`]). Jobs of one route always
//! go to the same thread, so they run in submission order. A thread takes all queued jobs, runs
//! them as one batch, delivers the completions, and then runs work that no caller waits for. This
//! crate depends on neither jobs nor files. It is the only one with a runtime, so that crates that
//! only name jobs need none.
//!
//! # Invariants
//!
//! * Every accepted job is reported exactly once; the reports of a thread are in order.
//! * Overload: the queue of a thread is bounded ([`limits::WRITER_QUEUE_OPS`]), and a full queue
//!   blocks the submitter. Reports are unbounded, because there is one for each accepted job.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use goondan_durable::batch::BatchWorker;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use limits::{WRITER_BATCH_OPS, WRITER_QUEUE_OPS};
use reports::Reporter;

pub mod limits;
mod reports;

/// Handle of the writer threads. Dropping it ends them after their queues are empty.
#[derive(Debug)]
pub struct Writers<W: BatchWorker> {
    queues: Vec<Queue<W::Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// Queue of one thread, in the submitted groups: each group wakes the thread once.
#[derive(Debug)]
struct Queue<J> {
    groups: mpsc::UnboundedSender<Vec<J>>,
    places: Arc<Semaphore>,
}

impl<J> Queue<J> {
    /// Adds a group of at most [`WRITER_BATCH_OPS`] jobs.
    async fn submit(&self, group: Vec<J>) -> Result<(), Vec<J>> {
        let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
        match self.places.acquire_many(count).await {
            // The thread returns the slots when it takes the jobs.
            Ok(places) => places.forget(),
            Err(_) => return Err(group),
        }
        self.groups.send(group).map_err(|error| error.0)
    }
}

/// A thread's handle of its queue's slots. When the thread ends for any reason, no submitter waits
/// for a slot.
struct QueueSlots(Arc<Semaphore>);

impl Drop for QueueSlots {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<W: BatchWorker> Writers<W> {
    /// Starts a thread for each worker; at least one worker is required. The returned receiver
    /// yields the completions, those of a batch together.
    ///
    /// # Errors
    ///
    /// The operating system cannot start a thread.
    pub fn start(
        workers: Vec<W>,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Vec<W::Completion>>)> {
        let (completions, completed) = mpsc::unbounded_channel();
        let mut writers = Self {
            queues: Vec::new(),
            threads: Vec::new(),
        };
        for (number, worker) in workers.into_iter().enumerate() {
            let (groups, jobs) = mpsc::unbounded_channel();
            let places = Arc::new(Semaphore::new(WRITER_QUEUE_OPS));
            let (completions, freed) = (completions.clone(), QueueSlots(places.clone()));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            let thread = std::thread::Builder::new()
                .name(format!("writer-{number}"))
                .spawn(move || runtime.block_on(run(worker, jobs, freed, completions)))?;
            writers.queues.push(Queue { groups, places });
            writers.threads.push(thread);
        }
        Ok((writers, completed))
    }

    fn queue_of(&self, job: &W::Job) -> usize {
        let count = u64::try_from(self.queues.len().max(1)).unwrap_or(1);
        usize::try_from(W::route(job) % count).unwrap_or(0)
    }

    /// Submits jobs to their threads, each thread's as one group. Waits while a thread's queue is
    /// full.
    ///
    /// # Errors
    ///
    /// Returns jobs that were not accepted because their thread has ended, which only a panic can
    /// cause.
    pub async fn submit(&self, jobs: Vec<W::Job>) -> Result<(), Vec<W::Job>> {
        let mut groups: Vec<Vec<W::Job>> = self.queues.iter().map(|_| Vec::new()).collect();
        for job in jobs {
            let number = self.queue_of(&job);
            let (Some(queue), Some(group)) = (self.queues.get(number), groups.get_mut(number))
            else {
                return Err(vec![job]);
            };
            group.push(job);
            if group.len() >= WRITER_BATCH_OPS {
                queue.submit(std::mem::take(group)).await?;
            }
        }
        for (queue, group) in self.queues.iter().zip(groups) {
            if !group.is_empty() {
                queue.submit(group).await?;
            }
        }
        Ok(())
    }

    /// Lets the threads finish their queues and ends them. Blocks.
    pub fn finish(self) {
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a writer thread panicked");
            }
        }
    }
}

/// Runs a worker on its queue until the queue is closed, and deferred work in between.
async fn run<W: BatchWorker>(
    mut worker: W,
    mut groups: mpsc::UnboundedReceiver<Vec<W::Job>>,
    places: QueueSlots,
    completions: mpsc::UnboundedSender<Vec<W::Completion>>,
) {
    let mut reporter = Reporter::new(completions);
    loop {
        let due = worker.next_due().map(Instant::from_std);
        let later = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            group = groups.recv() => {
                let Some(mut batch) = group else {
                    break;
                };
                while batch.len() < WRITER_BATCH_OPS && let Ok(group) = groups.try_recv() {
                    batch.extend(group);
                }
                places.0.add_permits(batch.len());
                for done in worker.work(&mut batch) {
                    reporter.report(done);
                }
                worker.settle();
            }
            () = later => worker.tidy(),
        }
    }
    worker.finish();
    reporter.finish();
}

#[cfg(test)]
mod tests;
