//! How what came of a thread's jobs is told: at once, or by a thread that waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use goondan_durable::batch::Done;
use tokio::sync::mpsc::UnboundedSender;

use crate::limits::WAITING_PARTS_MAX;

/// Tells what came of the jobs of one writer thread, in their order.
pub(crate) struct Reporter<C> {
    completions: UnboundedSender<Vec<C>>,
    waiter: Option<Waiter<C>>,
}

/// A thread that waits for what is told later. There is none before there is something to wait for.
struct Waiter<C> {
    parts: SyncSender<Done<C>>,
    /// How many parts are not told yet.
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

    /// Tells it as soon as it is known and all before it is told. Waits while as much as may be waits.
    pub(crate) fn report(&mut self, done: Done<C>) {
        let is_told_later = match (&done, &self.waiter) {
            (Done::Later(_), _) => true,
            (Done::Now(_), Some(waiter)) => waiter.waiting.load(Ordering::Acquire) > 0,
            (Done::Now(_), None) => false,
        };
        if !is_told_later {
            return tell(&self.completions, done);
        }
        if self.waiter.is_none() {
            self.waiter = Waiter::start(&self.completions);
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

    /// Waits until all is told.
    pub(crate) fn finish(self) {
        let Some(Waiter { parts, thread, .. }) = self.waiter else {
            return;
        };
        drop(parts);
        if thread.join().is_err() {
            tracing::error!("a thread that waits for what came of jobs had panicked");
        }
    }
}

impl<C: Send + 'static> Waiter<C> {
    /// None if there can be no thread: the writer thread waits itself then.
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
                    "a thread cannot be started; writing waits for what it would wait for"
                );
                None
            }
        }
    }
}

fn tell_all<C>(
    parts: &Receiver<Done<C>>,
    completions: &UnboundedSender<Vec<C>>,
    untold: &AtomicUsize,
) {
    while let Ok(done) = parts.recv() {
        tell(completions, done);
        untold.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for it and tells it.
fn tell<C>(completions: &UnboundedSender<Vec<C>>, done: Done<C>) {
    // Nobody listens any more only when the daemon is ending.
    drop(completions.send(done.wait()));
}
