//! Idle time of a connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use goondan_clock::{Instant, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Time of the last transfer.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<Instant>>);

impl Activity {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until the connection has been idle for `idle`.
    pub(super) async fn ends(&self, idle: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let end = last + idle;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// A stream that records the time of its last transfer in either direction.
#[derive(Debug)]
pub(super) struct ActivityStream<S> {
    stream: S,
    activity: Activity,
}

impl<S> ActivityStream<S> {
    pub(super) fn new(stream: S) -> (Self, Activity) {
        let activity = Activity(Arc::new(Mutex::new(Instant::now())));
        let watched = Self {
            stream,
            activity: activity.clone(),
        };
        (watched, activity)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.activity.note();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn traffic_keeps_a_connection_open_and_idleness_ends_it() {
        let idle = Duration::from_secs(60);
        let (near, _far) = tokio::io::duplex(64);
        let (mut near, activity) = ActivityStream::new(near);
        let before = tokio::time::Instant::now();
        let talking = async {
            for _ in 0..3 {
                tokio::time::sleep(idle / 2).await;
                near.write_all(b"x").await.unwrap();
            }
        };
        tokio::join!(talking, activity.ends(idle));
        let lasted = before.elapsed();
        assert!(lasted >= idle * 5 / 2 && lasted < idle * 3, "{lasted:?}");
    }
}
