//! What the threads do with any worker.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::*;

/// Says what was asked of it. A job is its route and its number.
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

    fn work(&mut self, batch: &mut Vec<Self::Job>) -> Vec<Self::Completion> {
        assert!(
            batch.iter().all(|job| job.1 != u64::MAX),
            "a worker that panics"
        );
        std::mem::take(batch)
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

fn recorders(count: usize) -> (Vec<Recorder>, std::sync::mpsc::Receiver<&'static str>) {
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
async fn what_was_put_off_is_done_when_it_is_due() {
    let (workers, heard) = recorders(1);
    let (writers, _completed) = Writers::start(workers).unwrap();
    writers.submit(vec![(0, 0)]).await.unwrap();
    let told: Vec<_> = heard.iter().take(2).collect();
    assert_eq!(told, ["settled", "tidied"]);
    drop(writers);
    assert_eq!(heard.iter().last(), Some("finished"));
}

#[tokio::test]
async fn nobody_waits_for_a_thread_that_has_panicked() {
    let (workers, _heard) = recorders(1);
    let (writers, mut completed) = Writers::start(workers).unwrap();
    writers.submit(vec![(0, u64::MAX)]).await.unwrap();
    assert!(completed.recv().await.is_none());
    let full = vec![(0, 1); WRITER_QUEUE_OPS * 2];
    assert!(writers.submit(full).await.is_err());
    writers.finish();
}
