//! From an assignment to the connector that does the work.

use std::sync::Arc;

use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::version::GOONDAN_VERSION;
use tokio_util::sync::CancellationToken;

use crate::cron::Cron;
use crate::discord::Discord;
use crate::fetch::Fetcher;
use crate::gateway::Gateway;
use crate::github::GitHub;
use crate::link::Role;
use crate::listener::{self, Service};
use crate::mcp::Mcp;
use crate::model;
use crate::otlp::Otlp;
use crate::program::Program;
use crate::slack::Slack;
use crate::telegram::Telegram;
use crate::webhook::Webhook;

/// A connector, ready to work.
enum Connector {
    /// It is spoken to over HTTP.
    Listener(Arc<dyn Service>),
    /// It asks Telegram for news.
    Telegram(Telegram),
    /// It makes requests for agents.
    Fetcher(Fetcher),
    /// It looks at the clock.
    Cron(Cron),
    /// It exports traces.
    Otlp(Otlp),
    /// It speaks to a server of the Model Context Protocol.
    Mcp(Box<Mcp>),
    /// It is a program of the project.
    Program(Program),
}

/// Is the assigned connector until `stop`. What cannot work says why and waits: the reason stays
/// visible, where a crash loop would bury it.
pub(crate) async fn run(role: Role, gateway: Gateway, stop: CancellationToken) {
    let reason = match role {
        Role::Connection(assignment) => match open(&assignment) {
            Ok(connector) => {
                drop(assignment);
                return match connector {
                    Connector::Listener(service) => listener::run(service, gateway, stop).await,
                    Connector::Telegram(telegram) => telegram.run(gateway, stop).await,
                    Connector::Fetcher(fetcher) => fetcher.run(gateway, stop).await,
                    Connector::Cron(cron) => cron.run(gateway, stop).await,
                    Connector::Otlp(otlp) => otlp.run(gateway, stop).await,
                    Connector::Mcp(mcp) => mcp.run(gateway, stop).await,
                    Connector::Program(program) => program.run(gateway, stop).await,
                };
            }
            Err(reason) => reason,
        },
        Role::Model(assignment) => match model::run(&assignment, &gateway, &stop).await {
            Ok(()) => return,
            Err(reason) => reason,
        },
    };
    tracing::error!(
        reason,
        "this process does nothing until its configuration is mended"
    );
    gateway.report(false, reason).await;
    stop.cancelled().await;
}

/// Makes the assigned connector, or says why it cannot be.
fn open(assignment: &ConnectorAssignment) -> Result<Connector, String> {
    if let Some(program) = Program::new(assignment) {
        return Ok(Connector::Program(program));
    }
    let ConnectorAssignment {
        connector,
        config,
        secrets,
        ..
    } = assignment;
    let name = connector.as_str();
    let Some(described) = goondan_connectors::find(name) else {
        let names = goondan_connectors::BUILTINS.map(|described| format!("`{}`", described.name));
        return Err(format!(
            "there is no connector `{name}` in goondan {GOONDAN_VERSION}; there is {}",
            names.join(", ")
        ));
    };
    let problems = goondan_connectors::check(described, config, secrets);
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(format!("the settings cannot work: {}", problems.join("; ")));
    }
    Ok(match name {
        "webhook" => Connector::Listener(Arc::new(Webhook::new(config, secrets))),
        "cron" => Connector::Cron(Cron::new(&assignment.connection, config)?),
        "telegram" => Connector::Telegram(Telegram::new(config, secrets)?),
        "slack" => Connector::Listener(Arc::new(Slack::new(config, secrets)?)),
        "github" => Connector::Listener(Arc::new(GitHub::new(config, secrets)?)),
        "discord" => Connector::Listener(Arc::new(Discord::new(config, secrets)?)),
        "http" => Connector::Fetcher(Fetcher::new(config)?),
        "otlp" => Connector::Otlp(Otlp::new(config, secrets)?),
        "mcp" => Connector::Mcp(Box::new(Mcp::new(assignment)?)),
        other => {
            return Err(format!(
                "the connector `{other}` is not in goondan {GOONDAN_VERSION} yet"
            ));
        }
    })
}
