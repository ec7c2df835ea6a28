//! Lines on standard output.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use tracing::Level;

use crate::LineSink;

/// Maximum number of buffered bytes.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// Buffers the lines of one thread and writes them with one system call each time the thread is
/// about to wait, for a process with an event loop on one thread.
///
/// The owner of the loop calls [`BufferedStdout::flush`] before it waits and before the process ends; a
/// killed process loses the lines since its last wait. Warnings, errors and lines of other threads
/// are written immediately, together with all buffered lines, so that lines keep their order.
#[derive(Debug, Clone)]
pub struct BufferedStdout(Arc<StdoutHold>);

#[derive(Debug)]
struct StdoutHold {
    holder: ThreadId,
    lines: Mutex<Vec<u8>>,
}

impl BufferedStdout {
    /// Buffers the lines of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Arc::new(StdoutHold {
            holder: thread::current().id(),
            lines: Mutex::default(),
        }))
    }

    /// Writes the buffered lines.
    pub fn flush(&self) {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        write_held(&mut lines);
    }

    /// Writes the buffered lines before a panic is reported, because the panic may end the process.
    pub fn flush_at_panic(&self) {
        let held = self.clone();
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A panic while a line is added leaves this locked by the current thread.
            if let Ok(mut lines) = held.0.lines.try_lock() {
                write_held(&mut lines);
            }
            tell(panic);
        }));
    }
}

impl LineSink for BufferedStdout {
    fn line(&self, level: Level, line: Vec<u8>) {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = lines.len() + line.len() <= HELD_BYTES_MAX;
        let may_wait = level > Level::WARN && thread::current().id() == self.0.holder;
        lines.extend_from_slice(&line);
        if !(fits && may_wait) {
            write_held(&mut lines);
        }
    }
}

/// Writes the buffered lines and frees their memory, so that an idle process holds none.
fn write_held(lines: &mut Vec<u8>) {
    if !lines.is_empty() {
        write(&std::mem::take(lines));
    }
}

fn write(lines: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A failure to write the log cannot be reported; the process continues.
    drop(out.write_all(lines).and_then(|()| out.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(sink: &BufferedStdout) -> usize {
        sink.0.lines.lock().unwrap().len()
    }

    #[test]
    fn log_lines_are_buffered_unless_severe_many_or_cross_thread() {
        let sink = BufferedStdout::of_this_thread();
        let line = || b"{}\n".to_vec();
        sink.line(Level::INFO, line());
        sink.line(Level::DEBUG, line());
        assert_eq!(held(&sink), 6);
        sink.flush();
        assert_eq!(held(&sink), 0);
        for level in [Level::WARN, Level::ERROR] {
            sink.line(Level::INFO, line());
            sink.line(level, line());
            assert_eq!(held(&sink), 0, "{level}");
        }
        sink.line(Level::INFO, line());
        let other = sink.clone();
        thread::spawn(move || other.line(Level::INFO, line()))
            .join()
            .unwrap();
        assert_eq!(held(&sink), 0);
        let long = [b"\"".as_slice(), &[b'x'; HELD_BYTES_MAX - 4], b"\"\n"].concat();
        sink.line(Level::INFO, long);
        assert_eq!(held(&sink), HELD_BYTES_MAX - 1);
        sink.line(Level::INFO, line());
        assert_eq!(held(&sink), 0);
    }
}
