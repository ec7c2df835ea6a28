//! Running time: sleeps and deadlines that ignore suspension of the process (`SUP-9`).
//!
//! A container or a virtual machine can be suspended (`SIGSTOP`, a freezer, a snapshot) while the
//! system's clock continues. A call with a limit of 120 s that ran for one second would then time
//! out on resumption. The timeouts of this crate count only the time in which their process ran.
//! Names match `tokio::time`, so code switches by changing its imports.
//!
//! [`RunningTime`] computes running time from given clock readings; the daemon feeds it in its own
//! loop. The rest of the crate is for its children and reads tokio's clock: every waiter reads it
//! at least once in [`PAUSE_LOOK_MS`], so a much later reading reveals a pause. Without waiters the
//! clock is not read, because no deadline depends on it.
//!
//! # Invariants
//!
//! * No timeout fires early: running time never exceeds clock time.
//! * A timeout is late by at most the duration of the pauses, plus
//!   [`PAUSE_CATCH_UP_MS`](goondan_protocol::limits::PAUSE_CATCH_UP_MS) and [`PAUSE_LOOK_MS`] for
//!   each pause.
//! * Every thread has its own clock; an [`Instant`] can only be compared on the thread that read
//!   it.

use std::cell::RefCell;
use std::ops::{Add, Sub};
use std::time::Duration;

use goondan_protocol::limits::PAUSE_LOOK_MS;

pub use self::running_time::{ClockReading, RunningTime};

mod running_time;

#[derive(Debug)]
struct Clock {
    started: tokio::time::Instant,
    time: RunningTime,
    /// Number of current waiters, which read the clock regularly.
    waiters: usize,
}

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::new(Clock {
        started: tokio::time::Instant::now(),
        time: RunningTime::default(),
        waiters: 0,
    });
}

/// Reads the clock, then changes the number of waiters.
fn read(change: impl FnOnce(&mut usize)) -> Duration {
    // A thread that is ending has no clock, and no deadlines depend on it.
    let read = CLOCK.try_with(|clock| {
        let mut clock = clock.borrow_mut();
        let at = tokio::time::Instant::now().saturating_duration_since(clock.started);
        let is_watched = clock.waiters > 0;
        let counted = clock.time.read(at, is_watched).counted;
        change(&mut clock.waiters);
        counted
    });
    read.unwrap_or_default()
}

/// A moment in running time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    #[must_use]
    pub fn now() -> Self {
        Self(read(|_| {}))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Duration from `earlier` to this moment; zero if it is negative.
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Counts as a waiter until it is dropped.
struct WaiterGuard;

impl WaiterGuard {
    fn begin() -> Self {
        read(|waiters| *waiters += 1);
        Self
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        read(|waiters| *waiters = waiters.saturating_sub(1));
    }
}

/// Sleeps until a moment. Cancel-safe.
pub async fn sleep_until(deadline: Instant) {
    let _waiting = WaiterGuard::begin();
    loop {
        let left = deadline - Instant::now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_millis(PAUSE_LOOK_MS))).await;
    }
}

/// Sleeps for a duration. Cancel-safe.
pub async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}

/// The time limit was reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimitError;

/// Runs a future until a moment. A future that is ready at that moment counts as in time.
///
/// # Errors
///
/// [`TimeLimitError`] if the future is not ready; it is dropped.
pub async fn timeout_at<F: Future>(
    deadline: Instant,
    work: F,
) -> Result<F::Output, TimeLimitError> {
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = sleep_until(deadline) => Err(TimeLimitError),
    }
}

/// Runs a future for a duration. A future that is ready at its end counts as in time.
///
/// # Errors
///
/// [`TimeLimitError`] if the future is not ready; it is dropped.
pub async fn timeout<F: Future>(duration: Duration, work: F) -> Result<F::Output, TimeLimitError> {
    timeout_at(Instant::now() + duration, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn sup_9_timeout_is_punctual_without_a_pause() {
        let begun = tokio::time::Instant::now();
        assert_eq!(
            timeout(seconds(120), std::future::pending::<()>()).await,
            Err(TimeLimitError)
        );
        assert_eq!(begun.elapsed(), seconds(120));
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        // Without waiters, an hour without readings is not a pause.
        tokio::time::advance(seconds(3_600)).await;
        let begun = tokio::time::Instant::now();
        sleep(Duration::from_millis(30)).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(30));
    }

    #[tokio::test(start_paused = true)]
    async fn sup_9_a_pause_longer_than_the_time_out_does_not_use_it_up() {
        let begun = Instant::now();
        let waiting = timeout(seconds(120), std::future::pending::<()>());
        tokio::pin!(waiting);
        assert!(is_pending(&mut waiting).await);
        let paused = tokio::time::Instant::now();
        tokio::time::advance(seconds(200)).await;
        assert!(is_pending(&mut waiting).await, "the pause counts");
        assert_eq!(
            waiting.await,
            Err(TimeLimitError),
            "a real time-out still comes"
        );
        let took = paused.elapsed();
        assert!(took >= seconds(319) && took <= seconds(323), "{took:?}");
        assert!(Instant::now() - begun >= seconds(120));
    }

    /// A wait restarted again and again while other branches run, as in event loops.
    #[tokio::test(start_paused = true)]
    async fn sup_9_restarted_wait_detects_the_pause_too() {
        let deadline = Instant::now() + seconds(2);
        for _ in 0..10 {
            {
                let waiting = sleep_until(deadline);
                tokio::pin!(waiting);
                assert!(is_pending(&mut waiting).await);
                tokio::time::advance(seconds(60)).await;
            }
            assert!(Instant::now() < deadline);
        }
        sleep_until(deadline).await;
    }

    /// Polls once.
    async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            let polled = std::pin::Pin::new(&mut *future).poll(cx);
            std::task::Poll::Ready(polled.is_pending())
        })
        .await
    }
}
