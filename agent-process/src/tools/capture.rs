//! Captures a command's output in bounded memory.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::rooted_files::Root;

/// Bytes from the start of a stream that the model is shown.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes from the end of a stream that the model is shown.
const TAIL_BYTES: usize = 16 * 1024;
/// Maximum number of output bytes stored in a file.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Directory of long outputs, within the work directory.
const OUTPUT_DIRECTORY: &str = ".goondan/outputs";
/// Longest file name of a long output, in bytes, without its extension.
const MAX_FILE_NAME_BYTES: usize = 200;

/// One of the two streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The head and the tail of one stream.
#[derive(Debug, Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total_bytes: u64,
}

impl HeadAndTail {
    fn push(&mut self, chunk: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(chunk.len());
        let (first, rest) = chunk.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.total_bytes = self
            .total_bytes
            .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
    }

    fn left_out_bytes(&self) -> u64 {
        let kept = self.head.len() + self.tail.len();
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        self.total_bytes.saturating_sub(kept)
    }

    fn kept(&self) -> Vec<u8> {
        let mut kept = self.head.clone();
        kept.extend(&self.tail);
        kept
    }
}

/// Destination of the full text of a long output.
#[derive(Debug)]
enum SpillFile {
    /// The output fits in memory so far.
    NotNeeded,
    /// The output is written to this file.
    Open {
        file: File,
        room_bytes: u64,
    },
    Full,
    Failed(String),
}

/// The output of one command.
#[derive(Debug)]
pub(crate) struct Capture {
    stdout: HeadAndTail,
    stderr: HeadAndTail,
    keep: SpillFile,
    path: PathBuf,
}

impl Capture {
    /// Creates an empty capture for the command of a call.
    pub(crate) fn new(call_id: &str) -> Self {
        let name: String = call_id
            .chars()
            .map(|c| match c {
                c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
                _ => '_',
            })
            .take(MAX_FILE_NAME_BYTES)
            .collect();
        Self {
            stdout: HeadAndTail::default(),
            stderr: HeadAndTail::default(),
            keep: SpillFile::NotNeeded,
            path: Path::new(OUTPUT_DIRECTORY).join(format!("{name}.txt")),
        }
    }

    /// True if no output has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.stdout.total_bytes == 0 && self.stderr.total_bytes == 0
    }

    /// The start of standard error.
    pub(crate) fn beginning_of_stderr(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr.head)
    }

    /// Adds a chunk of a stream.
    pub(crate) fn push(&mut self, root: &Root, stream: Stream, chunk: &[u8]) {
        let ends = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        let so_far = ends.head.len() + ends.tail.len();
        if matches!(self.keep, SpillFile::NotNeeded)
            && so_far + chunk.len() > HEAD_BYTES + TAIL_BYTES
        {
            self.start_keeping(root);
        }
        self.keep(chunk);
        match stream {
            Stream::Stdout => self.stdout.push(chunk),
            Stream::Stderr => self.stderr.push(chunk),
        }
    }

    /// Neither stream has lost a byte yet, so the file starts with the complete output.
    fn start_keeping(&mut self, root: &Root) {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW;
        let opened = root
            .make_directory(Path::new(OUTPUT_DIRECTORY))
            .and_then(|_| root.open_beneath(&self.path, flags, Mode::from_bits_truncate(0o600)));
        self.keep = match opened {
            Ok(file) => SpillFile::Open {
                file: File::from(file),
                room_bytes: MAX_FILE_BYTES,
            },
            Err(errno) => SpillFile::Failed(errno.desc().to_owned()),
        };
        self.keep(&self.stdout.kept());
        self.keep(&self.stderr.kept());
    }

    fn keep(&mut self, chunk: &[u8]) {
        let SpillFile::Open { file, room_bytes } = &mut self.keep else {
            return;
        };
        let room = usize::try_from(*room_bytes).unwrap_or(usize::MAX);
        let fits = chunk.get(..room).unwrap_or(chunk);
        match file.write_all(fits) {
            Ok(()) if fits.len() < chunk.len() => self.keep = SpillFile::Full,
            Ok(()) => *room_bytes -= u64::try_from(fits.len()).unwrap_or(*room_bytes),
            Err(error) => self.keep = SpillFile::Failed(error.to_string()),
        }
    }

    /// Text of a stream: complete if short, otherwise its head and tail.
    pub(crate) fn text_of(&self, stream: Stream) -> String {
        let mut text = String::new();
        match stream {
            Stream::Stdout => self.show_ends(&self.stdout, &mut text),
            Stream::Stderr => self.show_ends(&self.stderr, &mut text),
        }
        text
    }

    /// Appends both streams to a text: complete if short, otherwise head and tail.
    pub(crate) fn show(&self, text: &mut String) {
        self.show_stream("stdout", &self.stdout, text);
        self.show_stream("stderr", &self.stderr, text);
    }

    fn show_stream(&self, name: &str, ends: &HeadAndTail, text: &mut String) {
        if ends.total_bytes == 0 {
            return;
        }
        text.push_str(name);
        text.push_str(":\n");
        self.show_ends(ends, text);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }

    fn show_ends(&self, ends: &HeadAndTail, text: &mut String) {
        let left_out_bytes = ends.left_out_bytes();
        if left_out_bytes == 0 {
            text.push_str(&String::from_utf8_lossy(&ends.kept()));
        } else {
            let path = self.path.display();
            let whole = match &self.keep {
                SpillFile::Failed(why) => format!("the full output could not be stored: {why}"),
                SpillFile::Full => format!("the first {MAX_FILE_BYTES} bytes are in {path}"),
                SpillFile::Open { .. } | SpillFile::NotNeeded => {
                    format!("the full output is in {path}")
                }
            };
            text.push_str(&String::from_utf8_lossy(&ends.head));
            text.push_str(&format!(
                "\n[{left_out_bytes} bytes are left out here; {whole}]\n"
            ));
            let tail: Vec<u8> = ends.tail.iter().copied().collect();
            text.push_str(&String::from_utf8_lossy(&tail));
        }
    }
}

/// Shortens a text for the model: short texts stay complete; of long ones the head and the tail
/// remain, with the name of the file in the work directory that holds the full text.
pub(crate) fn shortened(text: String, root: &Root, call_id: &str) -> String {
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return text;
    }
    let mut capture = Capture::new(call_id);
    capture.push(root, Stream::Stdout, text.as_bytes());
    let mut shown = String::new();
    capture.show_ends(&capture.stdout, &mut shown);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(capture: &Capture) -> String {
        let mut text = String::new();
        capture.show(&mut text);
        text
    }

    #[test]
    fn a_short_output_is_shown_whole_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut capture = Capture::new("c");
        capture.push(&root, Stream::Stdout, b"one\n");
        capture.push(&root, Stream::Stderr, b"two");
        assert_eq!(shown(&capture), "stdout:\none\nstderr:\ntwo\n");
        assert!(!dir.path().join(".goondan").exists());
    }

    #[test]
    fn a_long_output_is_cut_in_the_middle_and_kept_whole_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut capture = Capture::new("t.1:c0/../x");
        let mut whole = Vec::new();
        for number in 0..20_000 {
            let line = format!("line {number}\n");
            whole.extend_from_slice(line.as_bytes());
            capture.push(&root, Stream::Stdout, line.as_bytes());
        }
        let kept = std::fs::read(dir.path().join(".goondan/outputs/t.1_c0_.._x.txt")).unwrap();
        assert_eq!(kept, whole);
        let text = shown(&capture);
        assert!(text.starts_with("stdout:\nline 0\nline 1\n"));
        assert!(text.ends_with("line 19998\nline 19999\n"));
        assert!(text.contains(".goondan/outputs/t.1_c0_.._x.txt"));
        assert!(text.len() < HEAD_BYTES + TAIL_BYTES + 200);
        assert!(capture.stdout.head.len() + capture.stdout.tail.len() <= HEAD_BYTES + TAIL_BYTES);
    }

    #[test]
    fn an_output_directory_that_leads_outside_is_not_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), dir.path().join(".goondan")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut capture = Capture::new("c");
        capture.push(&root, Stream::Stdout, &[b'x'; HEAD_BYTES + TAIL_BYTES + 1]);
        assert!(shown(&capture).contains("could not be stored"));
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
    }
}
