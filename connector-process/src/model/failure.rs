//! Classifies failures of a provider, and determines if retrying helps.

use std::error::Error as StdError;

use goondan_outbound::NetworkProblem;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::cloud::CloudPlatform;
use goondan_protocol::definition::{HostedModel, HostedProvider, OpenAiApi};
use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use crate::bearer::verdict_of;
use crate::server_time::time_of_answer;

/// Characters of a provider's message that an error quotes.
const QUOTED_CHARS: usize = 500;

/// Anthropic's status code for "overloaded".
const OVERLOADED: u16 = 529;

/// Status codes between 400 and 499 with which servers and gateways report their own failures: of a
/// dependency (AWS, Hugging Face), too early, no capacity (Groq), and a closed connection (nginx).
const TRANSIENT: &[u16] = &[424, 425, 498, 499];

/// Phrases by which providers and servers report that a conversation is too long, in lower case.
const OVERFLOWS: &[&str] = &[
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input length exceeds",
    "input length and",
    "request_too_large",
    "context_length_exceeded",
    "context length exceeded",
    "model_context_window_exceeded",
    "string_above_max_length",
    "maximum context length",
    "max context length",
    "maximum prompt length",
    "maximum allowed input length",
    "exceeds the model's max input limit",
    "exceed_context_size",
    "exceed context limit",
    "exceeds the context limit",
    "exceeds context limit",
    "exceed the context limit",
    "exceeds the available context size",
    "context overflows",
    "than the context has",
    "greater than the context length",
    "larger than the context",
    "too large for model with",
    "input token count",
    "prompt token count",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens",
    "context window",
    "context_window_exceeded",
    "contextwindowexceeded",
    "range of input length should be",
    "prompt exceeds max length",
    "exceeded model token limit",
    "longer than the maximum model length",
    "longer than the model's context length",
    "exceeds maximum input length",
    "exceeds max_seq_len",
    "tokens + `max_new_tokens` must be",
    "`inputs` must have less than",
    "number of tokens in the prompt cannot exceed",
    "number of input tokens",
    "model_max_prompt_tokens_exceeded",
];

/// Phrases that mean an exhausted quota, in lower case.
const USED_UP: &[&str] = &[
    "insufficient_quota",
    "insufficient quota",
    "insufficient balance",
    "credit balance is too low",
    "billing_hard_limit",
    "billing_not_active",
    "billing_disabled",
    "requires billing",
    "perday",
    "free-models-per-day",
    "specified api usage limits",
    "specified workspace api usage limits",
    "exceeded_current_quota",
    "insufficient credits",
    "out of credits",
    "have any credits",
    "used all available credits",
    "monthly spending limit",
    "arrearage",
    "余额不足",
];

/// Phrases by which providers reject a key with a 400, in lower case.
const BAD_KEYS: &[&str] = &[
    "api_key_invalid",
    "api key not valid",
    "api key not found",
    "api key expired",
    "incorrect api key",
    "invalid api key",
    "invalid_api_key",
];

/// Phrases by which providers report an unknown model with a 400, in lower case.
const UNKNOWN_MODELS: &[&str] = &[
    "model not exist",
    "model not found",
    "model_not_found",
    "no such model",
    "invalid model:",
    "invalid model name",
    "is not a valid model",
    "model identifier is invalid",
    "` does not exist or you do not have access",
];

/// Fields in which servers repeat the request. A conversation can contain any of the phrases.
const ECHOES: &[&str] = &["input", "messages", "prompt"];

/// Marks after which messages of validators, and bodies that were truncated, repeat the request.
const ECHO_MARKS: &[&str] = &["'input':", "input_value=", "\"input\":"];

/// Phrases that mean that a filter refused the request, in lower case.
const CONTENT_POLICIES: &[&str] = &[
    "content management policy",
    "responsibleaipolicyviolation",
    "image_content_policy_violation",
    "content_policy_violation",
    "moderation_blocked",
    "flagged_input",
    "flagged as potentially violating",
    "data_inspection_failed",
    "datainspectionfailed",
    "content exists risk",
    "considered high risk",
    "\"code\":\"content_filter\"",
    "\"code\": \"content_filter\"",
];

/// Phrases of a failed chat template, in lower case. Servers answer 500, although no other request
/// of this form can succeed.
const OF_TEMPLATE: &[&str] = &["roles must alternate", "system role not supported", "jinja"];

/// Groq's code for a tool call of the model that it could not read. It answers 400, although the
/// same request often succeeds.
const LOST_CALL: &str = "tool_use_failed";

/// Shorter names of models occur in messages by chance, in bytes.
const NAME_BYTES_MIN: usize = 4;

/// Phrases of server errors that concern one model, in lower case: it is overloaded, being loaded,
/// or the router in front of it has no provider for it.
const OF_ONE_MODEL: &[&str] = &[
    "model",
    "engine",
    "overloaded",
    "at capacity",
    "high demand",
    "provider returned error",
    "no available provider",
];

/// Phrases that mean a limit of requests or tokens per time although the message names a size, in
/// lower case.
const RATE_LIMITS: &[&str] = &[
    "rate_limit",
    "rate limit",
    "per minute",
    "per day",
    "(tpm)",
    "(rpm)",
    "(tpd)",
];

/// The stream was changed on its way.
pub(super) fn damaged(model: &HostedModel) -> CallError {
    let message = format!(
        "the reply of `{}` is damaged: a checksum in its stream does not match",
        model.model
    );
    CallError::new(CallErrorCode::Interrupted, message)
        .suggest("send the message again")
        .later(None)
}

/// The reply ended with a finish reason that reports a failure.
pub(super) fn aborted(model: &HostedModel, reason: &str) -> CallError {
    let message = format!(
        "{} aborted its reply (finish reason `{}`)",
        place_of(model),
        quoted(reason)
    );
    CallError::new(CallErrorCode::Interrupted, message)
        .suggest("send the message again")
        .later(None)
}

/// The stream ended without an end marker.
pub(super) fn broken_off(model: &HostedModel) -> CallError {
    let message = format!("the reply of `{}` broke off in the middle", model.model);
    CallError::new(CallErrorCode::Interrupted, message)
        .suggest("send the message again")
        .later(None)
}

/// Removes credentials, which the message may quote.
pub(super) fn without_secrets(mut error: CallError, secrets: &[&str]) -> CallError {
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        if error.message.contains(secret) {
            error.message = error.message.replace(secret, "…");
        }
    }
    error
}

fn place_of(model: &HostedModel) -> String {
    if let Some(endpoint) = &model.endpoint {
        return format!("`{endpoint}`");
    }
    let name = match (&model.platform, model.provider) {
        (Some(CloudPlatform::Azure(_)), _) => "Azure",
        (Some(CloudPlatform::Vertex(_)), _) => "Vertex AI",
        (Some(CloudPlatform::Bedrock(_)), _) => "Amazon Bedrock",
        (None, HostedProvider::Anthropic) => "Anthropic",
        (None, HostedProvider::OpenAi) => "OpenAI",
        (None, HostedProvider::Google) => "Google",
    };
    name.to_owned()
}

pub(super) fn of_status(
    model: &HostedModel,
    status: StatusCode,
    body: &str,
    headers: Option<&HeaderMap>,
) -> CallError {
    let said = said_in(body);
    let body = &without_echo(body);
    let message = match said.as_str() {
        "" => format!("{} answered {status}", place_of(model)),
        said => format!("{} answered {status}: {said}", place_of(model)),
    };
    let error = |code| CallError::new(code, message.as_str());
    let after_ms = headers.and_then(retry_after_ms);
    let after_ms = after_ms.or_else(|| delay_in(body));
    if status.is_redirection() {
        return moved(model, &message, headers);
    }
    // Groq answers 413 to a request that exceeds its tokens per minute.
    let is_rate = status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::PAYLOAD_TOO_LARGE && is_rate_limit(body);
    if !is_rate && (is_overflow(body) || status == StatusCode::PAYLOAD_TOO_LARGE) {
        return error(CallErrorCode::TooLarge)
            .suggest("begin a new conversation, or choose a model with a longer context");
    }
    if status == StatusCode::BAD_REQUEST && body.contains(LOST_CALL) {
        return lost_call(model, LOST_CALL);
    }
    if status.is_client_error() && is_content_policy(body) {
        return declined_request(error(CallErrorCode::Refused));
    }
    if TRANSIENT.contains(&status.as_u16()) {
        return error(CallErrorCode::Overloaded)
            .suggest("try again later; the provider is having problems")
            .later(after_ms);
    }
    let status = match status {
        StatusCode::FORBIDDEN if is_used_up(body) => StatusCode::PAYMENT_REQUIRED,
        StatusCode::BAD_REQUEST if says_any(body, BAD_KEYS) => StatusCode::UNAUTHORIZED,
        StatusCode::BAD_REQUEST if says_any(body, UNKNOWN_MODELS) => StatusCode::NOT_FOUND,
        StatusCode::INTERNAL_SERVER_ERROR if says_any(body, OF_TEMPLATE) => StatusCode::BAD_REQUEST,
        status => status,
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => error(CallErrorCode::Unauthorized)
            .suggest(format!(
                "check the `{}` of Model `{}` and its permissions",
                credential_field(model),
                model.name
            ))
            .until_a_person_acts()
            .of_token(headers.and_then(|headers| verdict_of(status.as_u16(), headers))),
        StatusCode::NOT_FOUND => error(CallErrorCode::NotFound)
            .suggest(format!(
                "check `model` (`{}`) and `endpoint` of Model `{}`",
                model.model, model.name
            ))
            .until_a_person_acts(),
        status if status == StatusCode::PAYMENT_REQUIRED || is_used_up(body) => {
            error(CallErrorCode::Refused)
                .suggest("check the balance and the plan of your account with the provider")
                .until_a_person_acts()
        }
        _ if is_rate => error(CallErrorCode::RateLimited)
            .suggest("try again later, or ask the provider for a higher limit")
            .later(after_ms),
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT => {
            error(CallErrorCode::Overloaded).later(after_ms)
        }
        status if status.is_server_error() => {
            let error = error(CallErrorCode::Overloaded)
                .suggest("try again later; the provider is having problems")
                .later(after_ms);
            match status.as_u16() == OVERLOADED || is_of_model(body, model) {
                true => error,
                false => error.of_endpoint(),
            }
        }
        _ => error(CallErrorCode::Invalid).suggest(format!(
            "check `params` and `options` of Model `{}`",
            model.name
        )),
    }
}

/// The server moved to another address, where no key is sent.
fn moved(model: &HostedModel, message: &str, headers: Option<&HeaderMap>) -> CallError {
    let target = headers.and_then(|headers| headers.get(LOCATION)?.to_str().ok());
    let place = target.map_or_else(String::new, |target| format!(" to `{}`", quoted(target)));
    CallError::new(
        CallErrorCode::Invalid,
        format!("{message}; it redirects{place}, and redirects are not followed"),
    )
    .suggest(format!(
        "set `endpoint` of Model `{}` to the address after the redirect, up to and with the version",
        model.name
    ))
    .until_a_person_acts()
}

/// The status of an error's type within a stream. `None` if the type is unknown or too general.
fn status_of_type(kind: &str) -> Option<StatusCode> {
    let status = match kind {
        "invalid_request_error" | "BadRequestError" => StatusCode::BAD_REQUEST,
        "authentication_error" => StatusCode::UNAUTHORIZED,
        "billing_error" => StatusCode::PAYMENT_REQUIRED,
        "permission_error" => StatusCode::FORBIDDEN,
        "not_found_error" | "NotFoundError" => StatusCode::NOT_FOUND,
        "request_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "rate_limit_error" => StatusCode::TOO_MANY_REQUESTS,
        _ => return None,
    };
    Some(status)
}

/// True if a code of the Responses API rejects the request, so that a retry would fail as well.
fn is_rejection(code: &str) -> bool {
    let starts = ["invalid_", "image_", "unsupported_", "empty_image"];
    starts.iter().any(|start| code.starts_with(start)) || code == "failed_to_download_image"
}

fn declined_request(error: CallError) -> CallError {
    error.suggest("rephrase the message, or begin a new conversation without the refused content")
}

/// An error in place of a reply, or within a stream that had started successfully.
pub(super) fn of_said(model: &HostedModel, said: &Value, has_begun: bool) -> CallError {
    let text = without_echo(&said.to_string());
    let status = ["/error/code", "/error/status", "/error/status_code"].iter();
    // Gateways write the number as a text.
    let number = |code: &Value| {
        let text = code.as_str().and_then(|text| text.parse::<u16>().ok());
        text.or_else(|| u16::try_from(code.as_u64()?).ok())
    };
    let mut statuses = status.filter_map(|place| number(said.pointer(place)?));
    let status = statuses.find_map(|code| StatusCode::from_u16(code).ok());
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    let kind = said.pointer("/error/type").and_then(Value::as_str);
    let has_code = said.pointer("/error/code").is_some_and(Value::is_string);
    // A code is more specific than the type.
    let status = status.or_else(|| kind.filter(|_| !has_code).and_then(status_of_type));
    if let Some(status) = status {
        // The endpoint answered the request, so it works.
        return CallError {
            endpoint_down: false,
            ..of_status(model, status, &text, None)
        };
    }
    let happened = if has_begun {
        "aborted its reply"
    } else {
        "answered with an error"
    };
    let message = format!("{} {happened}: {}", place_of(model), said_in(&text));
    let error = |code| CallError::new(code, message.as_str());
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let code = said.pointer("/error/code").and_then(Value::as_str);
    if text.contains(LOST_CALL) {
        lost_call(model, LOST_CALL)
    } else if is_overflow(&text) {
        error(CallErrorCode::TooLarge)
            .suggest("begin a new conversation, or choose a model with a longer context")
    } else if is_used_up(&text) {
        error(CallErrorCode::Refused)
            .suggest("check the balance and the plan of your account with the provider")
            .until_a_person_acts()
    } else if says(&["rate_limit", "RESOURCE_EXHAUSTED"]) {
        error(CallErrorCode::RateLimited).later(delay_in(&text))
    } else if says(&[
        "authentication_error",
        "permission_error",
        "invalid_api_key",
    ]) {
        error(CallErrorCode::Unauthorized)
            .suggest(format!(
                "check the `{}` of Model `{}` and its permissions",
                credential_field(model),
                model.name
            ))
            .until_a_person_acts()
    } else if is_content_policy(&text) || code == Some("invalid_prompt") {
        declined_request(error(CallErrorCode::Refused))
    } else if code.is_some_and(is_rejection) {
        error(CallErrorCode::Invalid).suggest(format!(
            "check `model`, `params` and `options` of Model `{}`",
            model.name
        ))
    } else if has_begun || says(&["overloaded", "server_error", "api_error", "UNAVAILABLE"]) {
        error(CallErrorCode::Overloaded)
            .suggest("send the message again")
            .later(None)
    } else {
        error(CallErrorCode::Invalid).suggest(format!(
            "check `model`, `params` and `options` of Model `{}`",
            model.name
        ))
    }
}

/// The response does not follow the expected protocol.
pub(super) fn no_reply(model: &HostedModel, content_type: &str, body: &str) -> CallError {
    let kind = match content_type {
        "" => "without a `content-type`".to_owned(),
        kind => format!("of the type `{}`", quoted(kind)),
    };
    let said = match quoted(body.trim()).as_str() {
        "" => "it is empty".to_owned(),
        said => format!("it says `{said}`"),
    };
    let protocol = match (model.provider, model.api) {
        (HostedProvider::Anthropic, _) => "Anthropic's protocol",
        (HostedProvider::OpenAi, OpenAiApi::Chat) => "OpenAI's protocol",
        (HostedProvider::OpenAi, OpenAiApi::Responses) => "OpenAI's Responses API",
        (HostedProvider::Google, _) => "Google's protocol",
    };
    let message = format!(
        "{} sent a response that does not follow {protocol}: an answer {kind}; {said}",
        place_of(model)
    );
    CallError::new(CallErrorCode::Internal, message).suggest(format!(
        "check that `endpoint` of Model `{}` is the address up to and with the version, such as \
         `http://127.0.0.1:8080/v1`, and that `provider` names the protocol that is spoken there",
        model.name
    ))
}

/// The body is compressed by a method that is not supported.
pub(super) fn unknown_encoding(model: &HostedModel, encoding: &str) -> CallError {
    let message = format!(
        "{} sent a reply in the encoding `{}`, which no request asks for",
        place_of(model),
        quoted(encoding)
    );
    CallError::new(CallErrorCode::Internal, message).suggest(format!(
        "turn off compression at the server of Model `{}`, or at the proxy before it",
        model.name
    ))
}

/// The body does not follow its encoding.
pub(super) fn damaged_encoding(model: &HostedModel, error: &std::io::Error) -> CallError {
    let message = format!(
        "{} sent a compressed reply that cannot be decoded: {error}",
        place_of(model)
    );
    CallError::new(CallErrorCode::Interrupted, message)
        .suggest("send the message again")
        .later(None)
}

/// The model refuses, so its text is not an answer.
pub(super) fn declined(model: &HostedModel, reason: &str, words: &str) -> CallError {
    let words = match quoted(words.trim()).as_str() {
        "" => String::new(),
        words => format!(": {words}"),
    };
    let message = format!("`{}` declined to answer ({reason}){words}", model.model);
    CallError::new(CallErrorCode::Refused, message)
        .suggest("rephrase the message, or begin a new conversation without the refused content")
}

/// The reply reached its maximum length before its first word, because all of its tokens were
/// thoughts. A retry would end the same way.
pub(super) fn cut_short(model: &HostedModel, reason: &str) -> CallError {
    let message = format!(
        "`{}` reached the maximum length of a reply before its first word (finish reason `{}`)",
        model.model,
        quoted(reason)
    );
    CallError::new(CallErrorCode::Refused, message).suggest(format!(
        "raise `params.maxTokens` of Model `{}`, or lower its `reasoningEffort`",
        model.name
    ))
}

/// The provider left an unreadable tool call out of the reply.
pub(super) fn lost_call(model: &HostedModel, reason: &str) -> CallError {
    let message = format!(
        "`{}` wrote a tool call that its provider could not read (finish reason `{}`)",
        model.model,
        quoted(reason)
    );
    CallError::new(CallErrorCode::Overloaded, message)
        .suggest("send the message again; if it fails each time, simplify the schemas of the tools")
        .later(None)
}

/// The reply is complete but empty.
pub(super) fn nothing_said(model: &HostedModel, reason: Option<&str>) -> CallError {
    let reason = reason.map_or_else(
        || "without a finish reason".to_owned(),
        |reason| format!("finish reason `{}`", quoted(reason)),
    );
    let message = format!(
        "`{}` replied without words or tool calls ({reason})",
        model.model
    );
    CallError::new(CallErrorCode::Overloaded, message)
        .suggest("send the message again")
        .later(None)
}

/// The reply exceeds a limit.
pub(super) fn excess(model: &HostedModel, what: &str) -> CallError {
    let message = format!("{} sent too much: {what}", place_of(model));
    CallError::new(CallErrorCode::Internal, message).suggest(format!(
        "lower `maxTokens` of Model `{}`, or check the server",
        model.name
    ))
}

/// A complete reply cannot be stored.
pub(super) fn unkept(model: &HostedModel, error: &(dyn StdError + 'static)) -> CallError {
    let reason = goondan_log::error_chain(error);
    let message = format!("failed to store the reply of `{}`: {reason}", model.model);
    CallError::new(CallErrorCode::Internal, quoted(&message))
}

fn timed_out(model: &HostedModel, what: &str, name: &str) -> CallError {
    let message = format!("{} {what}", place_of(model));
    CallError::new(CallErrorCode::TimedOut, message).suggest(format!(
        "raise `timeouts.{name}` of Model `{}`, or try again",
        model.name
    ))
}

/// No data arrived before the timeout.
pub(super) fn not_begun(model: &HostedModel) -> CallError {
    let ms = model.timeouts.first_byte_ms;
    let what = format!("did not begin to answer within {ms} ms");
    timed_out(model, &what, "firstByteMs")
        .later(None)
        .of_endpoint()
}

/// No more data arrived before the timeout.
pub(super) fn silent(model: &HostedModel) -> CallError {
    let ms = model.timeouts.stall_ms;
    let what = format!("went silent in the middle of its reply for {ms} ms");
    timed_out(model, &what, "stallMs").later(None).of_endpoint()
}

/// The reply exceeded the total time limit. A retry would not help.
pub(super) fn too_long(model: &HostedModel) -> CallError {
    let ms = model.timeouts.total_ms;
    let what = format!("did not finish its reply within {ms} ms");
    timed_out(model, &what, "totalMs")
}

/// A proxy or a certificate prevents the connection.
pub(super) fn of_network(model: &HostedModel, problem: NetworkProblem) -> CallError {
    let message = format!("{} cannot be reached: {}", place_of(model), problem.message);
    CallError::new(CallErrorCode::Unavailable, quoted(&message))
        .suggest(problem.hint)
        .later(None)
        .of_endpoint()
}

/// A request could not be sent, or its response was not received.
pub(super) fn of_transport(model: &HostedModel, error: &reqwest::Error) -> CallError {
    let place = place_of(model);
    if let Some(problem) = goondan_outbound::problem_of(error) {
        return of_network(model, problem);
    }
    let text = goondan_log::error_chain(error);
    if error.is_builder() {
        let message = format!("{place} cannot be asked: {text}");
        return CallError::new(CallErrorCode::Invalid, quoted(&message)).suggest(format!(
            "check `endpoint` and `apiKey` of Model `{}`",
            model.name
        ));
    }
    if error.is_connect() {
        let message = format!("{place} cannot be reached: {text}");
        return CallError::new(CallErrorCode::Unavailable, quoted(&message))
            .suggest(format!(
                "check the network and `endpoint` of Model `{}`",
                model.name
            ))
            .later(None)
            .of_endpoint();
    }
    let message = format!("the reply of {place} broke off in the middle: {text}");
    CallError::new(CallErrorCode::Interrupted, quoted(&message))
        .suggest("send the message again")
        .later(None)
        .of_endpoint()
}

/// True if a server error concerns one model, whose server works.
fn is_of_model(body: &str, model: &HostedModel) -> bool {
    let lower = body.to_lowercase();
    let name = model.model.to_lowercase();
    let is_named = name.len() >= NAME_BYTES_MIN && lower.contains(&name);
    is_named || OF_ONE_MODEL.iter().any(|words| lower.contains(words))
}

/// The body of an error without the parts that repeat the request.
fn without_echo(body: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<Value>(body) else {
        return without_quote(body).to_owned();
    };
    leave_out_echo(&mut json);
    json.to_string()
}

fn leave_out_echo(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|name, _| !ECHOES.contains(&name.as_str()));
            fields.values_mut().for_each(leave_out_echo);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_echo),
        Value::String(text) => text.truncate(without_quote(text).len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn without_quote(text: &str) -> &str {
    let ends = ECHO_MARKS.iter().filter_map(|mark| text.find(mark));
    ends.min().and_then(|end| text.get(..end)).unwrap_or(text)
}

/// True if a body contains a phrase of `phrases`. Phrases are in lower case.
fn says_any(body: &str, phrases: &[&str]) -> bool {
    let lower = body.to_lowercase();
    phrases.iter().any(|words| lower.contains(words))
}

fn is_overflow(body: &str) -> bool {
    // The description of a tool can be too long as well.
    let is_of_tool = body.contains("'tools[") && body.contains("string too long");
    !is_of_tool && says_any(body, OVERFLOWS)
}

fn is_content_policy(body: &str) -> bool {
    says_any(body, CONTENT_POLICIES)
}

fn is_rate_limit(body: &str) -> bool {
    says_any(body, RATE_LIMITS)
}

/// True if an allowance is exhausted for too long to wait: money, or a daily quota.
fn is_used_up(body: &str) -> bool {
    says_any(body, USED_UP)
}

/// The requested pause in a body, in milliseconds: Google's `retryDelay`, "try again in 7m12.5s",
/// or Azure's "retry after 26 seconds".
fn delay_in(body: &str) -> Option<u64> {
    const MARKS: &[&str] = &[
        "\"retrydelay\"",
        "try again in ",
        "try again after ",
        "retry in ",
        "retry after ",
        "please wait ",
    ];
    let body = body.to_ascii_lowercase();
    let after = |mark: &str| {
        let (_, rest) = body.split_once(mark)?;
        Some(rest.trim_start_matches([':', ' ', '"', '\n']))
    };
    let in_words = MARKS.iter().find_map(|mark| duration_ms(after(mark)?));
    in_words.or_else(|| {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let seconds = after("\"resets_in_seconds\"")?;
        duration_ms(&format!("{}s", seconds.get(..digits(seconds))?))
    })
}

/// Milliseconds of a duration such as `35s`, `1.5s`, `500ms`, `1h2m3s`, or `26 seconds` at the start
/// of a text.
fn duration_ms(text: &str) -> Option<u64> {
    let (mut rest, mut total, mut is_found) = (text, 0.0_f64, false);
    loop {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let behind = behind.strip_prefix(' ').unwrap_or(behind);
        let Ok(number) = number.parse::<f64>() else {
            break;
        };
        let units = [
            ("milliseconds", 1.0),
            ("ms", 1.0),
            ("s", 1_000.0),
            ("m", 60_000.0),
            ("h", 3_600_000.0),
            ("day", 86_400_000.0),
        ];
        let unit = units.iter().find(|(unit, _)| behind.starts_with(unit));
        let Some((unit, factor)) = unit else { break };
        total += number * factor;
        is_found = true;
        rest = behind.get(unit.len()..).unwrap_or_default();
        // Only short units, such as `7m12s`, are combined.
        if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            break;
        }
    }
    let ms = format!("{:.0}", total.ceil());
    is_found.then(|| ms.parse().ok()).flatten()
}

/// The provider's error message in a body, if it has a common form.
fn said_in(body: &str) -> String {
    const PLACES: &[&str] = &[
        "/error/message",
        "/message",
        "/Message",
        "/0/error/message",
        "/error",
        "/detail",
        "/detail/0/msg",
        "/errors/0/message",
        "/error_msg",
        "/msg",
    ];
    let body = body.trim();
    if let Some(title) = title_of(body) {
        return quoted(title);
    }
    let Ok(json) = serde_json::from_str::<Value>(body) else {
        return quoted(body);
    };
    let message = PLACES
        .iter()
        .filter_map(|place| json.pointer(place)?.as_str());
    let message = message.map(str::trim).find(|message| !message.is_empty());
    // Routers hide the message of the provider behind their own.
    let raw = json.pointer("/error/metadata/raw").and_then(Value::as_str);
    match (message, raw.map(said_in).filter(|raw| !raw.is_empty())) {
        (Some(message), Some(raw)) => quoted(&format!("{message}: {raw}")),
        (message, _) => quoted(message.unwrap_or(body)),
    }
}

/// The title of a page in HTML, which proxies send instead of an error.
fn title_of(body: &str) -> Option<&str> {
    if !body.starts_with('<') {
        return None;
    }
    let (_, title) = body.split_once("<title>")?;
    let (title, _) = title.split_once("</title>")?;
    Some(title.trim()).filter(|title| !title.is_empty())
}

pub(super) fn quoted(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED_CHARS)
        .collect();
    if text.chars().nth(QUOTED_CHARS).is_some() {
        out.push('…');
    }
    out
}

/// Pause that the provider requests, in milliseconds.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let field = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        let ms = field(name).and_then(|ms| duration_ms(&format!("{ms}ms")));
        if ms.is_some() {
            return ms;
        }
    }
    match field("retry-after") {
        Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => {
            duration_ms(&format!("{after}s"))
        }
        Some(after) => {
            let at = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
            ms_until(at, time_of_answer(headers))
        }
        None => reset_ms(&field, time_of_answer(headers)),
    }
}

fn ms_until(at: Timestamp, now: Timestamp) -> Option<u64> {
    let ms = at.as_millisecond() - now.as_millisecond();
    u64::try_from(ms).ok()
}

/// Pause until all exhausted limits of the headers are reset, in milliseconds. Providers announce
/// a duration, a number of seconds, or a point in time.
fn reset_ms<'h>(field: &impl Fn(&str) -> Option<&'h str>, now: Timestamp) -> Option<u64> {
    const LIMITS: &[(&str, &str)] = &[
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ("ratelimit-remaining", "ratelimit-reset"),
        (
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        (
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ),
        (
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ),
        (
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ),
        (
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ),
    ];
    let exhausted = LIMITS.iter().filter(|(remaining, _)| {
        let remaining = field(remaining).and_then(|text| text.parse::<f64>().ok());
        remaining.is_some_and(|remaining| remaining <= 0.0)
    });
    let resets = exhausted.filter_map(|(_, reset)| reset_in(field(reset)?, now));
    resets.max()
}

/// Milliseconds until a reset.
fn reset_in(text: &str, now: Timestamp) -> Option<u64> {
    /// Larger numbers are a point in time instead of a duration.
    const TIME_MIN: i64 = 1_000_000_000;
    let Ok(number) = text.parse::<f64>() else {
        let at: Option<Timestamp> = text.parse().ok();
        let at = at.or_else(|| Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp()));
        return at.map_or_else(|| duration_ms(text), |at| ms_until(at, now));
    };
    match format!("{number:.0}").parse::<i64>().ok()? {
        0..TIME_MIN => duration_ms(&format!("{text}s")),
        seconds if seconds < TIME_MIN * 1_000 => {
            ms_until(Timestamp::from_second(seconds).ok()?, now)
        }
        ms => ms_until(Timestamp::from_millisecond(ms).ok()?, now),
    }
}

/// The field of a Model with its credentials.
pub(super) fn credential_field(model: &HostedModel) -> &'static str {
    match &model.platform {
        Some(CloudPlatform::Bedrock(bedrock)) if bedrock.access_key.is_some() => {
            "bedrock.accessKeyId"
        }
        Some(CloudPlatform::Vertex(vertex)) if vertex.service_account.is_some() => {
            "vertex.serviceAccount"
        }
        Some(CloudPlatform::Azure(_) | CloudPlatform::Vertex(_) | CloudPlatform::Bedrock(_))
        | None => "apiKey",
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn retry_after_is_seconds_milliseconds_or_a_date() {
        assert_eq!(retry_after_ms(&headers("retry-after", "2")), Some(2_000));
        assert_eq!(retry_after_ms(&headers("retry-after-ms", "250")), Some(250));
        let soon = Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&soon)
            .unwrap();
        let ms = retry_after_ms(&headers("retry-after", &date)).unwrap();
        assert!((50_000..=60_000).contains(&ms), "{ms}");
        // The clock of this machine is wrong.
        let mut far = headers("retry-after", "Tue, 01 Jan 2030 00:00:30 GMT");
        far.insert("date", "Tue, 01 Jan 2030 00:00:00 GMT".parse().unwrap());
        assert_eq!(retry_after_ms(&far), Some(30_000));
        let mut reset = headers("x-ratelimit-remaining", "0");
        reset.insert("x-ratelimit-reset", "1000000060".parse().unwrap());
        reset.insert("date", "Sun, 09 Sep 2001 01:46:40 GMT".parse().unwrap());
        assert_eq!(retry_after_ms(&reset), Some(60_000));
        assert_eq!(retry_after_ms(&headers("retry-after", "1.5")), Some(1_500));
        assert_eq!(retry_after_ms(&headers("retry-after", "soon")), None);
        assert_eq!(retry_after_ms(&headers("retry-after", "-1")), None);
    }

    #[test]
    fn prov_1_a_pause_in_words_is_read() {
        for (text, expected) in [
            ("Please try again in 7m12.5s.", Some(432_500)),
            ("Please retry after 26 seconds.", Some(26_000)),
            ("Please try again in 2 minutes.", Some(120_000)),
            ("Please Wait 3 seconds before you retry.", Some(3_000)),
            ("Try again after 1 day", Some(86_400_000)),
            (
                r#"{"error": {"type": "usage_limit_reached", "resets_in_seconds": 13872}}"#,
                Some(13_872_000),
            ),
            ("retry in any case; try again after 4s", Some(4_000)),
            ("retry after 250 milliseconds", Some(250)),
            (r#""retryDelay": "1h2m3s""#, Some(3_723_000)),
            ("retry after lunch", None),
            ("retry after 26", None),
        ] {
            assert_eq!(delay_in(text), expected, "{text}");
        }
    }

    #[test]
    fn prov_1_a_call_that_the_provider_could_not_read_is_tried_again() {
        let groq = r#"{"error": {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<function=a>"}}"#;
        let error = coded(400, groq);
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::Overloaded, true)
        );
        assert!(!error.endpoint_down);
    }

    fn coded(status: u16, body: &str) -> CallError {
        let model: HostedModel = serde_json::from_value(
            serde_json::json!({"name": "m", "provider": "openai", "model": "big-1"}),
        )
        .unwrap();
        of_status(&model, StatusCode::from_u16(status).unwrap(), body, None)
    }

    #[test]
    fn prov_1_overflows_are_understood_in_all_wordings() {
        for message in [
            "The input is too long for the model you asked for.",
            "prompt token count of 140000 exceeds the limit of 128000",
            "Maximum prompt length is 131072 but this request has 200000 tokens.",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "input length and 'max_tokens' exceed the context limit: 190000 + 20000 > 200000",
            "prompt too long; exceeded max context length by 300 tokens",
            "the context overflows: more tokens to keep than the context has",
            "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input: greater than the context length",
            "This model's maximum context length is 8192 tokens.",
            "Input is too long for requested model.",
            "the request exceeds the available context size, try increasing it",
            "Please reduce the length of the messages or completion.",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
            "Prompt exceeds max length",
            "Invalid request: Your request exceeded model token limit: 8192 (requested: 9001)",
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "Prompt length (5152) exceeds maximum input length (2048)",
            "Prompt too long: 5152 tokens exceeds max_seq_len 2048",
            "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
            "Input length (265330) exceeds model's maximum context length (262144).",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
            "Input validation error: `inputs` must have less than 1024 tokens. Given: 1313",
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000",
            "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
            "Unable to submit request because the input token count is 32825 but model only supports up to 32768.",
        ] {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            assert_eq!(coded(400, &body).code, CallErrorCode::TooLarge, "{message}");
        }
        for other in [
            r#"{"error": {"message": "temperature must be at most 2"}}"#,
            r#"{"error": {"code": "string_above_max_length", "message": "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 1301 instead."}}"#,
        ] {
            assert_eq!(coded(400, other).code, CallErrorCode::Invalid, "{other}");
        }
    }

    #[test]
    fn prov_1_rate_limit_quota_and_size_errors_are_distinguished() {
        let tpm = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000";
        let google = |quota: &str| {
            serde_json::json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
                "message": "You exceeded your current quota.", "details": [
                    {"violations": [{"quotaId": quota}]}, {"retryDelay": "35s"}]}})
            .to_string()
        };
        for (status, body, code, after_ms) in [
            (413, tpm.to_owned(), CallErrorCode::RateLimited, None),
            (413, "too big".to_owned(), CallErrorCode::TooLarge, None),
            (
                429,
                "Rate limit reached. Please try again in 7m12.5s.".to_owned(),
                CallErrorCode::RateLimited,
                Some(432_500),
            ),
            (
                429,
                google("GenerateRequestsPerMinutePerProject"),
                CallErrorCode::RateLimited,
                Some(35_000),
            ),
            (
                429,
                google("GenerateRequestsPerDayPerProject"),
                CallErrorCode::Refused,
                None,
            ),
            (
                429,
                r#"{"error": {"code": "insufficient_quota"}}"#.to_owned(),
                CallErrorCode::Refused,
                None,
            ),
            (
                400,
                r#"{"error": {"message": "Your credit balance is too low"}}"#.to_owned(),
                CallErrorCode::Refused,
                None,
            ),
        ] {
            let error = coded(status, &body);
            assert_eq!(
                (error.code, error.retry_after_ms),
                (code, after_ms),
                "{body}"
            );
        }
    }

    #[test]
    fn prov_1_an_overloaded_model_is_distinguished_from_a_broken_endpoint() {
        for (status, body, is_of_endpoint) in [
            (
                500,
                r#"{"error": {"message": "Internal server error"}}"#,
                true,
            ),
            (502, "<html><h1>502 Bad Gateway</h1></html>", true),
            (503, "", true),
            (504, "upstream request timeout", true),
            (
                529,
                r#"{"error": {"type": "overloaded_error", "message": "Overloaded"}}"#,
                false,
            ),
            (
                503,
                r#"{"error": {"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}}"#,
                false,
            ),
            (
                503,
                r#"{"error": {"message": "The engine is currently overloaded, please try again later"}}"#,
                false,
            ),
            (
                503,
                r#"{"error": {"message": "Loading model", "type": "unavailable_error"}}"#,
                false,
            ),
            (
                502,
                r#"{"error": {"message": "Provider returned error", "code": 502}}"#,
                false,
            ),
        ] {
            let error = coded(status, body);
            let found = (error.code, error.retryable, error.endpoint_down);
            let expected = (CallErrorCode::Overloaded, true, is_of_endpoint);
            assert_eq!(found, expected, "{status} {body}");
        }
        assert!(!coded(429, "slow down").endpoint_down);
        assert!(!coded(401, "bad key").endpoint_down);
    }

    #[test]
    fn prov_1_keys_models_and_accounts_need_a_person() {
        let used_up = r#"{"error": {"code": "insufficient_quota", "message": "no credit"}}"#;
        for (status, body) in [
            (401, "bad key"),
            (403, "not allowed"),
            (404, "no such model"),
            (402, "pay"),
            (429, used_up),
        ] {
            assert!(coded(status, body).lasting, "{status} {body}");
        }
        for status in [400, 408, 413, 429, 500, 503, 529] {
            assert!(!coded(status, "slow down").lasting, "{status}");
        }
    }

    #[test]
    fn prov_1_a_filtered_request_is_a_refusal() {
        let azure = r#"{"error": {"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", "code": "content_filter", "status": 400}}"#;
        assert_eq!(coded(400, azure).code, CallErrorCode::Refused);
    }

    #[test]
    fn prov_1_key_model_and_balance_errors_are_recognized_by_text() {
        for (status, body, code) in [
            (
                400,
                r#"{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}"#,
                CallErrorCode::Unauthorized,
            ),
            (
                400,
                r#"{"code": "Client specified an invalid argument", "error": "Incorrect API key provided: sk***1."}"#,
                CallErrorCode::Unauthorized,
            ),
            (
                400,
                r#"{"error": {"message": "Model Not Exist", "type": "invalid_request_error"}}"#,
                CallErrorCode::NotFound,
            ),
            (
                400,
                r#"{"message": "The provided model identifier is invalid."}"#,
                CallErrorCode::NotFound,
            ),
            (
                400,
                r#"{"error": {"message": "big-2 is not a valid model ID", "code": 400}}"#,
                CallErrorCode::NotFound,
            ),
            (
                400,
                r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}"#,
                CallErrorCode::Refused,
            ),
            (
                403,
                r#"{"error": "Your newly created team doesn't have any credits yet."}"#,
                CallErrorCode::Refused,
            ),
            (
                429,
                r#"{"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}"#,
                CallErrorCode::Refused,
            ),
        ] {
            let error = coded(status, body);
            assert_eq!((error.code, error.lasting), (code, true), "{body}");
        }
        let flagged = r#"{"error": {"code": 403, "message": "Input was flagged", "metadata": {"reasons": ["x"], "flagged_input": "y"}}}"#;
        let error = coded(403, flagged);
        assert_eq!((error.code, error.lasting), (CallErrorCode::Refused, false));
    }

    #[test]
    fn prov_1_phrases_in_a_repeated_request_are_ignored() {
        for body in [
            r#"{"detail": [{"loc": ["body"], "msg": "no", "input": {"a": "Invalid API key"}}]}"#,
            r#"{"error": {"message": "1 error: {'msg': 'no', 'input': 'model not found'}"}}"#,
            r#"{"error": {"message": "[input_value='insufficient_quota', input_type=str]"}}"#,
            r#"{"detail": [{"msg": "no", "input": "a conversation with context_length_exceed"#,
            r#"{"error": "The file does not exist or you do not have access to it."}"#,
        ] {
            assert_eq!(coded(400, body).code, CallErrorCode::Invalid, "{body}");
        }
        let named = "The model `big-2` does not exist or you do not have access to it.";
        assert_eq!(coded(400, named).code, CallErrorCode::NotFound);
    }

    #[test]
    fn prov_1_a_failed_template_is_an_invalid_request() {
        let body = r#"{"error": {"code": 500, "message": "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...", "type": "server_error"}}"#;
        let error = coded(500, body);
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::Invalid, false)
        );
    }

    #[test]
    fn prov_1_statuses_of_gateways_are_retried() {
        for status in [424, 425, 498, 499, 520, 522, 524, 529, 530, 599] {
            let error = coded(status, "");
            let found = (error.code, error.retryable);
            assert_eq!(found, (CallErrorCode::Overloaded, true), "{status}");
        }
    }

    #[test]
    fn prov_1_a_redirect_names_its_target() {
        let model: HostedModel = serde_json::from_value(
            serde_json::json!({"name": "m", "provider": "openai", "model": "big-1"}),
        )
        .unwrap();
        let headers = headers("location", "https://b.example/v1/chat/completions");
        let error = of_status(&model, StatusCode::PERMANENT_REDIRECT, "", Some(&headers));
        assert!(error.message.contains("https://b.example/v1"), "{error}");
        assert!(error.lasting && !error.retryable);
        assert!(error.suggestion.unwrap().contains("`endpoint`"));
    }

    #[test]
    fn prov_1_a_message_is_found_in_any_form() {
        for (body, expected) in [
            (r#"{"error": {"message": "no"}}"#, "no"),
            (r#"{"error": "no"}"#, "no"),
            (r#"{"Message": "no"}"#, "no"),
            (r#"{"detail": "no"}"#, "no"),
            (r#"{"detail": [{"loc": ["body"], "msg": "no"}]}"#, "no"),
            (r#"{"errors": [{"message": "no"}]}"#, "no"),
            (
                r#"{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "{\"error\": {\"message\": \"no\"}}"}}}"#,
                "Provider returned error: no",
            ),
            (
                r#"{"error": {"message": ""}}"#,
                r#"{"error": {"message": ""}}"#,
            ),
            (
                "<!DOCTYPE html>\n<html><head><title>b.example | 522: Connection timed out</title></head></html>",
                "b.example | 522: Connection timed out",
            ),
            ("<html>no</html>", "<html>no</html>"),
            (" no\n", "no"),
        ] {
            assert_eq!(said_in(body), expected, "{body}");
        }
    }

    #[test]
    fn prov_1_exhausted_limits_are_waited_for() {
        let all = |fields: &[(&'static str, String)]| -> Option<u64> {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.insert(*name, HeaderValue::from_str(value).unwrap());
            }
            retry_after_ms(&headers)
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(all(&[("retry-after-ms", text("250.5"))]), Some(251));
        assert_eq!(
            all(&[
                ("x-ratelimit-remaining-requests", text("59")),
                ("x-ratelimit-reset-requests", text("1s")),
                ("x-ratelimit-remaining-tokens", text("0")),
                ("x-ratelimit-reset-tokens", text("6m0s")),
            ]),
            Some(360_000)
        );
        assert_eq!(
            all(&[
                ("x-ratelimit-remaining-requests", text("59")),
                ("x-ratelimit-reset-requests", text("1s")),
            ]),
            None
        );
        assert_eq!(
            all(&[
                ("ratelimit-remaining", text("0")),
                ("ratelimit-reset", text("30")),
            ]),
            Some(30_000)
        );
        let soon = Timestamp::now() + jiff::SignedDuration::from_secs(60);
        for reset in [
            soon.as_second().to_string(),
            soon.as_millisecond().to_string(),
            soon.to_string(),
        ] {
            let ms = all(&[
                ("x-ratelimit-remaining", text("0")),
                ("x-ratelimit-reset", reset.clone()),
            ]);
            assert!((50_000..=60_000).contains(&ms.unwrap()), "{reset}: {ms:?}");
        }
        // The explicit pause counts.
        assert_eq!(
            all(&[
                ("retry-after", text("2")),
                ("x-ratelimit-remaining", text("0")),
                ("x-ratelimit-reset", text("30")),
            ]),
            Some(2_000)
        );
    }

    #[test]
    fn a_key_in_an_error_is_not_shown() {
        let error = CallError::new(CallErrorCode::Unauthorized, "bad key sk-1 sk-1");
        assert_eq!(without_secrets(error, &["sk-1"]).message, "bad key … …");
    }
}
