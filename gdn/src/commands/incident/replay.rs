//! `gdn incident replay`: replays one file.

use std::path::PathBuf;

use serde_json::json;

use super::configuration::{self, ReplayConfiguration};
use super::export::redaction_of;
use super::file::Incident;
use super::redaction::Redaction;
use super::report::{self, IncidentVerdict};
use super::{IncidentReplayArgs, ReplayWith, playback, secrets};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

pub(super) fn run(args: &IncidentReplayArgs, context: &Context) -> Result<(), Failure> {
    let incident = Incident::read(&args.file)?;
    let (configuration, redaction) = load(&args.with, context)?;
    let played = playback::replay(&[&incident], &configuration, &redaction)?;
    let played = played.into_iter().next().unwrap_or_default();
    let verdict = IncidentVerdict::of(&incident, &played);
    let output = context.output;
    output.object(
        schemas::INCIDENT_REPLAY,
        &json!({
            "file": args.file,
            "traceId": incident.trace_id,
            "with": configuration.name,
            "turns": incident.turns.len(),
            "steps": incident.steps(),
            "same": verdict.is_same(),
            "first": verdict.found.first(),
            "divergences": verdict.found,
            "notes": incident.notes,
        }),
    )?;
    let page = report::page(&incident, &configuration, &verdict, output.canvas());
    output.paged(page.trim_end())?;
    let Some(first) = verdict.found.first() else {
        return Ok(());
    };
    let count = text::count(verdict.found.len(), "difference");
    Err(Failure::new(
        Exit::Diverged,
        format!("{count}; the first: {}", report::one_line(first)),
        "if the change is intended, export the incident again: `gdn incident export`",
    ))
}

/// The configuration to replay with, and what is masked in it as in the recordings.
pub(super) fn load(
    with: &ReplayWith,
    context: &Context,
) -> Result<(ReplayConfiguration, Redaction), Failure> {
    let root = context.project()?;
    let env_files: Vec<PathBuf> = with.env.absolute()?;
    let configuration = match &with.against {
        None => configuration::of_project(context, &root, &env_files)?,
        Some(named) => configuration::against(context, &root, &env_files, named)?,
    };
    let known = secrets::of_configuration(&configuration.secrets);
    let redaction = redaction_of(&known)?;
    Ok((configuration, redaction))
}
