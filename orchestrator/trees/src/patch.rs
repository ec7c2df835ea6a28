//! Strict parser of git patches (`PROP-2`, `PROP-4`).
//!
//! It accepts the output of [`diff`](crate::diff) and of `git diff --binary --full-index
//! --no-renames`, without guessing, skipping or fuzz. An invalid patch is rejected as a whole.

use std::fmt;

use sha1::{Digest as _, Sha1};

use crate::binary::{decode_line, inflate};
use crate::compare::{Hunk, LineKind};
use crate::limits::{PATCH_BYTES_MAX, PATCH_FILE_BYTES_MAX, TREE_ENTRIES_MAX};
use crate::path::{PathProblem, RelativePath};
use crate::quote::unquote;

/// A patch is rejected. Nothing has changed; create the patch again from the two trees.
#[derive(Debug, thiserror::Error)]
#[error("invalid patch at line {line}: {problem}")]
pub struct PatchError {
    line: usize,
    problem: String,
    #[source]
    path: Option<PathProblem>,
}

/// Mode of a file as stored by git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    Regular,
    Executable,
    /// A symbolic link; its content is its target.
    Link,
}

impl FileMode {
    /// Returns the mode in git's format.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }

    fn read(text: &[u8]) -> Option<Self> {
        let modes = [Self::Regular, Self::Executable, Self::Link];
        modes
            .into_iter()
            .find(|mode| mode.text().as_bytes() == text)
    }
}

/// git's SHA-1 id of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobId([u8; 20]);

impl BlobId {
    /// git's id of missing content.
    pub(crate) const NONE: Self = Self([0; 20]);

    pub(crate) fn of(content: &[u8]) -> Self {
        let mut hasher = Sha1::new();
        hasher.update(format!("blob {}\0", content.len()));
        hasher.update(content);
        Self(hasher.finalize().into())
    }

    fn read(text: &[u8]) -> Option<Self> {
        let mut id = [0; 20];
        hex::decode_to_slice(text, &mut id).ok()?;
        Some(Self(id))
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binary {
    Literal(Vec<u8>),
    /// Instructions that produce the content from the other content.
    Delta(Vec<u8>),
}

/// Change of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// No change, or an empty file.
    None,
    Text(Vec<Hunk>),
    /// Changed bytes. The reverse part is parsed and ignored.
    Binary(Binary),
}

/// Change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    pub(crate) path: RelativePath,
    /// The mode before; `None` if the file did not exist.
    pub(crate) old: Option<FileMode>,
    /// The mode after; `None` if the file is deleted.
    pub(crate) new: Option<FileMode>,
    /// Ids of the content before and after. Without them content and mode do not change, unless the
    /// patch names a mode.
    pub(crate) ids: Option<(BlobId, BlobId)>,
    pub(crate) body: Body,
}

impl FilePatch {
    #[must_use]
    pub fn path(&self) -> &RelativePath {
        &self.path
    }
}

/// A parsed patch. Its content ids are not trusted before it is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub(crate) files: Vec<FilePatch>,
}

impl Patch {
    /// Parses a patch.
    ///
    /// # Errors
    ///
    /// [`PatchError`] with the invalid line.
    pub fn parse(text: &[u8]) -> Result<Self, PatchError> {
        let mut reader = PatchReader {
            rest: text,
            line: 0,
        };
        if text.len() > PATCH_BYTES_MAX {
            return Err(reader.error("the patch is too large"));
        }
        let mut files = Vec::new();
        while let Some(line) = reader.next() {
            if files.len() >= TREE_ENTRIES_MAX {
                return Err(reader.error("the patch touches too many files"));
            }
            files.push(file(&mut reader, line)?);
        }
        Ok(Self { files })
    }

    /// Returns its changes, in order.
    #[must_use]
    pub fn files(&self) -> &[FilePatch] {
        &self.files
    }
}

struct PatchReader<'t> {
    rest: &'t [u8],
    line: usize,
}

impl<'t> PatchReader<'t> {
    /// Returns the next line with its newline.
    fn peek_whole(&self) -> Option<&'t [u8]> {
        self.rest.split_inclusive(|byte| *byte == b'\n').next()
    }

    fn peek(&self) -> Option<&'t [u8]> {
        self.peek_whole()
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
    }

    fn next_whole(&mut self) -> Option<&'t [u8]> {
        let line = self.peek_whole()?;
        self.rest = self.rest.get(line.len()..).unwrap_or_default();
        self.line += 1;
        Some(line)
    }

    fn next(&mut self) -> Option<&'t [u8]> {
        let line = self.next_whole()?;
        Some(line.strip_suffix(b"\n").unwrap_or(line))
    }

    /// Consumes the next line and returns the text after `prefix`, if the line begins with it.
    fn take(&mut self, prefix: &[u8]) -> Option<&'t [u8]> {
        let after = self.peek()?.strip_prefix(prefix)?;
        self.next();
        Some(after)
    }

    fn error(&self, problem: impl Into<String>) -> PatchError {
        PatchError {
            line: self.line,
            problem: problem.into(),
            path: None,
        }
    }

    fn path(&self, path: &[u8]) -> Result<RelativePath, PatchError> {
        RelativePath::new(path).map_err(|problem| PatchError {
            line: self.line,
            problem: "the mode is not a file's or link's".to_owned(),
            path: Some(problem),
        })
    }

    fn mode(&self, text: &[u8]) -> Result<FileMode, PatchError> {
        FileMode::read(text).ok_or_else(|| self.error("the mode is not a file's or link's"))
    }
}

/// Parses the path of `diff --git a/P b/P`; both must be equal.
fn heading(reader: &PatchReader<'_>, line: &[u8]) -> Result<RelativePath, PatchError> {
    let names = line
        .strip_prefix(b"diff --git ")
        .ok_or_else(|| reader.error("`diff --git` is missing"))?;
    let (one, other) = if names.starts_with(b"\"") {
        let (one, rest) = unquote(names).ok_or_else(|| reader.error("invalid names"))?;
        let rest = rest.strip_prefix(b" ").and_then(unquote);
        match rest {
            Some((other, b"")) => (one, other),
            _ => return Err(reader.error("invalid second name")),
        }
    } else {
        let half = names.len() / 2;
        let one = names.get(..half).unwrap_or_default();
        match names.get(half..).and_then(|rest| rest.strip_prefix(b" ")) {
            Some(other) if names.len() % 2 == 1 => (one.to_vec(), other.to_vec()),
            _ => return Err(reader.error("the names differ; renames are not supported")),
        }
    };
    // When git compares directories `a` and `b`, it uses the directory that has the file for both
    // names.
    let name = |text: &[u8]| {
        let name = text
            .strip_prefix(b"a/")
            .or_else(|| text.strip_prefix(b"b/"));
        name.map(<[u8]>::to_vec)
    };
    match (name(&one), name(&other)) {
        (Some(one), Some(other)) if one == other => reader.path(&one),
        (Some(_), Some(_)) => Err(reader.error("the names differ; renames are not supported")),
        _ => Err(reader.error("the names do not begin with `a/` and `b/`")),
    }
}

fn file(reader: &mut PatchReader<'_>, line: &[u8]) -> Result<FilePatch, PatchError> {
    let path = heading(reader, line)?;
    let (mut old, mut new) = (None, None);
    let (mut is_new, mut is_deleted) = (false, false);
    if let Some(mode) = reader.take(b"old mode ") {
        old = Some(reader.mode(mode)?);
        let mode = reader.take(b"new mode ");
        new = Some(reader.mode(mode.unwrap_or_default())?);
        let is_link = |mode| mode == Some(FileMode::Link);
        if old == new || is_link(old) || is_link(new) {
            return Err(reader.error("invalid mode change"));
        }
    } else if let Some(mode) = reader.take(b"new file mode ") {
        new = Some(reader.mode(mode)?);
        is_new = true;
    } else if let Some(mode) = reader.take(b"deleted file mode ") {
        old = Some(reader.mode(mode)?);
        is_deleted = true;
    }
    let mut ids = None;
    if let Some(line) = reader.take(b"index ") {
        let (both, mode) = index(reader, line)?;
        ids = Some(both);
        match mode {
            Some(_) if old.or(new).is_some() => {
                return Err(reader.error("duplicate mode"));
            }
            Some(mode) => (old, new) = (Some(mode), Some(mode)),
            None if old.or(new).is_none() => return Err(reader.error("the mode is missing")),
            None => {}
        }
        let (one, other) = both;
        let is_consistent = (one == BlobId::NONE) == is_new
            && (other == BlobId::NONE) == is_deleted
            && one != other;
        if !is_consistent {
            return Err(reader.error("the digests do not match the kind of change"));
        }
    } else if is_new || is_deleted || old.is_none() {
        return Err(reader.error("the digests are missing, or nothing changes"));
    }
    let empty = BlobId::of(b"");
    let body = match (reader.peek(), &ids) {
        (Some(b"GIT binary patch"), Some(_)) => {
            reader.next();
            binary(reader)?
        }
        (Some(line), Some(_)) if line.starts_with(b"--- ") => {
            text(reader, &path, is_new, is_deleted)?
        }
        (_, None) => Body::None,
        (_, Some((one, other))) if (is_new && *other == empty) || (is_deleted && *one == empty) => {
            Body::None
        }
        _ => return Err(reader.error("the change is missing")),
    };
    Ok(FilePatch {
        path,
        old,
        new,
        ids,
        body,
    })
}

/// Parses `ID..ID` and the mode, if it is unchanged.
fn index(
    reader: &PatchReader<'_>,
    line: &[u8],
) -> Result<((BlobId, BlobId), Option<FileMode>), PatchError> {
    let problem = || reader.error("the digests do not have 40 digits each");
    let (one, rest) = line.split_at_checked(40).ok_or_else(problem)?;
    let rest = rest.strip_prefix(b"..").ok_or_else(problem)?;
    let (other, rest) = rest.split_at_checked(40).ok_or_else(problem)?;
    let ids = BlobId::read(one)
        .zip(BlobId::read(other))
        .ok_or_else(problem)?;
    let mode = match rest.strip_prefix(b" ") {
        Some(mode) => Some(reader.mode(mode)?),
        None if rest.is_empty() => None,
        None => return Err(problem()),
    };
    Ok((ids, mode))
}

/// Parses the name after `--- ` or `+++ `; `None` for `/dev/null`.
fn side(reader: &mut PatchReader<'_>, prefix: &[u8]) -> Result<Option<Vec<u8>>, PatchError> {
    let name = reader
        .take(prefix)
        .ok_or_else(|| reader.error("a name is missing"))?;
    if name == b"/dev/null" {
        return Ok(None);
    }
    if name.starts_with(b"\"") {
        return match unquote(name) {
            Some((name, b"" | b"\t")) => Ok(Some(name)),
            _ => Err(reader.error("invalid name")),
        };
    }
    Ok(Some(name.strip_suffix(b"\t").unwrap_or(name).to_vec()))
}

fn text(
    reader: &mut PatchReader<'_>,
    path: &RelativePath,
    is_new: bool,
    is_deleted: bool,
) -> Result<Body, PatchError> {
    let expected =
        |prefix: &[u8], is_missing: bool| (!is_missing).then(|| [prefix, path.as_bytes()].concat());
    let old = side(reader, b"--- ")?;
    let new = side(reader, b"+++ ")?;
    if old != expected(b"a/", is_new) || new != expected(b"b/", is_deleted) {
        return Err(reader.error("the names do not match the heading"));
    }
    let mut hunks: Vec<Hunk> = Vec::new();
    // Number of lines of both texts covered by the hunks so far.
    let (mut old_at, mut new_at) = (0, 0);
    while reader.peek().is_some_and(|line| line.starts_with(b"@@ ")) {
        let hunk = hunk(reader)?;
        let skipped = hunk.old_start.checked_sub(old_at);
        if skipped.is_none() || skipped != hunk.new_start.checked_sub(new_at) {
            return Err(reader.error("the hunks overlap or are out of order"));
        }
        old_at = hunk.old_start + hunk.old_len();
        new_at = hunk.new_start + hunk.new_len();
        hunks.push(hunk);
    }
    if hunks.is_empty() {
        return Err(reader.error("the hunk changes no line"));
    }
    Ok(Body::Text(hunks))
}

/// Parses `START,COUNT` or `START`: the number of lines before, and the number of lines.
fn range(text: &[u8]) -> Option<(usize, usize)> {
    let number = |text: &[u8]| {
        let is_number = !text.is_empty() && text.len() <= 9 && text.iter().all(u8::is_ascii_digit);
        is_number
            .then(|| std::str::from_utf8(text).ok()?.parse().ok())
            .flatten()
    };
    let mut parts = text.splitn(2, |byte| *byte == b',');
    let start: usize = number(parts.next()?)?;
    let len = parts.next().map_or(Some(1), number)?;
    // An empty range names the line before it.
    let before = if len == 0 {
        start
    } else {
        start.checked_sub(1)?
    };
    Some((before, len))
}

fn hunk(reader: &mut PatchReader<'_>) -> Result<Hunk, PatchError> {
    let line = reader.take(b"@@ -").unwrap_or_default();
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let old = parts.next().and_then(range);
    let new = parts
        .next()
        .and_then(|part| range(part.strip_prefix(b"+")?));
    let (Some(old), Some(new), Some(b"@@")) = (old, new, parts.next()) else {
        return Err(reader.error("invalid hunk header"));
    };
    let mut hunk = Hunk {
        old_start: old.0,
        new_start: new.0,
        lines: Vec::new(),
    };
    let (mut old_left, mut new_left) = (old.1, new.1);
    while old_left > 0 || new_left > 0 {
        let line = reader.next_whole().unwrap_or_default();
        let (mark, text) = line.split_first().unwrap_or((&0, &[]));
        let kind = match mark {
            b' ' => LineKind::Context,
            b'-' => LineKind::Removed,
            b'+' => LineKind::Added,
            _ => return Err(reader.error("the hunk has fewer lines than declared")),
        };
        let of_old = usize::from(kind != LineKind::Added);
        let of_new = usize::from(kind != LineKind::Removed);
        let left = old_left
            .checked_sub(of_old)
            .zip(new_left.checked_sub(of_new));
        (old_left, new_left) =
            left.ok_or_else(|| reader.error("the hunk has more lines than declared"))?;
        let mut text = text.to_vec();
        if reader.take(b"\\ No newline at end of file").is_some() {
            text.pop();
        } else if !text.ends_with(b"\n") {
            return Err(reader.error("the patch ends in the middle of a line"));
        }
        hunk.lines.push((kind, text));
    }
    if hunk
        .lines
        .iter()
        .all(|(kind, _)| *kind == LineKind::Context)
    {
        return Err(reader.error("the hunk changes no line"));
    }
    Ok(hunk)
}

fn binary(reader: &mut PatchReader<'_>) -> Result<Body, PatchError> {
    let forward = binary_part(reader)?.ok_or_else(|| reader.error("the binary data is missing"))?;
    // The reverse part is optional.
    binary_part(reader)?;
    Ok(Body::Binary(forward))
}

fn binary_part(reader: &mut PatchReader<'_>) -> Result<Option<Binary>, PatchError> {
    let (is_delta, size) = if let Some(size) = reader.take(b"literal ") {
        (false, size)
    } else if let Some(size) = reader.take(b"delta ") {
        (true, size)
    } else {
        return Ok(None);
    };
    let size = std::str::from_utf8(size)
        .ok()
        .and_then(|size| size.parse().ok());
    let size = size
        .filter(|size| *size <= PATCH_FILE_BYTES_MAX)
        .ok_or_else(|| reader.error("the length is too large or not a number"))?;
    let mut deflated = Vec::new();
    loop {
        match reader.next() {
            None => return Err(reader.error("the empty line at the end is missing")),
            Some(b"") => break,
            Some(line) => deflated
                .extend(decode_line(line).ok_or_else(|| reader.error("invalid base 85 line"))?),
        }
    }
    let content = inflate(&deflated, size).ok_or_else(|| {
        reader.error("the data is damaged, or its length differs from the declared one")
    })?;
    Ok(Some(if is_delta {
        Binary::Delta(content)
    } else {
        Binary::Literal(content)
    }))
}
