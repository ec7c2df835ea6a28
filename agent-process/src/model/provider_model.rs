//! A provider's model. Its connector process holds the key and talks to the network; the
//! orchestrator records the reply before this process sees it.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{
    COMPLETE, CallError, CallErrorCode, CallPlace, CallRecord, CallTarget, REASONING,
    RecordedResult,
};
use goondan_protocol::definition::{CatalogEntry, Fallback, ModelParams};
use goondan_protocol::ids::ResourceName;
use goondan_protocol::limits::MAX_FRAME_BYTES;
use goondan_protocol::message::{Message, MessageContent, MessageRole};
use goondan_protocol::trace::TraceContext;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::request::{Model, ModelError, ModelLocation, ModelOutcome, ModelRequest};
use crate::outgoing_calls::{OutboundCall, OutboundCalls};

/// Time limit for a step's reply, in milliseconds, including queueing and retries. The connector's
/// own timeouts are shorter; this limit is the last resort.
const REPLY_DEADLINE_MS: u64 = 1_800_000;

/// Largest request, in bytes: a frame minus its envelope.
const QUESTION_BYTES_MAX: usize = MAX_FRAME_BYTES - 64 * 1024;

/// A model that is reached through the orchestrator, and its fallbacks.
#[derive(Debug)]
pub(crate) struct HostedModel {
    name: ResourceName,
    params: ModelParams,
    fallbacks: Vec<Fallback>,
    outgoing: OutboundCalls,
}

impl HostedModel {
    /// Creates a client for a model with its parameters and the fallbacks that are asked when it
    /// fails (`STEER-5`).
    pub(crate) fn new(
        (name, params): (ResourceName, ModelParams),
        fallbacks: Vec<Fallback>,
        outgoing: OutboundCalls,
    ) -> Self {
        Self {
            name,
            params,
            fallbacks,
            outgoing,
        }
    }
}

/// A [`goondan_protocol::call::CompletionRequest`] that borrows the conversation, without the parameters.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BorrowedCompletion<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<BorrowedMessage<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [CatalogEntry],
}

#[derive(Serialize)]
struct BorrowedMessage<'a> {
    role: MessageRole,
    content: &'a MessageContent,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a Value>,
}

impl<'a> BorrowedMessage<'a> {
    fn of(message: &'a Message) -> Self {
        Self {
            role: message.data.role,
            content: &message.data.content,
            reasoning: message.metadata.get(REASONING),
        }
    }
}

fn unwritable(error: &serde_json::Error) -> ModelError {
    ModelError::new(format!("failed to serialize the request: {error}"))
}

/// Serializes the request, which is the same for every model.
fn question_of(request: &ModelRequest<'_>) -> Result<Box<RawValue>, ModelError> {
    let messages: Vec<_> = request.messages.messages().collect::<Result<_, _>>()?;
    let question = to_raw_value(&BorrowedCompletion {
        system: request.system,
        messages: messages
            .iter()
            .map(|message| BorrowedMessage::of(message))
            .collect(),
        tools: request.catalog,
    })
    .map_err(|error| unwritable(&error))?;
    let bytes = question.get().len();
    if bytes > QUESTION_BYTES_MAX {
        return Err(ModelError {
            code: "E_CONTEXT_OVERFLOW",
            message: format!(
                "the conversation has {bytes} bytes, more than the {QUESTION_BYTES_MAX} that a \
                 request to a model holds; begin a new conversation"
            ),
        });
    }
    Ok(question)
}

/// Adds a model's parameters to the request.
fn with_params(question: &RawValue, params: &ModelParams) -> Result<Box<RawValue>, ModelError> {
    if params.is_empty() {
        return Ok(question.to_owned());
    }
    let fields = question.get().strip_suffix('}').unwrap_or_default();
    let params = serde_json::to_string(params).map_err(|error| unwritable(&error))?;
    let whole = format!("{fields},\"params\":{params}}}");
    RawValue::from_string(whole).map_err(|error| unwritable(&error))
}

/// The request of one step, the same for every model.
struct StepRequest {
    first: ResourceName,
    question: Box<RawValue>,
    place: CallPlace,
    record: CallRecord,
    trace: Option<TraceContext>,
}

impl StepRequest {
    fn ask_of(
        &self,
        name: &ResourceName,
        params: &ModelParams,
    ) -> Result<OutboundCall, ModelError> {
        Ok(OutboundCall {
            target: CallTarget::Model { name: name.clone() },
            method: COMPLETE.to_owned(),
            params: with_params(&self.question, params)?,
            deadline_ms: REPLY_DEADLINE_MS,
            idempotent: true,
            recoverable: false,
            again_since: None,
            only_if_ready: false,
            place: Some(self.place.clone()),
            record: Some(self.record.clone()),
            trace: self.trace,
        })
    }

    /// Asks the first model, and each fallback if the previous failure is one that it covers.
    /// Returns the first reply, or the last failure together with the earlier ones.
    async fn ask(
        mut self,
        first: OutboundCall,
        fallbacks: Vec<Fallback>,
        outgoing: OutboundCalls,
    ) -> Result<Box<RawValue>, ModelError> {
        if fallbacks.is_empty() {
            // Without fallbacks, the long conversation need not be kept in memory.
            drop(std::mem::take(&mut self.question));
        }
        let mut outcome = outgoing.call(first).await;
        let (mut asked, mut before) = (self.first.clone(), Vec::new());
        for fallback in fallbacks {
            let Err(error) = &outcome else {
                break;
            };
            if !fallback.on.contains(&error.code) {
                continue;
            }
            tracing::warn!(
                error = error.message,
                next = fallback.name.as_str(),
                "model failed; asking the next one"
            );
            before.push(format!("model `{asked}`: {}", error.message));
            asked.clone_from(&fallback.name);
            let next = self.ask_of(&fallback.name, &fallback.params)?;
            outcome = outgoing.call(next).await;
        }
        outcome.map_err(|error| {
            let failure = failure_of(error);
            match before.is_empty() {
                true => failure,
                false => ModelError {
                    message: format!(
                        "model `{asked}`: {}; earlier: {}",
                        failure.message,
                        before.join("; ")
                    ),
                    ..failure
                },
            }
        })
    }
}

impl Model for HostedModel {
    fn ask(
        &self,
        request: ModelRequest<'_>,
    ) -> BoxFuture<'static, Result<ModelOutcome, ModelError>> {
        let step = question_of(&request).map(|question| StepRequest {
            first: self.name.clone(),
            question,
            place: CallPlace {
                turn_id: request.turn_id.clone(),
                step_id: Some(request.step_id.clone()),
                tool_call_id: None,
            },
            record: CallRecord {
                seq: request.seq,
                message_id: request.message_id.clone(),
            },
            trace: request.trace,
        });
        let first = step.and_then(|step| {
            let first = step.ask_of(&self.name, &self.params)?;
            Ok((step, first))
        });
        let (step, first) = match first {
            Ok(asked) => asked,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        let (fallbacks, outgoing) = (self.fallbacks.clone(), self.outgoing.clone());
        async move {
            let raw = step.ask(first, fallbacks, outgoing).await?;
            let read = |raw: &str| {
                let recorded: RecordedResult = serde_json::from_str(raw)?;
                serde_json::from_str::<Message>(recorded.message.get())
            };
            match read(raw.get()) {
                Ok(message) => Ok(ModelOutcome::Recorded(Box::new(message))),
                Err(error) => {
                    let message = format!("failed to read the recorded reply: {error}");
                    Err(ModelError::new(message))
                }
            }
        }
        .boxed()
    }

    fn place(&self) -> ModelLocation {
        ModelLocation::Outside
    }
}

/// Converts a failed call to the turn's failure.
fn failure_of(error: CallError) -> ModelError {
    let code = match error.code {
        CallErrorCode::Unauthorized => "E_MODEL_UNAUTHORIZED",
        CallErrorCode::NotFound => "E_MODEL_NOT_FOUND",
        CallErrorCode::OverBudget => "E_BUDGET",
        CallErrorCode::TooLarge => "E_CONTEXT_OVERFLOW",
        CallErrorCode::RateLimited => "E_MODEL_RATE_LIMITED",
        CallErrorCode::Overloaded => "E_MODEL_OVERLOADED",
        CallErrorCode::Unavailable => "E_MODEL_UNAVAILABLE",
        CallErrorCode::TimedOut => "E_MODEL_TIMEOUT",
        CallErrorCode::Interrupted => "E_MODEL_INTERRUPTED",
        CallErrorCode::Refused => "E_MODEL_REFUSED",
        CallErrorCode::Invalid | CallErrorCode::Cancelled | CallErrorCode::Internal => "E_MODEL",
    };
    let message = match error.suggestion {
        Some(suggestion) => format!("{}; {suggestion}", error.message),
        None => error.message,
    };
    ModelError { code, message }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::CompletionRequest;
    use goondan_protocol::conversation::Conversation;
    use goondan_protocol::ids::{MessageId, StepId, TurnId};
    use goondan_protocol::time::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let at = Timestamp::from_unix_millis(0);
        let step_id = StepId::new("t.1").unwrap();
        let id = MessageId::new("t.1:a").unwrap();
        let mut reply = Message::assistant(
            id.clone(),
            at,
            step_id.clone(),
            MessageContent::text("Hello."),
        );
        let reasoning = json!({"text": "They greet."});
        reply.metadata.insert(REASONING.into(), reasoning.clone());
        let request = ModelRequest {
            system: Some("Be brief."),
            messages: &Conversation::from_base(vec![Message::user(id.clone(), at, "Hi."), reply]),
            catalog: &[CatalogEntry {
                name: "bash__exec".parse().unwrap(),
                description: "Runs.".into(),
                parameters: json!({"type": "object"}),
            }],
            turn_id: &TurnId::new("t").unwrap(),
            step_id: &step_id,
            seq: 1,
            message_id: &id,
            trace: None,
            step: 1,
        };
        let params = ModelParams {
            temperature: Some(0.5),
            ..ModelParams::default()
        };
        let question = with_params(&question_of(&request).unwrap(), &params).unwrap();
        let read: CompletionRequest = serde_json::from_str(question.get()).unwrap();
        assert_eq!(read.system.as_deref(), Some("Be brief."));
        assert_eq!(read.tools, request.catalog);
        assert_eq!(read.params, params);
        assert_eq!(read.messages[1].reasoning, Some(reasoning));
        assert_eq!(read.messages[0].role, MessageRole::User);
        let again = serde_json::to_value(&read).unwrap();
        assert_eq!(
            again,
            serde_json::from_str::<Value>(question.get()).unwrap()
        );
    }
}
