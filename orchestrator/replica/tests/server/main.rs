//! Tests of the real binary with real PostgreSQL servers, which the tests start.
//!
//! No test sleeps: every wait is for an answer, a log line or a state of the server. Without
//! PostgreSQL these tests are skipped and report it.

// `cfg(test)` is always set here; the attribute enables the lint settings for test code.
#[cfg(test)]
mod contract;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod machines;
#[cfg(test)]
mod process;
#[cfg(test)]
mod records;
#[cfg(test)]
mod replica;
#[cfg(test)]
mod standbys;
