//! Time that counts: sleeps and deadlines that a pause does not use up (`SUP-9`).
//!
//! A container or a virtual machine may be paused (`SIGSTOP`, a freezer, a snapshot). The system's clock
//! goes on meanwhile, and a call that had 120 s and worked for one would be over its time when all goes
//! on. Here a time-out counts only what its process ran. The names are those of `tokio::time`, so that a
//! place that judges a call differs from another by its imports only.
//!
//! [`RunningTime`] decides, by readings that it is given; the daemon takes them in its own loop. The rest is
//! for its children, and reads the clock of tokio: whoever waits looks at least once in [`PAUSE_LOOK_MS`],
//! so that a reading that comes much later tells of a pause. While nobody waits nobody looks, which costs
//! nothing and means nothing.
//!
//! # Invariants
//!
//! * No time-out comes early: counted time never runs ahead of the clock.
//! * A time-out comes late by at most the pauses there were, and for each of them by
//!   [`PAUSE_CATCH_UP_MS`](goondan_protocol::limits::PAUSE_CATCH_UP_MS) and [`PAUSE_LOOK_MS`].
//! * Every thread has a clock of its own; an [`Instant`] is compared on the thread where it was read.

use std::cell::RefCell;
use std::ops::{Add, Sub};
use std::time::Duration;

use goondan_protocol::limits::PAUSE_LOOK_MS;

pub use self::running_time::{Reading, RunningTime};

mod running_time;

/// The clock of a thread.
#[derive(Debug)]
struct Clock {
    started: tokio::time::Instant,
    time: RunningTime,
    /// Those who wait for a moment now, and so look at the clock.
    waiters: usize,
}

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::new(Clock {
        started: tokio::time::Instant::now(),
        time: RunningTime::default(),
        waiters: 0,
    });
}

/// Reads the clock, then changes how many wait for it.
fn read(change: impl FnOnce(&mut usize)) -> Duration {
    // A thread that ends has no clock any more, and judges nobody.
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

/// A moment of the time that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// This moment.
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

/// How long one moment is after another; zero if it is before it.
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Counts among those who wait as long as it lives.
struct Waiting;

impl Waiting {
    fn begin() -> Self {
        read(|waiters| *waiters += 1);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        read(|waiters| *waiters = waiters.saturating_sub(1));
    }
}

/// Waits until a moment. Cancel-safe.
pub async fn sleep_until(deadline: Instant) {
    let _waiting = Waiting::begin();
    loop {
        let left = deadline - Instant::now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_millis(PAUSE_LOOK_MS))).await;
    }
}

/// Waits for so long. Cancel-safe.
pub async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}

/// The time was over before the work was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Works on something until a moment. What is done then is done in time.
///
/// # Errors
///
/// [`Elapsed`] if it is not done; the work is dropped.
pub async fn timeout_at<F: Future>(deadline: Instant, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = sleep_until(deadline) => Err(Elapsed),
    }
}

/// Works on something for so long. What is done then is done in time.
///
/// # Errors
///
/// [`Elapsed`] if it is not done; the work is dropped.
pub async fn timeout<F: Future>(duration: Duration, work: F) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + duration, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn sup_9_a_time_out_comes_on_time_when_there_is_no_pause() {
        let begun = tokio::time::Instant::now();
        assert_eq!(
            timeout(seconds(120), std::future::pending::<()>()).await,
            Err(Elapsed)
        );
        assert_eq!(begun.elapsed(), seconds(120));
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        // Nobody waited for an hour; that is no pause of anybody.
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
        assert_eq!(waiting.await, Err(Elapsed), "a real time-out still comes");
        let took = paused.elapsed();
        assert!(took >= seconds(319) && took <= seconds(323), "{took:?}");
        assert!(Instant::now() - begun >= seconds(120));
    }

    /// A wait that others are served during, begun again and again, as loops do.
    #[tokio::test(start_paused = true)]
    async fn sup_9_a_wait_that_is_begun_anew_sees_the_pause_too() {
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
