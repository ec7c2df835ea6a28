//! Durable appends: events of turns, each acknowledged after it is on disk.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::world::{BenchWriters, MESSAGE_BYTES, WRITER_THREADS, median, timed};
use crate::{StoreBenchResult, say};

/// Appends of one round. Rounds of store and baseline alternate, so that both see the same disk
/// load.
const ROUND_APPENDS: u64 = 512;
const ROUNDS: usize = 7;
/// Concurrent events of one turn.
const IN_FLIGHT: u64 = 16;

/// Plain writes with fdatasync on `files` files, with as many threads as the store.
struct Plain {
    threads: Vec<Vec<File>>,
}

impl Plain {
    fn new(dir: &Path, files: usize) -> Result<Self, Box<dyn Error>> {
        let count = files.min(WRITER_THREADS);
        let mut threads: Vec<Vec<File>> = (0..count).map(|_| Vec::new()).collect();
        for at in 0..files {
            let path = dir.join(format!("plain-{at}"));
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            if let Some(thread) = threads.get_mut(at % count) {
                thread.push(file);
            }
        }
        Ok(Self { threads })
    }

    fn round(&mut self) -> Result<Duration, Box<dyn Error>> {
        let line = vec![b'x'; MESSAGE_BYTES];
        let each = ROUND_APPENDS / self.threads.len() as u64;
        let (done, time) = timed(|| {
            std::thread::scope(|scope| {
                let handles: Vec<_> = self
                    .threads
                    .iter_mut()
                    .map(|files| {
                        let line = &line;
                        scope.spawn(move || -> std::io::Result<()> {
                            let count = files.len().max(1);
                            for at in 0..each {
                                let at = usize::try_from(at).unwrap_or(0) % count;
                                if let Some(file) = files.get_mut(at) {
                                    file.write_all(line)?;
                                    file.sync_data()?;
                                }
                            }
                            Ok(())
                        })
                    })
                    .collect();
                handles
                    .into_iter()
                    .map(|handle| handle.join().map_err(|_| "a thread panicked"))
                    .collect::<Vec<_>>()
            })
        });
        for thread in done {
            thread??;
        }
        Ok(time)
    }
}

fn rate(time: Duration) -> f64 {
    f64::from(u32::try_from(ROUND_APPENDS).unwrap_or(0)) / time.as_secs_f64()
}

/// Appends with `in_flight` concurrent events for each of `instances` instances.
fn compare(dir: &Path, instances: usize, in_flight: u64) -> StoreBenchResult {
    let mut rig = BenchWriters::new(&dir.join(format!("root-{instances}-{in_flight}")))?;
    let open: Result<Vec<_>, _> = (0..instances)
        .map(|at| rig.in_turn(&format!("i{at}")))
        .collect();
    let open = open?;
    let mut plain = Plain::new(dir, instances)?;
    let mut seqs = vec![0; instances];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(plain.round()?);
        let (done, time) = timed(|| -> StoreBenchResult {
            let mut next = |rig: &BenchWriters, at: usize| -> StoreBenchResult {
                let (Some(instance), Some(seq)) = (open.get(at), seqs.get_mut(at)) else {
                    return Ok(());
                };
                *seq += 1;
                rig.append(at as u64, instance, *seq)
            };
            let mut submitted = 0;
            for _ in 0..in_flight {
                for at in 0..instances {
                    next(&rig, at)?;
                    submitted += 1;
                }
            }
            for _ in 0..ROUND_APPENDS {
                let at = usize::try_from(rig.next()?)?;
                if submitted < ROUND_APPENDS {
                    next(&rig, at)?;
                    submitted += 1;
                }
            }
            Ok(())
        });
        done?;
        ours.push(time);
    }
    let (ours, theirs) = (rate(median(ours)), rate(median(theirs)));
    say(&format!(
        "{instances:>3} instances, {in_flight:>2} in flight each: {ours:>7.0}/s, plain loop {theirs:>7.0}/s, \
         ratio {:.2}",
        ours / theirs
    ))
}

pub(crate) fn one_in_flight(dir: &Path) -> StoreBenchResult {
    for instances in [1, 8, 64] {
        compare(&dir.join(instances.to_string()), instances, 1)?;
    }
    Ok(())
}

pub(crate) fn several_in_flight(dir: &Path) -> StoreBenchResult {
    compare(&dir.join("group"), 1, IN_FLIGHT)
}
