//! Creates the connector of an assignment.

use std::pin::Pin;

use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::oauth::OAUTH;
use goondan_protocol::version::GOONDAN_VERSION;
use tokio_util::sync::CancellationToken;

use crate::BUILTINS;
use crate::egress::ProxySockets;
use crate::gateway::Gateway;
use crate::link::ConnectorRole;
use crate::listener::{self, CallbackWorker, InboundService};
use crate::model;
use crate::oauth::OAuthRequester;
use crate::program::Program;

/// Creates a connector from an assignment with valid settings and secrets, or returns the reason
/// for failure.
pub(crate) type ConnectorFactory = fn(&ConnectorAssignment) -> Result<Ready, String>;

/// A connector that is ready to run until it is stopped.
pub(crate) struct Ready(Box<dyn FnOnce(Gateway, CancellationToken) -> ConnectorTask + Send>);

type ConnectorTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Ready {
    /// Creates a connector that stops when intake from outside ends. Later calls still go to the
    /// handler that it has set.
    pub(crate) fn to<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Gateway, CancellationToken) -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(|gateway, _stop| {
            let intake_over = gateway.intake_over();
            Box::pin(work(gateway, intake_over))
        }))
    }

    /// Creates a connector that runs until the process stops, because calls need its work.
    pub(crate) fn to_the_end<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Gateway, CancellationToken) -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(|gateway, stop| Box::pin(work(gateway, stop))))
    }

    /// Creates a connector that serves HTTP requests and delivers replies. Replies are delivered
    /// until the final stop, because turns finish after the last request.
    pub(crate) fn to_listen_and_reply(
        service: impl InboundService + 'static,
        worker: CallbackWorker,
    ) -> Self {
        let service = std::sync::Arc::new(service);
        let serve = |gateway: Gateway| {
            let intake_over = gateway.intake_over();
            listener::run(service, gateway, intake_over)
        };
        Self::to_serve_and_reply(serve, Some(worker))
    }

    /// Creates a connector that runs `serve` until intake ends, and delivers replies until the final
    /// stop, if it has a worker for them.
    pub(crate) fn to_serve_and_reply<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(Gateway) -> F + Send + 'static,
        worker: Option<CallbackWorker>,
    ) -> Self {
        Self::to_the_end(|gateway, stop| async move {
            let serving = async {
                serve(gateway.clone()).await;
                stop.cancelled().await;
            };
            let posting = async {
                match worker {
                    Some(worker) => worker.run(gateway.clone()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = serving => {}
                () = posting => {}
            }
        })
    }

    /// Creates a connector that serves HTTP requests.
    pub(crate) fn to_listen(service: impl InboundService + 'static) -> Self {
        let service = std::sync::Arc::new(service);
        Self::to(|gateway, intake_over| listener::run(service, gateway, intake_over))
    }
}

/// Runs the assigned connector until `stop`. A connector that cannot run is parked with the reason;
/// `fault` is set if the process could not be set up.
pub(crate) async fn run(
    role: ConnectorRole,
    fault: Option<String>,
    doors: ProxySockets,
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
        ConnectorRole::Connection(assignment) => match open(&assignment) {
            Ok(Ready(work)) => {
                drop(assignment);
                return work(gateway, stop).await;
            }
            Err(reason) => reason,
        },
        ConnectorRole::Model(assignment) => match model::run(&assignment, &gateway, &stop).await {
            Ok(()) => return,
            Err(reason) => reason,
        },
    };
    tracing::error!(
        reason,
        "the connector is idle until its configuration is fixed"
    );
    gateway.report(false, reason).await;
    stop.cancelled().await;
}

/// Creates the assigned connector, or returns the reason for failure.
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
        let asker = OAuthRequester::new()?;
        return Ok(Ready::to(|gateway, stop| asker.run(gateway, stop)));
    }
    let Some(described) = goondan_connectors::find(name) else {
        let names = goondan_connectors::BUILTINS.map(|described| format!("`{}`", described.name));
        return Err(format!(
            "goondan {GOONDAN_VERSION} has no connector `{name}`; available: {}",
            names.join(", ")
        ));
    };
    let problems = goondan_connectors::check(described, config, secrets);
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(format!("invalid settings: {}", problems.join("; ")));
    }
    let Some((_, make)) = BUILTINS.iter().find(|(builtin, _)| *builtin == name) else {
        return Err(format!(
            "the connector `{name}` is not in goondan {GOONDAN_VERSION} yet"
        ));
    };
    make(assignment)
}
