//! All limits of the program.
//!
//! Limits shared with the daemon, such as the deadline for answers, are in
//! [`goondan_replication::limits`].

use goondan_replication::limits::{PART_BYTES_MAX, READ_BYTES_MAX, RECORD_BYTES_MAX};

/// Maximum number of requests in progress; while it is reached, none are read from the socket. Each
/// request is answered by its deadline.
pub const QUESTIONS_MAX: usize = 1_024;

/// Maximum size of records and snapshot parts waiting to be written, in bytes. More are rejected.
pub const WRITE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of concurrent reads of pages and parts; more wait. Each is in memory twice, as
/// received and as a frame.
pub const READS_AT_ONCE_MAX: usize = 4;

/// Maximum number of answers waiting to be written to the socket.
pub const ANSWERS_WAITING_MAX: usize = 16;

/// Maximum number of records in one statement. Each may be answered with the existing record at its
/// position.
pub const BATCH_RECORDS_MAX: usize = 32;

/// Size of records at which a statement is full, in bytes.
pub const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum time a statement waits for as many records as the last one had, in milliseconds, because
/// a record that just misses a statement waits for a whole commit.
pub const GATHER_MS: u64 = 1;

/// Maximum number of retries of a statement that lost a race against another writer. Each time the
/// log has grown, so this writer's position is taken.
pub const RACES_MAX: usize = 8;

/// Number of connections for puts. Each workspace uses one of them.
pub const PUT_LANES: u64 = 4;

/// Maximum number of unfinished, late statements of one put connection; the next statement gets a
/// new connection. At the limit, puts wait until one ends, so that an unresponsive server does not
/// run out of connections.
pub const LATE_STATEMENTS_MAX: usize = 2;

/// Maximum number of workspaces whose last record is in doubt. Beyond it, puts of other workspaces
/// are rejected.
pub const DOUBTS_MAX: usize = 4_096;

/// Maximum number of trimmed records that one statement deletes, because reads wait for it.
pub const SWEEP_RECORDS_MAX: u64 = 1_000;

/// Time limit for connecting to one host of the URL, in milliseconds.
pub const CONNECT_DEADLINE_MS: u64 = 5_000;

/// Idle time after which the kernel sends keepalive probes, in milliseconds.
pub const KEEPALIVE_IDLE_MS: u64 = 4_000;

/// Interval between keepalive probes, in milliseconds.
pub const KEEPALIVE_INTERVAL_MS: u64 = 2_000;

/// Number of unanswered probes after which the connection is lost.
pub const KEEPALIVE_RETRIES: u32 = 3;

/// Time without a TCP acknowledgment after which the connection is lost, in milliseconds. With
/// unacknowledged data the kernel sends no keepalive probes and would retry for 15 minutes;
/// meanwhile a statement would count as late although the machine is gone. A slow server still
/// acknowledges data.
pub const UNACKNOWLEDGED_MS: u64 = 10_000;

/// Number of days after which a silent node is no longer reported.
pub const HEARD_DAYS: i32 = 1;

const _: () = assert!(RECORD_BYTES_MAX <= BATCH_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_MAX < WRITE_BYTES_MAX);
const _: () = assert!(PART_BYTES_MAX <= READ_BYTES_MAX);
