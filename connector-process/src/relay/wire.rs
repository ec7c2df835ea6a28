//! Frames over TLS, and detection of a silent peer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_clock::{Instant, sleep_until};
use goondan_protocol::envelope::MessageError;
use goondan_protocol::frame::{FrameCodec, FrameError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsStream;
use tokio_util::codec::{FramedRead, FramedWrite};

use crate::limits::{RELAY_FRAMES_WAITING_MAX, RELAY_HELLO_BYTES_MAX, RELAY_SILENCE_MS};

/// Error that ends a link. The link is then reconnected.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The other side or the network closed the link.
    #[error("the other side closed the link")]
    Closed,
    /// No data arrived for too long.
    #[error("no data from the other side for {RELAY_SILENCE_MS} ms")]
    Silent,
    /// Too many frames wait to be written.
    #[error("the other side does not read: {RELAY_FRAMES_WAITING_MAX} frames wait for it")]
    NotRead,
    /// The received data is not a frame, or TLS or the socket failed.
    #[error("failed to read from the other side")]
    Read(#[source] FrameError),
    /// Writing to TLS or the socket failed.
    #[error("failed to write to the other side")]
    Write(#[source] FrameError),
    /// A frame does not contain a message, or a message cannot be encoded.
    #[error("a frame is not a message that this side knows")]
    NotAMessage(#[from] MessageError),
    /// A message is invalid at this point.
    #[error("the other side sent `{kind}`, which is not allowed {when}")]
    OutOfTurn {
        kind: String,
        /// The current activity of this side.
        when: &'static str,
    },
    /// The other side exceeds the limit of open requests.
    #[error("the other side has too many open requests")]
    TooMuch,
}

/// Time of the last data from the other side.
#[derive(Debug, Clone)]
pub(super) struct LastHeard(Arc<Mutex<Instant>>);

impl LastHeard {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Records that data arrived.
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until no data has arrived for [`RELAY_SILENCE_MS`]. Cancel-safe.
    pub(super) async fn silence(&self) {
        loop {
            let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let end = heard + Duration::from_millis(RELAY_SILENCE_MS);
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// Reader that records the arrival of every byte, because a large frame on a slow line is not
/// silence.
pub(super) struct ActivityReader<R> {
    reader: R,
    heard: LastHeard,
}

impl<R> ActivityReader<R> {
    /// Creates a frame reader that records its last arrival.
    pub(super) fn frames(reader: R) -> (FramedRead<Self, FrameCodec>, LastHeard)
    where
        R: AsyncRead,
    {
        let heard = LastHeard::now();
        let listened = Self {
            reader,
            heard: heard.clone(),
        };
        (FramedRead::new(listened, FrameCodec::new()), heard)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ActivityReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = read.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(context, read);
        if read.filled().len() > before {
            self.heard.note();
        }
        polled
    }
}

/// Frames from the other side.
pub(super) type PeerFrames = FramedRead<ActivityReader<ReadHalf<TlsStream<TcpStream>>>, FrameCodec>;
/// Frames to the other side.
pub(super) type PeerSink = FramedWrite<WriteHalf<TlsStream<TcpStream>>, FrameCodec>;

/// A link before its greeting. Only small frames can be read.
pub(super) struct Wire {
    pub(super) incoming: PeerFrames,
    pub(super) outgoing: PeerSink,
    pub(super) heard: LastHeard,
}

impl Wire {
    /// Creates a link over a connection with a completed handshake.
    pub(super) fn over(stream: TlsStream<TcpStream>) -> Self {
        let (reader, writer) = split(stream);
        let (incoming, heard) = ActivityReader::frames(reader);
        let greeting = FrameCodec::with_max_frame_bytes(RELAY_HELLO_BYTES_MAX);
        Self {
            incoming: incoming.map_decoder(|_any| greeting),
            outgoing: FramedWrite::new(writer, FrameCodec::new()),
            heard,
        }
    }

    /// Allows frames of any permitted length, once the peer is known.
    pub(super) fn greeted(self) -> Self {
        let incoming = self.incoming.map_decoder(|_greeting| FrameCodec::new());
        Self { incoming, ..self }
    }
}

/// Reads the next frame. Cancel-safe.
///
/// # Errors
///
/// [`WireError::Closed`] at the end of the stream, [`WireError::Read`] if reading fails.
pub(super) async fn next_frame<R: AsyncRead + Unpin>(
    incoming: &mut FramedRead<R, FrameCodec>,
) -> Result<Bytes, WireError> {
    match incoming.next().await {
        Some(Ok(frame)) => Ok(frame),
        Some(Err(error)) => Err(WireError::Read(error)),
        None => Err(WireError::Closed),
    }
}

/// Writes one frame.
///
/// # Errors
///
/// [`WireError::Write`].
pub(super) async fn write_frame<W: AsyncWrite + Unpin>(
    outgoing: &mut FramedWrite<W, FrameCodec>,
    frame: impl Into<Bytes>,
) -> Result<(), WireError> {
    outgoing.send(frame.into()).await.map_err(WireError::Write)
}

/// Frames that wait to be written.
#[derive(Debug, Clone)]
pub(super) struct Queue(mpsc::Sender<Bytes>);

impl Queue {
    /// Creates a queue and its receiver.
    pub(super) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (sender, frames) = mpsc::channel(RELAY_FRAMES_WAITING_MAX);
        (Self(sender), frames)
    }

    /// Queues a frame.
    ///
    /// # Errors
    ///
    /// [`WireError::NotRead`] if the queue is full or its writer has ended.
    pub(super) fn put(&self, frame: impl Into<Bytes>) -> Result<(), WireError> {
        self.0
            .try_send(frame.into())
            .map_err(|_full| WireError::NotRead)
    }
}

/// Writes queued frames until the queue ends.
///
/// # Errors
///
/// [`WireError::Write`].
pub(super) async fn write_all<W: AsyncWrite + Unpin>(
    mut frames: mpsc::Receiver<Bytes>,
    mut outgoing: FramedWrite<W, FrameCodec>,
) -> Result<(), WireError> {
    while let Some(frame) = frames.recv().await {
        write_frame(&mut outgoing, frame).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use goondan_clock::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_timeout_restarts_with_each_frame() {
        let heard = LastHeard::now();
        let nearly = Duration::from_millis(RELAY_SILENCE_MS - 1);
        assert!(timeout(nearly, heard.silence()).await.is_err());
        heard.note();
        assert!(timeout(nearly, heard.silence()).await.is_err());
        assert!(timeout(nearly, heard.silence()).await.is_ok());
    }

    #[tokio::test]
    async fn full_relay_queue_ends_the_link() {
        let (queue, frames) = Queue::new();
        for _ in 0..RELAY_FRAMES_WAITING_MAX {
            queue.put(Vec::new()).unwrap();
        }
        assert!(matches!(queue.put(Vec::new()), Err(WireError::NotRead)));
        drop(frames);
    }
}
