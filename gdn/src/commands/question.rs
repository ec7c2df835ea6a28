//! `gdn inbox question …`: questions to people.

use clap::{Args, Subcommand};
use std::collections::BTreeSet;

use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    AnswerQuestion, DeclineQuestion, ListQuestions, QuestionDetail, QuestionInfo, QuestionSource,
    ShowQuestion,
};
use goondan_protocol::ids::QuestionId;
use goondan_protocol::question::{FieldKind, FormChoice, FormField, QuestionForm};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// List, show and answer questions from tools
#[derive(Debug, Subcommand)]
pub(crate) enum QuestionCommand {
    /// List the unanswered questions
    #[command(after_help = "\
Examples:
  gdn inbox question list                      this project's
  gdn inbox question list --all
  gdn inbox question list --json | jq -r '.questions[].questionId'

A tool can ask a person a question before it continues; currently, only tools of MCP servers do. Its call
and the agent's turn wait until you answer or decline, or the question expires.")]
    List(QuestionListArgs),
    /// Show a question and the form of its answer
    #[command(after_help = "\
Examples:
  gdn inbox question show q-7f3a9c21
  gdn inbox question show q-7f3a9c21 --json | jq '.form[] | select(.required) | .name'

Also prints the command to answer it.")]
    Show(QuestionShowArgs),
    /// Answer a question; the tool call continues with the answer
    #[command(after_help = "\
Examples:
  gdn inbox question answer q-7f3a9c21 --set size=m --set count=3
  gdn inbox question answer q-7f3a9c21 --json-content '{\"size\":\"m\",\"count\":3}'
  gdn inbox question answer q-7f3a9c21         confirm, if no field is required

The server that asked receives all values unchanged: do not send it passwords or keys.
An invalid answer is refused, and the question stays open.")]
    Answer(QuestionAnswerArgs),
    /// Decline a question; the tool call continues without an answer
    #[command(after_help = "\
Examples:
  gdn inbox question decline q-7f3a9c21")]
    Decline(QuestionDeclineArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuestionListArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionShowArgs {
    /// The question
    #[arg(value_name = "ID")]
    question: QuestionId,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionAnswerArgs {
    /// The question
    #[arg(value_name = "ID")]
    question: QuestionId,
    /// One field of the answer (can be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field)]
    set: Vec<(String, String)>,
    /// The complete answer, as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "set")]
    json_content: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionDeclineArgs {
    /// The question
    #[arg(value_name = "ID")]
    question: QuestionId,
}

/// Parses `name=value`; the value may contain `=`.
fn parse_field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, such as size=m".to_owned()),
    }
}

pub(crate) async fn run(command: QuestionCommand, context: &Context) -> Result<(), Failure> {
    match command {
        QuestionCommand::List(args) => list(&args, context).await,
        QuestionCommand::Show(args) => show(args, context).await,
        QuestionCommand::Answer(args) => answer(args, context).await,
        QuestionCommand::Decline(args) => decline(args, context).await,
    }
}

async fn list(args: &QuestionListArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    let list = ListQuestions {
        workspace_id,
        ..ListQuestions::default()
    };
    let questions = client.all(list).await?;
    let output = context.output;
    output.object(schemas::QUESTION_LIST, &json!({ "questions": questions }))?;
    if questions.is_empty() {
        return output.data("No open questions.");
    }
    output.data(table_of(&questions, all, text::now()).render(output.canvas()))?;
    let hint = context.command("inbox question show ID");
    output.note(format!("Show one: {hint}"));
    Ok(())
}

fn table_of(questions: &[QuestionInfo], all: bool, now: Timestamp) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("QUESTION"),
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut().below(1, "agent"),
        Column::new("FROM").cut().below(2, "from"),
        Column::new("ASKED").below(4, "asked"),
        Column::new("WAITS").below(3, "waits"),
        Column::new("MESSAGE").below(5, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for question in questions {
        let QuestionSource::Mcp { connection, .. } = &question.source;
        let cells = [
            Cell::from(&question.question_id),
            Cell::from(&question.instance_key),
            Cell::from(&question.agent_name),
            Cell::from(connection),
            format!("{} ago", text::age(question.asked_at, now)).into(),
            format!("{} more", text::age(now, question.expires_at)).into(),
            text::one_line(&question.message).into(),
        ];
        let workspace = all.then(|| Cell::from(&question.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

async fn show(args: QuestionShowArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowQuestion {
        workspace_id: workspace.workspace_id,
        question_id: args.question,
    };
    let detail = client.query(show).await?;
    let output = context.output;
    output.object(schemas::QUESTION_SHOW, &detail)?;
    let QuestionDetail { question, form } = &detail;
    output.data(fields_of(question, text::now()).render(output.canvas()))?;
    output.data(format!("\n{}", text::quoted(&question.message)))?;
    if !form.fields().is_empty() {
        output.data(format!("\n{}", table_of_form(form).render(output.canvas())))?;
    }
    let id = &question.question_id;
    let answer = context.command(&format!("inbox question answer {id}{}", example_of(form)));
    let decline = context.command(&format!("inbox question decline {id}"));
    output.note(format!("\nAnswer it:   {answer}\nDecline it:  {decline}"));
    output.note(
        "The server wrote the text above, and receives the values you enter: do not enter passwords or keys.",
    );
    Ok(())
}

fn fields_of(question: &QuestionInfo, now: Timestamp) -> Table {
    let mut table = Table::of_fields();
    table.field("Question", Cell::from(&question.question_id));
    table.field("From", question.source.in_words());
    table.field("Conversation", Cell::from(&question.instance_key));
    table.field("Agent", Cell::from(&question.agent_name));
    let age = text::age(question.asked_at, now);
    table.field(
        "Asked",
        format!("{} ({age} ago)", text::clock(question.asked_at)),
    );
    let left = text::age(now, question.expires_at);
    table.field(
        "Waits until",
        format!("{} ({left} more)", text::clock(question.expires_at)),
    );
    table
}

pub(super) fn table_of_form(form: &QuestionForm) -> Table {
    let titles = [
        Column::new("FIELD"),
        Column::new("NEEDED"),
        Column::new("TAKES").below(1, "takes"),
        Column::new("PROPOSED").below(2, "proposed"),
        Column::new("ABOUT").below(3, ""),
    ];
    let mut table = Table::new(titles);
    for field in form.fields() {
        let needed = if field.required {
            Cell::styled("yes", style::WARN)
        } else {
            Cell::styled("no", style::FAINT)
        };
        let proposed = field.default.as_ref().map(value_of);
        table.row([
            Cell::from(&field.name),
            needed,
            takes(&field.takes).into(),
            proposed.unwrap_or_default().into(),
            about(field).into(),
        ]);
    }
    table
}

/// Accepted values of a field, including the titles of choices.
pub(super) fn takes(kind: &FieldKind) -> String {
    let titled = |choices: &[FormChoice]| {
        let choices = choices.iter().map(|choice| FormChoice {
            value: match &choice.title {
                Some(title) if *title != choice.value => format!("{} ({title})", choice.value),
                _ => choice.value.clone(),
            },
            title: None,
        });
        choices.collect::<Vec<_>>()
    };
    match kind {
        FieldKind::Choice { choices } => FieldKind::Choice {
            choices: titled(choices),
        }
        .in_words(),
        FieldKind::Choices {
            choices,
            min_items,
            max_items,
        } => FieldKind::Choices {
            choices: titled(choices),
            min_items: *min_items,
            max_items: *max_items,
        }
        .in_words(),
        other => other.in_words(),
    }
}

fn about(field: &FormField) -> String {
    let parts = [field.title.clone(), field.description.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

/// Formats a value for `--set`.
pub(super) fn value_of(value: &Value) -> String {
    let is_plain = |item: &Value| item.as_str().is_some_and(|text| !text.contains([',', '[']));
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(is_plain) => {
            let items = items.iter().filter_map(Value::as_str);
            items.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// Options of a complete answer, with default values or others that fit.
fn example_of(form: &QuestionForm) -> String {
    let needed = form.fields().iter().filter(|field| field.required);
    let options = needed.map(|field| {
        let value = match (&field.default, &field.takes) {
            (Some(value), _) => value_of(value),
            (None, FieldKind::Choice { choices }) => choices
                .first()
                .map(|choice| choice.value.clone())
                .unwrap_or_default(),
            (
                None,
                FieldKind::Choices {
                    choices, min_items, ..
                },
            ) => {
                let least = min_items.unwrap_or(1).max(1);
                let least = usize::try_from(least).unwrap_or(usize::MAX);
                let values = choices.iter().take(least);
                let values: Vec<Value> = values.map(|it| it.value.as_str().into()).collect();
                value_of(&Value::Array(values))
            }
            (None, FieldKind::Boolean {}) => "true".to_owned(),
            (None, FieldKind::String { format, .. }) => {
                format.map_or("VALUE", |format| format.example()).to_owned()
            }
            (None, FieldKind::Number { minimum, .. } | FieldKind::Integer { minimum, .. }) => {
                minimum
                    .as_ref()
                    .map_or_else(|| "1".to_owned(), ToString::to_string)
            }
        };
        let option = format!("{}={value}", field.name);
        let option = text::shell_quoted(&option).unwrap_or_else(|| "NAME=VALUE".to_owned());
        format!(" --set {option}")
    });
    options.collect()
}

async fn answer(args: QuestionAnswerArgs, context: &Context) -> Result<(), Failure> {
    let QuestionAnswerArgs {
        question: question_id,
        set,
        json_content,
    } = args;
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let content = match json_content {
        Some(json) => object_of(&json)?,
        None => {
            let show = ShowQuestion {
                workspace_id: workspace_id.clone(),
                question_id: question_id.clone(),
            };
            let detail = client.query(show).await?;
            content_of(&detail.form, set).map_err(|problem| {
                let message = format!("invalid answer to question {question_id}: {problem}");
                Failure::new(Exit::Usage, message, see(&question_id, context))
            })?
        }
    };
    let answer = AnswerQuestion {
        workspace_id,
        question_id,
        content,
    };
    let closed = client.change(answer).await?;
    context.output.object(schemas::QUESTION_ANSWER, &closed)?;
    context
        .output
        .data(format!("Answered question {}", closed.question_id))
}

fn see(question_id: &QuestionId, context: &Context) -> String {
    let command = context.command(&format!("inbox question show {question_id}"));
    format!("the question is still open; show its fields: `{command}`")
}

/// Parses the object in `--json-content`.
fn object_of(json: &str) -> Result<JsonObject, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "`--json-content` is not a JSON object",
            "write one value for each field: `--json-content '{\"size\":\"m\",\"count\":3}'`",
        )
        .caused_by(Some(&error))
    })
}

/// Builds the answer from these fields.
///
/// # Errors
///
/// A description of the field or value that does not fit.
fn content_of(form: &QuestionForm, set: Vec<(String, String)>) -> Result<JsonObject, String> {
    let mut seen = BTreeSet::new();
    let fields = set.into_iter().map(|(name, value)| {
        if !seen.insert(name.clone()) {
            return Err(format!("`{name}` is set twice"));
        }
        let known = form.field(&name);
        let Some(field) = known else {
            let names: Vec<&str> = form.fields().iter().map(|field| &*field.name).collect();
            let names = names.join(", ");
            return Err(format!("unknown field `{name}`; expected: {names}"));
        };
        let read = field.read(&value);
        let value = read.map_err(|problem| format!("`{name}` {problem}"))?;
        Ok((name, value))
    });
    fields.collect()
}

async fn decline(args: QuestionDeclineArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let decline = DeclineQuestion {
        workspace_id: workspace.workspace_id,
        question_id: args.question,
    };
    let closed = client.change(decline).await?;
    context.output.object(schemas::QUESTION_DECLINE, &closed)?;
    context
        .output
        .data(format!("Declined question {}", closed.question_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::at_three_widths;

    fn form() -> QuestionForm {
        let schema = json!({
            "type": "object",
            "properties": {
                "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
                "count": {"type": "integer", "minimum": 1, "default": 3, "title": "How many"},
                "note": {"type": "string", "description": "Printed on the box"},
            },
            "required": ["size", "count"],
        });
        QuestionForm::of_schema(&schema).unwrap()
    }

    fn set(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn form_answer_is_parsed_and_mismatches_are_reported() {
        let content = content_of(&form(), set(&[("size", "m"), ("count", "2")])).unwrap();
        assert_eq!(Value::Object(content), json!({"size": "m", "count": 2}));
        for (given, told) in [
            (
                vec![("color", "red")],
                "unknown field `color`; expected: size, count, note",
            ),
            (vec![("count", "2"), ("count", "3")], "set twice"),
            (
                vec![("count", "many")],
                "must be a whole number of at least 1",
            ),
            (vec![("size", "Medium")], "must be one of: s, m"),
        ] {
            let problem = content_of(&form(), set(&given)).unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
    }

    #[test]
    fn the_command_that_answers_gives_all_that_is_needed() {
        assert_eq!(example_of(&form()), " --set 'size=s' --set 'count=3'");
        assert_eq!(example_of(&QuestionForm::default()), "");
    }

    #[test]
    fn a_list_of_choices_is_shown_and_answered() {
        let choices = json!([{"const": "bow", "title": "A bow"}, {"const": "card"}]);
        let schema = json!({
            "type": "object", "required": ["extras"],
            "properties": {"extras": {"type": "array", "items": {"anyOf": choices}, "minItems": 1}},
        });
        let form = QuestionForm::of_schema(&schema).unwrap();
        assert_eq!(example_of(&form), " --set 'extras=bow'");
        let told = takes(&form.fields()[0].takes);
        assert_eq!(told, "a list with at least 1 of: bow (A bow), card");
        let content = content_of(&form, set(&[("extras", "card,bow")])).unwrap();
        assert_eq!(Value::Object(content), json!({"extras": ["card", "bow"]}));
        let problem = content_of(&form, set(&[("extras", "")])).unwrap_err();
        assert!(problem.contains("at least 1"), "{problem}");
    }

    #[test]
    fn narrow_terminal_shows_all_of_the_question() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let question: QuestionInfo = serde_json::from_value(json!({
            "workspaceId": "w", "questionId": "q-7f3a9c21",
            "source": {"kind": "mcp", "connection": "shop", "tool": "order"},
            "instanceKey": "telegram:1", "agentName": "clerk",
            "message": "Which size\nshall it be?",
            "askedAt": Timestamp::from_unix_millis(940_000),
            "expiresAt": Timestamp::from_unix_millis(1_540_000),
        }))
        .unwrap();
        let shown = at_three_widths(|canvas| {
            let list = table_of(std::slice::from_ref(&question), false, now).render(canvas);
            format!("{list}\n{}", table_of_form(&form()).render(canvas))
        });
        assert_eq!(shown, include_str!("narrow/question.txt"));
    }

    #[test]
    fn a_field_is_a_name_and_all_that_follows() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_field("a=b=c"), pair("a", "b=c"));
        assert_eq!(parse_field("a="), pair("a", ""));
        assert!(parse_field("=b").is_err() && parse_field("ab").is_err());
    }
}
