//! Validates the reports of modules before the engine receives them.

use goondan_protocol::JsonObject;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::message::{MessageEvent, MessageRole, MessageSource};

use super::invocation::InvocationScope;
use super::wire::{MiddlewareResult, RawNotes};
use crate::middleware::{MiddlewareReturn, Notes};
use crate::tool_call::ToolOutcome;

/// Longest message event of a module, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = MAX_INPUT_BYTES;

/// Validates the notes of a middleware. A module may not write tool calls or results, or
/// impersonate another source.
pub(super) fn notes_of(notes: RawNotes, extension: &ExtensionName) -> Result<Notes, String> {
    let RawNotes { events, state } = notes;
    let events = events.into_iter().map(|event| {
        let bytes = event.to_string().len();
        if bytes > MAX_EVENT_BYTES {
            return Err(format!(
                "a message event has {bytes} bytes; at most {MAX_EVENT_BYTES} are allowed"
            ));
        }
        let event: MessageEvent = serde_json::from_value(event)
            .map_err(|error| format!("emitted a value that is not a message event: {error}"))?;
        match event {
            MessageEvent::Append { mut message } => {
                let content = &message.data.content;
                let is_of_tool = message.data.role == MessageRole::Tool
                    || !content.tool_calls().is_empty()
                    || !content.tool_results().is_empty();
                if is_of_tool {
                    return Err(
                        "appended a tool call or a tool result; only models call tools".to_owned(),
                    );
                }
                message.source = MessageSource::Extension {
                    extension_name: extension.clone(),
                    extra: JsonObject::new(),
                };
                Ok(MessageEvent::Append { message })
            }
            other => Ok(other),
        }
    });
    Ok(Notes {
        events: events.collect::<Result<_, _>>()?,
        state,
    })
}

/// Return value of a middleware. A middleware that returned nothing passes on the result it
/// received.
pub(super) fn return_of(
    result: Option<MiddlewareResult>,
    moment: InvocationScope,
) -> MiddlewareReturn {
    match moment {
        InvocationScope::Step { .. } => MiddlewareReturn::Step {
            goes_on: result.and_then(|result| result.goes_on),
        },
        InvocationScope::Turn { outcome } => {
            let came = outcome.unwrap_or(TurnOutcome::Completed {
                reply: String::new(),
            });
            MiddlewareReturn::Turn(match result {
                None => came,
                Some(MiddlewareResult {
                    reply: Some(reply), ..
                }) => TurnOutcome::Completed { reply },
                Some(MiddlewareResult { code, message, .. }) => TurnOutcome::Failed {
                    code: code.unwrap_or_else(|| "E_EXT_FAILED".to_owned()),
                    message: message.unwrap_or_default(),
                },
            })
        }
        InvocationScope::Call { result: came, .. } => {
            let has_failed = came.as_ref().is_some_and(|came| came.has_failed);
            let is_unknown = came.as_ref().is_some_and(|came| came.is_unknown);
            let refusal = came.as_ref().and_then(|came| came.refusal.clone());
            let returned = result.and_then(|result| {
                Some(ToolOutcome {
                    text: result.text?,
                    is_error: result.is_error,
                    images: came.iter().flat_map(|came| came.images.clone()).collect(),
                    has_failed,
                    is_unknown,
                    refusal,
                })
            });
            MiddlewareReturn::Call(returned.or(came).unwrap_or_else(|| {
                ToolOutcome::error(
                    "E_EXT_FAILED: a middleware returned neither `next()` nor a result of its own",
                )
            }))
        }
    }
}
