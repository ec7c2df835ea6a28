//! From an assignment to the connector that does the work.

use std::pin::Pin;

use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::oauth::OAUTH;
use goondan_protocol::version::GOONDAN_VERSION;
use tokio_util::sync::CancellationToken;

use crate::BUILTINS;
use crate::egress::Doors;
use crate::gateway::Gateway;
use crate::link::Role;
use crate::listener::{self, Service};
use crate::model;
use crate::oauth::Asker;
use crate::program::Program;

/// Makes a connector of an assignment whose settings and secrets are in order, or says why it cannot be.
pub(crate) type Make = fn(&ConnectorAssignment) -> Result<Ready, String>;

/// A connector, ready to work until it is told to stop.
pub(crate) struct Ready(Box<dyn FnOnce(Gateway, CancellationToken) -> Work + Send>);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Ready {
    /// One that works like this until it is to take nothing new from outside. Calls that come later are made by the
    /// handler that it has given.
    pub(crate) fn to<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Gateway, CancellationToken) -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(|gateway, _stop| {
            let intake_over = gateway.intake_over();
            Box::pin(work(gateway, intake_over))
        }))
    }

    /// One whose work calls need, so that it goes on until the end of all.
    pub(crate) fn to_the_end<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Gateway, CancellationToken) -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(|gateway, stop| Box::pin(work(gateway, stop))))
    }

    /// One that is spoken to over HTTP.
    pub(crate) fn to_listen(service: impl Service + 'static) -> Self {
        let service = std::sync::Arc::new(service);
        Self::to(|gateway, intake_over| listener::run(service, gateway, intake_over))
    }
}

/// Is the assigned connector until `stop`. What cannot work is parked with its reason; `fault` is that of a process
/// that could not be set up.
pub(crate) async fn run(
    role: Role,
    fault: Option<String>,
    doors: Doors,
    gateway: Gateway,
    stop: CancellationToken,
) {
    if let Some(reason) = fault {
        return gateway.park(&reason, &stop).await;
    }
    if !doors.is_none() {
        return doors.serve(gateway, stop).await;
    }
    let reason = match role {
        Role::Connection(assignment) => match open(&assignment) {
            Ok(Ready(work)) => {
                drop(assignment);
                return work(gateway, stop).await;
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
fn open(assignment: &ConnectorAssignment) -> Result<Ready, String> {
    if let Some(program) = Program::new(assignment) {
        return Ok(Ready::to(|gateway, stop| program.run(gateway, stop)));
    }
    let ConnectorAssignment {
        connector,
        config,
        secrets,
        ..
    } = assignment;
    let name = connector.as_str();
    if name == OAUTH {
        let asker = Asker::new()?;
        return Ok(Ready::to(|gateway, stop| asker.run(gateway, stop)));
    }
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
    let Some((_, make)) = BUILTINS.iter().find(|(builtin, _)| *builtin == name) else {
        return Err(format!(
            "the connector `{name}` is not in goondan {GOONDAN_VERSION} yet"
        ));
    };
    make(assignment)
}
