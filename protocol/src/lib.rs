//! Wire types, frame codec, ids and domain records of goondan.
//!
//! All goondan processes use the types of this crate: the orchestrator and its children ([`ipc`]),
//! clients and the orchestrator ([`control`]), and all of them for the files of the store
//! ([`message`], [`event`], [`observe`]).
//!
//! # Invariants
//!
//! * This crate does **no I/O** and uses no clock and no randomness: time and ids are arguments.
//!   Everything in it can run in a simulation.
//! * Input from a peer never causes a panic or an allocation beyond [`limits`].
//! * Every value is valid, because ids and names are checked on construction ([`ids`]).
//!
//! # Layers, from the wire upwards
//!
//! bytes → [`frame`] (length prefix) → [`envelope`] (addressing, payload kept raw) → [`ipc`] and
//! [`control`] (typed messages). In addition, [`records`] carries data that is only forwarded.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod agents;
pub mod approval;
pub mod base_package;
pub mod budget;
pub mod bundle;
pub mod call;
mod call_error;
pub mod cloud;
pub mod control;
pub mod conversation;
pub mod decision;
pub mod definition;
pub mod egress;
pub mod envelope;
pub mod event;
pub mod event_header;
pub mod event_join;
pub mod export;
pub mod extension_settings;
pub mod field;
pub mod frame;
pub mod git;
pub mod handoff;
pub mod ids;
pub mod ignored_messages;
pub mod images;
pub mod ipc;
pub mod lifecycle;
pub mod limits;
pub mod lone_surrogates;
pub mod message;
pub mod metrics;
pub mod module_file;
pub mod namespace;
pub mod oauth;
pub mod observe;
pub mod package_runner;
pub mod path_patterns;
pub mod permissions;
pub mod process_limits;
pub mod proxy;
pub mod question;
pub mod records;
pub mod rehearsal;
pub mod replay;
pub mod reply;
pub mod sandbox;
pub mod schedule;
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

/// A JSON object, as represented by `serde_json`.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;
