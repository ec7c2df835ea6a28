//! Packages of git repositories: one commit, as an archive (`PKG-3`).
//!
//! Git is run with no settings of the machine or the user, no hooks, no submodules and no questions, in a repository of
//! its own that is gone afterwards. It speaks HTTPS, or reads a repository of this machine, and nothing else. What comes
//! out is an archive like any other, and is checked by the daemon like any other.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use goondan_packages::GitSource;
use goondan_packages::limits::{
    ARCHIVE_BYTES_MAX, GIT_FETCH_BYTES_MAX, GIT_FETCH_TIMEOUT_MS, REGISTRY_STALL_TIMEOUT_MS,
};
use tempfile::{NamedTempFile, TempDir};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// How often a running git is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest words of git that are shown, in characters.
const WORDS_MAX: usize = 400;

/// Variables that git gets of the environment, which say how the network is reached, and nothing else of it.
const PASSED_ON: [&str; 7] = [
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Attributes that would let files of a repository change what its archive holds.
const ATTRIBUTES: &str = "* -export-ignore -export-subst\n";

/// The name of the one directory in the archive.
const PREFIX: &str = "package/";

/// A commit of a repository, as an archive.
pub(super) struct CheckedOut {
    pub(super) archive: NamedTempFile,
    /// The commit, in hexadecimal digits.
    pub(super) commit: String,
}

/// Fetches what a source names. Blocks.
pub(super) fn check_out(source: &GitSource) -> Result<CheckedOut, Failure> {
    let scheme = source.url.split_once("://").map(|(scheme, _)| scheme);
    let Some(scheme @ ("https" | "file")) = scheme else {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} is fetched by no way that is safe", source.url),
            "name the repository by `git+https://…`",
        ));
    };
    let repository = tempfile::tempdir()?;
    let git = Git {
        repository: &repository,
        scheme,
        shown: &source.url,
    };
    git.run(&["init", "--quiet", "--bare", "--template=", "."])?;
    fs::create_dir_all(repository.path().join("info"))?;
    write(&repository.path().join("info/attributes"), ATTRIBUTES)?;
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
                "{} gave the commit {commit}, and {revision} is wanted",
                source.url
            ),
            "nothing was changed: check the repository's address",
        ));
    }
    let archive = NamedTempFile::new()?;
    let tree = match &source.folder {
        Some(folder) => format!("{commit}:{folder}"),
        // Not the commit itself, of which the archive would tell.
        None => format!("{commit}^{{tree}}"),
    };
    let path = archive.path().to_string_lossy().into_owned();
    git.run(&[
        "archive",
        "--format=tar",
        &format!("--prefix={PREFIX}"),
        &format!("--output={path}"),
        &tree,
    ])?;
    if archive.as_file().metadata()?.len() > ARCHIVE_BYTES_MAX {
        return Err(too_large(&source.url));
    }
    Ok(CheckedOut { archive, commit })
}

/// Whether a revision is a whole commit, which nobody can move.
pub(super) fn is_commit(revision: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(revision.len(), 40 | 64) && revision.bytes().all(is_digit)
}

fn too_large(url: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("what {url} holds is more than a package may have"),
        "name a folder of the repository: `git+https://HOST/PATH#REVISION:FOLDER`",
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "a repository of its own, which is gone afterwards"
)]
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)
}

/// Git in one repository.
struct Git<'g> {
    repository: &'g TempDir,
    /// The one protocol that is spoken.
    scheme: &'g str,
    /// The address, for people.
    shown: &'g str,
}

impl Git<'_> {
    /// What git prints.
    fn run(&self, args: &[&str]) -> Result<String, Failure> {
        let dir = self.repository.path();
        let passed_on = PASSED_ON
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let stall_seconds = REGISTRY_STALL_TIMEOUT_MS / 1_000;
        let mut command = Command::new("git");
        command
            .args([
                "-c",
                "core.hooksPath=/dev/null",
                "-c",
                "core.fsmonitor=false",
            ])
            .args(["-c", "credential.helper=", "-c", "gc.auto=0"])
            .args(["-c", "maintenance.auto=false", "-c", "http.lowSpeedLimit=1"])
            .args(["-c", &format!("http.lowSpeedTime={stall_seconds}")])
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(passed_on)
            .env("GIT_DIR", dir)
            .env("HOME", dir)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "/bin/false")
            .env("GIT_ALLOW_PROTOCOL", self.scheme)
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::NotFound,
                "there is no git on this machine, by which packages of repositories are fetched",
                "install git, or require an archive or a range of versions",
            ),
            _ => error.into(),
        })?;
        let is_done = self.wait(child)?;
        let (stdout, stderr) = (read(stdout)?, read(stderr)?);
        if is_done {
            Ok(stdout)
        } else {
            let said = text::fit(&text::one_line(stderr.trim()), WORDS_MAX);
            Err(Failure::new(
                Exit::Conflict,
                format!("git cannot fetch from {}: {said}", self.shown),
                "check the address and the revision: a branch, a tag, or all digits of a commit; and that it can be read \
                 without a login",
            ))
        }
    }

    /// Waits for git, within what it may take. Whether it did what it was to do.
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

fn read(mut file: fs::File) -> io::Result<String> {
    use std::io::{Read as _, Seek as _};
    file.rewind()?;
    let mut said = Vec::new();
    file.take(64 * 1024).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Bytes of all files below a directory, as far as they can be seen while git works there.
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
    fn pkg_3_only_all_digits_of_a_commit_are_one() {
        assert!(is_commit(&"0a".repeat(20)) && is_commit(&"f0".repeat(32)));
        for other in ["main", "0a0a0a", &"0A".repeat(20), &"0g".repeat(20)] {
            assert!(!is_commit(other), "{other}");
        }
    }
}
