//! The real binary between a small orchestrator of the test's own and plain TCP clients.
//!
//! Nothing here waits for time to pass: every wait is for a frame, a response, a log line or an exit,
//! and gives up after [`PATIENCE`].

// `cfg(test)` is always set here; saying it gives every item of the modules the lints of test code.
#[cfg(test)]
mod anthropic;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod hostile_model;
#[cfg(test)]
mod http;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod model;
#[cfg(test)]
mod orchestrator;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod quirks;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod replies;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod webhook;

use std::time::Duration;

/// How long any one wait may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);
