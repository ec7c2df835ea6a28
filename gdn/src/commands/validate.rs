//! `gdn validate`: checks a project without the daemon.

use clap::{Args, ValueEnum};
use std::path::Path;

use goondan_config::{Diagnostic, Loader, ProjectCheck, ProjectConfig, Severity};
use serde_json::{Value, json};

use super::offline_project::{ReadArgs, SwarmArg};
use super::run::swarms;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table, listed};
use crate::output::text;
use crate::schemas;

mod fix;
mod github;

use fix::Autofix;

/// Validate a project's configuration, without the daemon
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn validate
  gdn validate my-swarm
  gdn validate --fix                     fix misspelled fields and missing quotes
  gdn validate --strict --format github  in CI
  gdn validate --json | jq '.agents[]'")]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    project: ReadArgs,
    #[command(flatten)]
    swarm: SwarmArg,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Do not check that this machine can run the project's modules
    #[arg(long)]
    other_machine: bool,
    /// Fix unambiguous problems in the project's files, and show each change
    #[arg(long)]
    fix: bool,
    /// Output format: text, json or github
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true
    )]
    format: ValidateFormat,
}

impl ValidateArgs {
    /// True if `--format json` is given.
    pub(crate) fn wants_json(&self) -> bool {
        self.format == ValidateFormat::Json
    }
}

/// Output format of `gdn validate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ValidateFormat {
    /// For people.
    Text,
    /// One JSON object, as with `--json`.
    Json,
    /// Annotations of a GitHub workflow.
    Github,
}

pub(crate) fn run(args: &ValidateArgs, context: &Context) -> Result<(), Failure> {
    let read = |root: &Path, loader: Loader<'_>| validate(root, loader, args, context);
    args.project.with_loader(context, read)
}

fn validate(
    root: &Path,
    loader: Loader<'_>,
    args: &ValidateArgs,
    context: &Context,
) -> Result<(), Failure> {
    let machine = context.machine();
    let loader = args.swarm.apply(loader);
    let loader = match args.other_machine {
        true => loader,
        false => loader.with_machine(&machine),
    };
    let fixes = if args.fix {
        fix::autofix(root, &loader)?
    } else {
        Vec::new()
    };
    let ProjectCheck { bundle, warnings } = loader.check(root);
    let errors = bundle.as_ref().err().map_or(&[][..], AsRef::as_ref);
    let found = ValidationResult {
        root,
        bundle: bundle.as_ref().ok(),
        fixes: &fixes,
        errors,
        warnings: &warnings,
        is_valid: errors.is_empty() && (count_warnings(&warnings) == 0 || !args.strict),
    };
    found.print_json(context)?;
    if args.format == ValidateFormat::Github {
        for diagnostic in found.problems() {
            context.output.data(github::annotation(root, diagnostic))?;
        }
    } else {
        found.print_text(context)?;
    }
    if found.is_valid {
        Ok(())
    } else {
        Err(found.failure())
    }
}

struct ValidationResult<'f> {
    root: &'f Path,
    /// Present if there are no errors, even with warnings.
    bundle: Option<&'f ProjectConfig>,
    fixes: &'f [Autofix],
    errors: &'f [Diagnostic],
    warnings: &'f [Diagnostic],
    is_valid: bool,
}

impl ValidationResult<'_> {
    fn problems(&self) -> impl Iterator<Item = &Diagnostic> {
        self.errors.iter().chain(self.warnings)
    }

    fn print_json(&self, context: &Context) -> Result<(), Failure> {
        let problems: Vec<Value> = self.problems().map(problem_json).collect();
        let fixed: Vec<Value> = self.fixes.iter().map(Autofix::to_json).collect();
        let mut object = json!({
            "valid": self.is_valid,
            "projectRoot": self.root,
            "problems": problems,
            "fixed": fixed,
        });
        if let (Some(bundle), Value::Object(fields)) = (self.bundle, &mut object) {
            let package = bundle.package.as_ref().map(|package| &package.name);
            let more = [
                ("package", json!(package)),
                ("entryAgent", json!(bundle.entry_agent)),
                ("swarm", json!(bundle.swarm)),
                ("idleSwarms", json!(bundle.idle_swarms)),
                ("agents", json!(bundle.agents.keys().collect::<Vec<_>>())),
                (
                    "cliAgents",
                    json!(bundle.cli_agents.keys().collect::<Vec<_>>()),
                ),
                (
                    "connections",
                    json!(bundle.connections.keys().collect::<Vec<_>>()),
                ),
            ];
            fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
        }
        context.output.object(schemas::VALIDATE, &object)
    }

    fn print_text(&self, context: &Context) -> Result<(), Failure> {
        let output = context.output;
        for fix in self.fixes {
            output.data(fix.to_text(output.out))?;
        }
        for problem in self.problems() {
            output.note(format!("{problem}\n"));
        }
        if let Some(bundle) = self.bundle.filter(|_| self.is_valid) {
            let table = summary(self.root, bundle, count_warnings(self.warnings));
            output.data(table.render(output.canvas()))?;
        }
        Ok(())
    }

    fn failure(&self) -> Failure {
        let warnings = count_warnings(self.warnings);
        let counts = [(self.errors.len(), "error"), (warnings, "warning")]
            .into_iter()
            .filter(|(found, _)| *found > 0)
            .map(|(found, noun)| text::count(found, noun))
            .collect::<Vec<_>>();
        let can_fix = self.problems().any(|problem| problem.fix.is_some());
        let hint = if can_fix && self.fixes.is_empty() {
            "fix unambiguous problems with `gdn validate --fix`, and the rest by hand"
        } else {
            "fix the problems above, then check again: `gdn validate`"
        };
        Failure::new(
            Exit::InvalidConfiguration,
            format!(
                "the configuration of {} has {}",
                self.root.display(),
                counts.join(" and ")
            ),
            hint,
        )
    }
}

/// Number of warnings, without notes.
fn count_warnings(found: &[Diagnostic]) -> usize {
    let warnings = found.iter().filter(|it| it.severity == Severity::Warning);
    warnings.count()
}

fn summary(root: &Path, bundle: &ProjectConfig, warnings: usize) -> Table {
    let mut table = Table::of_fields();
    let state = match warnings {
        0 => Cell::styled("valid", style::GOOD),
        count => Cell::styled(
            format!("valid, with {}", text::count(count, "warning")),
            style::WARN,
        ),
    };
    table.field("Configuration", state);
    table.field("Project", root.to_string_lossy());
    let package = bundle.package.as_ref();
    table.field("Package", package.map_or("none", |package| &package.name));
    if let Some(swarm) = &bundle.swarm {
        table.field("Swarm", swarms(swarm, &bundle.idle_swarms));
    }
    for (name, agent) in &bundle.agents {
        let entry = if bundle.is_entry(name) {
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
    for agent in bundle.cli_agents() {
        let program = agent.command.first().map_or("none", String::as_str);
        let text = format!("{}: works for tasks, program {program}", agent.name);
        table.field("Agent", text);
    }
    let connections: Vec<String> = bundle.connections.keys().map(ToString::to_string).collect();
    table.field("Connections", listed(&connections));
    table
}

fn problem_json(problem: &Diagnostic) -> Value {
    json!({
        "severity": problem.severity.as_str(),
        "code": problem.code,
        "message": problem.message,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "length": problem.span_len,
        "suggestion": problem.suggestion,
        "fix": problem.fix,
    })
}
