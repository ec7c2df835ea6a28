//! The threads themselves, and the way to them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::{Completion, Job, Op, Worker};
use crate::disk::Disk;
use crate::index::InstanceIndex;
use crate::limits::{
    INSTANCE_DESCRIPTORS, WRITER_BATCH_OPS, WRITER_OPEN_INSTANCES_MAX, WRITER_QUEUE_OPS,
};
use crate::root::Layout;

/// The way to the writer threads. Dropping it ends them once their queues are empty.
#[derive(Debug)]
pub struct Writers {
    queues: Vec<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The jobs that wait for one thread, in the groups they were handed over in: each wakes it once.
#[derive(Debug)]
struct Queue {
    groups: mpsc::UnboundedSender<Vec<Job>>,
    /// How many jobs may still be added.
    places: Arc<Semaphore>,
}

impl Queue {
    /// Adds a group of no more than [`WRITER_BATCH_OPS`] jobs.
    async fn submit(&self, group: Vec<Job>) -> Result<(), Vec<Job>> {
        let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
        match self.places.acquire_many(count).await {
            // The thread gives them back when it takes the jobs.
            Ok(places) => places.forget(),
            Err(_) => return Err(group),
        }
        self.groups.send(group).map_err(|error| error.0)
    }
}

/// A thread's end of its queue's places. When the thread ends, in whatever way, nobody waits for one.
struct Places(Arc<Semaphore>);

impl Drop for Places {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Writers {
    /// Starts `threads` writer threads over `disk`, which keep `index` true. Reports come out of the
    /// returned receiver, those of a batch together.
    ///
    /// # Errors
    ///
    /// As the operating system says when it cannot start a thread.
    pub fn start(
        disk: &Arc<dyn Disk>,
        layout: &Layout,
        index: &InstanceIndex,
        threads: usize,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Vec<Completion>>)> {
        Self::start_within(disk, layout, index, threads, u64::MAX)
    }

    /// The same, for a process in which the store may have so many file descriptors for open instances,
    /// beside those with an open turn.
    ///
    /// # Errors
    ///
    /// As the operating system says when it cannot start a thread.
    pub fn start_within(
        disk: &Arc<dyn Disk>,
        layout: &Layout,
        index: &InstanceIndex,
        threads: usize,
        descriptors_max: u64,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Vec<Completion>>)> {
        let (completions, completed) = mpsc::unbounded_channel();
        let mut writers = Self {
            queues: Vec::new(),
            threads: Vec::new(),
        };
        let each =
            descriptors_max / INSTANCE_DESCRIPTORS / u64::try_from(threads.max(1)).unwrap_or(1);
        let each = usize::try_from(each).unwrap_or(usize::MAX);
        for number in 0..threads.max(1) {
            let (groups, jobs) = mpsc::unbounded_channel();
            let places = Arc::new(Semaphore::new(WRITER_QUEUE_OPS));
            let (disk, layout) = (disk.clone(), layout.clone());
            let mut worker = Worker::new(disk, layout);
            worker.index = index.clone();
            worker.open_instances_max = each.clamp(1, WRITER_OPEN_INSTANCES_MAX);
            let (completions, freed) = (completions.clone(), Places(places.clone()));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            let thread = std::thread::Builder::new()
                .name(format!("writer-{number}"))
                .spawn(move || runtime.block_on(worker.run(jobs, freed, completions)))?;
            writers.queues.push(Queue { groups, places });
            writers.threads.push(thread);
        }
        Ok((writers, completed))
    }

    fn queue_of(&self, op: &Op) -> usize {
        let mut hasher = DefaultHasher::new();
        op.subject().hash(&mut hasher);
        let count = u64::try_from(self.queues.len()).unwrap_or(1);
        usize::try_from(hasher.finish() % count).unwrap_or(0)
    }

    /// Hands jobs to their threads, each thread's together; waits while a thread's queue is full.
    ///
    /// # Errors
    ///
    /// Returns jobs that were not taken, if their thread has ended, which only a panic in it can cause.
    pub async fn submit(&self, jobs: Vec<Job>) -> Result<(), Vec<Job>> {
        let mut groups: Vec<Vec<Job>> = self.queues.iter().map(|_| Vec::new()).collect();
        for job in jobs {
            let number = self.queue_of(&job.op);
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

    /// Lets the threads finish what waits and ends them. Blocks.
    pub fn finish(self) {
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a writer thread had panicked");
            }
        }
    }
}

impl Worker {
    /// Does what its queue brings until that is closed, and between times what was put off.
    async fn run(
        mut self,
        mut groups: mpsc::UnboundedReceiver<Vec<Job>>,
        places: Places,
        completions: mpsc::UnboundedSender<Vec<Completion>>,
    ) {
        loop {
            let due = self.next_due();
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
                    // Nobody listens any more only when the daemon is ending.
                    drop(completions.send(self.work(&mut batch)));
                    self.settle();
                }
                () = later => self.tidy(false),
            }
        }
        self.clear_quiet(true);
        self.flush_metadata(true);
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let held = self.open.values();
        let held = held.flat_map(|held| [held.metadata_due, held.clear_due, held.rest_due]);
        let folds = self.unfolded.values().map(|unfolded| unfolded.due);
        held.flatten().chain(folds).min()
    }
}
