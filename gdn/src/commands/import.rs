//! `gdn config import`: converts a project of the goondan library, as far as it has counterparts.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use goondan_config::ImportNote;
use goondan_config::limits::{MAX_PROMPT_BYTES, MAX_YAML_BYTES};
use serde_json::{Value, json};

use super::rewrite::rewrite;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::PROJECT_FILE;
use crate::schemas;

/// Convert a project of the goondan library, a successor of goondan 0.0.3, as far as possible
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn config import ../library/goondan.yaml my-project

Writes `goondan.yaml` into the directory, and lists what was left out. Prompts are written into it.")]
pub(crate) struct ImportArgs {
    /// Project file of the library
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory of the new project, without a `goondan.yaml`
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ImportArgs, context: &Context) -> Result<(), Failure> {
    let file = &args.file;
    let written = read_text(file, MAX_YAML_BYTES).map_err(|why| {
        Failure::new(
            Exit::NotFound,
            format!("failed to read {}: {why}", file.display()),
            "pass the project file of the library",
        )
    })?;
    let beside = file.parent().unwrap_or(Path::new("."));
    let read_prompt = |path: &str| {
        // A project may only name its own files.
        let is_inside = !Path::new(path).is_absolute() && !path.split('/').any(|part| part == "..");
        let read = is_inside.then(|| read_text(&beside.join(path), MAX_PROMPT_BYTES).ok());
        read.flatten()
    };
    let imported = goondan_config::import(file, &written, &read_prompt).map_err(|found| {
        Failure::new(
            Exit::InvalidConfiguration,
            format!("{} cannot be imported:\n\n{found}", file.display()),
            "fix these problems, or create a project with `gdn init`",
        )
    })?;
    let target = args.dir.join(PROJECT_FILE);
    if fs::symlink_metadata(&target).is_ok() {
        return Err(Failure::new(
            Exit::Conflict,
            format!("{} exists already", target.display()),
            "pass another directory: `gdn config import FILE DIR`",
        ));
    }
    fs::create_dir_all(&args.dir).map_err(|error| {
        Failure::new(
            Exit::Internal,
            format!("failed to create {}: {error}", args.dir.display()),
            "pass a directory that can be created",
        )
    })?;
    rewrite(&target, None, imported.yaml.as_bytes())
        .map_err(|error| error.failure("gdn config import"))?;
    let notes: Vec<Value> = imported.notes.iter().map(note_json).collect();
    let object = json!({"file": file, "written": target, "notes": notes});
    context.output.object(schemas::IMPORT, &object)?;
    for note in &imported.notes {
        let place = format!("{}:{}", file.display(), note.line);
        let line = format!("{place}: {}", note.text);
        context.output.data(text::printable(&line))?;
    }
    let written = target.display();
    context
        .output
        .note(format!("{written} written. Check it: gdn validate"));
    Ok(())
}

fn note_json(note: &ImportNote) -> Value {
    json!({"line": note.line, "text": note.text})
}

/// Text of a regular file of at most `limit` bytes.
fn read_text(path: &Path, limit: usize) -> Result<String, String> {
    // Checked before opening, because opening a named pipe would block.
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if usize::try_from(metadata.len()).map_or(true, |len| len > limit) {
        return Err(format!("it has more than {limit} bytes"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}
