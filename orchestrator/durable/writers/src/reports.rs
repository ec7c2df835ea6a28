//! Reports job results, immediately or after replication confirms them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use goondan_durable::batch::Completions;
use tokio::sync::mpsc::UnboundedSender;

use crate::limits::WAITING_PARTS_MAX;

/// Reports the completions of one writer thread, in order.
pub(crate) struct Reporter<C> {
    completions: UnboundedSender<Vec<C>>,
    waiter: Option<CompletionThread<C>>,
}

/// A thread that waits for delayed completions. It is started on first use.
struct CompletionThread<C> {
    parts: SyncSender<Completions<C>>,
    /// Number of parts that are not reported yet.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl<C: Send + 'static> Reporter<C> {
    pub(crate) fn new(completions: UnboundedSender<Vec<C>>) -> Self {
        Self {
            completions,
            waiter: None,
        }
    }

    /// Reports completions as soon as they are known and all earlier ones are reported. Blocks at
    /// the limit of waiting parts.
    pub(crate) fn report(&mut self, done: Completions<C>) {
        let is_told_later = match (&done, &self.waiter) {
            (Completions::Later(_), _) => true,
            (Completions::Now(_), Some(waiter)) => waiter.waiting.load(Ordering::Acquire) > 0,
            (Completions::Now(_), None) => false,
        };
        if !is_told_later {
            return tell(&self.completions, done);
        }
        if self.waiter.is_none() {
            self.waiter = CompletionThread::start(&self.completions);
        }
        let Some(waiter) = &self.waiter else {
            return tell(&self.completions, done);
        };
        waiter.waiting.fetch_add(1, Ordering::AcqRel);
        // Only a panic ends that thread.
        if let Err(untold) = waiter.parts.send(done) {
            tell(&self.completions, untold.0);
        }
    }

    /// Waits until everything is reported.
    pub(crate) fn finish(self) {
        let Some(CompletionThread { parts, thread, .. }) = self.waiter else {
            return;
        };
        drop(parts);
        if thread.join().is_err() {
            tracing::error!("the thread that waits for job completions panicked");
        }
    }
}

impl<C: Send + 'static> CompletionThread<C> {
    /// Starts the thread. `None` if that fails: the writer thread waits itself then.
    fn start(completions: &UnboundedSender<Vec<C>>) -> Option<Self> {
        let (parts, incoming) = sync_channel(WAITING_PARTS_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (completions, untold) = (completions.clone(), waiting.clone());
        let builder = Builder::new().name("writer-reports".to_owned());
        let thread = builder.spawn(move || tell_all(&incoming, &completions, &untold));
        match thread {
            Ok(thread) => Some(Self {
                parts,
                waiting,
                thread,
            }),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to start a thread; the writer waits for replication itself"
                );
                None
            }
        }
    }
}

fn tell_all<C>(
    parts: &Receiver<Completions<C>>,
    completions: &UnboundedSender<Vec<C>>,
    untold: &AtomicUsize,
) {
    while let Ok(done) = parts.recv() {
        tell(completions, done);
        untold.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for completions and sends them.
fn tell<C>(completions: &UnboundedSender<Vec<C>>, done: Completions<C>) {
    // The receiver is closed only while the daemon ends.
    drop(completions.send(done.wait()));
}
