//! Actions of agents on GitLab, through its REST API.

use std::sync::{Arc, OnceLock};

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{GITLAB, GitLab as Action, ServiceSpec};
use serde_json::{Value, json};

use super::answers;
use super::projects::Projects;
use super::requests::{GitLabRequest, open_merge_requests, project_of, to_request};
use crate::payload::{items, text};
use crate::service::{FailureContext, HttpAnswer, other_place};
use crate::service_api::ServiceApi;

/// GitLab's REST API with one token.
pub(super) struct Api {
    client: reqwest::Client,
    endpoint: String,
    token: String,
    projects: Arc<Projects>,
    /// ID of the token's account, if the account is a bot.
    bot: OnceLock<u64>,
}

impl ServiceApi for Api {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &GITLAB;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        let project = project_of(&action);
        if !self.projects.may_use(project) {
            return Err(other_place("project", project, "projects"));
        }
        if let Action::OpenMergeRequest {
            project,
            source,
            target,
            ..
        } = &action
        {
            let list = open_merge_requests(project, source, target)?;
            return self.open_merge_request(list, to_request(&action)?).await;
        }
        let answered = self.ask(to_request(&action)?, is_idempotent).await?;
        match action {
            Action::Comment { .. } => Ok(json!({"comment": answered.json().get("id")})),
            Action::OpenIssue { .. } => answers::opened(&answered.json()),
            Action::Read { .. } => Ok(answers::thing(&answered.json())),
            Action::Comments { .. } => Ok(answers::comments(&answered)),
            Action::Diff { .. } => Ok(answers::diff(&answered)),
            Action::Edit { .. } | Action::SetStatus { .. } | Action::OpenMergeRequest { .. } => {
                Ok(json!({}))
            }
        }
    }

    fn secret(&self) -> &str {
        &self.token
    }

    async fn check(&self) -> Result<Option<String>, CallError> {
        let user = self
            .ask(GitLabRequest::get("user".to_owned()), true)
            .await?;
        let user = user.json();
        let is_bot = user.get("bot") == Some(&Value::Bool(true));
        if let Some(id) = user.get("id").and_then(Value::as_u64).filter(|_| is_bot) {
            self.bot.get_or_init(|| id);
        }
        Ok(text(&user, "/username").map(str::to_owned))
    }
}

impl Api {
    /// Creates a client for the API at `endpoint`.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: String,
        projects: Arc<Projects>,
    ) -> Self {
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            projects,
            bot: OnceLock::new(),
        }
    }

    /// True if the token's account caused an event, and no person uses that account.
    pub(super) fn is_own_bot(&self, body: &Value) -> bool {
        let user = body.pointer("/user/id").and_then(Value::as_u64);
        user.is_some() && user.as_ref() == self.bot.get()
    }

    /// Opens a merge request, unless there is one; a repeated request finds the first one's result.
    async fn open_merge_request(
        &self,
        list: GitLabRequest,
        creation: GitLabRequest,
    ) -> Result<Value, CallError> {
        let found = |listed: &HttpAnswer| items(&listed.json(), "").next().cloned();
        let listed = self.ask(list.clone(), true).await?;
        if let Some(open) = found(&listed) {
            return answers::opened(&open);
        }
        match self.ask(creation, true).await {
            Ok(created) => answers::opened(&created.json()),
            // An earlier request may have been carried out late.
            Err(error) if error.code == CallErrorCode::Invalid => {
                let listed = self.ask(list, true).await?;
                answers::opened(&found(&listed).ok_or(error)?)
            }
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        request: GitLabRequest,
        is_repeatable: bool,
    ) -> Result<HttpAnswer, CallError> {
        let failed = FailureContext {
            service: "GitLab",
            is_repeatable,
        };
        let url = format!("{}/{}", self.endpoint, request.path);
        let mut sent = self
            .client
            .request(request.method, url)
            // Accepted for personal, project and group access tokens, and for OAuth.
            .bearer_auth(&self.token)
            .header("accept", "application/json");
        if let Some(body) = request.body {
            sent = sent
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        answers::checked(failed.answer_to(sent).await?, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn only_the_account_of_a_bot_is_goondans_own() {
        let client = http::service_client().unwrap();
        let projects = Arc::new(Projects::new(None, &[]));
        let api = Api::new(client, "https://h/api/v4/", "t".to_owned(), projects);
        let by = |id: u64| json!({"user": {"id": id}});
        assert!(!api.is_own_bot(&by(5)) && !api.is_own_bot(&json!({})));
        api.bot.get_or_init(|| 5);
        assert!(api.is_own_bot(&by(5)));
        assert!(!api.is_own_bot(&by(6)) && !api.is_own_bot(&json!({})));
        assert_eq!(api.endpoint, "https://h/api/v4");
    }
}
