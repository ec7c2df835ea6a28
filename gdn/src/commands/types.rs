//! `gdn config types`: writes types and the JSON Schema for editors into the project.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::init;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::schemas;

/// Write types for editors and type checkers into the project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn config types
  gdn config types --project my-swarm

Run it again after an upgrade of goondan, and after `npm install`, which removes what it does not know.")]
pub(crate) struct TypesArgs {}

/// Directory of the types of modules in JavaScript and TypeScript.
const NPM_PACKAGE: &str = "node_modules/@goondan/types";

/// Files below the Project Root, except for the JSON Schema, and their texts.
const FILES: [(&str, &str); 4] = [
    (
        "node_modules/@goondan/types/README.md",
        include_str!("../../../protocol/types/README.md"),
    ),
    (
        "node_modules/@goondan/types/index.d.ts",
        include_str!("../../../protocol/types/index.d.ts"),
    ),
    (
        "node_modules/@goondan/types/package.json",
        include_str!("../../../protocol/types/package.json"),
    ),
    // The module's own text, because a stub can have function bodies.
    (
        "typings/goondan/__init__.pyi",
        include_str!("../../../agent-process/src/tools/host/goondan.py"),
    ),
];

pub(crate) fn run(_: &TypesArgs, context: &Context) -> Result<(), Failure> {
    let root = context.project()?;
    // A package manager with links shares the package with other projects.
    if let Some(link) = linked(&root) {
        return Err(Failure::new(
            Exit::Conflict,
            format!("{link} is a symbolic link of a package manager; nothing was written"),
            "remove it, or upgrade the package there: `npm install --save-dev @goondan/types`",
        ));
    }
    let schema = init::schema_text();
    let files = FILES
        .into_iter()
        .chain([(init::SCHEMA_FILE, schema.as_str())]);
    let mut written = Vec::new();
    for (name, text) in files {
        write(&root.join(name), text)?;
        written.push(name);
    }
    context.output.object(
        schemas::TYPES,
        &json!({ "projectRoot": root, "files": written }),
    )?;
    for name in &written {
        context.output.data(format!("Wrote {name}"))?;
    }
    context.output.note(
        "TypeScript and pyright find them. For mypy: `mypy_path = typings`. For YAML editors, goondan.yaml begins with \
         `# yaml-language-server: $schema=goondan.schema.json`.",
    );
    Ok(())
}

/// A directory on the way to a file that is a symbolic link.
fn linked(root: &Path) -> Option<&'static str> {
    let is_link = |name: &&str| root.join(name).is_symlink();
    [
        "node_modules",
        "node_modules/@goondan",
        NPM_PACKAGE,
        "typings",
        "typings/goondan",
    ]
    .into_iter()
    .find(is_link)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| {
        Failure::new(
            Exit::Internal,
            format!("cannot write {}", file.display()),
            "check its permissions, then run `gdn config types` again",
        )
        .caused_by(Some(error))
    };
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    let written = options
        .open(file)
        .and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|error| failed(&error))
}
