//! What the built-in connectors of goondan are, as data: their settings, their secrets, their events.
//!
//! The loader of `goondan.yaml` and the connector process both check a Connection by what stands here,
//! so that `gdn validate` refuses exactly what a connector would refuse.
//!
//! * `approvals`: where people are asked to approve tool calls, and who may.
//! * `description`: how a connector is described.
//! * `builtin`: the connectors there are.
//! * `check`: everything that is wrong with a Connection's settings and secrets.
//! * `hosts`: where requests may go.
//! * `relay`: the connector that stands for one on another machine.
//! * `values`: settings that were checked, read one by one.
//! * [`schedule`]: when the occurrences of a schedule are, and which of them are due.
//! * [`thinking`]: how Anthropic's models are asked to think.
//!
//! # Invariants
//!
//! * No I/O and no clock.
//! * No text of a [`Problem`] holds a secret, or a setting that somebody might have put one in
//!   (`SEC-2`).

mod approvals;
mod builtin;
mod check;
mod cron_fields;
mod description;
mod hosts;
mod reach;
mod relay;
pub mod schedule;
pub mod thinking;
mod values;

pub use approvals::ApprovalChat;
pub use builtin::{BUILTINS, find};
pub use check::{Problem, ProblemKind, ProblemPlace, Step, check};
pub use description::{Connector, Content, DescribedEvent, Secret, Setting};
pub use hosts::AllowedHost;
pub use reach::{Reach, reach_of};
pub use relay::{RELAYED, is_relay, working_as};
pub use values::Values;
