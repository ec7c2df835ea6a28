//! Packages from git repositories: one commit, as an archive (`PKG-3`).
//!
//! Git runs without system or user configuration, hooks, submodules or prompts, in a temporary repository. It uses
//! HTTPS or reads a local repository; all other protocols are disabled.
//!
//! Neither `git checkout` nor `git archive` is used, because both apply the repository's attributes, which can change
//! encodings and line ends or insert text. The blobs are read as stored and packed into an archive, which the daemon
//! checks like any other.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use goondan_packages::GitSource;
use goondan_packages::limits::{
    ARCHIVE_BYTES_MAX, GIT_FETCH_BYTES_MAX, GIT_FETCH_TIMEOUT_MS, REGISTRY_STALL_TIMEOUT_MS,
};
use goondan_protocol::git;
use tempfile::{NamedTempFile, TempDir};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// Polling interval for a running git.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum length of git's output in messages, in characters.
const WORDS_MAX: usize = 400;

/// Top-level directory in the archive.
const PREFIX: &str = "package";

/// Maximum size of a commit's file list, in bytes.
const LISTING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Maximum size of other git output, in bytes.
const WORDS_BYTES_MAX: u64 = 64 * 1024;

/// First line of a Git LFS pointer file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Pointer files are shorter than this.
const LFS_POINTER_BYTES: u64 = 1024;

/// A commit of a repository, as an archive.
pub(super) struct CommitArchive {
    pub(super) archive: NamedTempFile,
    pub(super) commit: String,
}

/// Fetches a source. Blocking.
pub(super) fn check_out(source: &GitSource) -> Result<CommitArchive, Failure> {
    let scheme = source.url.split_once("://").map(|(scheme, _)| scheme);
    let Some(scheme @ ("https" | "file")) = scheme else {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} does not use a safe protocol", source.url),
            "use `git+https://…`",
        ));
    };
    let repository = tempfile::tempdir()?;
    let git = Git {
        repository: &repository,
        scheme,
        shown: &source.url,
    };
    git.run(&["init", "--quiet", "--bare", "--template=", "."])?;
    let revision = source.revision.as_deref().unwrap_or("HEAD");
    git.run(&[
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-commit-graph",
        "--",
        &source.url,
        revision,
    ])?;
    let commit = git.run(&["rev-parse", "--verify", "FETCH_HEAD^{commit}"])?;
    let commit = commit.trim().to_owned();
    if is_commit(revision) && commit != revision {
        return Err(Failure::new(
            Exit::Conflict,
            format!(
                "{} returned commit {commit}; expected {revision}",
                source.url
            ),
            "nothing was changed: check the repository's address",
        ));
    }
    let tree = match &source.folder {
        Some(folder) => format!("{commit}:{folder}"),
        None => format!("{commit}^{{tree}}"),
    };
    let archive = git.archive(&tree)?;
    if archive.as_file().metadata()?.len() > ARCHIVE_BYTES_MAX {
        return Err(too_large(&source.url));
    }
    Ok(CommitArchive { archive, commit })
}

/// True if a revision is a full commit id, which cannot change.
pub(super) fn is_commit(revision: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(revision.len(), 40 | 64) && revision.bytes().all(is_digit)
}

fn too_large(url: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("the contents of {url} exceed the limits of a package"),
        "select a folder of the repository: `git+https://HOST/PATH#REVISION:FOLDER`",
    )
}

/// Failure for content that a package cannot have.
fn refused(url: &str, path: &[u8], what: &str) -> Failure {
    let path = text::one_line(&String::from_utf8_lossy(path));
    Failure::new(
        Exit::Conflict,
        format!("`{path}` of {url} is {what}, which packages cannot contain"),
        "nothing was changed: require a folder without it, or an archive with the files themselves",
    )
}

/// A file or link of a commit.
#[derive(Debug, PartialEq, Eq)]
struct Blob<'l> {
    /// Git mode: `100644`, `100755` or `120000`.
    mode: &'l [u8],
    object: &'l [u8],
    bytes: u64,
    path: &'l [u8],
}

#[derive(Debug, PartialEq, Eq)]
enum FileListError<'l> {
    /// The path is a submodule.
    Submodule(&'l [u8]),
    /// Not in git's output format.
    Unreadable,
}

/// Parses the output of `git ls-tree -r -z -l`: `MODE TYPE OBJECT BYTES TAB PATH NUL`.
fn listed(listing: &[u8]) -> Result<Vec<Blob<'_>>, FileListError<'_>> {
    let entries = listing.split(|byte| *byte == 0);
    let entries = entries.filter(|entry| !entry.is_empty());
    entries.map(blob_of).collect()
}

fn blob_of(entry: &[u8]) -> Result<Blob<'_>, FileListError<'_>> {
    let mut halves = entry.splitn(2, |byte| *byte == b'\t');
    let (Some(head), Some(path)) = (halves.next(), halves.next()) else {
        return Err(FileListError::Unreadable);
    };
    let mut words = head.split(u8::is_ascii_whitespace);
    let mut word = || words.find(|word| !word.is_empty());
    let (Some(mode), Some(kind), Some(object), Some(bytes)) = (word(), word(), word(), word())
    else {
        return Err(FileListError::Unreadable);
    };
    if kind == b"commit" {
        return Err(FileListError::Submodule(path));
    }
    let bytes = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok());
    match (kind, bytes) {
        (b"blob", Some(bytes)) => Ok(Blob {
            mode,
            object,
            bytes,
            path,
        }),
        _ => Err(FileListError::Unreadable),
    }
}

struct Git<'g> {
    repository: &'g TempDir,
    /// The only allowed protocol.
    scheme: &'g str,
    shown: &'g str,
}

impl Git<'_> {
    /// Builds an archive of a tree from the blobs as stored.
    fn archive(&self, tree: &str) -> Result<NamedTempFile, Failure> {
        let listing = self.output(&["ls-tree", "-r", "-z", "-l", tree], None)?;
        if listing.metadata()?.len() > LISTING_BYTES_MAX {
            return Err(too_large(self.shown));
        }
        let listing = bytes_in(listing, LISTING_BYTES_MAX)?;
        let blobs = listed(&listing).map_err(|problem| match problem {
            FileListError::Submodule(path) => refused(self.shown, path, "a submodule"),
            FileListError::Unreadable => self.unreadable(),
        })?;
        if blobs
            .iter()
            .map(|blob| blob.bytes)
            .fold(0, u64::saturating_add)
            > ARCHIVE_BYTES_MAX
        {
            return Err(too_large(self.shown));
        }
        let mut objects = tempfile::tempfile()?;
        for blob in &blobs {
            objects.write_all(blob.object)?;
            objects.write_all(b"\n")?;
        }
        objects.rewind()?;
        let mut contents = self.output(&["cat-file", "--batch"], Some(objects))?;
        contents.rewind()?;
        let mut contents = BufReader::new(contents);
        let archive = NamedTempFile::new()?;
        let mut tar = tar::Builder::new(BufWriter::new(archive.as_file()));
        for blob in &blobs {
            self.add(&mut tar, blob, &mut contents)?;
        }
        tar.into_inner()?.flush()?;
        Ok(archive)
    }

    /// Adds a file or link whose content is read next.
    fn add(
        &self,
        tar: &mut tar::Builder<impl Write>,
        blob: &Blob<'_>,
        contents: &mut impl BufRead,
    ) -> Result<(), Failure> {
        let mut head = Vec::new();
        contents.read_until(b'\n', &mut head)?;
        let expected = [
            blob.object,
            b" blob ",
            blob.bytes.to_string().as_bytes(),
            b"\n",
        ]
        .concat();
        if head != expected {
            return Err(self.unreadable());
        }
        let path = Path::new(PREFIX).join(OsStr::from_bytes(blob.path));
        let mut header = tar::Header::new_gnu();
        header.set_size(blob.bytes);
        header.set_mode(if blob.mode == b"100755" { 0o755 } else { 0o644 });
        let is_link = blob.mode == b"120000";
        if is_link || blob.bytes < LFS_POINTER_BYTES {
            let mut content = Vec::new();
            contents.take(blob.bytes).read_to_end(&mut content)?;
            if is_link {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, path, OsStr::from_bytes(&content))?;
            } else if content.starts_with(LFS_POINTER) {
                let what = "a Git LFS pointer";
                return Err(refused(self.shown, blob.path, what));
            } else {
                tar.append_data(&mut header, path, content.as_slice())?;
            }
        } else {
            tar.append_data(&mut header, path, contents.take(blob.bytes))?;
        }
        // Each blob is followed by a line feed.
        let mut end = [0];
        contents.read_exact(&mut end)?;
        Ok(())
    }

    fn unreadable(&self) -> Failure {
        Failure::new(
            Exit::Conflict,
            format!("cannot parse git's output about {}", self.shown),
            "nothing was changed: check that git is recent: `git --version`",
        )
    }

    /// Runs git and returns its output as text.
    fn run(&self, args: &[&str]) -> Result<String, Failure> {
        let said = bytes_in(self.output(args, None)?, WORDS_BYTES_MAX)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs git with the given input and returns its output.
    fn output(&self, args: &[&str], input: Option<fs::File>) -> Result<fs::File, Failure> {
        let dir = self.repository.path();
        let path = std::env::var_os("PATH").map(|path| ("PATH", path));
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let stall_seconds = REGISTRY_STALL_TIMEOUT_MS / 1_000;
        let mut command = Command::new("git");
        command
            .args(git::ARGUMENTS)
            .args(["-c", "http.lowSpeedLimit=1"])
            .args(["-c", &format!("http.lowSpeedTime={stall_seconds}")])
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(path)
            .envs(git::network_environment(|name| std::env::var_os(name)))
            .env("GIT_DIR", dir)
            .env("HOME", dir)
            .envs(git::ENVIRONMENT)
            .env("GIT_ALLOW_PROTOCOL", self.scheme)
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::NotFound,
                "git, which fetches packages from repositories, was not found",
                "install git, or require an archive or a range of versions",
            ),
            _ => error.into(),
        })?;
        let is_done = self.wait(child)?;
        if is_done {
            Ok(stdout)
        } else {
            let said = bytes_in(stderr, WORDS_BYTES_MAX)?;
            let said = String::from_utf8_lossy(&said);
            let said = text::fit(&text::one_line(said.trim()), WORDS_MAX);
            Err(Failure::new(
                Exit::Conflict,
                format!("git cannot fetch from {}: {said}", self.shown),
                git::network_advice(&said).unwrap_or(
                    "check the address and the revision: a branch, a tag, or a full commit id; the repository must be readable without a login",
                ),
            ))
        }
    }

    /// Waits for git within its limits. True if it succeeded.
    fn wait(&self, mut git: Child) -> Result<bool, Failure> {
        let until = Instant::now() + Duration::from_millis(GIT_FETCH_TIMEOUT_MS);
        loop {
            if let Some(status) = git.try_wait()? {
                return Ok(status.success());
            }
            let is_large = bytes_of(self.repository.path()) > GIT_FETCH_BYTES_MAX;
            if is_large || Instant::now() > until {
                git.kill()?;
                git.wait()?;
                return Err(if is_large {
                    too_large(self.shown)
                } else {
                    Failure::new(
                        Exit::TryAgain,
                        format!("{} took longer than {GIT_FETCH_TIMEOUT_MS} ms", self.shown),
                        "nothing was changed: try again later",
                    )
                });
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Reads a file from its beginning, up to a limit.
fn bytes_in(mut file: fs::File, most: u64) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Total size of the files below a directory. Files may change while git runs.
fn bytes_of(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let entries = entries.flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() {
            bytes_of(&entry.path())
        } else {
            metadata.len()
        })
    });
    entries.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_git_tree_listing_is_parsed_with_any_file_names() {
        let listing = b"100644 blob 0a      12\tsrc/a b\x00120000 blob 0b 3\tl\ti\nk\0";
        let blob = |mode, object, bytes, path| Blob {
            mode,
            object,
            bytes,
            path,
        };
        let expected = vec![
            blob(&b"100644"[..], &b"0a"[..], 12, &b"src/a b"[..]),
            blob(&b"120000"[..], &b"0b"[..], 3, &b"l\ti\nk"[..]),
        ];
        assert_eq!(listed(listing), Ok(expected));
        let submodule = b"160000 commit 0c       -\tinner\0";
        assert_eq!(listed(submodule), Err(FileListError::Submodule(b"inner")));
        for other in [
            &b"nothing"[..],
            b"100644 blob 0a\tx\0",
            b"100644 blob 0a -\tx\0",
        ] {
            assert_eq!(listed(other), Err(FileListError::Unreadable));
        }
    }

    #[test]
    fn pkg_3_only_all_digits_of_a_commit_are_one() {
        assert!(is_commit(&"0a".repeat(20)) && is_commit(&"f0".repeat(32)));
        for other in ["main", "0a0a0a", &"0A".repeat(20), &"0g".repeat(20)] {
            assert!(!is_commit(other), "{other}");
        }
    }
}
