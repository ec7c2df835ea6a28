//! `gdn incident test`: replays all files of a directory, for CI.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::NamedTempFile;

use super::IncidentTestArgs;
use super::configuration::ReplayConfiguration;
use super::file::Incident;
use super::limits::{INCIDENT_FILES_MAX, REPLAY_BATCH_BYTES};
use super::playback;
use super::redaction::Redaction;
use super::replay::load;
use super::report::{self, IncidentResult, IncidentVerdict};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// End of the names of incidents.
const SUFFIX: &str = "json";

pub(super) fn run(args: &IncidentTestArgs, context: &Context) -> Result<(), Failure> {
    let paths = files_of(&args.dir)?;
    let (configuration, redaction) = load(&args.with, context)?;
    let files = replay_all(&paths, &configuration, &redaction)?;
    if let Some(path) = &args.junit {
        write(path, &report::junit(&files))?;
    }
    let count = |result: &str| files.iter().filter(|it| it.result == result).count();
    let (same, differing, broken) = (count("same"), count("differs"), count("unreadable"));
    let output = context.output;
    output.object(
        schemas::INCIDENT_TEST,
        &json!({
            "with": configuration.name,
            "files": files,
            "same": same,
            "differing": differing,
            "unreadable": broken,
        }),
    )?;
    output.data(report::table_of_files(&files).render(output.canvas()))?;
    let all = text::count(files.len(), "incident");
    if broken > 0 {
        return Err(Failure::new(
            Exit::Damaged,
            format!("{broken} of {all} cannot be replayed"),
            "export them again, or remove them from the directory",
        ));
    }
    if differing > 0 {
        let dir = text::one_line(&args.dir.to_string_lossy());
        return Err(Failure::new(
            Exit::Diverged,
            format!("{differing} of {all} differ"),
            format!("show all differences of one: `gdn incident replay {dir}/FILE`"),
        ));
    }
    output.data(format!("{all}: no differences"))
}

/// The files of a directory by name, without hidden ones.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let hint = "pass a directory of files that `gdn incident export` wrote";
    let entries = fs::read_dir(dir).map_err(|error| {
        let message = format!("cannot read {}", dir.display());
        Failure::new(Exit::NotFound, message, hint).caused_by(Some(&error))
    })?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let path = entry.path();
        if !is_hidden && path.extension().is_some_and(|end| end == SUFFIX) {
            paths.push(path);
        }
    }
    if paths.is_empty() || paths.len() > INCIDENT_FILES_MAX {
        let count = text::count(paths.len(), "file");
        let dir = dir.display();
        return Err(Failure::new(
            Exit::NotFound,
            format!("{dir} has {count} that end in .{SUFFIX}; expected 1 to {INCIDENT_FILES_MAX}"),
            hint,
        ));
    }
    paths.sort();
    Ok(paths)
}

/// Replays the files in batches, so that few files are in memory and few processes start.
fn replay_all(
    paths: &[PathBuf],
    configuration: &ReplayConfiguration,
    redaction: &Redaction,
) -> Result<Vec<IncidentResult>, Failure> {
    let mut files = Vec::with_capacity(paths.len());
    let mut batch = IncidentBatch::default();
    for path in paths {
        let size =
            fs::metadata(path).map_or(0, |it| usize::try_from(it.len()).unwrap_or(usize::MAX));
        if batch.bytes.saturating_add(size) > REPLAY_BATCH_BYTES {
            files.extend(std::mem::take(&mut batch).replay(configuration, redaction)?);
        }
        batch.bytes = batch.bytes.saturating_add(size);
        batch.read.push((name_of(path), Incident::read(path)));
    }
    files.extend(batch.replay(configuration, redaction)?);
    Ok(files)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Files that are replayed together.
#[derive(Default)]
struct IncidentBatch {
    read: Vec<(String, Result<Incident, Failure>)>,
    bytes: usize,
}

impl IncidentBatch {
    fn replay(
        self,
        configuration: &ReplayConfiguration,
        redaction: &Redaction,
    ) -> Result<Vec<IncidentResult>, Failure> {
        let incidents = self.read.iter().filter_map(|(_, read)| read.as_ref().ok());
        let incidents: Vec<&Incident> = incidents.collect();
        let played = playback::replay(&incidents, configuration, redaction)?;
        let mut played = played.into_iter();
        let files = self.read.iter().map(|(file, read)| {
            let file = file.clone();
            match read {
                Ok(incident) => {
                    let played = played.next().unwrap_or_default();
                    let divergences = IncidentVerdict::of(incident, &played).found;
                    IncidentResult {
                        file,
                        result: if divergences.is_empty() {
                            "same"
                        } else {
                            "differs"
                        },
                        turns: incident.turns.len(),
                        steps: incident.steps(),
                        divergences,
                        error: None,
                    }
                }
                Err(failure) => IncidentResult {
                    file,
                    result: "unreadable",
                    turns: 0,
                    steps: 0,
                    divergences: Vec::new(),
                    error: Some(failure.message.clone()),
                },
            }
        });
        Ok(files.collect())
    }
}

fn write(path: &Path, report: &str) -> Result<(), Failure> {
    let unwritable = |error: std::io::Error| {
        let message = format!("cannot write {}", path.display());
        let hint = "choose a writable directory: `--junit FILE`";
        Failure::new(Exit::Internal, message, hint).caused_by(Some(&error))
    };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut temp = NamedTempFile::new_in(directory).map_err(unwritable)?;
    temp.write_all(report.as_bytes()).map_err(unwritable)?;
    temp.persist(path)
        .map_err(|error| unwritable(error.error))?;
    Ok(())
}
