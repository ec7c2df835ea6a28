//! The real binary before real PostgreSQL servers, which the tests start for themselves.
//!
//! Nothing here waits for time to pass: every wait is for an answer, a log line or a state of the server. Without
//! PostgreSQL these tests are left out, and say so.

// `cfg(test)` is always set here; saying it gives every item of the modules the lints of test code.
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
