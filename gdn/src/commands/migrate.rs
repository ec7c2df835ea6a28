//! `gdn config migrate`: converts a project from format 0.0.3 to the current format.

use std::path::Path;

use clap::Args;
use goondan_config::{Loader, MigratedFile};
use serde_json::json;

use super::offline_project::ReadArgs;
use super::rewrite::rewrite;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::diff::unified;
use crate::output::style;
use crate::output::text;
use crate::schemas;

/// Convert a project from goondan 0.0.3 to the current format, as a patch or in place
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn config migrate                            show the changes
  gdn config migrate > modern.patch      save them, for git apply
  gdn config migrate --write             change the files

Only the older forms change: comments, order and quotes stay. Implicit connections are written out
according to the variables set in this environment.")]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    project: ReadArgs,
    /// Write the files
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &MigrateArgs, context: &Context) -> Result<(), Failure> {
    let read = |root: &Path, loader: Loader<'_>| migrate(root, &loader, args.write, context);
    args.project.with_loader(context, read)
}

fn migrate(
    root: &Path,
    loader: &Loader<'_>,
    is_written: bool,
    context: &Context,
) -> Result<(), Failure> {
    let files = loader.migrate(root).map_err(|found| {
        Failure::new(
            Exit::InvalidConfiguration,
            format!("{} cannot be migrated:\n\n{found}", root.display()),
            "fix these problems first: `gdn validate`",
        )
    })?;
    if is_written {
        for file in &files {
            let (before, after) = (file.before.as_bytes(), file.after.as_bytes());
            rewrite(&root.join(&file.path), Some(before), after)
                .map_err(|error| error.failure("gdn config migrate --write"))?;
        }
    }
    let patches: Vec<String> = files.iter().map(patch_of).collect();
    let told = files.iter().zip(&patches);
    let told = told.map(|(file, patch)| json!({"path": file.path, "patch": patch}));
    let object = json!({
        "projectRoot": root, "files": told.collect::<Vec<_>>(), "written": is_written,
    });
    context.output.object(schemas::MIGRATE, &object)?;
    tell(&files, &patches, is_written, context)
}

fn patch_of(file: &MigratedFile) -> String {
    unified(&file.path.display().to_string(), &file.before, &file.after)
}

fn tell(
    files: &[MigratedFile],
    patches: &[String],
    is_written: bool,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    if files.is_empty() {
        output.note("The project has no older forms.");
        return Ok(());
    }
    for line in patches.iter().flat_map(|patch| patch.split_inclusive('\n')) {
        let style = match line.as_bytes().first() {
            Some(b'-') => Some(style::BAD),
            Some(b'+') => Some(style::GOOD),
            Some(b'@') => Some(style::HINT),
            _ => None,
        };
        let shown = line.trim_end_matches('\n');
        let shown = match style {
            Some(style) => output.out.paint(style, shown),
            None => shown.to_owned(),
        };
        output.data(format!("{shown}\n"))?;
    }
    let count = text::count(files.len(), "file");
    output.note(if is_written {
        format!("{count} written. Check the result: gdn validate")
    } else {
        format!("{count} would change. Write it: gdn config migrate --write")
    });
    Ok(())
}
