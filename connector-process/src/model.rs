//! The connector of a model: asks a provider for replies, and hands on what it says as it comes.
//!
//! * `question`: from a conversation to what the provider is asked.
//! * `reply`: from the stream that comes back to one answer, and the pieces ahead of it.
//! * `failure`: why there is none, and whether trying again helps. Trying again is the
//!   orchestrator's: it knows of all calls with the same key.
//!
//! The library that knows the wire formats is seen by these modules only. It turns a stream that just
//! ends into silence; here a stream without its end is a failure.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use genai::adapter::AdapterKind;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ModelSpec, ServiceTarget};
use goondan_protocol::call::{COMPLETE, CallError, CallErrorCode, CallOrder, Completion};
use goondan_protocol::definition::{HostedModel, HostedProvider, ModelAssignment};
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use crate::calls::{CallHandler, Outcome, Pieces};
use crate::gateway::Gateway;
use crate::http;

mod failure;
mod question;
mod reply;

/// What a server is given that asks for no key: some clients and servers insist on one.
const NO_KEY: &str = "none";

/// Is the connector of a model until `stop`, or says why it cannot be.
pub(crate) async fn run(
    assignment: &ModelAssignment,
    gateway: &Gateway,
    stop: &CancellationToken,
) -> Result<(), String> {
    let model = &assignment.model;
    let asker = Asker::new(model)?;
    gateway.serve(Arc::new(asker)).await;
    let at = model.endpoint.as_deref().unwrap_or("its provider");
    gateway
        .report(true, format!("{} at {at}", model.model))
        .await;
    stop.cancelled().await;
    Ok(())
}

/// Asks one model.
struct Asker {
    model: Arc<HostedModel>,
    client: Client,
}

impl Asker {
    fn new(model: &HostedModel) -> Result<Self, String> {
        let no_client = |error: &dyn std::error::Error| format!("there is no HTTP client: {error}");
        let connect_timeout = Duration::from_millis(model.timeouts.connect_ms);
        let http = http::client(connect_timeout).map_err(|error| no_client(&error))?;
        let client = Client::builder().with_reqwest(http).build();
        let client = client.map_err(|error| no_client(&error))?;
        let model = Arc::new(model.clone());
        Ok(Self { model, client })
    }
}

/// Whose protocol is spoken, in the library's words.
fn adapter_of(provider: HostedProvider) -> AdapterKind {
    match provider {
        HostedProvider::Anthropic => AdapterKind::Anthropic,
        HostedProvider::OpenAi => AdapterKind::OpenAI,
        HostedProvider::Google => AdapterKind::Gemini,
    }
}

/// Where the provider usually is.
fn usual_endpoint(provider: HostedProvider) -> &'static str {
    match provider {
        HostedProvider::Anthropic => "https://api.anthropic.com/v1/",
        HostedProvider::OpenAi => "https://api.openai.com/v1/",
        HostedProvider::Google => "https://generativelanguage.googleapis.com/v1beta/",
    }
}

fn target_of(model: &HostedModel) -> ModelSpec {
    let endpoint = match model.endpoint.as_deref() {
        None => Endpoint::from_static(usual_endpoint(model.provider)),
        // Paths are joined to it as they are.
        Some(url) if url.ends_with('/') => Endpoint::from_owned(url),
        Some(url) => Endpoint::from_owned(format!("{url}/")),
    };
    let key = model.api_key.as_deref().unwrap_or(NO_KEY);
    ModelSpec::from_target(ServiceTarget {
        endpoint,
        auth: AuthData::from_single(key),
        model: ModelIden::new(adapter_of(model.provider), model.model.as_str()),
    })
}

impl CallHandler for Asker {
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, Outcome> {
        let (model, client) = (Arc::clone(&self.model), self.client.clone());
        async move {
            let outcome = ask(&model, &client, &call, pieces).await;
            // A server may quote what it was sent.
            outcome.map_err(|error| failure::without_key(error, model.api_key.as_deref()))
        }
        .boxed()
    }
}

async fn ask(model: &HostedModel, client: &Client, call: &CallOrder, pieces: Pieces) -> Outcome {
    let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
    if call.method != COMPLETE {
        let message = format!("a model has no method `{}`", call.method);
        return Err(CallError::new(CallErrorCode::NotFound, message));
    }
    let completion: Completion = serde_json::from_str(call.params.get())
        .map_err(|error| invalid(format!("the question cannot be read: {error}")))?;
    let (request, options) = question::of(model, completion);
    let response = client
        .exec_chat_stream(target_of(model), request, Some(&options))
        .await
        .map_err(|error| failure::of(model, &error))?;
    let answer = reply::of(model, response.stream, pieces).await?;
    to_raw_value(&answer).map_err(|error| invalid(format!("the reply cannot be written: {error}")))
}
