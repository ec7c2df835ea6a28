//! What every connector shares that is spoken to over HTTP.
//!
//! * `service`: one service's way of speaking to us: what its requests mean, and how it wants to be
//!   answered. Pure, but for what a service remembers.
//! * `http_endpoint`: where it reaches us.
//! * `signature`: whether a request comes from who knows the secret. Pure.
//! * `malformed`, `answer`, `reply_body`, `response`: from an outcome to a status code and a body. Pure.
//! * `callback`: people who come back from an authorization server.
//! * `replying`: whoever brought an event gets what the agent answered. `callbacks`: it is posted somewhere.
//! * `request`: one request from its head to its log line.
//! * `outbox`: what a service does for agents.
//! * `opening`: the socket that is listened on. Without HTTP, too.
//! * `server`: sockets, time-outs and bounds; `connection_limiter`: who gives way when there are too many.
//!
//! # Invariant
//!
//! A service is told that its event was taken only after the orchestrator said that the event is
//! durable (`MSG-13`).

mod answer;
mod callback;
mod callbacks;
mod connection_limiter;
mod http_endpoint;
mod malformed;
mod opening;
mod outbox;
mod reply_body;
mod replying;
mod request;
mod response;
mod server;
mod service;
mod signature;

pub(crate) use answer::{Answer, Refusal, refused};
pub(crate) use callbacks::{CallbackWorker, Callbacks, ReplyTarget};
pub(crate) use connection_limiter::{ConnectionLimiter, ConnectionPermit};
pub(crate) use http_endpoint::HttpEndpoint;
pub(crate) use malformed::Malformed;
pub(crate) use opening::{Listening, open};
pub(crate) use outbox::Outbox;
pub(crate) use request::shortened;
pub(crate) use server::run;
pub(crate) use service::{Meaning, Page, PageFormat, Pressed, Received, Service};
pub(crate) use signature::{NotSigned, SignatureCheck, only_value};
