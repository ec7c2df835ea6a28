//! Lines on standard output.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use tracing::Level;

use crate::LineSink;

/// Bytes of lines that are held at most, before they are written.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// Writes the lines of one thread with one system call each time it is about to wait, for a process whose
/// work is done by an event loop on one thread.
///
/// Whoever runs the loop calls [`HeldStdout::flush`] before it waits and before the process ends; a process
/// that is killed loses what it logged since it last waited. A warning or an error is written at once, and so
/// are the lines of other threads, each with all that is held. So lines keep their order.
#[derive(Debug, Clone)]
pub struct HeldStdout(Arc<Held>);

#[derive(Debug)]
struct Held {
    holder: ThreadId,
    lines: Mutex<Vec<u8>>,
}

impl HeldStdout {
    /// Holds the lines of the thread that calls this.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Arc::new(Held {
            holder: thread::current().id(),
            lines: Mutex::default(),
        }))
    }

    /// Writes what is held.
    pub fn flush(&self) {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        write_held(&mut lines);
    }

    /// Has what is held written before a panic is told of, with which the process may end.
    pub fn flush_at_panic(&self) {
        let held = self.clone();
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A fault in the midst of a line leaves this locked, by the very thread that is here.
            if let Ok(mut lines) = held.0.lines.try_lock() {
                write_held(&mut lines);
            }
            tell(panic);
        }));
    }
}

impl LineSink for HeldStdout {
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

/// Writes what is held and gives its memory back: an idle process holds nothing.
fn write_held(lines: &mut Vec<u8>) {
    if !lines.is_empty() {
        write(&std::mem::take(lines));
    }
}

fn write(lines: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A log that cannot be written has nowhere to say so; the process goes on.
    drop(out.write_all(lines).and_then(|()| out.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(sink: &HeldStdout) -> usize {
        sink.0.lines.lock().unwrap().len()
    }

    #[test]
    fn lines_wait_for_the_loop_unless_they_matter_or_are_many_or_another_thread_s() {
        let sink = HeldStdout::of_this_thread();
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
