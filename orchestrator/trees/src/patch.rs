//! Reading patches in git's format, with suspicion (`PROP-2`, `PROP-4`).
//!
//! What is read is what [`diff`](crate::diff) writes, and what `git diff --binary --full-index --no-renames`
//! does: nothing is guessed, skipped or found nearby. A patch is refused as a whole.

use std::fmt;

use sha1::{Digest as _, Sha1};

use crate::binary::{decode_line, inflate};
use crate::compare::{Hunk, LineKind};
use crate::limits::{PATCH_BYTES_MAX, PATCH_FILE_BYTES_MAX, TREE_ENTRIES_MAX};
use crate::path::{PathProblem, RelativePath};
use crate::quote::unquote;

/// A patch is not taken. It changes nothing; make it anew from the two trees.
#[derive(Debug, thiserror::Error)]
#[error("the patch is refused at line {line}: {problem}")]
pub struct PatchError {
    line: usize,
    problem: String,
    #[source]
    path: Option<PathProblem>,
}

/// What git knows of a file's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// A file.
    Regular,
    /// A file that can be executed.
    Executable,
    /// A symbolic link; its content is where it points.
    Link,
}

impl FileMode {
    /// As git writes it.
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

/// The name git has for a content: its SHA-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobId([u8; 20]);

impl BlobId {
    /// What git writes where there is no content.
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

/// A binary part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binary {
    /// The content itself.
    Literal(Vec<u8>),
    /// What to do with the other content.
    Delta(Vec<u8>),
}

/// What a patch does to a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// Nothing; or the file is empty.
    None,
    /// Lines.
    Text(Vec<Hunk>),
    /// Bytes; the way back is checked when it is read, and not used.
    Binary(Binary),
}

/// What a patch does to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    pub(crate) path: RelativePath,
    /// The mode before; none if there is no file.
    pub(crate) old: Option<FileMode>,
    /// The mode after; none if there is no file then.
    pub(crate) new: Option<FileMode>,
    /// The contents before and after. Without them the content stays as it is, and so does the mode unless
    /// the patch names it.
    pub(crate) ids: Option<(BlobId, BlobId)>,
    pub(crate) body: Body,
}

impl FilePatch {
    /// Which path it is about.
    #[must_use]
    pub fn path(&self) -> &RelativePath {
        &self.path
    }
}

/// A patch that has been read. What it says of contents is not believed before it is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub(crate) files: Vec<FilePatch>,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    ///
    /// [`PatchError`] with the line that is not as it must be.
    pub fn parse(text: &[u8]) -> Result<Self, PatchError> {
        let mut reader = Reader {
            rest: text,
            line: 0,
        };
        if text.len() > PATCH_BYTES_MAX {
            return Err(reader.error("it is too large"));
        }
        let mut files = Vec::new();
        while let Some(line) = reader.next() {
            if files.len() >= TREE_ENTRIES_MAX {
                return Err(reader.error("it touches too many files"));
            }
            files.push(file(&mut reader, line)?);
        }
        Ok(Self { files })
    }

    /// What it does, in its order.
    #[must_use]
    pub fn files(&self) -> &[FilePatch] {
        &self.files
    }
}

struct Reader<'t> {
    rest: &'t [u8],
    line: usize,
}

impl<'t> Reader<'t> {
    /// The next line with its newline.
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

    /// What follows `prefix`, if the next line begins with it.
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
            problem: "it names what no tree holds".to_owned(),
            path: Some(problem),
        })
    }

    fn mode(&self, text: &[u8]) -> Result<FileMode, PatchError> {
        FileMode::read(text).ok_or_else(|| self.error("that mode is none of a file or link"))
    }
}

/// The path of `diff --git a/P b/P`; both must be the same.
fn heading(reader: &Reader<'_>, line: &[u8]) -> Result<RelativePath, PatchError> {
    let names = line
        .strip_prefix(b"diff --git ")
        .ok_or_else(|| reader.error("`diff --git` is missing"))?;
    let (one, other) = if names.starts_with(b"\"") {
        let (one, rest) = unquote(names).ok_or_else(|| reader.error("its names cannot be read"))?;
        let rest = rest.strip_prefix(b" ").and_then(unquote);
        match rest {
            Some((other, b"")) => (one, other),
            _ => return Err(reader.error("its second name cannot be read")),
        }
    } else {
        let half = names.len() / 2;
        let one = names.get(..half).unwrap_or_default();
        match names.get(half..).and_then(|rest| rest.strip_prefix(b" ")) {
            Some(other) if names.len() % 2 == 1 => (one.to_vec(), other.to_vec()),
            _ => return Err(reader.error("its names differ; a patch that renames is not taken")),
        }
    };
    // Comparing the directories `a` and `b`, git puts the one that has a file before both names.
    let name = |text: &[u8]| {
        let name = text
            .strip_prefix(b"a/")
            .or_else(|| text.strip_prefix(b"b/"));
        name.map(<[u8]>::to_vec)
    };
    match (name(&one), name(&other)) {
        (Some(one), Some(other)) if one == other => reader.path(&one),
        (Some(_), Some(_)) => {
            Err(reader.error("its names differ; a patch that renames is not taken"))
        }
        _ => Err(reader.error("its names do not begin with `a/` and `b/`")),
    }
}

fn file(reader: &mut Reader<'_>, line: &[u8]) -> Result<FilePatch, PatchError> {
    let path = heading(reader, line)?;
    let (mut old, mut new) = (None, None);
    let (mut is_new, mut is_deleted) = (false, false);
    if let Some(mode) = reader.take(b"old mode ") {
        old = Some(reader.mode(mode)?);
        let mode = reader.take(b"new mode ");
        new = Some(reader.mode(mode.unwrap_or_default())?);
        let is_link = |mode| mode == Some(FileMode::Link);
        if old == new || is_link(old) || is_link(new) {
            return Err(reader.error("that mode cannot become this one"));
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
                return Err(reader.error("it tells a mode twice"));
            }
            Some(mode) => (old, new) = (Some(mode), Some(mode)),
            None if old.or(new).is_none() => return Err(reader.error("it tells no mode")),
            None => {}
        }
        let (one, other) = both;
        let is_consistent = (one == BlobId::NONE) == is_new
            && (other == BlobId::NONE) == is_deleted
            && one != other;
        if !is_consistent {
            return Err(reader.error("its digests cannot be those of such a change"));
        }
    } else if is_new || is_deleted || old.is_none() {
        return Err(reader.error("the digests of the contents are missing, or it changes nothing"));
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
        _ => return Err(reader.error("what changes is missing")),
    };
    Ok(FilePatch {
        path,
        old,
        new,
        ids,
        body,
    })
}

/// `ID..ID` and, if it stays the same, the mode.
fn index(
    reader: &Reader<'_>,
    line: &[u8],
) -> Result<((BlobId, BlobId), Option<FileMode>), PatchError> {
    let problem = || reader.error("its digests are not written in full, as 40 digits each");
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

/// The name after `--- ` or `+++ `; none for `/dev/null`.
fn side(reader: &mut Reader<'_>, prefix: &[u8]) -> Result<Option<Vec<u8>>, PatchError> {
    let name = reader
        .take(prefix)
        .ok_or_else(|| reader.error("a name is missing"))?;
    if name == b"/dev/null" {
        return Ok(None);
    }
    if name.starts_with(b"\"") {
        return match unquote(name) {
            Some((name, b"" | b"\t")) => Ok(Some(name)),
            _ => Err(reader.error("a name cannot be read")),
        };
    }
    Ok(Some(name.strip_suffix(b"\t").unwrap_or(name).to_vec()))
}

fn text(
    reader: &mut Reader<'_>,
    path: &RelativePath,
    is_new: bool,
    is_deleted: bool,
) -> Result<Body, PatchError> {
    let expected =
        |prefix: &[u8], is_missing: bool| (!is_missing).then(|| [prefix, path.as_bytes()].concat());
    let old = side(reader, b"--- ")?;
    let new = side(reader, b"+++ ")?;
    if old != expected(b"a/", is_new) || new != expected(b"b/", is_deleted) {
        return Err(reader.error("its names are not those of its heading"));
    }
    let mut hunks: Vec<Hunk> = Vec::new();
    // Lines of both texts that the hunks so far have gone over.
    let (mut old_at, mut new_at) = (0, 0);
    while reader.peek().is_some_and(|line| line.starts_with(b"@@ ")) {
        let hunk = hunk(reader)?;
        let skipped = hunk.old_start.checked_sub(old_at);
        if skipped.is_none() || skipped != hunk.new_start.checked_sub(new_at) {
            return Err(reader.error("its places do not fit each other"));
        }
        old_at = hunk.old_start + hunk.old_len();
        new_at = hunk.new_start + hunk.new_len();
        hunks.push(hunk);
    }
    if hunks.is_empty() {
        return Err(reader.error("it changes no line"));
    }
    Ok(Body::Text(hunks))
}

/// `START,COUNT` or `START`: how many lines are before it, and how many it has.
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

fn hunk(reader: &mut Reader<'_>) -> Result<Hunk, PatchError> {
    let line = reader.take(b"@@ -").unwrap_or_default();
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let old = parts.next().and_then(range);
    let new = parts
        .next()
        .and_then(|part| range(part.strip_prefix(b"+")?));
    let (Some(old), Some(new), Some(b"@@")) = (old, new, parts.next()) else {
        return Err(reader.error("its places cannot be read"));
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
            _ => return Err(reader.error("it has fewer lines than it says")),
        };
        let of_old = usize::from(kind != LineKind::Added);
        let of_new = usize::from(kind != LineKind::Removed);
        let left = old_left
            .checked_sub(of_old)
            .zip(new_left.checked_sub(of_new));
        (old_left, new_left) =
            left.ok_or_else(|| reader.error("it has more lines than it says"))?;
        let mut text = text.to_vec();
        if reader.take(b"\\ No newline at end of file").is_some() {
            text.pop();
        } else if !text.ends_with(b"\n") {
            return Err(reader.error("it ends in the middle of a line"));
        }
        hunk.lines.push((kind, text));
    }
    if hunk
        .lines
        .iter()
        .all(|(kind, _)| *kind == LineKind::Context)
    {
        return Err(reader.error("it changes no line"));
    }
    Ok(hunk)
}

fn binary(reader: &mut Reader<'_>) -> Result<Body, PatchError> {
    let forward = binary_part(reader)?
        .ok_or_else(|| reader.error("the bytes of a binary file are missing"))?;
    // The way back need not be there.
    binary_part(reader)?;
    Ok(Body::Binary(forward))
}

fn binary_part(reader: &mut Reader<'_>) -> Result<Option<Binary>, PatchError> {
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
        .ok_or_else(|| reader.error("it is too large, or its length is no number"))?;
    let mut deflated = Vec::new();
    loop {
        match reader.next() {
            None => return Err(reader.error("the empty line at its end is missing")),
            Some(b"") => break,
            Some(line) => deflated
                .extend(decode_line(line).ok_or_else(|| reader.error("it is no line of base 85"))?),
        }
    }
    let content = inflate(&deflated, size)
        .ok_or_else(|| reader.error("its bytes are damaged, or more or fewer than it says"))?;
    Ok(Some(if is_delta {
        Binary::Delta(content)
    } else {
        Binary::Literal(content)
    }))
}
