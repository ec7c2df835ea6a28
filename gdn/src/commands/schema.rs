//! `gdn config schema`.

use clap::Args;
use goondan_config::schema_names;

use super::names;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Print the JSON Schema of a project's documents, for editors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn config schema > goondan.schema.json  and begin each document with this line (`gdn init` and
                                         `gdn config types` write both):
                                         # yaml-language-server: $schema=goondan.schema.json
  gdn config schema Agent
  gdn config schema Script               a script file of the scripted model")]
pub(crate) struct SchemaArgs {
    /// Only this kind, `ShortForm`, or `Script` [default: all documents]
    #[arg(value_name = "KIND")]
    kind: Option<String>,
}

/// Prints the schema unchanged, with and without `--json`, because it is a file for editors.
pub(crate) fn run(args: &SchemaArgs, context: &Context) -> Result<(), Failure> {
    let named = args.kind.as_deref().map(|kind| {
        let known = schema_names().find(|name| name.eq_ignore_ascii_case(kind));
        known.ok_or(kind)
    });
    let name = match named {
        None => None,
        Some(Ok(name)) => Some(name),
        Some(Err(unknown)) => return Err(not_found(unknown)),
    };
    let schema = goondan_config::schema(name).ok_or_else(|| not_found(name.unwrap_or_default()))?;
    let text = serde_json::to_string_pretty(&schema).map_err(std::io::Error::other)?;
    context.output.raw(&text)
}

fn not_found(name: &str) -> Failure {
    let names: Vec<&str> = schema_names().collect();
    let hint = format!("choose one of these: {}", names.join(", "));
    Failure::new(
        Exit::NotFound,
        format!("unknown kind `{name}`"),
        names::with_near_name(name, names.iter().copied(), hint),
    )
}
