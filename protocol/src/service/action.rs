//! How the actions of a service are declared, and what becomes of an agent's call of one. Pure.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Error, Value};

use crate::JsonObject;
use crate::ids::ConnectionName;

/// How long an agent waits for an action, queueing and the service's "later" included, in milliseconds.
const DEADLINE_MS: u64 = 120_000;

/// A service that agents act at by a connection: one built-in tool.
#[derive(Debug)]
pub struct Service {
    /// The built-in tool.
    pub tool: &'static str,
    /// The connector whose connections it works by.
    pub connector: &'static str,
    /// The connection's secret that it cannot do without; none if it needs none, or not always.
    pub secret: Option<&'static str>,
    /// What it does, in the order models see it; nothing if that is known only when it runs.
    pub actions: &'static [Action],
}

impl Service {
    /// Whether the action of this name may be done twice; false if there is none.
    #[must_use]
    pub fn is_idempotent(&self, action: &str) -> bool {
        let mut actions = self.actions.iter();
        actions.any(|it| it.name == action && it.is_idempotent)
    }
}

/// One thing that agents do at a service: what models are told of it, and what is asked of the connector.
#[derive(Debug)]
pub struct Action {
    /// The name of the tool's export, and the method of the outgoing call unless the plan says otherwise.
    pub name: &'static str,
    /// What it does and when to use it, for the model.
    pub description: &'static str,
    /// Its arguments: the `properties` of a JSON Schema.
    pub arguments: fn() -> Value,
    /// The arguments that must be given.
    pub required: &'static [&'static str],
    /// Whether doing it twice is the same as doing it once.
    pub is_idempotent: bool,
    /// What is asked of the connector.
    pub plan: fn(&ActionCall<'_>) -> Result<Plan, PlanError>,
}

/// An agent's call of an action.
#[derive(Debug, Clone, Copy)]
pub struct ActionCall<'a> {
    /// The connection it is made by.
    pub connection: &'a ConnectionName,
    /// The tool call's own id.
    pub call_id: &'a str,
    /// Arguments that fit the schema.
    pub args: &'a Value,
    /// What the event says that the turn answers, if it came by this connection.
    pub facts: Option<&'a JsonObject>,
}

/// Why nothing is asked of the connector, or why its answer means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The arguments cannot be read, although they fit the schema.
    #[error("{0}")]
    Arguments(String),
    /// Something that must be said is not.
    #[error("{0}")]
    Invalid(String),
    /// There is more of it than the service takes.
    #[error("{0}")]
    TooLarge(String),
    /// A mistake of goondan itself.
    #[error("{0}")]
    Failed(String),
}

impl ActionCall<'_> {
    /// The arguments.
    pub(super) fn args<T: DeserializeOwned>(&self) -> Result<T, PlanError> {
        T::deserialize(self.args).map_err(|error| PlanError::Arguments(error.to_string()))
    }

    /// What the event says that the turn answers, if it came by this connection.
    pub(super) fn fact(&self, name: &str) -> Option<&Value> {
        self.facts?.get(name)
    }

    /// The place that is named, or the one that the turn's event came from; and whether it is that one.
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
                "say which `{argument}`: what this turn answers did not come by connection `{}`",
                self.connection
            ))),
        }
    }
}

/// A text or a whole number, as text.
pub(super) fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// What is asked of a connector for a call of an action: one request, or several in their order.
#[derive(Debug)]
pub struct Plan {
    requests: Vec<Request>,
    is_repeatable: bool,
    deadline_ms: u64,
    answer: Answer,
}

/// A request to a connector.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method of the outgoing call.
    pub method: String,
    /// Its parameters.
    pub params: Box<RawValue>,
}

/// What the model is told when all is done.
#[derive(Debug)]
enum Answer {
    Done(&'static str),
    Result,
    Messages(JsonObject),
    Told(fn(Value) -> Result<String, Error>),
}

impl Plan {
    fn new(requests: Vec<Request>, answer: Answer) -> Self {
        Self {
            requests,
            is_repeatable: false,
            deadline_ms: DEADLINE_MS,
            answer,
        }
    }

    /// One request; the model is told that it is done.
    pub(super) fn done(action: &impl Serialize, done: &'static str) -> Result<Self, PlanError> {
        Ok(Self::new(vec![Request::of(action)?], Answer::Done(done)))
    }

    /// One request; the model is told what came of it, as JSON.
    pub(super) fn result(action: &impl Serialize) -> Result<Self, PlanError> {
        Ok(Self::new(vec![Request::of(action)?], Answer::Result))
    }

    /// One request; the model is told what came of it in the words of `told`.
    pub(super) fn told(
        action: &impl Serialize,
        told: fn(Value) -> Result<String, Error>,
    ) -> Result<Self, PlanError> {
        Ok(Self::new(vec![Request::of(action)?], Answer::Told(told)))
    }

    /// A message for each part of a text; the model is told the place, and what came of each.
    pub(super) fn messages<A: Serialize>(
        parts: &[String],
        place: Value,
        action: impl Fn(usize, &str) -> A,
    ) -> Result<Self, PlanError> {
        let each = parts.iter().enumerate();
        let requests = each.map(|(number, part)| Request::of(&action(number, part)));
        let Value::Object(place) = place else {
            return Err(PlanError::Failed("a place is no object".to_owned()));
        };
        let requests = requests.collect::<Result<_, _>>()?;
        Ok(Self::new(requests, Answer::Messages(place)))
    }

    /// Says that these requests may be made twice, whatever is said of the action.
    pub(super) fn repeatable(self, is_repeatable: bool) -> Self {
        Self {
            is_repeatable,
            ..self
        }
    }

    /// Says how long the agent waits for each request, in milliseconds.
    pub(super) fn within(self, deadline_ms: u64) -> Self {
        Self {
            deadline_ms,
            ..self
        }
    }

    /// What is asked, in order; a request is made when the one before it succeeded.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Whether these requests may be made twice, though the action in general may not.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// How long the agent waits for each request, in milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// What the model is told, given what came of each request.
    ///
    /// # Errors
    ///
    /// [`PlanError::Failed`] if what came cannot be read.
    pub fn answer(self, mut results: Vec<Value>) -> Result<String, PlanError> {
        match self.answer {
            Answer::Done(done) => Ok(done.to_owned()),
            Answer::Messages(mut place) => {
                place.insert("messages".to_owned(), Value::Array(results));
                Ok(Value::Object(place).to_string())
            }
            Answer::Result => Ok(results.pop().unwrap_or_default().to_string()),
            Answer::Told(told) => told(results.pop().unwrap_or_default())
                .map_err(|error| PlanError::Failed(format!("the answer cannot be read: {error}"))),
        }
    }
}

impl Request {
    /// The request that has a connector do this.
    ///
    /// # Errors
    ///
    /// [`PlanError::Failed`] if it is no variant with fields.
    pub fn of(action: &impl Serialize) -> Result<Self, PlanError> {
        let (method, params) = to_call(action)
            .map_err(|error| PlanError::Failed(format!("the call cannot be written: {error}")))?;
        Ok(Self { method, params })
    }
}

/// The method and the parameters of a call that does this; an error if it is no variant with fields.
pub(super) fn to_call(action: &impl Serialize) -> Result<(String, Box<RawValue>), Error> {
    match serde_json::to_value(action)? {
        Value::Object(fields) if fields.len() == 1 => {
            let only = fields.into_iter().next();
            let (method, params) = only.ok_or_else(|| Error::custom("nothing to do"))?;
            Ok((method, to_raw_value(&params)?))
        }
        _ => Err(Error::custom("it is no action")),
    }
}

/// What a call with this method and these parameters does.
///
/// # Errors
///
/// If there is no such method, or the parameters are not its own.
pub fn of_call<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, Error> {
    let method = serde_json::to_string(method)?;
    serde_json::from_str(&format!("{{{method}:{}}}", params.get()))
}
