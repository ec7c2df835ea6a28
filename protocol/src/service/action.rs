//! Declaration of a service's actions, and planning of an agent's action calls. No I/O.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Error, Value};

use super::recovery::Recovery;
use crate::JsonObject;
use crate::ids::ConnectionName;

/// Longest wait for an action, including queueing and the service's retry delays, in milliseconds.
const DEADLINE_MS: u64 = 120_000;

/// A service that agents use through a connection; corresponds to one built-in tool.
#[derive(Debug)]
pub struct ServiceSpec {
    /// The built-in tool.
    pub tool: &'static str,
    /// The connector of its connections.
    pub connector: &'static str,
    /// The required secret of the connection, if there is one that is always required.
    pub secret: Option<&'static str>,
    /// Its actions, in the order shown to models; empty if they are only known at run time.
    pub actions: &'static [ActionSpec],
}

impl ServiceSpec {
    /// True if the named action may be repeated; false if it does not exist.
    #[must_use]
    pub fn is_idempotent(&self, action: &str) -> bool {
        self.recovery(action).is_some_and(Recovery::is_repeatable)
    }

    /// Recovery of the named action after a crash; `None` if it does not exist.
    #[must_use]
    pub fn recovery(&self, action: &str) -> Option<Recovery> {
        let mut actions = self.actions.iter();
        let action = actions.find(|it| it.name == action)?;
        Some(action.recovery)
    }
}

/// An action of a service: its description for models and its requests to the connector.
#[derive(Debug)]
pub struct ActionSpec {
    /// Name of the tool's export, and of the outgoing call's method unless the plan overrides it.
    pub name: &'static str,
    /// Description for the model: effect and purpose.
    pub description: &'static str,
    /// Its arguments: the `properties` of a JSON Schema.
    pub arguments: fn() -> Value,
    /// The required arguments.
    pub required: &'static [&'static str],
    /// Its recovery after a crash.
    pub recovery: Recovery,
    /// Plans the requests to the connector.
    pub plan: fn(&ActionCall<'_>) -> Result<ActionPlan, PlanError>,
}

impl ActionSpec {
    /// True if repeating the action has no further effect.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.recovery.is_repeatable()
    }

    /// True if the action sends the file at [`PATH_ARGUMENT`].
    #[must_use]
    pub fn sends_file(&self) -> bool {
        self.name == SEND_FILE
    }

    /// True if the action saves the file in its result at [`PATH_ARGUMENT`].
    #[must_use]
    pub fn saves_file(&self) -> bool {
        self.name == DOWNLOAD
    }
}

/// An agent's call to an action.
#[derive(Debug, Clone, Copy)]
pub struct ActionCall<'a> {
    /// The connection to use.
    pub connection: &'a ConnectionName,
    /// The id of the tool call.
    pub call_id: &'a str,
    /// Arguments that match the schema.
    pub args: &'a Value,
    /// Properties of the event that the turn answers, if it came from this connection.
    pub facts: Option<&'a JsonObject>,
    /// The file that the action sends ([`ActionSpec::sends_file`]).
    pub file: Option<&'a AttachedFile>,
}

/// A file of the agent's work directory that an action sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedFile {
    /// Its name, without a directory.
    pub name: String,
    /// Its content, in Base64.
    pub base64: String,
}

/// Argument with the path of a file that an action sends or saves, in the work directory.
pub const PATH_ARGUMENT: &str = "path";

/// Name of the actions that send a file.
pub(super) const SEND_FILE: &str = "sendFile";

/// Name of the actions that save a file.
pub(super) const DOWNLOAD: &str = "download";

/// Reason why no request can be planned, or why an answer cannot be interpreted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The arguments cannot be parsed although they match the schema.
    #[error("{0}")]
    Arguments(String),
    /// A required value is missing.
    #[error("{0}")]
    Invalid(String),
    /// A value exceeds a limit of the service.
    #[error("{0}")]
    TooLarge(String),
    /// A bug in goondan.
    #[error("{0}")]
    Failed(String),
}

impl ActionCall<'_> {
    /// The arguments.
    pub(super) fn args<T: DeserializeOwned>(&self) -> Result<T, PlanError> {
        T::deserialize(self.args).map_err(|error| PlanError::Arguments(error.to_string()))
    }

    /// The file to send.
    pub(super) fn file(&self) -> Result<&AttachedFile, PlanError> {
        let none = || PlanError::Failed("the file was not read".to_owned());
        self.file.ok_or_else(none)
    }

    /// A property of the event that the turn answers, if it came from this connection.
    pub(super) fn fact(&self, name: &str) -> Option<&Value> {
        self.facts?.get(name)
    }

    /// The named target, or the one that the turn's event came from; and true if both are the same.
    pub(super) fn place(
        &self,
        argument: &'static str,
        named: Option<&Value>,
        fact: &str,
    ) -> Result<(String, bool), PlanError> {
        let home = self.fact(fact).and_then(name_of);
        match (named.and_then(name_of), home) {
            (Some(name), home) => {
                let is_home = home.as_ref() == Some(&name);
                Ok((name, is_home))
            }
            (None, Some(home)) => Ok((home, true)),
            (None, None) => Err(PlanError::Invalid(format!(
                "pass `{argument}`: the event of this turn did not come from connection `{}`",
                self.connection
            ))),
        }
    }
}

/// Converts a string or an integer to text.
pub(super) fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Requests to a connector for an action call, in order, and the way to report their results.
#[derive(Debug)]
pub struct ActionPlan {
    requests: Vec<ConnectorRequest>,
    is_repeatable: bool,
    deadline_ms: u64,
    answer: AnswerFormat,
}

/// A request to a connector.
#[derive(Debug, Clone)]
pub struct ConnectorRequest {
    /// The method of the outgoing call.
    pub method: String,
    /// Its parameters.
    pub params: Box<RawValue>,
}

/// Text for the model after all requests.
#[derive(Debug)]
enum AnswerFormat {
    Done(&'static str),
    Result,
    Messages(JsonObject),
    Formatted(fn(Value) -> Result<String, Error>),
}

impl ActionPlan {
    fn new(requests: Vec<ConnectorRequest>, answer: AnswerFormat) -> Self {
        Self {
            requests,
            is_repeatable: false,
            deadline_ms: DEADLINE_MS,
            answer,
        }
    }

    /// Plans one request; the model receives a fixed text.
    pub(super) fn done(action: &impl Serialize, done: &'static str) -> Result<Self, PlanError> {
        Ok(Self::new(
            vec![ConnectorRequest::of(action)?],
            AnswerFormat::Done(done),
        ))
    }

    /// Plans one request; the model receives the result as JSON.
    pub(super) fn result(action: &impl Serialize) -> Result<Self, PlanError> {
        Ok(Self::new(
            vec![ConnectorRequest::of(action)?],
            AnswerFormat::Result,
        ))
    }

    /// Plans one request; the model receives the result as formatted by `format`.
    pub(super) fn formatted_by(
        action: &impl Serialize,
        format: fn(Value) -> Result<String, Error>,
    ) -> Result<Self, PlanError> {
        Ok(Self::new(
            vec![ConnectorRequest::of(action)?],
            AnswerFormat::Formatted(format),
        ))
    }

    /// Plans one request; the model receives the target and the id of the message.
    pub(super) fn message(action: &impl Serialize, place: JsonObject) -> Result<Self, PlanError> {
        Ok(Self::new(
            vec![ConnectorRequest::of(action)?],
            AnswerFormat::Messages(place),
        ))
    }

    /// Plans a message for each part of a text; the model receives the target and the results.
    pub(super) fn messages<A: Serialize>(
        parts: &[String],
        place: Value,
        action: impl Fn(usize, &str) -> A,
    ) -> Result<Self, PlanError> {
        Self::messages_of(parts, place, |number, part| action(number, part))
    }

    /// As [`Self::messages`], for parts of any kind.
    pub(super) fn messages_of<P, A: Serialize>(
        parts: &[P],
        place: Value,
        action: impl Fn(usize, &P) -> A,
    ) -> Result<Self, PlanError> {
        let each = parts.iter().enumerate();
        let requests = each.map(|(number, part)| ConnectorRequest::of(&action(number, part)));
        let Value::Object(place) = place else {
            return Err(PlanError::Failed(
                "the target of a message is not an object".to_owned(),
            ));
        };
        let requests = requests.collect::<Result<_, _>>()?;
        Ok(Self::new(requests, AnswerFormat::Messages(place)))
    }

    /// Marks these requests as repeatable or not, overriding the action.
    pub(super) fn repeatable(self, is_repeatable: bool) -> Self {
        Self {
            is_repeatable,
            ..self
        }
    }

    /// Sets the longest wait for each request, in milliseconds.
    pub(super) fn within(self, deadline_ms: u64) -> Self {
        Self {
            deadline_ms,
            ..self
        }
    }

    /// The requests, in order; each is sent after the previous one succeeded.
    #[must_use]
    pub fn requests(&self) -> &[ConnectorRequest] {
        &self.requests
    }

    /// True if these requests may be repeated although the action in general may not.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// Longest wait for each request, in milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Builds the text for the model from the results of the requests.
    ///
    /// # Errors
    ///
    /// [`PlanError::Failed`] if a result cannot be parsed.
    pub fn answer(self, mut results: Vec<Value>) -> Result<String, PlanError> {
        match self.answer {
            AnswerFormat::Done(done) => Ok(done.to_owned()),
            AnswerFormat::Messages(mut place) => {
                place.insert("messages".to_owned(), Value::Array(results));
                Ok(Value::Object(place).to_string())
            }
            AnswerFormat::Result => Ok(results.pop().unwrap_or_default().to_string()),
            AnswerFormat::Formatted(format) => format(results.pop().unwrap_or_default())
                .map_err(|error| PlanError::Failed(format!("failed to read the answer: {error}"))),
        }
    }
}

impl ConnectorRequest {
    /// Creates the request for a connector's method.
    ///
    /// # Errors
    ///
    /// [`PlanError::Failed`] if the value does not serialize as an enum variant with fields.
    pub fn of(action: &impl Serialize) -> Result<Self, PlanError> {
        let (method, params) = to_call(action)
            .map_err(|error| PlanError::Failed(format!("failed to write the call: {error}")))?;
        Ok(Self { method, params })
    }
}

/// Method and parameters of a call; an error if the value is not an enum variant with fields.
pub(super) fn to_call(action: &impl Serialize) -> Result<(String, Box<RawValue>), Error> {
    match serde_json::to_value(action)? {
        Value::Object(fields) if fields.len() == 1 => {
            let only = fields.into_iter().next();
            let (method, params) = only.ok_or_else(|| Error::custom("nothing to do"))?;
            Ok((method, to_raw_value(&params)?))
        }
        _ => Err(Error::custom("it is not an action")),
    }
}

/// Parses the method and parameters of a call.
///
/// # Errors
///
/// The method does not exist, or the parameters do not match it.
pub fn of_call<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, Error> {
    let method = serde_json::to_string(method)?;
    serde_json::from_str(&format!("{{{method}:{}}}", params.get()))
}
