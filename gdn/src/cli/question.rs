//! The arguments of `gdn question`.

use clap::{Args, Subcommand};
use goondan_protocol::ids::QuestionId;

#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// List the questions that wait for an answer
    #[command(after_help = "\
Examples:
  gdn question list                            this project's
  gdn question list --all
  gdn question list --json | jq -r '.questions[].questionId'

A tool may ask a person something before it goes on; today the tools of MCP servers do. Its call, and
the agent's turn, wait until you answer, decline, or the time is up.")]
    List(QuestionList),
    /// Show what is asked, and what an answer holds
    #[command(after_help = "\
Examples:
  gdn question show q-7f3a9c21
  gdn question show q-7f3a9c21 --json | jq '.form[] | select(.required) | .name'

It prints the command that answers it.")]
    Show(QuestionShow),
    /// Answer a question; the tool call that asked goes on with it
    #[command(after_help = "\
Examples:
  gdn question answer q-7f3a9c21 --set size=m --set count=3
  gdn question answer q-7f3a9c21 --json-content '{\"size\":\"m\",\"count\":3}'
  gdn question answer q-7f3a9c21               a plain yes, where nothing has to be said

Whoever asked gets every value as it is written: give no password or key to a server that way.
An answer that does not fit is refused, and the question goes on waiting.")]
    Answer(QuestionAnswer),
    /// Decline a question; the tool call that asked is told, and goes on without an answer
    #[command(after_help = "\
Examples:
  gdn question decline q-7f3a9c21")]
    Decline(QuestionDecline),
}

#[derive(Debug, Args)]
pub(crate) struct QuestionList {
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionShow {
    /// The question
    #[arg(value_name = "ID")]
    pub(crate) question: QuestionId,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionAnswer {
    /// The question
    #[arg(value_name = "ID")]
    pub(crate) question: QuestionId,
    /// One field of the answer (can be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field)]
    pub(crate) set: Vec<(String, String)>,
    /// The whole answer, as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "set")]
    pub(crate) json_content: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionDecline {
    /// The question
    #[arg(value_name = "ID")]
    pub(crate) question: QuestionId,
}

/// Reads `name=value`; the value may hold `=` too.
fn parse_field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write a field as NAME=VALUE, such as size=m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_name_and_all_that_follows() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_field("a=b=c"), pair("a", "b=c"));
        assert_eq!(parse_field("a="), pair("a", ""));
        assert!(parse_field("=b").is_err() && parse_field("ab").is_err());
    }
}
