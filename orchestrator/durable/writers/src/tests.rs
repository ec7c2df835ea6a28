//! Behavior of the threads with any worker.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use goondan_durable::batch::Completions;

use super::*;
use crate::limits::WAITING_PARTS_MAX;

/// Reports its calls. A job is its route and its number.
struct Recorder {
    told: Sender<&'static str>,
    due: Option<std::time::Instant>,
}

impl BatchWorker for Recorder {
    type Job = (u64, u64);
    type Completion = (u64, u64);

    fn route(job: &Self::Job) -> u64 {
        job.0
    }

    fn work(&mut self, batch: &mut Vec<Self::Job>) -> Vec<Completions<Self::Completion>> {
        assert!(
            batch.iter().all(|job| job.1 != u64::MAX),
            "a worker that panics"
        );
        vec![Completions::Now(std::mem::take(batch))]
    }

    fn settle(&mut self) {
        self.due = Some(std::time::Instant::now() + Duration::from_millis(1));
        self.told.send("settled").unwrap();
    }

    fn next_due(&self) -> Option<std::time::Instant> {
        self.due
    }

    fn tidy(&mut self) {
        self.due = None;
        self.told.send("tidied").unwrap();
    }

    fn finish(&mut self) {
        self.told.send("finished").unwrap();
    }
}

fn recorders(count: usize) -> (Vec<Recorder>, Receiver<&'static str>) {
    let (told, heard) = channel();
    let workers = (0..count).map(|_| Recorder {
        told: told.clone(),
        due: None,
    });
    (workers.collect(), heard)
}

#[tokio::test]
async fn jobs_of_a_route_are_reported_once_and_in_their_order() {
    let (workers, heard) = recorders(3);
    let (writers, mut completed) = Writers::start(workers).unwrap();
    let count = u64::try_from(WRITER_QUEUE_OPS).unwrap() * 2;
    let jobs = (0..count).map(|n| (n % 5, n)).collect();
    writers.submit(jobs).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < WRITER_QUEUE_OPS * 2 {
        seen.extend(completed.recv().await.unwrap());
    }
    for route in 0..5 {
        let of_route: Vec<u64> = seen
            .iter()
            .filter(|job| job.0 == route)
            .map(|job| job.1)
            .collect();
        let expected: Vec<u64> = (0..count).filter(|n| n % 5 == route).collect();
        assert_eq!(of_route, expected);
    }
    tokio::task::spawn_blocking(|| writers.finish())
        .await
        .unwrap();
    assert!(completed.recv().await.is_none());
    let finished = heard.iter().filter(|told| *told == "finished").count();
    assert_eq!(finished, 3);
}

#[tokio::test]
async fn deferred_work_is_done_when_due() {
    let (workers, heard) = recorders(1);
    let (writers, _completed) = Writers::start(workers).unwrap();
    writers.submit(vec![(0, 0)]).await.unwrap();
    let told: Vec<_> = heard.iter().take(2).collect();
    assert_eq!(told, ["settled", "tidied"]);
    drop(writers);
    assert_eq!(heard.iter().last(), Some("finished"));
}

#[tokio::test]
async fn panicked_writer_thread_blocks_no_caller() {
    let (workers, _heard) = recorders(1);
    let (writers, mut completed) = Writers::start(workers).unwrap();
    writers.submit(vec![(0, u64::MAX)]).await.unwrap();
    assert!(completed.recv().await.is_none());
    let full = vec![(0, 1); WRITER_QUEUE_OPS * 2];
    assert!(writers.submit(full).await.is_err());
    writers.finish();
}

/// A worker with delayed completions for jobs of the first route, released by the test.
struct DelayedWorker {
    worked: Sender<u64>,
    go_on: Arc<Mutex<Receiver<()>>>,
}

impl BatchWorker for DelayedWorker {
    type Job = (u64, u64);
    type Completion = (u64, u64);

    fn route(_: &Self::Job) -> u64 {
        0
    }

    fn work(&mut self, batch: &mut Vec<Self::Job>) -> Vec<Completions<Self::Completion>> {
        let jobs = std::mem::take(batch).into_iter();
        let done = jobs.map(|job| {
            self.worked.send(job.1).unwrap();
            if job.0 > 0 {
                return Completions::Now(vec![job]);
            }
            let go_on = self.go_on.clone();
            Completions::Later(Box::new(move || {
                go_on.lock().unwrap().recv().unwrap();
                vec![job]
            }))
        });
        done.collect()
    }

    fn settle(&mut self) {}

    fn next_due(&self) -> Option<std::time::Instant> {
        None
    }

    fn tidy(&mut self) {}

    fn finish(&mut self) {}
}

/// Returns such a worker, the jobs it has run, and a sender that releases the next completion.
fn late() -> (DelayedWorker, Receiver<u64>, Sender<()>) {
    let (worked, heard) = channel();
    let (goes_on, go_on) = channel();
    let go_on = Arc::new(Mutex::new(go_on));
    (DelayedWorker { worked, go_on }, heard, goes_on)
}

#[tokio::test]
async fn late_completions_keep_their_order_and_delay_no_batch() {
    let (late, heard, goes_on) = late();
    let (writers, mut completed) = Writers::start(vec![late]).unwrap();
    for job in [(1, 0), (0, 1), (1, 2), (0, 3), (1, 4)] {
        writers.submit(vec![job]).await.unwrap();
        assert_eq!(heard.recv().unwrap(), job.1, "it runs immediately");
    }
    assert_eq!(completed.recv().await.unwrap(), [(1, 0)]);
    assert!(
        completed.try_recv().is_err(),
        "nothing is reported before the second"
    );
    goes_on.send(()).unwrap();
    assert_eq!(completed.recv().await.unwrap(), [(0, 1)]);
    assert_eq!(completed.recv().await.unwrap(), [(1, 2)]);
    assert!(completed.try_recv().is_err());
    // At the end everything is reported before the threads end.
    let ending = tokio::task::spawn_blocking(|| writers.finish());
    goes_on.send(()).unwrap();
    ending.await.unwrap();
    assert_eq!(completed.recv().await.unwrap(), [(0, 3)]);
    assert_eq!(completed.recv().await.unwrap(), [(1, 4)]);
    assert!(completed.recv().await.is_none());
}

#[tokio::test]
async fn writer_thread_blocks_at_the_limit_of_deferred_completions() {
    let (late, heard, goes_on) = late();
    let (writers, mut completed) = Writers::start(vec![late]).unwrap();
    // One completion is awaited and this many wait behind it; one more blocks the thread.
    let most = WAITING_PARTS_MAX as u64 + 2;
    for number in 0..most {
        writers.submit(vec![(0, number)]).await.unwrap();
        assert_eq!(heard.recv().unwrap(), number);
    }
    writers.submit(vec![(1, most)]).await.unwrap();
    assert!(heard.try_recv().is_err());
    for number in 0..most {
        goes_on.send(()).unwrap();
        assert_eq!(completed.recv().await.unwrap(), [(0, number)]);
    }
    assert_eq!(heard.recv().unwrap(), most);
    assert_eq!(completed.recv().await.unwrap(), [(1, most)]);
}
