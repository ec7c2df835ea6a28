//! The shared part of all connectors that serve HTTP.
//!
//! * `service`: one service's protocol: parses requests and formats answers. Pure, except for the
//!   state of a service.
//! * `http_endpoint`: the address to listen on.
//! * `signature`: checks that a request comes from a holder of the secret. Pure.
//! * `request_problems`, `answer`, `reply_body`, `response`: from an outcome to a status code and a body.
//!   Pure.
//! * `callback`: users who return from an authorization server.
//! * `reply_wait`: returns the agent's reply to the sender of an event. `callbacks`: posts it to an
//!   address or a chat.
//! * `request`: one request from its head to its log line.
//! * `outbox`: actions at a service for agents.
//! * `bind`: the listening socket, also used without HTTP.
//! * `server`: sockets, timeouts and limits; `connection_limiter`: evicts connections beyond the
//!   limit.
//!
//! # Invariant
//!
//! A service receives an acknowledgment only after the orchestrator has confirmed that the event is
//! durable (`MSG-13`).

mod answer;
mod bind;
mod callback;
mod callbacks;
mod connection_limiter;
mod http_endpoint;
mod outbox;
mod reply_body;
mod reply_wait;
mod request;
mod request_problems;
mod response;
mod server;
mod service;
mod signature;

pub(crate) use answer::{CheckAnswer, DirectResponse, RequestRejection, accepted, refused};
pub(crate) use bind::{BoundListener, open};
pub(crate) use callbacks::{
    AnsweredTurns, CallbackWorker, Callbacks, PendingReply, ReplyDelivery, ReplyTarget,
};
pub(crate) use connection_limiter::{ConnectionLimiter, ConnectionPermit};
pub(crate) use http_endpoint::HttpEndpoint;
pub(crate) use outbox::Outbox;
pub(crate) use request::shortened;
pub(crate) use request_problems::MalformedRequest;
pub(crate) use server::run;
pub(crate) use service::{
    ButtonPress, InboundRequest, InboundService, PageFormat, RawRequest, StaticPage,
};
pub(crate) use signature::{SignatureCheck, SignatureError, only_value};
