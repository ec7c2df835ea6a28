//! Wire types, frame codec, ids and domain records of goondan.
//!
//! Every process of goondan speaks in the types of this crate: the orchestrator with its children
//! ([`ipc`]), the client with the orchestrator ([`control`]), and all of them with the files the
//! store keeps ([`message`], [`event`], [`observe`]).
//!
//! # Invariants
//!
//! * This crate does **no I/O** and reads no clock and no randomness: time and ids come in as
//!   arguments. Everything in it can be run in a simulation.
//! * Nothing a peer sends makes it panic or allocate past [`limits`].
//! * A value that exists is valid: ids and names are checked where they enter ([`ids`]).
//!
//! # Layers, from the wire upwards
//!
//! bytes → [`frame`] (length prefix) → [`envelope`] (addressing, payload kept raw) → [`ipc`] and
//! [`control`] (typed messages). Beside them, [`records`]: what is only passed on.

pub mod agents;
pub mod approval;
pub mod base_package;
pub mod budget;
pub mod bundle;
pub mod call;
mod call_error;
pub mod control;
pub mod conversation;
pub mod definition;
pub mod egress;
pub mod envelope;
pub mod event;
pub mod export;
pub mod extension_settings;
pub mod field;
pub mod frame;
pub mod git;
pub mod handoff;
pub mod ids;
pub mod images;
pub mod ipc;
pub mod lifecycle;
pub mod limits;
pub mod message;
pub mod metrics;
pub mod module_file;
pub mod oauth;
pub mod observe;
pub mod permissions;
pub mod process_limits;
pub mod question;
pub mod records;
pub mod rehearsal;
pub mod reply;
pub mod sandbox;
pub mod script;
pub mod secret;
pub mod secret_file;
pub mod service;
pub mod settings;
pub mod shell;
pub mod state_format;
pub mod state_root;
pub mod task;
mod text;
pub mod time;
pub mod trace;
pub mod usage;
pub mod version;
pub mod working_directory;

/// A JSON object, as `serde_json` keeps it.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;
