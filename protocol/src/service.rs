//! Services that agents use through connections, each with its actions.
//!
//! Each action is declared once, in the module of its service: its description for models, the
//! conversion of its arguments, and the enum variant that the connector receives. The agent process
//! builds its tools from this declaration, configuration is checked against it, and the connector
//! parses the variant. A call's method is the name of the variant, and its parameters are the
//! variant's fields.
//!
//! * `action`: declaration and planning of actions.
//! * `recovery`: how an action with an unknown outcome is closed.
//! * `formatted_text`, `html`, `split`, `text`: conversion of texts to messages.
//! * The others: one service each.

mod action;
mod discord;
mod email;
mod formatted_text;
mod github;
mod gitlab;
mod html;
mod http;
mod matrix;
mod mcp;
mod recovery;
mod slack;
mod split;
mod telegram;
mod text;

use serde_json::{Value, json};

pub use action::{
    ActionCall, ActionPlan, ActionSpec, AttachedFile, ConnectorRequest, PATH_ARGUMENT, PlanError,
    ServiceSpec, of_call,
};
pub use discord::{DISCORD, Discord};
pub use email::{EMAIL, EMAIL_REPLY, Email, EmailDraft, EmailReply};
pub use formatted_text::{FormattedRange, TextFormat};
pub use github::{GITHUB, GitHub, PullRequest, PullRequestStatus};
pub use gitlab::{GITLAB, GitLab, StateChange};
pub use http::{FetchResult, HTTP, Http};
pub use matrix::{MATRIX, MATRIX_MESSAGES_MAX, Matrix, MatrixText};
pub use mcp::{MCP, Mcp, McpResult, McpTool, McpTools};
pub use recovery::Recovery;
pub use slack::{
    OlderSlackParameters, SLACK, SLACK_MESSAGES_MAX, SLACK_PAGE_MAX, Slack, SlackFormat,
};
pub use telegram::{OlderTelegramParameters, TELEGRAM, Telegram};

/// Largest file that a chat connection sends or downloads, in bytes. Its base64 form must fit in a
/// message.
pub const DOWNLOAD_BYTES_MAX: u64 = 5 * 1024 * 1024;

/// All services.
pub const SERVICES: &[ServiceSpec] = &[
    DISCORD, EMAIL, GITHUB, GITLAB, HTTP, MATRIX, MCP, SLACK, TELEGRAM,
];

/// Schema of the path of a file that an action sends or writes.
fn path_schema(verb: &str) -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": format!("The path of the file to {verb}, in the work directory; at most {DOWNLOAD_BYTES_MAX} bytes"),
    })
}

/// The service of a built-in tool, if the tool uses a connection.
#[must_use]
pub fn service_of(tool: &str) -> Option<&'static ServiceSpec> {
    SERVICES.iter().find(|service| service.tool == tool)
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::JsonObject;

    /// Plans a call in a turn that answers an event with these properties.
    fn planned(
        tool: &str,
        action: &str,
        (args, facts): (&Value, &Value),
    ) -> Result<ActionPlan, PlanError> {
        let service = service_of(tool).unwrap();
        let mut actions = service.actions.iter();
        let action = actions.find(|it| it.name == action).unwrap();
        let facts: Option<JsonObject> = facts.as_object().cloned();
        (action.plan)(&ActionCall {
            connection: &"home".parse().unwrap(),
            call_id: "t.1:c0",
            args,
            facts: facts.as_ref(),
            file: Some(&AttachedFile {
                name: "report.pdf".to_owned(),
                base64: "aGk=".to_owned(),
            }),
        })
    }

    /// The requests, each formatted as `method params`.
    fn asked(plan: &ActionPlan) -> Vec<String> {
        let requests = plan.requests().iter();
        let shown = requests.map(|it| format!("{} {}", it.method, it.params));
        shown.collect()
    }

    #[test]
    fn missing_action_arguments_default_to_the_origin_of_the_turn() {
        let home = json!({"channel": "C1", "threadTs": "1.5", "ts": "1.6"});
        let plan = |action, args| planned("slack", action, (&args, &home)).unwrap();
        let said = plan("send", json!({"text": "hi"}));
        let expected = r#"send {"channel":"C1","text":"hi","format":"markdown","thread":"1.5","mark":"t.1:c0/0"}"#;
        assert_eq!(asked(&said), [expected]);
        let answer = said.answer(vec![json!("1.7")]).unwrap();
        assert_eq!(
            answer,
            r#"{"channel":"C1","thread":"1.5","messages":["1.7"]}"#
        );
        let elsewhere = plan("send", json!({"text": "hi", "channel": "C2"}));
        let expected = r#"send {"channel":"C2","text":"hi","format":"markdown","mark":"t.1:c0/0"}"#;
        assert_eq!(asked(&elsewhere), [expected]);
        let react = plan("react", json!({"emoji": ":eyes:"}));
        let expected = r#"react {"channel":"C1","message":"1.6","emoji":"eyes"}"#;
        assert_eq!(asked(&react), [expected]);
        assert_eq!(react.answer(vec![json!({})]).unwrap(), "done");
        let read = plan("read", json!({}));
        let expected = r#"read {"channel":"C1","thread":"1.5","limit":20}"#;
        assert_eq!(asked(&read), [expected]);
        let read = plan("read", json!({"thread": "", "limit": 3}));
        assert_eq!(asked(&read), [r#"read {"channel":"C1","limit":3}"#]);
        let event = json!({"repository": "o/r", "number": 7, "commentId": 9});
        let react = planned("github", "react", (&json!({"content": "eyes"}), &event)).unwrap();
        let expected = r#"react {"repository":"o/r","comment":9,"number":7,"content":"eyes"}"#;
        assert_eq!(asked(&react), [expected]);
        let chat = json!({"chatId": -5, "messageId": 7});
        let sent = planned(
            "telegram",
            "send",
            (&json!({"text": "hi", "quote": true}), &chat),
        )
        .unwrap();
        assert_eq!(
            asked(&sent),
            [r#"send {"chat":"-5","text":"hi","replyTo":7}"#]
        );
    }

    #[test]
    fn gitlab_actions_default_to_the_thing_and_thread_of_the_turn() {
        let home = json!({"project": "acme/shop", "reference": "!7", "discussion": "d1",
            "commit": "da1560886d4f", "defaultBranch": "main"});
        let plan = |action, args| planned("gitlab", action, (&args, &home)).unwrap();
        let error = |action, args| planned("gitlab", action, (&args, &home)).unwrap_err();
        for (action, args, expected) in [
            (
                "comment",
                json!({"body": "x"}),
                r#"comment {"project":"acme/shop","reference":"!7","body":"x","discussion":"d1"}"#,
            ),
            (
                "comment",
                json!({"body": "x", "discussion": ""}),
                r#"comment {"project":"acme/shop","reference":"!7","body":"x"}"#,
            ),
            // A thread of another merge request is not the one of the turn.
            (
                "comment",
                json!({"body": "x", "reference": "#3"}),
                r##"comment {"project":"acme/shop","reference":"#3","body":"x"}"##,
            ),
            (
                "edit",
                json!({"state": "close", "addLabels": ["bug"]}),
                r#"edit {"project":"acme/shop","reference":"!7","addLabels":["bug"],"state":"close"}"#,
            ),
            (
                "diff",
                json!({}),
                r#"diff {"project":"acme/shop","reference":"!7","page":1}"#,
            ),
            (
                "setStatus",
                json!({"state": "success"}),
                r#"setStatus {"project":"acme/shop","commit":"da1560886d4f","state":"success"}"#,
            ),
            (
                "openMergeRequest",
                json!({"source": "fix", "title": "T"}),
                r#"openMergeRequest {"project":"acme/shop","source":"fix","target":"main","title":"T"}"#,
            ),
        ] {
            assert_eq!(asked(&plan(action, args)), [expected]);
        }
        let elsewhere = error("read", json!({"project": "acme/docs"}));
        assert!(matches!(elsewhere, PlanError::Invalid(text) if text.contains("`reference`")));
        assert!(matches!(error("edit", json!({})), PlanError::Invalid(_)));
        let issue = error("diff", json!({"reference": "#3"}));
        assert!(matches!(issue, PlanError::Invalid(text) if text.contains("merge request")));
    }

    #[test]
    fn action_needs_missing_arguments_and_refuses_long_text() {
        let error = |tool, action, args| planned(tool, action, (&args, &Value::Null)).unwrap_err();
        let lost = error("slack", "send", json!({"text": "hi"}));
        let message = "pass `channel`: the event of this turn did not come from connection `home`";
        assert_eq!(lost, PlanError::Invalid(message.to_owned()));
        let which = error("telegram", "react", json!({"chat": 5, "emoji": "👍"}));
        assert_eq!(which, PlanError::Invalid("say which `message`".to_owned()));
        let none = error(
            "github",
            "comment",
            json!({"repository": "o/r", "body": "x"}),
        );
        assert!(matches!(none, PlanError::Invalid(text) if text.starts_with("say which `number`")));
        let long = json!({"channel": "C", "message": "1", "text": "x".repeat(4_001)});
        let text = "the text has 4001 characters, a message at most 4000";
        assert_eq!(
            error("slack", "edit", long),
            PlanError::TooLarge(text.to_owned())
        );
        let book = json!({"channel": "C", "text": "word ".repeat(20_000)});
        assert!(matches!(
            error("discord", "send", book),
            PlanError::TooLarge(_)
        ));
        let number = json!({"chat": 1, "message": 1e30});
        assert!(matches!(
            error("telegram", "delete", number),
            PlanError::Arguments(_)
        ));
    }

    #[test]
    fn a_text_in_parts_is_one_request_for_each() {
        let text = "word ".repeat(500);
        let args = json!({"channel": "C", "text": text, "replyTo": "9"});
        let plan = planned("discord", "send", (&args, &Value::Null)).unwrap();
        let requests = asked(&plan);
        assert_eq!(requests.len(), 2);
        assert!(
            requests[0].contains(r#""replyTo":"9","mark":"t.1:c0/0""#),
            "{}",
            requests[0]
        );
        assert!(
            requests[1].ends_with(r#""mark":"t.1:c0/1"}"#),
            "{}",
            requests[1]
        );
        assert!(plan.is_repeatable());
        let command = json!({"channel": "C", "interactionId": "i"});
        let answer = planned("discord", "send", (&json!({"text": "x"}), &command)).unwrap();
        assert!(!answer.is_repeatable());
    }

    #[test]
    fn action_properties_are_found_by_method_name() {
        assert!(SLACK.is_idempotent("edit") && !SLACK.is_idempotent("send"));
        assert!(!SLACK.is_idempotent("dance"));
        let fetched = planned(
            "http-fetch",
            "get",
            (&json!({"url": "http://x"}), &Value::Null),
        );
        let fetched = fetched.unwrap();
        assert_eq!(fetched.deadline_ms(), 90_000);
        let answer = json!({"status": 200, "url": "http://x/", "headers": {"etag": "1"}, "text": "hi", "bytes": 2});
        let told = fetched.answer(vec![answer]).unwrap();
        assert_eq!(told, "status: 200\nurl: http://x/\netag: 1\n\nhi");
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let delete = Telegram::Delete {
            chat: "-5".to_owned(),
            message: 7,
        };
        let (method, params) = action::to_call(&delete).unwrap();
        assert_eq!(
            (method.as_str(), params.get()),
            ("delete", r#"{"chat":"-5","message":7}"#)
        );
        assert_eq!(of_call::<Telegram>(&method, &params).unwrap(), delete);
        let unknown = of_call::<Telegram>("dance", &params).unwrap_err();
        assert!(unknown.to_string().contains("dance"), "{unknown}");
        let strange =
            to_raw_value(&serde_json::json!({"chat": "1", "message": 1, "x": 1})).unwrap();
        assert!(of_call::<Telegram>("delete", &strange).is_err());
    }
}
