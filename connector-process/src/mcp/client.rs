//! What this side tells a server of itself, and what it wants to hear.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use goondan_protocol::call::CallId;
use goondan_protocol::question::QuestionAnswered;
use goondan_protocol::version::GOONDAN_VERSION;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams,
    ElicitResult, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    Implementation, InputRequest, InputRequests, InputResponses, ListRootsResult, Root,
    RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde::Deserialize;
use serde_json::{Value, json};

use super::questions::{Asking, Question};

/// The method by which a server asks a person something.
const ELICITATION: &str = "elicitation/create";
/// The one way of asking that is offered.
const FORM: &str = "form";

/// The client's side of a session. Cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    /// The way to a person.
    asking: Asking,
    /// How often the server said that its tools are others now.
    changes: Arc<AtomicU64>,
    /// Where a program of the project works, if the server is one.
    root: Option<Arc<str>>,
}

/// The parameters of an elicitation, as far as they are looked at before a person is asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    #[serde(default)]
    mode: Option<String>,
    message: String,
    #[serde(default)]
    requested_schema: Value,
}

impl Client {
    /// The side of a server that is somewhere else.
    pub(super) fn new(asking: Asking) -> Self {
        Self {
            asking,
            changes: Arc::default(),
            root: None,
        }
    }

    /// The side of a server that is a program and works in this directory.
    pub(super) fn in_directory(asking: Asking, root: &Path) -> Self {
        let url = reqwest::Url::from_directory_path(root).ok();
        let url = url.map(|url| Arc::from(url.as_str().trim_end_matches('/')));
        Self {
            root: url,
            ..Self::new(asking)
        }
    }

    /// The answers to all that a server wants to know before it goes on with a call, by its names for
    /// them.
    pub(super) async fn respond_all(
        &self,
        call_id: CallId,
        requests: InputRequests,
    ) -> Result<InputResponses, ErrorData> {
        let responses = requests.into_iter().map(|(name, request)| async move {
            let response = self.respond(call_id, request).await?;
            Ok((name, response))
        });
        Ok(try_join_all(responses).await?.into_iter().collect())
    }

    async fn respond(&self, call_id: CallId, request: InputRequest) -> Result<Value, ErrorData> {
        match request {
            InputRequest::Elicitation(request) => {
                let question = question_of(request.params, None)?;
                let answered = self.asking.ask_for(call_id, question).await?;
                Ok(result_of(answered))
            }
            InputRequest::ListRoots(_) => serde_json::to_value(self.roots())
                .map_err(|error| ErrorData::internal_error(error.to_string(), None)),
            _ => Err(ErrorData::invalid_params(
                "no model is offered to a server",
                None,
            )),
        }
    }

    fn roots(&self) -> ListRootsResult {
        let roots = self.root.iter().map(|root| Root::new(root.as_ref()));
        ListRootsResult::new(roots.collect())
    }

    /// How often the server's list of tools has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether both are of one session.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.changes, &other.changes)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        // It offers no model to the server: that is the agent's. One that is somewhere else has nothing
        // to do with the directories of this machine.
        let form = FormElicitationCapability::default().with_schema_validation(true);
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default().with_form(form));
        capabilities.roots = self.root.as_ref().map(|_| RootsCapabilities::default());
        ClientConfig::new(
            capabilities,
            Implementation::new("goondan", GOONDAN_VERSION),
        )
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(self.roots())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let traceparent = context.meta.get_traceparent().map(str::to_owned);
        let question = question_of(request, traceparent)?;
        let answered = self.asking.ask(question, context.ct).await?;
        serde_json::from_value(result_of(answered))
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// An elicitation that the library does not take for one, such as one with a strange schema, comes
    /// here: the server is to be told what is wrong with it.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != ELICITATION {
            let method = request.method;
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
        }
        let params = request.params.unwrap_or_default();
        let asked: Elicitation = serde_json::from_value(params)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        if asked.mode.is_some_and(|mode| mode != FORM) {
            return Err(only_forms());
        }
        let question = Question {
            message: asked.message,
            schema: asked.requested_schema,
            traceparent: context.meta.get_traceparent().map(str::to_owned),
        };
        let answered = self.asking.ask(question, context.ct).await?;
        Ok(CustomResult::new(result_of(answered)))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// What an elicitation asks, if it asks by a form.
fn question_of(
    request: ElicitRequestParams,
    traceparent: Option<String>,
) -> Result<Question, ErrorData> {
    let ElicitRequestParams::FormElicitationParams {
        message,
        requested_schema,
        ..
    } = request
    else {
        return Err(only_forms());
    };
    let schema = serde_json::to_value(requested_schema);
    let schema = schema.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
    Ok(Question {
        message,
        schema,
        traceparent,
    })
}

/// What came of it, as a server is told.
fn result_of(answered: QuestionAnswered) -> Value {
    let mut result = json!({"action": answered.action});
    if let (Some(result), Some(content)) = (result.as_object_mut(), answered.content) {
        result.insert("content".to_owned(), Value::Object(content));
    }
    result
}

fn only_forms() -> ErrorData {
    let message = "a person is asked by a form only: `mode` must be `form` or missing";
    ErrorData::invalid_params(message, None)
}
