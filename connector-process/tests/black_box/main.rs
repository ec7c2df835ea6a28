//! The real binary between a minimal test orchestrator and plain TCP clients.
//!
//! No test waits for time to pass: every wait is for a frame, a response, a log line or an exit,
//! and gives up after [`PATIENCE`].

// `cfg(test)` is always set here; stating it applies the lints of test code to every item of the
// modules.
#[cfg(test)]
mod anthropic;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod clouds;
#[cfg(test)]
mod github;
#[cfg(test)]
mod gitlab;
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
mod responses;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod webhook_presets;
#[cfg(test)]
mod webhook_sdks;

use std::time::Duration;

/// Time limit of any single wait before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);
