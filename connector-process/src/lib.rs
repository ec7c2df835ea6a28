//! The ConnectorProcess of goondan: one process per connection, which receives events from outside
//! (`SUP-1`, `SUP-3`).
//!
//! # Layout, from the orchestrator outwards
//!
//! * `link`: the socket to the orchestrator, and the handshake that assigns a role to this process.
//! * `session`: the messages over that socket after the handshake. It owns the requests that wait
//!   for the orchestrator.
//! * `calls`: outgoing calls of agents, and the trait of their handlers.
//! * `own_sandbox`: restrictions of the process once its role is known.
//! * `package_cache`: packages that runners of MCP servers keep between starts.
//! * `gateway`: a connector's interface to the session: submit an event, report a status, perform
//!   calls.
//! * `connector`: creates the connector of an assignment; `BUILTINS` lists the built-in connectors.
//! * `model`: asks a provider for replies; `http`: the client for all outgoing requests.
//! * `listener`: the shared part of all connectors that serve HTTP.
//! * `telegram`: messages that people write to a bot; `matrix`: messages in rooms.
//! * `email`: messages to a mailbox; `tcp`: connections of other protocols than HTTP.
//! * `cron`: events at configured times.
//! * `program`: a connector that is a program of the project; `lines`: output of programs;
//!   `back_off`: pauses before retries.
//! * `egress`: lets confined programs reach the hosts that a person has listed for them.
//! * `metrics`: serves the daemon's metrics.
//! * `relay`: both ends of a connector that runs on another machine.
//! * `chat_replies`: posts replies to chats; `multipart`: uploads files.
//! * `webhook`, `slack`, `github`, `gitlab`, `discord`: the connectors of these names; `payload`: the
//!   shared part of the last four; `sentence`, `own_mark`: that of `github` and `gitlab`.
//! * `service`, `service_api`: the shared part of connectors that act at a service for agents.
//!
//! # Invariants
//!
//! * A sender receives an acknowledgment only after the orchestrator has confirmed that the event
//!   is durable (`MSG-13`).
//! * This process writes no file; the egress has sockets in the daemon's `run/egress/`. Its log
//!   goes to stdout (`LOG-1`).
//! * Without the orchestrator no connector runs: when the socket closes, the process exits
//!   immediately, and requests in progress get no answer (`SUP-7`).
//! * Secrets and bodies are never logged (`SEC-2`).

mod back_off;
mod bearer;
mod call_clock;
mod calls;
mod chat_replies;
mod child_guard;
mod command_line;
mod connector;
mod content_encoding;
mod cron;
mod decisions;
mod discord;
mod download;
mod egress;
mod email;
mod fetch;
mod gateway;
mod github;
mod gitlab;
mod http;
pub mod limits;
mod lines;
mod link;
mod listener;
mod look_back;
mod matrix;
mod mcp;
mod metrics;
mod model;
mod multipart;
mod oauth;
mod otlp;
mod own_mark;
mod own_sandbox;
mod package_cache;
mod parent;
mod payload;
mod process;
mod program;
mod relay;
mod sandboxed_program;
mod sentence;
mod server_time;
mod service;
mod service_api;
mod session;
mod slack;
mod tcp;
mod telegram;
mod webhook;

#[cfg(test)]
mod documentation;

use connector::{ConnectorFactory, Ready};

pub use process::run;

/// The built-in connectors, each with its constructor.
static BUILTINS: [(&str, ConnectorFactory); 14] = [
    ("webhook", |it| {
        webhook::Webhook::ready(&it.config, &it.secrets)
    }),
    ("cron", |it| {
        let cron = cron::Cron::new(&it.connection, &it.config)?;
        Ok(Ready::to(|gateway, stop| cron.run(gateway, stop)))
    }),
    ("telegram", |it| {
        let telegram = telegram::Telegram::new(&it.connection, &it.config, &it.secrets)?;
        Ok(Ready::to_the_end(|gateway, stop| {
            telegram.run(gateway, stop)
        }))
    }),
    ("slack", |it| {
        slack::Slack::ready(&it.connection, &it.config, &it.secrets)
    }),
    ("github", |it| {
        let github = github::GitHub::new(&it.config, &it.secrets)?;
        Ok(Ready::to(|gateway, stop| github.run(gateway, stop)))
    }),
    ("gitlab", |it| {
        let gitlab = gitlab::GitLab::new(&it.config, &it.secrets)?;
        Ok(Ready::to(|gateway, stop| gitlab.run(gateway, stop)))
    }),
    ("discord", |it| {
        discord::Discord::ready(&it.connection, &it.config, &it.secrets)
    }),
    ("email", |it| {
        let email = email::Email::new(&it.connection, &it.config, &it.secrets)?;
        Ok(Ready::to_the_end(|gateway, stop| email.run(gateway, stop)))
    }),
    ("matrix", |it| {
        let matrix = matrix::Matrix::new(&it.connection, &it.config, &it.secrets)?;
        Ok(Ready::to_the_end(|gateway, stop| matrix.run(gateway, stop)))
    }),
    ("http", |it| {
        let fetcher = fetch::Fetcher::new(&it.config)?;
        Ok(Ready::to(|gateway, stop| fetcher.run(gateway, stop)))
    }),
    ("otlp", |it| {
        let otlp = otlp::Otlp::new(&it.config, &it.secrets)?;
        Ok(Ready::to_the_end(|gateway, stop| otlp.run(gateway, stop)))
    }),
    ("metrics", |it| {
        Ok(Ready::to_listen(metrics::Metrics::new(&it.config)))
    }),
    ("mcp", |it| {
        let mcp = mcp::Mcp::new(it)?;
        Ok(Ready::to_the_end(|gateway, stop| mcp.run(gateway, stop)))
    }),
    ("relay", |it| {
        let relay = relay::Relay::new(it)?;
        Ok(Ready::to_the_end(|gateway, stop| relay.run(gateway, stop)))
    }),
];
