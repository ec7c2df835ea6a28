//! The `scripted` model: it plays a script, needs no network and is deterministic.
//!
//! [`ScriptedModel::play`] is a pure function of the script and the request. The conditions of a
//! rule are documented in `docs/scripted-model.md`, whose examples a test runs.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::event_header::{HEADER, text_below};
use goondan_protocol::ids::{StepId, ToolCallId};
use goondan_protocol::message::{Message, MessageRole, MessageSource, ToolCall, ToolResult};
use goondan_protocol::script::Script;
use serde_json::Value;

use super::pattern::{CompiledRule, Pattern, compile};
use super::request::{Model, ModelError, ModelLocation, ModelOutcome, ModelReply, ModelRequest};
use super::template::Captures;

/// Maximum text of one reply, including its arguments, in bytes. Without a limit, captures could
/// grow a message past the size of a frame.
pub const MAX_REPLY_BYTES: usize = 1024 * 1024;

/// Characters of the conversation quoted in an error.
const QUOTED_CHARS: usize = 120;

/// A model that plays a script.
#[derive(Debug)]
pub struct ScriptedModel {
    /// An invalid script answers every step with the reason, so that the person who asks the agent
    /// sees it without the log of a process that fails to start.
    rules: Result<Vec<CompiledRule>, ModelError>,
}

/// A rule's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedReply {
    /// The reply, or the failure that the rule requests.
    pub reply: Result<ModelReply, ModelError>,
    pub delay: Duration,
}

impl ScriptedModel {
    /// Creates a model that plays `script`.
    #[must_use]
    pub fn new(script: &Script) -> Self {
        Self {
            rules: compile(script),
        }
    }

    /// Plays the first rule with all conditions met.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the script is invalid, no rule matches, or the rule uses an undefined
    /// capture.
    pub fn play(&self, request: ModelRequest<'_>) -> Result<ScriptedReply, ModelError> {
        let rules = self.rules.as_ref().map_err(Clone::clone)?;
        let context = RuleContext::of(request)?;
        for (rule, place) in rules.iter().zip(1_usize..) {
            let mut captures = context.captures.clone();
            if context.fits(rule, &mut captures)? {
                let reply = reply_of(rule, &captures, request.step_id).map_err(|fault| {
                    ModelError::new(format!("rule {place} of the script: {fault}"))
                })?;
                let delay = Duration::from_millis(rule.rule.delay_ms.unwrap_or(0));
                return Ok(ScriptedReply { reply, delay });
            }
        }
        Err(context.no_rule())
    }
}

impl Model for ScriptedModel {
    fn ask(
        &self,
        request: ModelRequest<'_>,
    ) -> BoxFuture<'static, Result<ModelOutcome, ModelError>> {
        let played = self.play(request);
        async move {
            let ScriptedReply { reply, delay } = played?;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            reply.map(ModelOutcome::Reply)
        }
        .boxed()
    }

    fn place(&self) -> ModelLocation {
        ModelLocation::Inside
    }
}

/// Inputs of the conditions of a rule.
struct RuleContext<'a> {
    user: String,
    /// Set if the latest message, ignoring those from goondan itself, is a tool result.
    result: Option<ToolResult>,
    system: &'a str,
    conversation: &'a Conversation,
    /// Number of messages before the latest user message.
    earlier: usize,
    step: u32,
    captures: Captures,
}

impl<'a> RuleContext<'a> {
    fn of(request: ModelRequest<'a>) -> Result<Self, ModelError> {
        let conversation = request.messages;
        let (mut user, mut header, mut earlier) = (String::new(), String::new(), 0);
        let mut result = None;
        // The capture covers more than the condition: a rule can quote the turn's last result even
        // if a message of another kind has arrived since.
        let mut last_result: Option<ToolResult> = None;
        let mut is_latest = true;
        let places = (0..conversation.len()).rev();
        for (message, place) in conversation.messages().rev().zip(places) {
            let message = message?;
            if matches!(message.source, MessageSource::System { .. }) {
                continue;
            }
            let own_result = message.data.content.tool_results().pop();
            if std::mem::take(&mut is_latest) {
                result.clone_from(&own_result);
            }
            last_result = last_result.or(own_result);
            // User messages from an extension are not input.
            let is_input = !matches!(message.source, MessageSource::Extension { .. });
            if message.data.role == MessageRole::User && is_input {
                (user, earlier) = (text_of(&message), place);
                let above = message.metadata.get(HEADER).and_then(Value::as_str);
                user = text_below(above, &user).to_owned();
                header = above.unwrap_or_default().to_owned();
                break;
            }
        }
        let mut captures = Captures::default();
        captures.set("input", &user);
        captures.set("header", &header);
        captures.set("step", &request.step.to_string());
        captures.set("result", last_result.as_ref().map_or("", |last| &last.text));
        Ok(Self {
            user,
            result,
            system: request.system.unwrap_or(""),
            conversation,
            earlier,
            step: request.step,
            captures,
        })
    }

    fn fits(&self, rule: &CompiledRule, captures: &mut Captures) -> Result<bool, ModelError> {
        let when = &rule.rule.when;
        let result = self.result.as_ref();
        let result_text = result.map(|result| result.text.as_str());
        let fits_now = when.step.is_none_or(|step| step == self.step)
            && when
                .tool
                .as_ref()
                .is_none_or(|tool| result.is_some_and(|result| result.tool_name == *tool))
            && when
                .error
                .is_none_or(|error| result.is_some_and(|result| result.is_error == error))
            && holds(rule.user.as_ref(), Some(&self.user), captures)
            && holds(rule.result.as_ref(), result_text, captures)
            && holds(rule.system.as_ref(), Some(self.system), captures);
        let Some(pattern) = rule.history.as_ref().filter(|_| fits_now) else {
            return Ok(fits_now);
        };
        let since = self.conversation.len() - self.earlier;
        for message in self.conversation.messages().rev().skip(since) {
            if pattern.find(&text_of(&*message?), captures) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn no_rule(&self) -> ModelError {
        let (what, text) = match &self.result {
            Some(result) => (
                format!("the result of `{}`", result.tool_name),
                &result.text,
            ),
            None => ("the user message".to_owned(), &self.user),
        };
        let quote: String = text.chars().take(QUOTED_CHARS).collect();
        let step = self.step;
        ModelError::new(format!(
            "no rule of the script fits {what} {quote:?} at step {step}; add a rule for it, or a \
             last rule without `when` that answers everything else"
        ))
    }
}

/// True if the pattern matches the text, or no pattern is given.
fn holds(pattern: Option<&Pattern>, text: Option<&str>, captures: &mut Captures) -> bool {
    pattern.is_none_or(|pattern| text.is_some_and(|text| pattern.find(text, captures)))
}

/// Text of a message, including tool results.
fn text_of(message: &Message) -> String {
    let mut text = message.data.content.to_text();
    for result in message.data.content.tool_results() {
        text.push_str(&result.text);
    }
    text
}

fn reply_of(
    compiled: &CompiledRule,
    captures: &Captures,
    step_id: &StepId,
) -> Result<Result<ModelReply, ModelError>, String> {
    let rule = &compiled.rule;
    if let Some(fail) = &rule.fail {
        return Ok(Err(ModelError::new(captures.fill(fail)?)));
    }
    let text = captures.fill(rule.say.as_deref().unwrap_or(""))?;
    let mut reply_bytes = text.len();
    let mut calls = Vec::with_capacity(rule.call.len());
    for (index, call) in rule.call.iter().enumerate() {
        let mut input = serde_json::Map::new();
        for (name, value) in &call.args {
            let value = captures.fill_value(value)?;
            reply_bytes = reply_bytes.saturating_add(text_bytes(&value));
            input.insert(name.clone(), value);
        }
        calls.push(ToolCall {
            id: ToolCallId::new(format!("{step_id}:c{index}")).map_err(|e| e.to_string())?,
            tool_name: call.tool.clone(),
            input: Value::Object(input),
        });
    }
    if reply_bytes > MAX_REPLY_BYTES {
        return Err(format!(
            "its reply has {reply_bytes} bytes; at most {MAX_REPLY_BYTES} are allowed"
        ));
    }
    Ok(Ok(ModelReply { text, calls }))
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
