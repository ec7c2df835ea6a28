//! `file-system`: `read`, `write`, `list` and `mkdir`.

use std::io::Read as _;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, export, invalid};
use crate::tools::export::{Export, ExportHandler, blocking};
use crate::tools::fault::ToolFault;
use crate::tools::file_system::put;
use crate::tools::invocation::ToolInvocation;
use crate::tools::places::{Access, ToolRoots, locate};
use crate::tools::readable_file::{MAX_FILE_BYTES, io_fault, open_file};
use crate::tools::rooted::{Root, fault_of};

/// Default limit of bytes that one `read` returns.
const DEFAULT_READ_BYTES: u64 = 100_000;
/// Maximum number of entries that one `list` returns.
const MAX_ENTRIES: usize = 1_000;
/// Maximum depth of directories that one `list` descends.
const MAX_LEVELS: usize = 32;

pub(super) fn exports() -> Vec<Export> {
    let path = || json!({"type": "string", "minLength": 1, "maxLength": 4096});
    let truth = || json!({"type": "boolean"});
    let of = |name, description, properties, required, is_idempotent, work| {
        let told = ExportSpec {
            name,
            description,
            properties,
            required,
            is_idempotent,
        };
        export(told, on_files(work))
    };
    vec![
        of(
            "read",
            "Reads a file of the work directory or the project.",
            json!({"path": path(), "maxBytes": {"type": "number", "exclusiveMinimum": 0}}),
            &["path"],
            true,
            read,
        ),
        of(
            "write",
            "Writes a file in the work directory, or adds to it.",
            json!({"path": path(), "content": {"type": "string"}, "append": truth()}),
            &["path", "content"],
            false,
            write,
        ),
        of(
            "list",
            "Lists a directory of the work directory or the project.",
            json!({
                "path": path(), "recursive": truth(), "includeDirs": truth(), "includeFiles": truth(),
            }),
            &[],
            true,
            list,
        ),
        of(
            "mkdir",
            "Makes a directory in the work directory.",
            json!({"path": path(), "recursive": truth()}),
            &["path"],
            true,
            mkdir,
        ),
    ]
}

fn on_files(work: fn(&ToolRoots, &ToolInvocation) -> Result<Value, ToolFault>) -> ExportHandler {
    Box::new(move |places, call| {
        Box::pin(blocking(move || {
            work(&places, &call).map(|result| result.to_string())
        }))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    content: String,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    max_bytes: Option<f64>,
    #[serde(default)]
    recursive: Option<bool>,
    #[serde(default)]
    include_dirs: Option<bool>,
    #[serde(default)]
    include_files: Option<bool>,
}

impl Args {
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

fn absolute(root: &Root, path: &Path) -> String {
    let full = match path.as_os_str().is_empty() {
        true => root.path().to_owned(),
        false => root.path().join(path),
    };
    full.to_string_lossy().into_owned()
}

fn read(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let (root, path) = locate(places, args.path(), Access::Read)?;
    let file = open_file(root, &path, args.path())?;
    let io = |error: std::io::Error| io_fault(args.path(), &error);
    let size = file.metadata().map_err(io)?.len();
    let most = args.max_bytes.map(|bytes| format!("{:.0}", bytes.max(1.0)));
    let most = most
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(DEFAULT_READ_BYTES);
    let mut bytes = Vec::new();
    file.take(most.min(MAX_FILE_BYTES))
        .read_to_end(&mut bytes)
        .map_err(io)?;
    Ok(json!({
        "path": absolute(root, &path), "size": size, "truncated": size > most,
        "content": String::from_utf8_lossy(&bytes),
    }))
}

fn write(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let (root, path) = locate(places, args.path(), Access::Write)?;
    let mut content = Vec::new();
    if args.append {
        match open_file(root, &path, args.path()) {
            Ok(file) => {
                let read = file.take(MAX_FILE_BYTES).read_to_end(&mut content);
                read.map_err(|error| io_fault(args.path(), &error))?;
            }
            Err(fault) if fault.code == "E_FILE_NOT_FOUND" => {}
            Err(fault) => return Err(fault),
        }
    }
    content.extend_from_slice(args.content.as_bytes());
    put(places, args.path(), &content)?;
    Ok(json!({
        "path": absolute(root, &path), "size": content.len(), "written": true, "append": args.append,
    }))
}

fn mkdir(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let (root, path) = locate(places, args.path(), Access::Write)?;
    let is_recursive = args.recursive.unwrap_or(true);
    let fault = |errno| fault_of(args.path(), errno);
    if !is_recursive {
        let Some(parent) = path.parent() else {
            return Err(invalid("`path` names the work directory itself"));
        };
        root.directory(parent).map_err(fault)?;
    }
    root.make_directory(&path).map_err(fault)?;
    Ok(json!({"path": absolute(root, &path), "created": true, "recursive": is_recursive}))
}

fn list(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let (root, path) = locate(places, args.path(), Access::Read)?;
    let is_recursive = args.recursive.unwrap_or(false);
    let wanted = ListingOptions {
        dirs: args.include_dirs.unwrap_or(true),
        files: args.include_files.unwrap_or(true),
        levels: if is_recursive { MAX_LEVELS } else { 1 },
    };
    let mut entries = Vec::new();
    gather(root, &path, &wanted, &mut entries).map_err(|errno| fault_of(args.path(), errno))?;
    Ok(json!({
        "path": absolute(root, &path), "recursive": is_recursive, "count": entries.len(),
        "entries": entries,
    }))
}

struct ListingOptions {
    dirs: bool,
    files: bool,
    levels: usize,
}

/// Lists a directory by name; the entries of a subdirectory follow it.
fn gather(
    root: &Root,
    path: &Path,
    wanted: &ListingOptions,
    entries: &mut Vec<Value>,
) -> nix::Result<()> {
    let directory = root.directory(path)?;
    let again = directory.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(again)? {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push((name, entry.file_type()));
        }
    }
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, kind) in names {
        if entries.len() >= MAX_ENTRIES {
            break;
        }
        let shown = name.to_string_lossy().into_owned();
        let below = path.join(&shown);
        let full = absolute(root, &below);
        if kind == Some(Type::Directory) {
            if wanted.dirs {
                entries.push(json!({"name": shown, "path": full, "type": "dir"}));
            }
            if wanted.levels > 1 {
                let deeper = ListingOptions {
                    levels: wanted.levels - 1,
                    ..*wanted
                };
                // An unreadable directory is listed without its entries.
                gather(root, &below, &deeper, entries).ok();
            }
        } else if wanted.files {
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            let stat = fstatat(&directory, name.as_c_str(), flags);
            let size = stat.map_or(0, |stat| stat.st_size);
            entries.push(json!({"name": shown, "path": full, "type": "file", "size": size}));
        }
    }
    Ok(())
}
