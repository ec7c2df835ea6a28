//! `gdn schema`.

use clap::Args;
use goondan_config::SCHEMA_NAMES;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Only this kind, or `Script` [default: documents of every kind]
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
}

/// Prints the schema as it is, with and without `--json`: it is a file for an editor.
pub(super) fn run(args: &Schema, context: &Context) -> Result<(), Failure> {
    let named = args.kind.as_deref().map(|kind| {
        let known = SCHEMA_NAMES
            .iter()
            .find(|name| name.eq_ignore_ascii_case(kind));
        known.ok_or(kind)
    });
    let name = match named {
        None => None,
        Some(Ok(name)) => Some(*name),
        Some(Err(unknown)) => return Err(not_found(unknown)),
    };
    let schema = goondan_config::schema(name).ok_or_else(|| not_found(name.unwrap_or_default()))?;
    let text = serde_json::to_string_pretty(&schema).map_err(std::io::Error::other)?;
    context.output.raw(&text)
}

fn not_found(name: &str) -> Failure {
    Failure::new(
        Exit::NotFound,
        format!("there is no kind `{name}`"),
        format!("name one of these: {}", SCHEMA_NAMES.join(", ")),
    )
}
