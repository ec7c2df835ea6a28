//! Checks patches with git, where it is installed (`PROP-2`, `PROP-7`).
//!
//! Git runs outside of any repository: `GIT_CEILING_DIRECTORIES` ends its search for one. It reads
//! the baseline and the patch, and writes nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use goondan_proposals::{PatchCheck, PatchVerifier};
use goondan_protocol::control::GitCheck;
use goondan_protocol::git;
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use tokio::process::Command;
use tokio::runtime::Handle;

use crate::limits::{GIT_TIMEOUT_MS, GIT_TIMEOUT_MS_PER_MIB};

/// Maximum size of git's error output in an error, in bytes.
const TOLD_BYTES: usize = 2_000;

/// The installed git. To be used on a thread of the runtime that may block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Git;

impl PatchVerifier for Git {
    fn verify(&self, check: &PatchCheck<'_>) -> Result<GitCheck, String> {
        let told = match run(check, &["--check"]) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(GitCheck::NotInstalled);
            }
            other => other.map_err(|error| format!("failed to run git: {error}"))?,
        };
        if !told.status.success() {
            return Err(format!("git rejects the patch: {}", words(&told)));
        }
        let told = run(check, &["--numstat", "-z"]);
        let told = told.map_err(|error| format!("failed to run git: {error}"))?;
        if !told.status.success() {
            return Err(format!("git cannot read the patch: {}", words(&told)));
        }
        let changed = changed_in(&told.stdout);
        if changed != *check.changed {
            let one = changed.symmetric_difference(check.changed).next();
            let one = String::from_utf8_lossy(one.map_or(&[], Vec::as_slice)).into_owned();
            return Err(format!(
                "git lists other files in the patch than goondan, first `{one}`"
            ));
        }
        Ok(GitCheck::Agreed)
    }
}

/// The paths in `added TAB deleted TAB path NUL …`.
fn changed_in(numstat: &[u8]) -> BTreeSet<Vec<u8>> {
    let records = numstat.split(|byte| *byte == 0);
    let paths = records.filter_map(|record| record.splitn(3, |byte| *byte == b'\t').nth(2));
    paths.map(<[u8]>::to_vec).collect()
}

/// Timeout of git's check of a patch of this size, in milliseconds.
fn timeout_ms(patch_bytes: u64) -> u64 {
    let mebibytes = patch_bytes >> 20;
    GIT_TIMEOUT_MS.saturating_add(mebibytes.saturating_mul(GIT_TIMEOUT_MS_PER_MIB))
}

fn run(check: &PatchCheck<'_>, options: &[&str]) -> io::Result<Output> {
    let patch_bytes = std::fs::metadata(&check.patch)?.len();
    let limit = Duration::from_millis(timeout_ms(patch_bytes));
    let mut command = command_in(&check.input);
    command
        .args(["apply", "--whitespace=nowarn"])
        .args(options)
        .arg(&check.patch);
    Handle::current().block_on(async {
        let output = command.output();
        let timed = tokio::time::timeout(limit, output).await;
        timed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    })
}

/// Git in a directory, which reads no settings but those of that directory's own repository.
pub(super) fn command_in(directory: &Path) -> Command {
    let above = directory
        .parent()
        .map_or(OsStr::new("/"), |above| above.as_os_str());
    let mut command = Command::new("git");
    command
        .args(git::ARGUMENTS)
        .arg("-C")
        .arg(directory)
        .current_dir(working_directory(ProcessPurpose::Own))
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs(git::ENVIRONMENT)
        .env("GIT_CEILING_DIRECTORIES", above)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Error output of git, as one line.
pub(super) fn words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().replace('\n', "; ");
    if said.is_empty() {
        return output.status.to_string();
    }
    said.chars().take(TOLD_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_has_more_time_for_a_larger_patch() {
        assert_eq!(timeout_ms(0), GIT_TIMEOUT_MS);
        assert_eq!(timeout_ms(1 << 20), GIT_TIMEOUT_MS + GIT_TIMEOUT_MS_PER_MIB);
        assert_eq!(timeout_ms(u64::MAX), timeout_ms(u64::MAX - 1));
    }

    #[test]
    fn numstat_paths_are_parsed_with_any_characters() {
        let text = b"1\t0\tsrc/a.rs\x00-\t-\ta\tb\nc\x000\t0\tx\x00";
        let expected = [&b"src/a.rs"[..], b"a\tb\nc", b"x"].map(<[u8]>::to_vec);
        assert_eq!(changed_in(text), BTreeSet::from(expected));
        assert!(changed_in(b"").is_empty());
    }
}
