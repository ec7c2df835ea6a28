//! Faults of the misbehaving child (`examples/misbehaving_child.rs`), and the orders for it.
//!
//! Its binary replaces that of the daemon's children. A daemon sends nothing to its children before
//! they greet it, so a test orders the misbehavior in advance: through files in the test's `HOME`,
//! one for each process, taken in the order of their names. A process that finds none becomes the
//! real child.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub const EXAMPLE: &str = "goondan-misbehaving-child";

/// Prefix of every line of [`Misbehaviour::Flood`].
pub const FLOOD_MARK: &str = "flood ";
/// Bytes of one such line, with its newline.
pub const FLOOD_LINE_BYTES: usize = 1_000;
/// Number of lines: 100 MB.
pub const FLOOD_LINES: usize = 100_000;

/// Bytes of memory that [`Misbehaviour::Hoard`] allocates.
pub const HOARD_BYTES: usize = 1 << 30;

/// Output of [`Misbehaviour::HalfLine`], without a newline.
pub const HALF_LINE: &str = r#"{"level":"info","message":"half a li"#;

macro_rules! misbehaviours {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Misbehaviour {
            $($(#[$doc])* $name,)*
        }

        impl Misbehaviour {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in a file.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

misbehaviours! {
    /// Works normally, and writes 100 MB to stdout meanwhile.
    Flood = "flood",
    /// Writes half a line and crashes.
    HalfLine = "half-line",
    /// Greets, answers heartbeats, and ignores `shutdown`, SIGTERM and everything else.
    IgnoreStop = "ignore-stop",
    /// Greets, then sends a frame without a message.
    Garbage = "garbage",
    /// Greets, then announces a frame of 4 GiB.
    Oversized = "oversized",
    /// Greets, then ends within a frame.
    CutFrame = "cut-frame",
    /// Greets, then sends a message that only another kind of process may send.
    WrongMessage = "wrong-message",
    /// Greets as a process of another version.
    OtherVersion = "other-version",
    /// Greets as a process of another kind.
    OtherRole = "other-role",
    /// Never greets.
    Silent = "silent",
    Crash = "crash",
    /// Greets, then allocates [`HOARD_BYTES`] of memory, and crashes if that fails.
    Hoard = "hoard",
}

/// Directory of the orders for children with this binary name.
#[must_use]
pub fn orders(home: &Path, program: &str) -> PathBuf {
    home.join("misbehave").join(program)
}

/// Orders the next processes that are started as `program` to misbehave, one after the other.
///
/// # Panics
///
/// If orders of an earlier call are still waiting.
pub fn order(home: &Path, program: &str, misbehaviours: &[Misbehaviour]) {
    let dir = orders(home, program);
    fs::create_dir_all(&dir).unwrap();
    assert_eq!(
        waiting(home, program),
        0,
        "earlier orders were not carried out"
    );
    for (number, misbehaviour) in misbehaviours.iter().enumerate() {
        // Renamed into place, because a child may already be reading.
        let draft = dir.with_extension("draft");
        fs::write(&draft, misbehaviour.as_str()).unwrap();
        fs::rename(&draft, dir.join(format!("{number:03}"))).unwrap();
    }
}

/// Number of orders that no process has taken yet.
#[must_use]
pub fn waiting(home: &Path, program: &str) -> usize {
    fs::read_dir(orders(home, program)).map_or(0, Iterator::count)
}

/// Prefix of an order that lists the frames to send.
pub const SAY: &str = "say ";

/// Placeholder for the current turn's id in the frames of [`order_to_say`].
pub const TURN: &str = "{turn}";

/// Orders the next process that is started as `program` to greet, and as an agent to accept a turn,
/// and then to send these frames in order. After a frame with an `id`, or of type `call`, it waits
/// for the reply, which is added to [`heard`]. If the first frame has a type with which an honest
/// process begins (`hello`, `conversation.load`), nothing is sent before it. A frame with `times`
/// is sent that many times, with `{n}` replaced by the number; `{fill}` is replaced by `fillBytes`
/// bytes.
///
/// # Panics
///
/// If the file cannot be written.
pub fn order_to_say(home: &Path, program: &str, frames: &[Value]) {
    let dir = orders(home, program);
    fs::create_dir_all(&dir).unwrap();
    let draft = dir.with_extension("draft");
    let frames = Value::from(frames.to_vec());
    fs::write(&draft, format!("{SAY}{frames}")).unwrap();
    fs::remove_file(heard_file(home, program)).ok();
    fs::rename(&draft, dir.join("000")).unwrap();
}

/// File in which a process with such an order records the messages it receives.
#[must_use]
pub fn heard_file(home: &Path, program: &str) -> PathBuf {
    home.join(format!("{program}.heard"))
}

/// Messages received so far by a process with such an order.
///
/// # Panics
///
/// If the file contains invalid JSON lines.
#[must_use]
pub fn heard(home: &Path, program: &str) -> Vec<Value> {
    let text = fs::read_to_string(heard_file(home, program)).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
