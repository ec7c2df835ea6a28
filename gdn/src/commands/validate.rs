//! `gdn validate`: checks a project without the daemon.

use std::path::Path;

use goondan_config::{Bundle, Diagnostic, Diagnostics, ProcessEnvironment};
use serde_json::{Value, json};

use super::run::listed;
use crate::cli::Validate;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table};
use crate::output::text;
use crate::{project, schemas};

pub(super) fn run(args: &Validate, context: &Context) -> Result<(), Failure> {
    let root = match &args.path {
        Some(path) => project::find(Some(path))?,
        None => context.project()?,
    };
    match goondan_config::load(&root, &ProcessEnvironment) {
        Ok(bundle) => report_valid(&root, &bundle, context),
        Err(problems) => report_invalid(&root, &problems, context),
    }
}

fn report_valid(root: &Path, bundle: &Bundle, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let package = bundle.package.as_ref();
    output.object(
        schemas::VALIDATE,
        &json!({
            "valid": true,
            "projectRoot": root,
            "package": package.map(|package| &package.name),
            "entryAgent": bundle.entry_agent,
            "agents": bundle.agents.keys().collect::<Vec<_>>(),
            "connections": bundle.connections.keys().collect::<Vec<_>>(),
            "problems": [],
        }),
    )?;
    let mut table = Table::of_fields();
    table.field("Configuration", Cell::styled("valid", style::GOOD));
    table.field("Project", root.to_string_lossy());
    table.field("Package", package.map_or("none", |package| &package.name));
    for (name, agent) in &bundle.agents {
        let entry = if *name == bundle.entry_agent {
            " (entry)"
        } else {
            ""
        };
        let tools: Vec<&str> = agent.tools.iter().map(|tool| tool.name.as_str()).collect();
        table.field(
            "Agent",
            format!(
                "{name}{entry}: model {}, tools {}",
                agent.model.name,
                if tools.is_empty() {
                    "none".to_owned()
                } else {
                    tools.join(", ")
                }
            ),
        );
    }
    let connections: Vec<String> = bundle.connections.keys().map(ToString::to_string).collect();
    table.field("Connections", listed(&connections));
    output.data(table.render(output.out))
}

fn report_invalid(root: &Path, problems: &Diagnostics, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let as_json: Vec<Value> = problems.as_slice().iter().map(problem_json).collect();
    output.object(
        schemas::VALIDATE,
        &json!({ "valid": false, "projectRoot": root, "problems": as_json }),
    )?;
    output.note(format!("{problems}\n"));
    let count = text::count(problems.as_slice().len(), "problem");
    Err(Failure::new(
        Exit::InvalidConfiguration,
        format!("the configuration of {} has {count}", root.display()),
        "mend the places named above, then check again: `gdn validate`",
    ))
}

fn problem_json(problem: &Diagnostic) -> Value {
    json!({
        "code": problem.code,
        "message": problem.message,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "suggestion": problem.suggestion,
    })
}
