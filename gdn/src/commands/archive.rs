//! `gdn conversation export` and `gdn conversation import`: move conversations between state roots.

use clap::Args;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use goondan_protocol::control::{ExportInstance, ExportPart, ImportInstance};
use goondan_protocol::ids::{AgentName, InstanceKey};
use serde::Deserialize;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::client::RequestTimeout;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, style, text};
use crate::schemas;

/// Export one conversation to a file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn conversation export order-17 -o order-17.jsonl
  gdn conversation export order-17 | gzip > order-17.jsonl.gz

The file contains confirmed messages and the state of extensions, but not the work directory or waiting events.")]
pub(crate) struct InstanceExportArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Output file; `-` is stdout
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Skip damaged records instead of stopping
    #[arg(long)]
    skip_damaged: bool,
}

/// Import a conversation from an exported file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn conversation import order-17.jsonl
  gdn conversation import order-17.jsonl --conversation order-17-again --agent clerk

A truncated or modified file is refused, and nothing is created.")]
pub(crate) struct InstanceImportArgs {
    /// The exported file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// New name of the conversation [default: its exported name]
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    instance: Option<InstanceKey>,
    /// Agent of the conversation [default: its exported agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
}

/// Maximum length of an archive's first line, in bytes.
const HEAD_BYTES_MAX: u64 = 64 * 1024;

enum Sink {
    Stdout(Output),
    /// Temporary file that is renamed once the archive is complete.
    File {
        temp: NamedTempFile,
        path: PathBuf,
        force: bool,
    },
}

impl Sink {
    fn open(args: &InstanceExportArgs, output: Output) -> Result<Self, Failure> {
        let path = args.output.clone();
        if path.as_os_str() == "-" {
            if output.is_json() {
                return Err(Failure::new(
                    Exit::Usage,
                    "the archive and the JSON form cannot both go to stdout",
                    "write the archive to a file: `-o FILE`",
                ));
            }
            return Ok(Self::Stdout(output));
        }
        // Fail before any request to the daemon if the file cannot be written.
        if !args.force && path.symlink_metadata().is_ok() {
            return Err(is_there(&path));
        }
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let temp = NamedTempFile::new_in(directory).map_err(|error| unwritable(&path, &error))?;
        let force = args.force;
        Ok(Self::File { temp, path, force })
    }

    fn write(&mut self, piece: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout(output) => output.piece(piece),
            Self::File { temp, path, .. } => temp
                .write_all(piece.as_bytes())
                .map_err(|error| unwritable(path, &error)),
        }
    }

    /// Syncs the file, renames it to its final path, and returns the path.
    fn finish(self) -> Result<Option<PathBuf>, Failure> {
        let Self::File { temp, path, force } = self else {
            return Ok(None);
        };
        let synced = temp.as_file().sync_all();
        synced.map_err(|error| unwritable(&path, &error))?;
        let named = if force {
            temp.persist(&path)
        } else {
            temp.persist_noclobber(&path)
        };
        match named {
            Ok(_) => Ok(Some(path)),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(is_there(&path))
            }
            Err(error) => Err(unwritable(&path, &error.error)),
        }
    }
}

fn is_there(path: &Path) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{} already exists", path.display()),
        "choose another name, or overwrite the file: `--force`",
    )
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Internal,
        format!("cannot write {}", path.display()),
        "choose a writable directory with enough disk space: `-o FILE`",
    )
    .caused_by(Some(error))
}

pub(super) async fn export(args: InstanceExportArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let mut sink = Sink::open(&args, output)?;
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let mut request = ExportInstance {
        workspace_id: workspace.workspace_id,
        instance_key: key.clone(),
        skip_damaged: args.skip_damaged,
        position: None,
    };
    let (mut bytes, mut pending) = (0, 0);
    let last = loop {
        let part = client.query(request.clone()).await?;
        sink.write(&part.text)?;
        bytes += part.text.len() as u64;
        if request.position.is_none() {
            pending = part.pending_events;
        }
        match part.next.clone() {
            Some(next) => request.position = Some(next),
            None => break part,
        }
    };
    let file = sink.finish()?;
    output.object(
        schemas::INSTANCE_EXPORT,
        &json!({
            "instanceKey": key,
            "file": file,
            "messages": last.messages,
            "extensions": last.extensions,
            "bytes": bytes,
            "damaged": last.damaged,
            "pendingEvents": pending,
        }),
    )?;
    remark(&last, pending, output);
    if let Some(file) = file {
        let key = text::one_line(key.as_str());
        let messages = text::count(as_count(last.messages), "message");
        let size = text::bytes(bytes);
        let file = text::one_line(&file.to_string_lossy());
        output.data(format!("Exported {key}: {messages}, {size}, to {file}"))?;
    }
    Ok(())
}

fn as_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Notes what the archive does not contain.
fn remark(last: &ExportPart, pending: usize, output: Output) {
    if pending > 0 {
        let events = text::count(pending, "event");
        output.note(format!(
            "{events} waited or was in progress when the export started; the archive does not contain their results."
        ));
    }
    if last.damaged > 0 {
        let records = text::count(as_count(last.damaged), "damaged record");
        let warning = output.err.paint(style::WARN, "warning:");
        output.note(format!("{warning} {records} skipped"));
    }
}

/// Names in the first line of an archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveHeader {
    instance_key: InstanceKey,
    agent_name: AgentName,
}

pub(super) async fn import(args: InstanceImportArgs, context: &Context) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(
            Exit::NotFound,
            format!("cannot read {}", args.file.display()),
            "pass a file that `gdn conversation export` wrote",
        )
        .caused_by(Some(&error))
    };
    let path = args.file.canonicalize().map_err(unreadable)?;
    let file = File::open(&path).map_err(unreadable)?;
    let mut line = Vec::new();
    BufReader::new(file.take(HEAD_BYTES_MAX))
        .read_until(b'\n', &mut line)
        .map_err(unreadable)?;
    let head: ArchiveHeader = serde_json::from_slice(&line).map_err(|error| {
        let message = format!("{} is not an archive of a conversation", path.display());
        let hint =
            "pass a file that `gdn conversation export` wrote, decompressed if it was compressed";
        Failure::new(Exit::Damaged, message, hint).caused_by(Some(&error))
    })?;
    let (mut client, workspace) = context.open().await?;
    let request = ImportInstance {
        workspace_id: workspace.workspace_id,
        instance_key: args.instance.unwrap_or(head.instance_key),
        agent: args.agent.unwrap_or(head.agent_name),
        path,
    };
    let imported = client
        .watch(request.clone(), RequestTimeout::Endless, &mut |_| {})
        .await?;
    let output = context.output;
    output.object(
        schemas::INSTANCE_IMPORT,
        &json!({
            "instanceKey": request.instance_key,
            "agentName": request.agent,
            "messages": imported.messages,
            "extensions": imported.extensions,
        }),
    )?;
    let key = text::one_line(request.instance_key.as_str());
    let messages = text::count(as_count(imported.messages), "message");
    output.data(format!(
        "Imported {key} of agent {}: {messages}",
        request.agent
    ))
}
