//! Tests of the real `gdn` binary against a fake daemon.
//!
//! The fake daemon listens on the real socket and parses requests with the protocol's types, so the tests cover the
//! client's half of the control API, its output, and its exit codes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests prepare their own temporary directories"
)]

#[cfg(test)]
mod chat;
#[cfg(test)]
mod config;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod home;
#[cfg(test)]
mod import;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod init;
#[cfg(test)]
mod look;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod send;
#[cfg(test)]
mod start;
