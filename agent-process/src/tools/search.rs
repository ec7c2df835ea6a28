//! Searching files and text: the exports `glob` and `grep` of `file-system`.
//!
//! A search traverses open directory descriptors and follows no symbolic link, so that it cannot
//! leave its root. The number of entries, the depth, the results and the time are bounded, and a
//! canceled call ends its search.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use goondan_clock::RunningTime;
use nix::dir::{Dir, Entry, Type};
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstatat};
use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::json;

use super::export::{Export, ExportHandler, Output, blocking};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::places::ToolRoots;
use super::places::{Access, locate};
use super::readable_file::{MAX_FILE_BYTES, io_fault, not_text, open_file};
use super::rooted_files::{Root, fault_of};

/// Maximum number of files that one `glob` returns.
const MAX_GLOB_FILES: usize = 1_000;
/// Default limit of matching lines that one `grep` returns.
const DEFAULT_GREP_LINES: usize = 200;
/// Maximum number of matching lines that one `grep` returns.
const MAX_GREP_LINES: usize = 2_000;
/// Maximum number of context lines around a match.
const MAX_CONTEXT_LINES: usize = 20;
/// Maximum text that one `grep` returns, in bytes.
const MAX_GREP_BYTES: usize = 64 * 1024;
/// Longest line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 500;
/// Maximum number of entries that one search visits.
const MAX_SEARCHED_ENTRIES: usize = 200_000;
/// Deepest directory that is searched.
const MAX_SEARCH_DEPTH: usize = 64;
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes at the start of a file that are checked to detect text.
const PROBE_BYTES: usize = 8 * 1024;
/// Longest pattern, in characters.
const MAX_PATTERN_CHARS: usize = 1_000;
/// Directories that are skipped unless the search starts in one.
const PASSED_OVER: [&str; 3] = [".git", ".goondan", "node_modules"];

pub(crate) fn exports() -> Vec<Export> {
    let path = |what: &str| {
        json!({
            "type": "string", "minLength": 1, "maxLength": 4096,
            "description": format!("{what} of the work directory or the project. Default: the work directory"),
        })
    };
    vec![
        Export {
            name: "glob".into(),
            description: "Finds files by a pattern of their path, such as `**/*.rs` or `src/{a,b}?.ts`. `*` stays within one directory, `**` does not.".into(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "additionalProperties": false,
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS},
                    "path": path("The directory to start in: a directory"),
                },
            }),
            is_idempotent: true,
            output: Output::BoundedByTool,
            run: searching(glob),
        },
        Export {
            name: "grep".into(),
            description: "Finds lines of text files by a regular expression. Returns `path:line: text`.".into(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "additionalProperties": false,
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS},
                    "path": path("A file or directory"),
                    "include": {
                        "type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS,
                        "description": "Only files of this pattern: of their name, or of their path if it holds a `/`",
                    },
                    "ignoreCase": {"type": "boolean"},
                    "context": {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT_LINES, "description": "Lines shown around each match"},
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": MAX_GREP_LINES,
                        "description": format!("Maximum number of matching lines; default {DEFAULT_GREP_LINES}"),
                    },
                },
            }),
            is_idempotent: true,
            output: Output::BoundedByTool,
            run: searching(grep),
        },
    ]
}

/// Notifies a search on drop that its call was canceled.
struct CancelFlagGuard(Arc<AtomicBool>);

impl Drop for CancelFlagGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Search = fn(&ToolRoots, &ToolInvocation, Bounds) -> Result<String, ToolFault>;

fn searching(search: Search) -> ExportHandler {
    Box::new(move |places, call| {
        let guard = CancelFlagGuard(Arc::new(AtomicBool::new(false)));
        let bounds = Bounds::new(Arc::clone(&guard.0));
        Box::pin(async move {
            let outcome = blocking(move || search(&places, &call, bounds)).await;
            drop(guard);
            outcome
        })
    })
}

/// Remaining limits of a search.
struct Bounds {
    is_given_up: Arc<AtomicBool>,
    begun: Instant,
    time: RunningTime,
    entries_left: usize,
    ended: Option<String>,
}

impl Bounds {
    fn new(is_given_up: Arc<AtomicBool>) -> Self {
        Self {
            is_given_up,
            begun: Instant::now(),
            time: RunningTime::default(),
            entries_left: MAX_SEARCHED_ENTRIES,
            ended: None,
        }
    }

    /// Counts one entry. Returns false if the search must end.
    fn take_entry(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        if self.entries_left == 0 {
            self.ended = Some(format!("{MAX_SEARCHED_ENTRIES} entries were scanned"));
        } else if self.time.read(self.begun.elapsed(), true).counted > SEARCH_TIMEOUT {
            self.ended = Some(format!("{} s have passed", SEARCH_TIMEOUT.as_secs()));
        } else if self.is_given_up.load(Ordering::Relaxed) {
            self.ended = Some("the call was canceled".to_owned());
        }
        self.entries_left = self.entries_left.saturating_sub(1);
        self.ended.is_none()
    }
}

/// Walks the files beneath a directory of a root in path order. `visit` gets each file's path
/// relative to the root and relative to the start, and returns false to stop.
fn walk(
    root: &Root,
    start: &Path,
    shown: &str,
    bounds: &mut Bounds,
    visit: &mut dyn FnMut(&Path, &Path, &mut Bounds) -> bool,
) -> Result<(), ToolFault> {
    let first = Dir::from_fd(
        root.directory(start)
            .map_err(|errno| fault_of(shown, errno))?,
    )
    .map_err(|errno| fault_of(shown, errno))?;
    let mut open = vec![entries_of(first, Path::new(""), bounds)];
    while let Some(entries) = open.last_mut() {
        let Some((relative, is_directory)) = entries.pop() else {
            open.pop();
            continue;
        };
        let full = start.join(&relative);
        if !is_directory {
            if !visit(&full, &relative, bounds) {
                return Ok(());
            }
        } else if open.len() < MAX_SEARCH_DEPTH {
            // A missing or unreadable directory is skipped, as by `grep -s`.
            let directory = root.directory(&full).and_then(Dir::from_fd);
            if let Ok(directory) = directory {
                let entries = entries_of(directory, &relative, bounds);
                open.push(entries);
            }
        }
        if bounds.ended.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// A directory's regular files and directories, last first.
fn entries_of(directory: Dir, relative: &Path, bounds: &mut Bounds) -> Vec<(PathBuf, bool)> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut entries = Vec::new();
    let mut directory = directory;
    let listed: Vec<_> = directory.iter().flatten().collect();
    for entry in listed {
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        if !bounds.take_entry() {
            break;
        }
        let is_directory = match entry.file_type().or_else(|| type_of(&directory, &entry)) {
            Some(Type::Directory) => true,
            Some(Type::File) => false,
            Some(_) | None => continue,
        };
        if is_directory && PASSED_OVER.iter().any(|passed| name == *passed) {
            continue;
        }
        entries.push((relative.join(name), is_directory));
    }
    entries.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    entries
}

/// Type of an entry, for file systems whose listings omit it.
fn type_of(directory: &Dir, entry: &Entry) -> Option<Type> {
    let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
    let stat = fstatat(directory.as_fd(), entry.file_name(), flags).ok()?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Some(Type::Directory),
        SFlag::S_IFREG => Some(Type::File),
        _ => None,
    }
}

fn matcher(pattern: &str) -> Result<GlobMatcher, ToolFault> {
    let built = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = built.map_err(|error| {
        ToolFault::new(
            "E_INVALID_PATTERN",
            format!("`{pattern}`: {}", error.kind()),
        )
    })?;
    Ok(glob.compile_matcher())
}

/// Formats a path so that `read` accepts it.
fn readable(shown: Option<&str>, relative: &Path) -> String {
    match shown {
        None => relative.display().to_string(),
        Some(shown) if relative.as_os_str().is_empty() => shown.to_owned(),
        Some(shown) => format!("{}/{}", shown.trim_end_matches('/'), relative.display()),
    }
}

#[derive(Deserialize)]
struct GlobArgs {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

fn glob(
    places: &ToolRoots,
    call: &ToolInvocation,
    mut bounds: Bounds,
) -> Result<String, ToolFault> {
    let args: GlobArgs = call.args()?;
    let pattern = matcher(&args.pattern)?;
    let shown = args.path.as_deref().unwrap_or(".");
    let (root, start) = locate(places, shown, Access::Read)?;
    let (mut text, mut count) = (String::new(), 0);
    walk(
        root,
        &start,
        shown,
        &mut bounds,
        &mut |_, relative, bounds| {
            if pattern.is_match(relative) {
                if count == MAX_GLOB_FILES {
                    bounds.ended = Some(format!("{MAX_GLOB_FILES} files were found"));
                    return false;
                }
                count += 1;
                text.push_str(&readable(args.path.as_deref(), relative));
                text.push('\n');
            }
            true
        },
    )?;
    if count == 0 {
        text.push_str("[no file matches]\n");
    }
    note_the_end(&bounds, &mut text);
    Ok(text)
}

fn note_the_end(bounds: &Bounds, text: &mut String) {
    if let Some(why) = &bounds.ended {
        text.push_str(&format!(
            "[the search ended early: {why}; narrow it with `path` or a more specific pattern]\n"
        ));
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrepArgs {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    include: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    limit: Option<usize>,
}

/// Filter of the files that a `grep` searches.
struct Include {
    pattern: GlobMatcher,
    /// True if the pattern applies to file names instead of paths.
    by_name: bool,
}

impl Include {
    fn new(pattern: &str) -> Result<Self, ToolFault> {
        Ok(Self {
            pattern: matcher(pattern)?,
            by_name: !pattern.contains('/'),
        })
    }

    fn fits(&self, relative: &Path) -> bool {
        let tested = if self.by_name {
            relative.file_name().map_or(relative, Path::new)
        } else {
            relative
        };
        self.pattern.is_match(tested)
    }
}

fn grep(
    places: &ToolRoots,
    call: &ToolInvocation,
    mut bounds: Bounds,
) -> Result<String, ToolFault> {
    let args: GrepArgs = call.args()?;
    let pattern = RegexBuilder::new(&args.pattern)
        .case_insensitive(args.ignore_case)
        .build()
        .map_err(|error| {
            ToolFault::new("E_INVALID_PATTERN", format!("`{}`: {error}", args.pattern))
        })?;
    let include = args.include.as_deref().map(Include::new).transpose()?;
    let shown = args.path.as_deref().unwrap_or(".");
    let (root, start) = locate(places, shown, Access::Read)?;
    let mut found = GrepResults {
        pattern,
        context: args.context,
        lines_left: args.limit.unwrap_or(DEFAULT_GREP_LINES),
        text: String::new(),
        unreadable: 0,
    };
    let is_directory = match root.directory(&start) {
        Ok(_) => true,
        Err(nix::errno::Errno::ENOTDIR) => false,
        Err(errno) => return Err(fault_of(shown, errno)),
    };
    if is_directory {
        walk(
            root,
            &start,
            shown,
            &mut bounds,
            &mut |full, relative, bounds| {
                if include
                    .as_ref()
                    .is_none_or(|include| include.fits(relative))
                {
                    let name = readable(args.path.as_deref(), relative);
                    match text_of(root, full, &name) {
                        Ok(Some(text)) => found.search(&name, &text, bounds),
                        Ok(None) => {}
                        Err(_) => found.unreadable += 1,
                    }
                }
                bounds.ended.is_none()
            },
        )?;
    } else {
        match text_of(root, &start, shown)? {
            Some(text) => found.search(shown, &text, &mut bounds),
            None => return Err(not_text(shown)),
        }
    }
    if found.text.is_empty() {
        found.text.push_str("[no line matches]\n");
    }
    if found.unreadable > 0 {
        let count = found.unreadable;
        found
            .text
            .push_str(&format!("[{count} files are too large or unreadable]\n"));
    }
    note_the_end(&bounds, &mut found.text);
    Ok(found.text)
}

/// Text of a file; `None` if it is not text.
fn text_of(root: &Root, path: &Path, shown: &str) -> Result<Option<String>, ToolFault> {
    let io = |error: std::io::Error| io_fault(shown, &error);
    let mut file = open_file(root, path, shown)?.take(MAX_FILE_BYTES);
    let mut bytes = Vec::new();
    let probe = u64::try_from(PROBE_BYTES).unwrap_or(u64::MAX);
    file.by_ref()
        .take(probe)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).map_err(io)?;
    Ok(String::from_utf8(bytes).ok())
}

/// Results of a `grep`.
struct GrepResults {
    pattern: Regex,
    context: usize,
    lines_left: usize,
    text: String,
    unreadable: usize,
}

impl GrepResults {
    fn search(&mut self, name: &str, text: &str, bounds: &mut Bounds) {
        let lines: Vec<&str> = text.lines().collect();
        let mut shown_to = 0;
        for (index, line) in lines.iter().enumerate() {
            if !self.pattern.is_match(line) {
                continue;
            }
            if self.lines_left == 0 || self.text.len() > MAX_GREP_BYTES {
                bounds.ended = Some("more matches exist than are shown".to_owned());
                return;
            }
            self.lines_left -= 1;
            let first = index.saturating_sub(self.context).max(shown_to);
            let past_last = (index + self.context + 1).min(lines.len());
            if self.context > 0 && first > shown_to && !self.text.is_empty() {
                self.text.push_str("--\n");
            }
            for (number, shown) in lines.iter().enumerate().take(past_last).skip(first) {
                let is_match = number == index || self.pattern.is_match(shown);
                let mark = if is_match { ':' } else { '-' };
                let end = shown.floor_char_boundary(MAX_LINE_BYTES);
                let cut = if end < shown.len() { " … (cut)" } else { "" };
                let shown = shown.get(..end).unwrap_or_default();
                let number = number + 1;
                self.text
                    .push_str(&format!("{name}{mark}{number}{mark} {shown}{cut}\n"));
            }
            shown_to = shown_to.max(past_last);
        }
    }
}
