//! A socket that wakes its process only for the awaited direction.
//!
//! [`tokio::net::UnixStream`] registers interest in both directions. The kernel reports writability
//! each time the peer has read data, so the process would wake up once more for every frame it
//! sent, with nothing to do. Tokio's pipe types register only one direction, and work on a socket
//! as well.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

pub(crate) type ReadEnd = pipe::Receiver;

/// Writing side of a socket. Dropping it signals end-of-stream to the peer.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    socket: UnixStream,
    /// Registered only while the socket's buffer is full.
    full: Option<pipe::Sender>,
}

/// Splits a socket into both directions.
///
/// # Errors
///
/// If the system cannot register the socket.
pub(crate) fn split(socket: UnixStream) -> io::Result<(ReadEnd, WriteEnd)> {
    socket.set_nonblocking(true)?;
    let read = pipe::Receiver::from_owned_fd_unchecked(socket.try_clone()?.into())?;
    Ok((read, WriteEnd { socket, full: None }))
}

impl AsyncWrite for WriteEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut full = match self.full.take() {
            Some(full) => full,
            None => match self.socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    pipe::Sender::from_owned_fd_unchecked(self.socket.try_clone()?.into())?
                }
                written => return Poll::Ready(written),
            },
        };
        let written = Pin::new(&mut full).poll_write(cx, bytes);
        self.full = written.is_pending().then_some(full);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        // Fails if the peer is gone.
        self.socket.shutdown(Shutdown::Write).ok();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const BYTES: usize = 4 << 20;

    #[tokio::test]
    async fn more_than_the_system_holds_goes_both_ways() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut read, mut write) = split(ours).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        let sent: Vec<u8> = (0..BYTES).map(|n| n.to_le_bytes()[n % 3]).collect();

        let mut came = Vec::new();
        let writing = async {
            write.write_all(&sent).await.unwrap();
            drop(write);
        };
        let ((), read_bytes) = tokio::join!(writing, theirs.read_to_end(&mut came));
        assert_eq!(read_bytes.unwrap(), BYTES);
        assert!(came == sent);

        let mut came = Vec::new();
        let writing = async {
            theirs.write_all(&sent).await.unwrap();
            drop(theirs);
        };
        let ((), read_bytes) = tokio::join!(writing, read.read_to_end(&mut came));
        assert_eq!(read_bytes.unwrap(), BYTES);
        assert!(came == sent);
    }
}
