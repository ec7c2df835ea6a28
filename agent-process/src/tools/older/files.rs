//! `file-system`: `read`, `write`, `list` and `mkdir`.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, check_file_path, export, javascript};
use crate::tools::export::{Export, ExportHandler, blocking};
use crate::tools::fault::ToolFault;
use crate::tools::file_system::replace;
use crate::tools::invocation::ToolInvocation;
use crate::tools::places::{Access, ToolRoots, locate};
use crate::tools::readable_file::{MAX_FILE_BYTES, io_fault, open_file};
use crate::tools::rooted_files::{Root, fault_of, split};

/// Default limit of bytes that one `read` returns.
const DEFAULT_READ_BYTES: i64 = 100_000;
/// Maximum number of entries that one `list` returns.
const MAX_ENTRIES: usize = 10_000;
/// Maximum depth of directories that one `list` descends.
const MAX_LEVELS: usize = 32;
/// Mode of a new directory, before the process's umask.
const NEW_DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o777);
/// Prefix of the variables that a path can begin with.
const VARIABLE_PREFIX: &str = "$GOONDAN_";

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
            json!({"path": path(), "maxBytes": {"type": "number", "minimum": 1}}),
            &["path"],
            true,
            read,
        ),
        of(
            "write",
            "Writes a file in the work directory, or adds to it.",
            json!({
                "path": path(), "content": {"type": "string", "minLength": 1}, "append": truth(),
            }),
            &["path", "content"],
            false,
            write,
        ),
        of(
            "list",
            "Lists a directory of the work directory or the project.",
            json!({
                "path": {"type": "string", "maxLength": 4096}, "recursive": truth(),
                "includeDirs": truth(), "includeFiles": truth(),
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

/// A path that a call names.
struct NamedPath<'a> {
    root: &'a Root,
    /// The path beneath the root.
    path: PathBuf,
    /// The path in errors and for other file tools.
    shown: String,
    /// The path in the result.
    told: String,
}

impl Args {
    /// Resolves the path. Relative paths can contain `..`, as with `path.join`.
    fn locate<'a>(
        &self,
        places: &'a ToolRoots,
        access: Access,
    ) -> Result<NamedPath<'a>, ToolFault> {
        let written = self.path.as_deref().unwrap_or(".");
        if written.starts_with(VARIABLE_PREFIX) {
            let (root, path) = locate(places, written, access)?;
            let full = root.path().join(&path);
            return Ok(NamedPath {
                root,
                told: full.to_string_lossy().into_owned(),
                shown: written.to_owned(),
                path,
            });
        }
        let told = javascript::resolved(places.start(), written);
        let shown = javascript::normal(Path::new(&told));
        let (root, path) = locate(places, &shown, access)?;
        Ok(NamedPath {
            root,
            path,
            shown,
            told,
        })
    }
}

fn read(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let named = args.locate(places, Access::Read)?;
    check_file_path(&named.told)?;
    let file = open_file(named.root, &named.path, &named.shown)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| io_fault(&named.shown, &error))?;
    let most = args
        .max_bytes
        .map_or(DEFAULT_READ_BYTES, javascript::integer);
    let most = usize::try_from(most).unwrap_or(0);
    Ok(json!({
        "path": named.told, "size": bytes.len(), "truncated": bytes.len() > most,
        "content": String::from_utf8_lossy(bytes.get(..most).unwrap_or(&bytes)),
    }))
}

fn write(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let named = args.locate(places, Access::Write)?;
    check_file_path(&named.told)?;
    let mut content = Vec::new();
    if args.append {
        match open_file(named.root, &named.path, &named.shown) {
            Ok(file) => {
                let read = file.take(MAX_FILE_BYTES).read_to_end(&mut content);
                read.map_err(|error| io_fault(&named.shown, &error))?;
            }
            Err(fault) if fault.code == "E_FILE_NOT_FOUND" => {}
            Err(fault) => return Err(fault),
        }
    }
    content.extend_from_slice(args.content.as_bytes());
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(ToolFault::new(
            "E_TOO_LARGE",
            format!(
                "`{}` would have {} bytes; at most {MAX_FILE_BYTES} are written",
                named.shown,
                content.len()
            ),
        ));
    }
    replace(places, &named.shown, &content)?;
    Ok(json!({
        "path": named.told, "size": content.len(), "written": true, "append": args.append,
    }))
}

fn mkdir(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let named = args.locate(places, Access::Write)?;
    let is_recursive = args.recursive.unwrap_or(true);
    let made = match (is_recursive, split(&named.path)) {
        (true, _) => named.root.make_directory(&named.path).map(drop),
        (false, Some((parent, name))) => {
            let parent = named.root.directory(parent);
            parent.and_then(|parent| mkdirat(parent.as_fd(), name, NEW_DIRECTORY_MODE))
        }
        (false, None) => Err(Errno::EEXIST),
    };
    made.map_err(|errno| fault_of(&named.shown, errno))?;
    Ok(json!({"path": named.told, "created": true, "recursive": is_recursive}))
}

fn list(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let named = args.locate(places, Access::Read)?;
    let is_recursive = args.recursive.unwrap_or(false);
    let wanted = ListingOptions {
        dirs: args.include_dirs.unwrap_or(true),
        files: args.include_files.unwrap_or(true),
        levels: if is_recursive { MAX_LEVELS } else { 1 },
    };
    let mut entries = Vec::new();
    let directory = Path::new(&named.told);
    gather(&named, directory, &named.path, &wanted, &mut entries)
        .map_err(|errno| fault_of(&named.shown, errno))?;
    entries.sort_by(|a, b| javascript::compare(&a.path, &b.path));
    let entries: Vec<Value> = entries.into_iter().map(ListedEntry::into_json).collect();
    Ok(json!({
        "path": named.told, "recursive": is_recursive, "count": entries.len(),
        "entries": entries,
    }))
}

struct ListedEntry {
    name: String,
    path: String,
    /// Size of a file; absent for a directory.
    size: Option<i64>,
}

impl ListedEntry {
    fn into_json(self) -> Value {
        let Self { name, path, size } = self;
        match size {
            Some(size) => json!({"name": name, "path": path, "type": "file", "size": size}),
            None => json!({"name": name, "path": path, "type": "dir"}),
        }
    }
}

struct ListingOptions {
    dirs: bool,
    files: bool,
    levels: usize,
}

/// Collects the regular files and the directories of a directory. `told` is its path in results.
fn gather(
    named: &NamedPath<'_>,
    told: &Path,
    path: &Path,
    wanted: &ListingOptions,
    entries: &mut Vec<ListedEntry>,
) -> nix::Result<()> {
    let directory = named.root.directory(path)?;
    let again = directory.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(again)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    for name in names {
        if entries.len() >= MAX_ENTRIES {
            break;
        }
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        // Skip a file that has been deleted since.
        let Ok(stat) = fstatat(&directory, name.as_c_str(), flags) else {
            continue;
        };
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        let name = name.to_string_lossy().into_owned();
        let full = told.join(&name);
        let entry = |size| ListedEntry {
            name: name.clone(),
            path: full.to_string_lossy().into_owned(),
            size,
        };
        if kind == SFlag::S_IFDIR {
            if wanted.dirs {
                entries.push(entry(None));
            }
            if wanted.levels > 1 {
                let deeper = ListingOptions {
                    levels: wanted.levels - 1,
                    ..*wanted
                };
                // An unreadable directory is listed without its entries.
                gather(named, &full, &path.join(&name), &deeper, entries).ok();
            }
        } else if kind == SFlag::S_IFREG && wanted.files {
            entries.push(entry(Some(stat.st_size)));
        }
    }
    Ok(())
}
