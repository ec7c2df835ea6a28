//! The connector of a model: asks a provider for replies, and forwards their parts as they arrive.
//!
//! * `question`, `message`: from a conversation to a provider-neutral request.
//! * `normalize`, `tool_schema`: names, ids, results and schemas in forms that a provider accepts.
//! * `thought_tags`, `text_calls`: thoughts and tool calls within the text of a reply.
//! * `tool_calls`: tool calls from the fragments that servers send.
//! * `argument_types`: arguments of calls in the types of their tools.
//! * `anthropic`, `openai`, `responses`, `google`: requests and replies in their protocols.
//! * `platform`, `sigv4`, `service_account`, `aws_frames`: URLs, credentials and encodings of the
//!   cloud platforms that serve models.
//! * `repair`: changes of a request that the provider rejects.
//! * `reply`: reads a server's response, which can be anything, into one answer.
//! * `failure`: classifies failures, and determines if retrying helps. The orchestrator retries,
//!   because it tracks all calls with the same key.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::{Instant, timeout};
use goondan_protocol::call::{COMPLETE, CallError, CallErrorCode, CallOrder, CompletionRequest};
use goondan_protocol::definition::{HostedModel, HostedProvider, ModelAssignment, OpenAiApi};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::gateway::Gateway;
use crate::http;
use argument_types::ArgumentTypes;
use dialect::Dialect;
use question::ChatRequest;
use repair::Repairs;
use reply::Expectation;
use service_account::AccessTokens;

mod ahead;
mod anthropic;
mod argument_types;
mod aws_frames;
mod dialect;
mod draft;
mod events;
mod failure;
mod google;
mod message;
mod normalize;
mod openai;
mod platform;
mod question;
mod repair;
mod reply;
mod responses;
mod service_account;
mod sigv4;
#[cfg(test)]
mod stream_quirks;
mod text_calls;
mod thought_tags;
mod thoughts;
mod tool_calls;
mod tool_schema;

/// Repairs of one request that its provider rejects.
const REPAIRS_MAX: usize = 4;

/// The header of W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Runs the connector of a model until `stop`, or returns the reason for failure.
pub(crate) async fn run(
    assignment: &ModelAssignment,
    gateway: &Gateway,
    stop: &CancellationToken,
) -> Result<(), String> {
    let model = &assignment.model;
    let caller = ModelCaller::new(model)?;
    gateway.serve(Arc::new(caller)).await;
    let at = model.endpoint.as_deref().unwrap_or("its provider");
    gateway
        .report(true, format!("{} at {at}", model.model))
        .await;
    stop.cancelled().await;
    Ok(())
}

struct ModelCaller {
    model: Arc<HostedModel>,
    client: reqwest::Client,
    /// Changes that the provider made necessary so far.
    repairs: Arc<Mutex<Repairs>>,
    tokens: Arc<AccessTokens>,
}

impl ModelCaller {
    fn new(model: &HostedModel) -> Result<Self, String> {
        let connect_timeout = Duration::from_millis(model.timeouts.connect_ms);
        let client =
            http::client(connect_timeout).map_err(|error| goondan_log::error_chain(&error))?;
        let model = Arc::new(model.clone());
        Ok(Self {
            model,
            client,
            repairs: Arc::default(),
            tokens: Arc::default(),
        })
    }
}

/// The body of a request, with the Model's extra fields, and the reader of its answer.
fn exchange_of(
    model: &HostedModel,
    question: &ChatRequest,
) -> Result<(Value, Box<dyn Dialect>), String> {
    let (mut body, reader): (Value, Box<dyn Dialect>) = match (model.provider, model.api) {
        (HostedProvider::Anthropic, _) => {
            let body = anthropic::request(model, question)?;
            (body, Box::<anthropic::AnthropicReader>::default())
        }
        (HostedProvider::OpenAi, OpenAiApi::Chat) => {
            let body = openai::request(model, question);
            (body, Box::new(openai::OpenAiReader::new(model)))
        }
        (HostedProvider::OpenAi, OpenAiApi::Responses) => {
            let body = responses::request(model, question);
            (body, Box::<responses::ResponsesReader>::default())
        }
        (HostedProvider::Google, _) => {
            let body = google::request(model, question);
            (body, Box::<google::GoogleReader>::default())
        }
    };
    platform::adapt_body(model, &mut body);
    if let Some(fields) = body.as_object_mut() {
        for (name, value) in &model.options {
            // A server that rejects a field may reject its null as well.
            if value.is_null() {
                fields.remove(name);
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
    Ok((body, reader))
}

impl CallHandler for ModelCaller {
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let access = ModelAccess {
            model: Arc::clone(&self.model),
            client: self.client.clone(),
            tokens: Arc::clone(&self.tokens),
        };
        let repairs = Arc::clone(&self.repairs);
        async move {
            let outcome = ask(&access, &call, &pieces, &repairs).await;
            let Err(error) = outcome else { return outcome };
            let token = access.tokens.current().await;
            if error.code == CallErrorCode::Unauthorized {
                access.tokens.forget().await;
            }
            // A server may quote the request.
            let secrets = platform::secrets_of(&access.model).into_iter();
            let secrets: Vec<&str> = secrets.chain(token.as_deref()).collect();
            Err(failure::without_secrets(error, &secrets))
        }
        .boxed()
    }
}

/// Everything that a request needs.
struct ModelAccess {
    model: Arc<HostedModel>,
    client: reqwest::Client,
    tokens: Arc<AccessTokens>,
}

/// Requests a reply. A request that the provider rejects as invalid is repaired and sent again.
async fn ask(
    access: &ModelAccess,
    call: &CallOrder,
    pieces: &Pieces,
    repairs: &Mutex<Repairs>,
) -> RawCallResult {
    let model = access.model.as_ref();
    if call.method != COMPLETE {
        let message = format!("a model has no method `{}`", call.method);
        return Err(CallError::new(CallErrorCode::NotFound, message));
    }
    let until = Instant::now() + Duration::from_millis(model.timeouts.total_ms);
    for _ in 0..REPAIRS_MAX {
        let known = repairs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let rejection = match ask_once(access, call, pieces, &known, until).await {
            Err(error) if error.code == CallErrorCode::Invalid => error,
            outcome => return outcome,
        };
        let mut question = question_of(model, call)?;
        known.apply(&mut question);
        let mut more = known.clone();
        let Some(repair) = more.add(model, &question, &rejection.message) else {
            return Err(rejection);
        };
        tracing::warn!(
            repair,
            rejection = rejection.message,
            "the provider rejected the request; changed it and sent it again"
        );
        *repairs.lock().unwrap_or_else(PoisonError::into_inner) = more;
    }
    let known = repairs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    ask_once(access, call, pieces, &known, until).await
}

fn invalid(message: String) -> CallError {
    CallError::new(CallErrorCode::Invalid, message)
}

fn question_of(model: &HostedModel, call: &CallOrder) -> Result<ChatRequest, CallError> {
    let completion: CompletionRequest = serde_json::from_str(call.params.get())
        .map_err(|error| invalid(format!("failed to parse the request: {error}")))?;
    Ok(ChatRequest::of(model, completion))
}

async fn ask_once(
    access: &ModelAccess,
    call: &CallOrder,
    pieces: &Pieces,
    repairs: &Repairs,
    until: Instant,
) -> RawCallResult {
    let ModelAccess {
        model,
        client,
        tokens,
    } = access;
    let mut question = question_of(model, call)?;
    repairs.apply(&mut question);
    let (mut body, reader) = exchange_of(model, &question).map_err(invalid)?;
    repairs.apply_to_body(&mut body);
    let url = platform::url_of(model).map_err(|error| {
        invalid(format!("the address cannot be used: {error}"))
            .suggest(format!("check `endpoint` of Model `{}`", model.name))
    })?;
    let body = serde_json::to_vec(&body)
        .map_err(|error| invalid(format!("failed to serialize the request: {error}")))?;
    let credentials = platform::credentials_of(model, client, tokens, &url, &body).await?;
    let mut request = client.post(url).header(CONTENT_TYPE, platform::JSON);
    for (name, value) in credentials {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            let field = failure::credential_field(model);
            invalid(format!("`{field}` contains characters that no header can"))
                .suggest(format!("check `{field}` of Model `{}`", model.name))
        })?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    if let Some(trace) = pieces.trace() {
        request = request.header(TRACEPARENT, trace.to_traceparent());
    }
    let first_byte = Duration::from_millis(model.timeouts.first_byte_ms);
    let response = timeout(first_byte, request.body(body).send()).await;
    let response = response.map_err(|_elapsed| failure::not_begun(model))?;
    let response = response.map_err(|error| failure::of_transport(model, &error))?;
    let expected = Expectation {
        dialect: reader,
        may_be_silent: question.reports_results(),
        types: ArgumentTypes::of(question.tools, &question.names),
        names: question.names,
    };
    let answer = reply::of(model, response, expected, pieces.clone(), until).await?;
    to_raw_value(&answer).map_err(|error| invalid(format!("failed to write the reply: {error}")))
}
