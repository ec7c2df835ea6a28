//! The client side of a session: announces capabilities and handles the server's requests.

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

use super::questions::{QuestionRelay, ServerQuestion};

/// The method by which a server asks a person.
const ELICITATION: &str = "elicitation/create";
/// The only supported mode of elicitation.
const FORM: &str = "form";

/// The client's side of a session. Cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct McpClientHandler {
    /// Handle for questions to people.
    asking: QuestionRelay,
    /// Number of notifications that the server's tools have changed.
    changes: Arc<AtomicU64>,
    /// Directory of a server that is a program of the project.
    root: Option<Arc<str>>,
}

/// Parameters of an elicitation that are checked before a person is asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    #[serde(default)]
    mode: Option<String>,
    message: String,
    #[serde(default)]
    requested_schema: Value,
}

impl McpClientHandler {
    /// Creates the client of a remote server.
    pub(super) fn new(asking: QuestionRelay) -> Self {
        Self {
            asking,
            changes: Arc::default(),
            root: None,
        }
    }

    /// Creates the client of a server that is a program in this directory.
    pub(super) fn in_directory(asking: QuestionRelay, root: &Path) -> Self {
        let url = reqwest::Url::from_directory_path(root).ok();
        let url = url.map(|url| Arc::from(url.as_str().trim_end_matches('/')));
        Self {
            root: url,
            ..Self::new(asking)
        }
    }

    /// Answers all questions that a server asks before it continues a call, by the server's names.
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
            _ => Err(ErrorData::invalid_params("sampling is not supported", None)),
        }
    }

    fn roots(&self) -> ListRootsResult {
        let roots = self.root.iter().map(|root| Root::new(root.as_ref()));
        ListRootsResult::new(roots.collect())
    }

    /// Number of changes of the server's tool list.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// True if both belong to the same session.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.changes, &other.changes)
    }
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        // The client offers no sampling, because the model belongs to the agent. Directories of
        // this machine are irrelevant to a remote server.
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

    /// Handles elicitations that the library cannot parse, for example because of an unusual
    /// schema, so that the server gets a specific error.
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
        let question = ServerQuestion {
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

/// The question of an elicitation in form mode.
fn question_of(
    request: ElicitRequestParams,
    traceparent: Option<String>,
) -> Result<ServerQuestion, ErrorData> {
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
    Ok(ServerQuestion {
        message,
        schema,
        traceparent,
    })
}

/// Formats an answer for the server.
fn result_of(answered: QuestionAnswered) -> Value {
    let mut result = json!({"action": answered.action});
    if let (Some(result), Some(content)) = (result.as_object_mut(), answered.content) {
        result.insert("content".to_owned(), Value::Object(content));
    }
    result
}

fn only_forms() -> ErrorData {
    let message = "only form mode is supported: `mode` must be `form` or missing";
    ErrorData::invalid_params(message, None)
}
