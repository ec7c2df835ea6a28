//! The webhook: `POST` one text, and an agent gets it as an event.
//!
//! * `settings`: what `goondan.yaml` may say about it.
//! * `signature`: whether a request comes from who knows the secret.
//! * `mapping`: from a request to an event. Pure, like the two above.
//! * `answer`: from an outcome to a status code and a body. Pure.
//! * `request`: one request from its head to its log line.
//! * `server`: sockets, time-outs and bounds.
//!
//! # Invariant
//!
//! A 202 is written only after the orchestrator said that the event is durable (`MSG-13`).

mod answer;
mod mapping;
mod request;
mod server;
mod settings;
mod signature;

pub(crate) use server::run;
pub(crate) use settings::Settings;

#[cfg(test)]
#[path = "webhook/documentation.rs"]
mod documentation;
