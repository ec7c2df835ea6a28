//! The tool `file-system`: reads and writes files without a shell.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::export::{Export, ExportHandler, Output, blocking};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::near_text;
use super::places::ToolRoots;
use super::places::{Access, locate};
use super::readable_file::{MAX_FILE_BYTES, io_fault, not_text, open_file};
use super::rooted_files::{fault_of, split};
use super::search;

/// Maximum text that one `read` returns, in bytes.
const MAX_READ_BYTES: usize = 128 * 1024;
/// Largest file that the tool writes, in bytes.
const MAX_WRITE_BYTES: usize = 1024 * 1024;
/// Maximum number of entries that one `list` returns.
const MAX_LIST_ENTRIES: usize = 1_000;
/// Maximum number of entries that one `list` scans to find the first ones in order.
const MAX_SCANNED_ENTRIES: usize = 100_000;
/// Mode of a new file, before the process's umask.
const NEW_FILE_MODE: Mode = Mode::from_bits_truncate(0o666);

pub(crate) fn exports() -> Vec<Export> {
    let mut exports = own_exports();
    exports.extend(search::exports());
    exports
}

fn own_exports() -> Vec<Export> {
    vec![
        Export {
            name: "read".into(),
            description: "Reads a text file of the work directory or the project. Long files come in parts: read on with `offset`.".into(),
            parameters: json!({
                "type": "object",
                "required": ["path"],
                "additionalProperties": false,
                "properties": {
                    "path": path_schema(),
                    "offset": {"type": "integer", "minimum": 1, "description": "First line to return, from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Maximum number of lines to return"},
                },
            }),
            is_idempotent: true,
            output: Output::BoundedByTool,
            run: on_files(read),
        },
        Export {
            name: "write".into(),
            description: "Writes a text file in the work directory and replaces an existing one. Missing directories are created.".into(),
            parameters: json!({
                "type": "object",
                "required": ["path", "content"],
                "additionalProperties": false,
                "properties": {
                    "path": path_schema(),
                    "content": {"type": "string", "maxLength": MAX_WRITE_BYTES},
                },
            }),
            is_idempotent: false,
            output: Output::BoundedByTool,
            run: on_files(write),
        },
        Export {
            name: "edit".into(),
            description: "Replaces a text in a file of the work directory. `oldText` must occur verbatim exactly once, or exactly `count` times if given.".into(),
            parameters: json!({
                "type": "object",
                "required": ["path", "oldText", "newText"],
                "additionalProperties": false,
                "properties": {
                    "path": path_schema(),
                    "oldText": {"type": "string", "minLength": 1, "maxLength": MAX_WRITE_BYTES},
                    "newText": {"type": "string", "maxLength": MAX_WRITE_BYTES},
                    "count": {"type": "integer", "minimum": 1, "description": "Number of occurrences of `oldText`, each replaced; default 1"},
                },
            }),
            is_idempotent: false,
            output: Output::BoundedByTool,
            run: on_files(edit),
        },
        Export {
            name: "list".into(),
            description: "Lists a directory of the work directory or the project, by name. Directories end in `/`.".into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {"path": path_schema()},
            }),
            is_idempotent: true,
            output: Output::BoundedByTool,
            run: on_files(list),
        },
    ]
}

fn path_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 4096,
        "description": "Relative to the work directory, or absolute; may begin with $GOONDAN_PROJECT_ROOT or $GOONDAN_WORK_DIR",
    })
}

fn on_files(work: fn(&ToolRoots, &ToolInvocation) -> Result<String, ToolFault>) -> ExportHandler {
    Box::new(move |places, call| Box::pin(blocking(move || work(&places, &call))))
}

#[derive(Deserialize)]
struct ReadArgs {
    path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

fn read(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: ReadArgs = call.args()?;
    let (root, path) = locate(places, &args.path, Access::Read)?;
    let file = open_file(root, &path, &args.path)?;
    let first = args.offset.unwrap_or(1);
    let past_last = first.saturating_add(args.limit.unwrap_or(u64::MAX));
    let io = |error: std::io::Error| io_fault(&args.path, &error);

    let mut lines = BufReader::new(file.take(MAX_FILE_BYTES));
    let (mut text, mut line, mut number) = (String::new(), Vec::new(), 0_u64);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        number += 1;
        if number < first {
            continue;
        }
        let is_full = text.len() + line.len() > MAX_READ_BYTES;
        if number >= past_last || (is_full && number > first) {
            text.push_str(&format!(
                "[the file continues; read it with offset {number}]\n"
            ));
            return Ok(text);
        }
        let line = std::str::from_utf8(&line).map_err(|_| not_text(&args.path))?;
        if is_full {
            let end = line.floor_char_boundary(MAX_READ_BYTES);
            text.push_str(line.get(..end).unwrap_or_default());
            text.push_str(&format!("\n[line {number} is cut here]\n"));
        } else {
            text.push_str(line);
        }
    }
    if number < first && first > 1 {
        return Err(ToolFault::new(
            "E_PAST_END",
            format!(
                "`{}` has only {number} lines, none from {first} on",
                args.path
            ),
        ));
    }
    Ok(text)
}

#[derive(Deserialize)]
struct WriteArgs {
    path: String,
    content: String,
}

fn write(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: WriteArgs = call.args()?;
    put(places, &args.path, args.content.as_bytes())?;
    Ok(format!(
        "wrote {} bytes to {}",
        args.content.len(),
        args.path
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditArgs {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    count: Option<usize>,
}

fn edit(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: EditArgs = call.args()?;
    let (root, path) = locate(places, &args.path, Access::Write)?;
    let mut text = String::new();
    open_file(root, &path, &args.path)?
        .take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => not_text(&args.path),
            _ => io_fault(&args.path, &error),
        })?;
    let wanted = args.count.unwrap_or(1);
    let (old_text, new_text) = with_line_ends_of(&text, &args);
    let exact = text.matches(old_text.as_ref()).count();
    let near = match exact {
        0 => near_text::places(&text, &old_text),
        _ => Vec::new(),
    };
    let found = exact + near.len();
    if found == 0 {
        return Err(ToolFault::new(
            "E_NO_MATCH",
            format!(
                "`oldText` is not in `{}`; read the file and copy the text exactly",
                args.path
            ),
        ));
    }
    if found != wanted {
        return Err(ToolFault::new(
            "E_MANY_MATCHES",
            format!(
                "`oldText` occurs {found} times in `{}`, not {wanted}; give more of the text around \
                 it, or `count: {found}` to replace them all",
                args.path
            ),
        ));
    }
    let text = match near.is_empty() {
        true => text.replace(old_text.as_ref(), &new_text),
        false => near_text::replaced(&text, &near, &old_text, &new_text),
    };
    put(places, &args.path, text.as_bytes())?;
    let noun = if found == 1 { "place" } else { "places" };
    let note = match near.is_empty() {
        true => "",
        false => ", where the file has other spaces, quotes or hyphens than `oldText`",
    };
    Ok(format!("edited {} in {found} {noun}{note}", args.path))
}

/// Converts the texts of an edit to the line endings of the file. Models write LF even for files
/// with CRLF.
fn with_line_ends_of<'a>(text: &str, args: &'a EditArgs) -> (Cow<'a, str>, Cow<'a, str>) {
    let crlf_count = text.matches("\r\n").count();
    let is_crlf = crlf_count > 0 && crlf_count == text.matches('\n').count();
    let to_crlf = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    // In a file with mixed line endings, a text that matches unchanged keeps its line endings.
    let fits_only_as_crlf =
        crlf_count > 0 && !text.contains(&args.old_text) && text.contains(&to_crlf(&args.old_text));
    if is_crlf || fits_only_as_crlf {
        (
            Cow::Owned(to_crlf(&args.old_text)),
            Cow::Owned(to_crlf(&args.new_text)),
        )
    } else {
        (Cow::Borrowed(&args.old_text), Cow::Borrowed(&args.new_text))
    }
}

#[derive(Deserialize)]
struct ListArgs {
    #[serde(default)]
    path: Option<String>,
}

fn list(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: ListArgs = call.args()?;
    let shown = args.path.as_deref().unwrap_or(".");
    let (root, path) = locate(places, shown, Access::Read)?;
    let fault = |errno| fault_of(shown, errno);
    let directory = root.directory(&path).map_err(fault)?;
    let again = directory
        .try_clone()
        .map_err(|error| io_fault(shown, &error))?;
    let mut entries = Vec::new();
    for entry in Dir::from_fd(again).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let name = entry.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        entries.push((name, entry.file_type()));
        if entries.len() >= MAX_SCANNED_ENTRIES {
            break;
        }
    }
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let left_out = entries.len().saturating_sub(MAX_LIST_ENTRIES);
    let mut text = String::new();
    for (name, kind) in entries.iter().take(MAX_LIST_ENTRIES) {
        let shown_name = name.to_string_lossy();
        match kind {
            Some(Type::Directory) => text.push_str(&format!("{shown_name}/\n")),
            Some(Type::Symlink) => text.push_str(&format!("{shown_name} (symbolic link)\n")),
            _ => {
                let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
                // Skip a file that has been deleted since.
                if let Ok(stat) = fstatat(directory.as_fd(), name.as_c_str(), flags) {
                    text.push_str(&format!("{shown_name} ({} bytes)\n", stat.st_size));
                }
            }
        }
    }
    if left_out > 0 {
        text.push_str(&format!("[{left_out} more entries are left out]\n"));
    }
    if text.is_empty() {
        text.push_str("[the directory is empty]\n");
    }
    Ok(text)
}

/// Writes a file atomically: to a draft beside the target first, then renamed over it.
pub(super) fn put(places: &ToolRoots, shown: &str, content: &[u8]) -> Result<(), ToolFault> {
    if content.len() > MAX_WRITE_BYTES {
        return Err(ToolFault::new(
            "E_TOO_LARGE",
            format!(
                "{} bytes for `{shown}`; at most {MAX_WRITE_BYTES} are written",
                content.len()
            ),
        ));
    }
    replace(places, shown, content)
}

/// As [`put`], for content whose size the caller limits.
pub(super) fn replace(places: &ToolRoots, shown: &str, content: &[u8]) -> Result<(), ToolFault> {
    let fault = |errno| fault_of(shown, errno);
    let (root, path) = locate(places, shown, Access::Write)?;
    let (parent, name) = split(&path).ok_or_else(|| fault(nix::errno::Errno::EISDIR))?;
    let directory = root.make_directory(parent).map_err(fault)?;
    let old_mode = fstatat(directory.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .ok()
        .filter(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG)
        .map(|stat| Mode::from_bits_truncate(stat.st_mode & 0o777));

    let draft_name = format!(".goondan-draft-{}", uuid::Uuid::now_v7());
    let draft_path = parent.join(&draft_name);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let draft = root
        .open_beneath(&draft_path, flags, NEW_FILE_MODE)
        .map_err(fault)?;
    let mut draft = File::from(draft);
    let written = draft
        .write_all(content)
        .map_err(|error| io_fault(shown, &error))
        .and_then(|()| old_mode.map_or(Ok(()), |mode| fchmod(&draft, mode).map_err(fault)))
        .and_then(|()| {
            renameat(
                directory.as_fd(),
                draft_name.as_str(),
                directory.as_fd(),
                name,
            )
            .map_err(fault)
        });
    if written.is_err() {
        // Best effort: a leftover draft is harmless.
        unlinkat(
            directory.as_fd(),
            draft_name.as_str(),
            UnlinkatFlags::NoRemoveDir,
        )
        .ok();
    }
    written
}
