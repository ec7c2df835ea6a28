//! The built-in connectors of goondan as data: their settings, their secrets, their events.
//!
//! The loader of `goondan.yaml` and the connector process both validate a Connection with this
//! crate, so `gdn validate` rejects exactly what a connector would reject.
//!
//! * `approvals`: approval chats and the people who may decide.
//! * `description`: descriptions of connectors.
//! * `builtin`: the built-in connectors.
//! * `check`: validates a Connection's settings and secrets.
//! * `hosts`: permitted targets of requests.
//! * `inbound`: headers and properties of events.
//! * `relay`: the connector that represents one on another machine.
//! * [`signatures`]: signature presets of webhooks.
//! * `values`: typed access to validated settings.
//! * [`schedule`]: computes occurrences of a schedule, and the ones that are due.
//! * [`thinking`]: thinking parameters of Anthropic's models.
//!
//! # Invariants
//!
//! * No I/O and no clock.
//! * No text of a [`Problem`] contains a secret, or a setting that may contain a misplaced one
//!   (`SEC-2`).

mod approvals;
mod builtin;
mod check;
mod cron_fields;
mod description;
mod hosts;
mod inbound;
mod reach;
mod relay;
pub mod schedule;
pub mod signatures;
pub mod thinking;
mod values;

pub use approvals::{ApprovalChat, DecisionClass, DecisionKind};
pub use builtin::{BUILTINS, GITHUB_BODY_BYTES_MAX, find};
pub use check::{Problem, ProblemKind, ProblemLocation, SettingPathStep, check};
pub use description::{Connector, DescribedEvent, Secret, Setting, SettingType};
pub use hosts::AllowedHost;
pub use inbound::{Inbound, inbound};
pub use reach::{AddressReachability, reach_of};
pub use relay::{RELAYED, is_relay, working_as};
pub use values::Values;
