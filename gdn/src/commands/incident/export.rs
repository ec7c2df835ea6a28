//! `gdn incident export`: writes an incident, with secrets masked and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use goondan_protocol::replay::{PlayedEnd, PlayedTurn, ShortDigest};
use goondan_protocol::version::Version;
use serde_json::json;
use tempfile::NamedTempFile;

use super::IncidentExportArgs;
use super::configuration::{self, ReplayConfiguration};
use super::file::{FORMAT, Incident, IncidentTurn, RecordedConfiguration, RecordedConversation};
use super::leaks::LeakCheck;
use super::limits::INCIDENT_BYTES_MAX;
use super::playback::{ReplayedTurn, replay};
use super::recording::{self, TraceRecording};
use super::redaction::Redaction;
use super::secrets::{self, SecretText};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Argument that means stdout.
const STDOUT: &str = "-";

pub(super) async fn run(args: &IncidentExportArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let is_stdout = args.output.as_os_str() == STDOUT;
    if is_stdout && output.is_json() {
        return Err(Failure::new(
            Exit::Usage,
            "the incident and the JSON form cannot both go to stdout",
            "write the incident to a file: `-o FILE`",
        ));
    }
    if !is_stdout && !args.force && args.output.symlink_metadata().is_ok() {
        return Err(is_there(&args.output));
    }
    let (mut client, workspace) = context.open().await?;
    let recording = recording::read(&mut client, &workspace, args.id.as_deref()).await?;
    let root = workspace.project_root.clone();
    let configuration = configuration::of_project(context, &root, &workspace.env_files)?;
    let mut known = secrets::stored(context, &workspace.workspace_id)?;
    known.extend(secrets::of_configuration(&configuration.secrets));
    let redaction = redaction_of(&known)?;
    let incident = assembled(recording, &configuration, &redaction)?;
    let file = checked(&incident, &known)?;
    for note in &incident.notes {
        output.note(format!("note: {}", text::one_line(note)));
    }
    if is_stdout {
        return output.piece(&file);
    }
    write(args, &file)?;
    output.object(
        schemas::INCIDENT_EXPORT,
        &json!({
            "traceId": incident.trace_id,
            "file": args.output,
            "turns": incident.turns.len(),
            "steps": incident.steps(),
            "bytes": file.len(),
            "notes": incident.notes,
        }),
    )?;
    let turns = text::count(incident.turns.len(), "turn");
    let steps = text::count(incident.steps(), "step");
    let size = text::bytes(u64::try_from(file.len()).unwrap_or(u64::MAX));
    let path = text::one_line(&args.output.to_string_lossy());
    output.data(format!("Exported {turns}, {steps}, {size}, to {path}"))
}

pub(super) fn redaction_of(known: &[SecretText]) -> Result<Redaction, Failure> {
    Redaction::of(known).map_err(|error| {
        let hint = "store smaller secret values";
        Failure::of(Exit::Conflict, &error, hint)
    })
}

/// Puts the file together: masks the recording, then lets the engine play it.
fn assembled(
    recording: TraceRecording,
    configuration: &ReplayConfiguration,
    redaction: &Redaction,
) -> Result<Incident, Failure> {
    let root = configuration.root.to_string_lossy();
    let conversations = recording.conversations.into_iter();
    let conversations = conversations.map(|(agent_name, instance_key, messages)| {
        let messages = messages.into_iter();
        RecordedConversation {
            agent_name,
            instance_key,
            messages: messages.map(|it| redaction.message(it)).collect(),
        }
    });
    let conversations: Vec<RecordedConversation> = conversations.collect();
    let names: BTreeSet<_> = conversations.iter().map(|it| &it.agent_name).collect();
    let agents = configuration.agents.iter();
    let agents = agents.filter(|(name, _)| names.contains(name));
    let agents: BTreeMap<_, _> = agents
        .map(|(name, agent)| Ok((name.clone(), redaction.definition(agent, &root)?)))
        .collect::<Result<_, Failure>>()?;
    let ran_with: BTreeSet<&String> = recording.turns.iter().flat_map(|it| &it.ran_with).collect();
    let ran_with: Vec<String> = ran_with.into_iter().cloned().collect();
    let mut notes = recording.notes;
    if ran_with
        .iter()
        .any(|digest| *digest != configuration.digest)
    {
        notes.push(
            "the configuration or its environment has changed since: the file has the present one"
                .to_owned(),
        );
    }
    let turns = recording.turns.into_iter().map(|turn| IncidentTurn {
        turn_id: turn.turn_id,
        event_id: turn.event_id,
        conversation: turn.place.0,
        first: turn.place.1,
        count: turn.place.2,
        started_at: turn.started_at,
        ended_at: turn.ended_at,
        outcome: turn.outcome.to_owned(),
        error: turn.error.map(|error| redaction.text(&error)),
        failures: turn
            .failures
            .into_iter()
            .map(|(step, error)| (step, redaction.text(&error)))
            .collect(),
        played: not_played(),
        costs: BTreeMap::new(),
    });
    let mut incident = Incident {
        format: FORMAT.to_owned(),
        goondan: Version::current().to_string(),
        exported_at: text::now(),
        trace_id: recording.trace_id,
        package: configuration.package.clone(),
        configuration: RecordedConfiguration {
            digest: configuration.digest.clone(),
            ran_with,
            agents,
        },
        conversations,
        turns: turns.collect(),
        notes: notes.iter().map(|note| redaction.text(note)).collect(),
    };
    let played = replay(&[&incident], configuration, redaction)?;
    let played = played.into_iter().flatten();
    for (turn, played) in incident.turns.iter_mut().zip(played) {
        match played {
            ReplayedTurn::Played {
                turn: played,
                costs,
            } => {
                let id = &turn.turn_id;
                let unlike = played.unlike.iter();
                let unlike = unlike.map(|what| format!("turn `{id}`: {what}"));
                let lacking = played.notes.iter();
                let lacking = lacking.map(|what| format!("turn `{id}`: {what}"));
                incident.notes.extend(lacking.chain(unlike));
                (turn.played, turn.costs) = (*played, costs);
            }
            ReplayedTurn::NoAgent => {
                let note = format!("the agent of turn `{}` is not configured", turn.turn_id);
                incident.notes.push(note);
            }
        }
    }
    incident.notes.dedup();
    Ok(incident)
}

/// A turn before the engine has played it.
fn not_played() -> PlayedTurn {
    let nothing = ShortDigest::of(&[]);
    PlayedTurn {
        prompt: nothing.clone(),
        model: nothing,
        steps: Vec::new(),
        end: PlayedEnd::Unplayable {
            why: "its agent is not in the configuration".to_owned(),
        },
        unlike: Vec::new(),
        notes: Vec::new(),
    }
}

/// The text of the file, if it is small enough and contains no secret.
fn checked(incident: &Incident, known: &[SecretText]) -> Result<String, Failure> {
    let json = serde_json::to_value(incident).map_err(std::io::Error::other)?;
    let mut file = serde_json::to_string_pretty(&json).map_err(std::io::Error::other)?;
    file.push('\n');
    if file.len() > INCIDENT_BYTES_MAX {
        let size = text::bytes(u64::try_from(file.len()).unwrap_or(u64::MAX));
        let most = text::bytes(u64::try_from(INCIDENT_BYTES_MAX).unwrap_or(u64::MAX));
        return Err(Failure::new(
            Exit::Conflict,
            format!("the incident has {size}, more than {most}"),
            "export an event or a turn instead of the whole trace",
        ));
    }
    let check = LeakCheck::new(known)
        .map_err(|error| Failure::of(Exit::Conflict, &error, "store smaller secret values"))?;
    match check.find(&file, &json) {
        None => Ok(file),
        Some(leak) => Err(Failure::new(
            Exit::Conflict,
            format!(
                "not written, because it would contain {} as {}: at {}",
                leak.what,
                leak.form,
                text::one_line(&leak.place)
            ),
            "names and ids are not masked: do not use secrets in them",
        )),
    }
}

fn write(args: &IncidentExportArgs, file: &str) -> Result<(), Failure> {
    let path = &args.output;
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    };
    let unwritable = |error: std::io::Error| {
        let message = format!("cannot write {}", path.display());
        let hint = "choose a writable directory with enough disk space: `-o FILE`";
        Failure::new(Exit::Internal, message, hint).caused_by(Some(&error))
    };
    let mut temp = NamedTempFile::new_in(directory).map_err(unwritable)?;
    temp.write_all(file.as_bytes()).map_err(unwritable)?;
    temp.as_file().sync_all().map_err(unwritable)?;
    let named = if args.force {
        temp.persist(path)
    } else {
        temp.persist_noclobber(path)
    };
    match named {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(is_there(path))
        }
        Err(error) => Err(unwritable(error.error)),
    }
}

fn is_there(path: &Path) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{} already exists", path.display()),
        "choose another name, or overwrite the file: `--force`",
    )
}
