//! The clock of one call. It is paused while a person is asked on behalf of the call.

use std::sync::Arc;
use std::time::Duration;

use goondan_clock::{Instant, sleep};
use tokio::sync::watch;

/// Elapsed time of one call. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct CallClock {
    /// Number of holders that pause the clock.
    holders: Arc<watch::Sender<usize>>,
}

impl Default for CallClock {
    fn default() -> Self {
        let (holders, _) = watch::channel(0);
        Self {
            holders: Arc::new(holders),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ClockPauseGuard(CallClock);

impl Drop for ClockPauseGuard {
    fn drop(&mut self) {
        let holders = &self.0.holders;
        holders.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The time limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadlineExceeded;

impl CallClock {
    /// Pauses the clock until the returned guard is dropped.
    pub(crate) fn hold(&self) -> ClockPauseGuard {
        self.holders
            .send_modify(|count| *count = count.saturating_add(1));
        ClockPauseGuard(self.clone())
    }

    /// Waits for `future`, for at most `limit` on this clock.
    ///
    /// # Errors
    ///
    /// [`DeadlineExceeded`] if `future` did not complete in time.
    pub(crate) async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, DeadlineExceeded> {
        let mut future = std::pin::pin!(future);
        let mut holders = self.holders.subscribe();
        let mut left = limit;
        loop {
            let is_held = *holders.borrow_and_update() > 0;
            let since = Instant::now();
            let passing = async {
                if is_held {
                    std::future::pending::<()>().await;
                }
                sleep(left).await;
            };
            tokio::select! {
                output = &mut future => return Ok(output),
                () = passing => return Err(DeadlineExceeded),
                // The sender lives as long as this clock.
                _ = holders.changed() => {}
            }
            if !is_held {
                left = left.saturating_sub(Instant::now() - since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn slow_call_times_out_at_its_limit() {
        let clock = CallClock::default();
        let began = Instant::now();
        let never = std::future::pending::<()>();
        assert_eq!(clock.timeout(LIMIT, never).await, Err(DeadlineExceeded));
        assert_eq!(Instant::now() - began, LIMIT);
        assert_eq!(clock.timeout(LIMIT, async { 7 }).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_anybody_holds_it_does_not_count() {
        let clock = CallClock::default();
        let began = Instant::now();
        let holding = async {
            sleep(Duration::from_secs(4)).await;
            let first = clock.hold();
            sleep(Duration::from_secs(100)).await;
            let second = clock.hold();
            drop(first);
            sleep(Duration::from_secs(100)).await;
            drop(second);
            std::future::pending::<()>().await;
        };
        let waiting = clock.timeout(LIMIT, std::future::pending::<()>());
        tokio::select! {
            late = waiting => assert_eq!(late, Err(DeadlineExceeded)),
            () = holding => {}
        }
        assert_eq!(Instant::now() - began, Duration::from_secs(210));
    }
}
