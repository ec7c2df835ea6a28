//! The ConnectorProcess of goondan: one process for each connection, bringing events in from
//! outside (`SUP-1`, `SUP-3`).
//!
//! # Layout, from the orchestrator outwards
//!
//! * `link`: the socket to the orchestrator, and the handshake that says what this process is.
//! * `session`: what is said over that socket afterwards. It owns the requests that wait for the
//!   orchestrator's word.
//! * `calls`: the calls that agents want made, and the trait of those who make them.
//! * `own_sandbox`: what the process is kept from, once it knows what it is.
//! * `gateway`: all a connector sees of the session: hand in an event, report a state, make calls.
//! * `connector`: from an assignment to the connector that does the work; `BUILTINS` lists those there are.
//! * `model`: asks a provider for replies; `http`: the client of everything that goes out.
//! * `listener`: what all connectors share that are spoken to over HTTP.
//! * `telegram`: what people write to a bot; `http`: the client of everything that goes out.
//! * `cron`: events at times of the project's choice.
//! * `program`: a connector that is a program of the project; `lines`: what programs write; `back_off`: how long to wait before
//!   something that failed is tried again.
//! * `egress`: lets confined programs reach the hosts that a person has listed for them.
//! * `metrics`: answers with what the daemon counts.
//! * `relay`: both ends of a connector that runs on another machine.
//! * `webhook`, `slack`, `github`, `discord`: those connectors; `payload`: what the last three share;
//!   `service`, `service_api`: what those share that do something at a service for agents.
//!
//! # Invariants
//!
//! * Nobody outside is told that an event was taken before the orchestrator said that it is durable
//!   (`MSG-13`).
//! * This process writes no file; the egress has sockets in the daemon's `run/egress/`. Its log goes to stdout (`LOG-1`).
//! * Without the orchestrator there is no connector: when the socket closes, the process exits at
//!   once, and requests in progress get no answer (`SUP-7`).
//! * Secrets and bodies are never logged (`SEC-2`).

mod approvals;
mod back_off;
mod bearer;
mod call_clock;
mod calls;
mod certificates;
mod command_line;
mod confined;
mod connector;
mod cron;
mod discord;
mod download;
mod egress;
mod fetch;
mod gateway;
mod github;
mod guarded;
mod http;
pub mod limits;
mod lines;
mod link;
mod listener;
mod mcp;
mod metrics;
mod model;
mod oauth;
mod otlp;
mod own_sandbox;
mod parent;
mod payload;
mod process;
mod program;
mod relay;
mod service;
mod service_api;
mod session;
mod slack;
mod telegram;
mod webhook;

#[cfg(test)]
mod documentation;

use connector::{Make, Ready};

pub use process::run;

/// The built-in connectors that a process runs for, each with what makes it of its settings.
static BUILTINS: [(&str, Make); 11] = [
    ("webhook", |it| {
        webhook::Webhook::ready(&it.config, &it.secrets)
    }),
    ("cron", |it| {
        let cron = cron::Cron::new(&it.connection, &it.config)?;
        Ok(Ready::to(|gateway, stop| cron.run(gateway, stop)))
    }),
    ("telegram", |it| {
        let telegram = telegram::Telegram::new(&it.config, &it.secrets)?;
        Ok(Ready::to(|gateway, stop| telegram.run(gateway, stop)))
    }),
    ("slack", |it| {
        let slack = slack::Slack::new(&it.config, &it.secrets)?;
        Ok(Ready::to(|gateway, stop| slack.run(gateway, stop)))
    }),
    ("github", |it| {
        github::GitHub::new(&it.config, &it.secrets).map(Ready::to_listen)
    }),
    ("discord", |it| {
        discord::Discord::new(&it.config, &it.secrets).map(Ready::to_listen)
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
