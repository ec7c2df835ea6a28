//! Every limit of the program, with its name and its one home.
//!
//! What it has in common with the daemon is [`goondan_replication::limits`], above all how long an answer is waited
//! for.

use goondan_replication::limits::{PART_BYTES_MAX, READ_BYTES_MAX, RECORD_BYTES_MAX};

/// Questions that are worked on at once; while there are as many, no further one is read from the socket. Each is
/// answered by its deadline.
pub const QUESTIONS_MAX: usize = 1_024;

/// Bytes of records and parts of snapshots that wait to be written. One more is not tried.
pub const WRITE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Pages and parts that are read at once; further ones wait. Each is held as it came and as a frame.
pub const READS_AT_ONCE_MAX: usize = 4;

/// Answers that wait to be written to the socket.
pub const ANSWERS_WAITING_MAX: usize = 16;

/// Most records of one statement. Each may be answered with a record that stands in its place.
pub const BATCH_RECORDS_MAX: usize = 32;

/// Bytes of records from which on a statement takes no further one.
pub const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a statement waits for as many records as the last one had, in milliseconds: a record that comes a moment
/// too late waits for a whole commit.
pub const GATHER_MS: u64 = 1;

/// How often a statement is asked again because another writer was quicker by a moment. Each time the log has grown,
/// and this writer's position with it is taken.
pub const RACES_MAX: usize = 8;

/// Connections on which records are put. Each workspace has its records go over one of them.
pub const PUT_LANES: u64 = 4;

/// Statements of one such connection whose answers are late and that the server has not finished yet; the next one
/// gets a connection of its own. With as many, nothing is put there until one of them ends: a server that finishes
/// none is not to run out of connections.
pub const LATE_STATEMENTS_MAX: usize = 2;

/// Workspaces of whose last record nobody knows whether it stands. For one more, nothing is put.
pub const DOUBTS_MAX: usize = 4_096;

/// Records that one statement removes of those that a log has forgotten: whoever reads waits for it.
pub const SWEEP_RECORDS_MAX: u64 = 1_000;

/// How long one host of the URL has for a connection that is ready for use, in milliseconds.
pub const CONNECT_DEADLINE_MS: u64 = 5_000;

/// Silence of a server after which the kernel asks whether it is still there, in milliseconds.
pub const KEEPALIVE_IDLE_MS: u64 = 4_000;

/// How long that is waited for each time, in milliseconds.
pub const KEEPALIVE_INTERVAL_MS: u64 = 2_000;

/// How often it is asked before the connection counts as lost.
pub const KEEPALIVE_RETRIES: u32 = 3;

/// How long what was sent may stay without a word of the server's machine before the connection counts as lost, in
/// milliseconds. While something is on its way the kernel asks nothing, and would try for a quarter of an hour: so long
/// a statement would count as late of which a machine that is gone will never tell. A server that is slow has confirmed
/// what was sent.
pub const UNACKNOWLEDGED_MS: u64 = 10_000;

/// Days after which a node that was not heard is not told of any more.
pub const HEARD_DAYS: i32 = 1;

const _: () = assert!(RECORD_BYTES_MAX <= BATCH_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_MAX < WRITE_BYTES_MAX);
const _: () = assert!(PART_BYTES_MAX <= READ_BYTES_MAX);
