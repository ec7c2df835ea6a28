//! The tool `github`: comments on issues and pull requests.

use std::sync::Arc;

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::{GITHUB_BODY_CHARS_MAX, GitHub};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ConnectionRoute, Connections, Offer, export};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// The exports of the tool.
pub(crate) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let connections: Connections = Arc::from(connections);
    let repository = json!({
        "type": "string", "pattern": "^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$",
        "description": "`owner/name`. If not given, the repository this turn is about",
    });
    let number = json!({
        "type": "integer", "minimum": 1,
        "description": "The number of an issue or a pull request. If not given, the one this turn is about",
    });
    let body = json!({
        "type": "string", "minLength": 1, "maxLength": GITHUB_BODY_CHARS_MAX,
        "description": "The comment, in Markdown",
    });
    vec![
        export(
            Offer {
                name: "comment",
                description: "Comments on an issue or a pull request on GitHub, and returns the comment's id and link.",
                properties: json!({"body": body, "repository": repository, "number": number}),
                required: &["body"],
                is_idempotent: false,
            },
            &connections,
            comment,
        ),
        export(
            Offer {
                name: "edit",
                description: "Gives a comment another text.",
                properties: json!({
                    "comment": {"type": "integer", "minimum": 1, "description": "The comment's id, as `comment` returned it"},
                    "body": body, "repository": repository,
                }),
                required: &["comment", "body"],
                is_idempotent: true,
            },
            &connections,
            edit,
        ),
        export(
            Offer {
                name: "react",
                description: "Puts a reaction under a comment, an issue or a pull request.",
                properties: json!({
                    "content": {"enum": ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]},
                    "comment": {"type": "integer", "minimum": 1, "description": "The comment's id. If neither this nor `number` is given, the comment this turn is about, or else its issue"},
                    "repository": repository, "number": number,
                }),
                required: &["content"],
                is_idempotent: true,
            },
            &connections,
            react,
        ),
    ]
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    repository: Option<Value>,
    #[serde(default)]
    number: Option<u64>,
    #[serde(default)]
    comment: Option<u64>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    content: String,
}

/// A number that the event says, if it is of that repository.
fn fact(route: &ConnectionRoute, is_home: bool, name: &str) -> Option<u64> {
    route.fact(name).filter(|_| is_home).and_then(Value::as_u64)
}

fn missing(argument: &str) -> ToolFault {
    let message = format!("say which `{argument}`: this turn is about none of that repository");
    ToolFault::new("E_INVALID_REQUEST", message)
}

async fn comment(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (repository, is_home) =
        route.place("repository", args.repository.as_ref(), "repository")?;
    let number = args.number.or_else(|| fact(&route, is_home, "number"));
    let errand = GitHub::Comment {
        repository,
        number: number.ok_or_else(|| missing("number"))?,
        body: args.body,
    };
    Ok(route
        .run(&errand, errand.is_repeatable())
        .await?
        .to_string())
}

async fn edit(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (repository, _) = route.place("repository", args.repository.as_ref(), "repository")?;
    let errand = GitHub::Edit {
        repository,
        comment: args.comment.unwrap_or_default(),
        body: args.body,
    };
    route.run(&errand, errand.is_repeatable()).await?;
    Ok("edited".to_owned())
}

async fn react(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (repository, is_home) =
        route.place("repository", args.repository.as_ref(), "repository")?;
    let is_unsaid = args.comment.is_none() && args.number.is_none();
    let said = |name| fact(&route, is_home && is_unsaid, name);
    let comment = args.comment.or_else(|| said("commentId"));
    let number = args.number.or_else(|| said("number"));
    if comment.is_none() && number.is_none() {
        return Err(missing("number"));
    }
    let errand = GitHub::React {
        repository,
        comment,
        number,
        content: args.content,
    };
    route.run(&errand, errand.is_repeatable()).await?;
    Ok("done".to_owned())
}
