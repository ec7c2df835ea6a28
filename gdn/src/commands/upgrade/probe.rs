//! Queries the programs of a version: their version numbers, the formats they read, and the state of a daemon
//! (`REL-1`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_protocol::control::ProcessState;
use goondan_protocol::state_format::{STATE_FORMAT, STATE_FORMAT_READABLE_FROM};
use goondan_protocol::version::GOONDAN_VERSION;
use serde::{Deserialize, Serialize};

use super::limits::PROGRAM_ANSWER_TIMEOUT_MS;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::programs::{FURTHER_PROGRAMS, PROGRAMS};

/// Maximum size of a program's output, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Maximum length of a program's error output in messages, in characters.
const COMPLAINT_CHARS_MAX: usize = 400;

/// Polling interval for the end of a program, in milliseconds.
const POLL_MS: u64 = 5;

/// Failure to get a response from a version's program.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("cannot run {}", program.display())]
    Run {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} did not respond within {} s", program.display(), PROGRAM_ANSWER_TIMEOUT_MS / 1000)]
    Silent { program: PathBuf },
    #[error("{} {complaint}", program.display())]
    Wrong { program: PathBuf, complaint: String },
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let hint = "nothing was changed; get a complete, unmodified version for this machine";
        Self::of(Exit::Damaged, &error, hint)
    }
}

/// Exit code and output of a program.
struct ProbeOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl ProbeOutput {
    fn wrong(&self, program: &Path) -> AskError {
        let said = text::one_line(self.stderr.trim());
        let said: String = said.chars().take(COMPLAINT_CHARS_MAX).collect();
        let code = self
            .code
            .map_or("a signal".to_owned(), |code| format!("{code}"));
        AskError::Wrong {
            program: program.to_owned(),
            complaint: format!("ended with {code}: {said}"),
        }
    }
}

fn ask(program: &Path, args: &[&str]) -> Result<ProbeOutput, AskError> {
    let failed = |source| AskError::Run {
        program: program.to_owned(),
        source,
    };
    // Files, unlike pipes, never block the writer.
    let mut stdout = tempfile::tempfile().map_err(failed)?;
    let mut stderr = tempfile::tempfile().map_err(failed)?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().map_err(failed)?)
        .stderr(stderr.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let deadline = Instant::now() + Duration::from_millis(PROGRAM_ANSWER_TIMEOUT_MS);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() >= deadline {
            // Kill fails if the program has just exited.
            drop(child.kill());
            drop(child.wait());
            return Err(AskError::Silent {
                program: program.to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(POLL_MS));
    };
    Ok(ProbeOutput {
        code: status.code(),
        stdout: text_in(&mut stdout).map_err(failed)?,
        stderr: text_in(&mut stderr).map_err(failed)?,
    })
}

fn text_in(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Version number that all programs in a directory report.
pub(super) fn number_of(dir: &Path) -> Result<String, AskError> {
    let mut number: Option<String> = None;
    let further = FURTHER_PROGRAMS.into_iter();
    let further = further.filter(|program| dir.join(program).is_file());
    for program in PROGRAMS.into_iter().chain(further) {
        let path = dir.join(program);
        let answer = ask(&path, &["--version"])?;
        let wrong = |complaint: String| AskError::Wrong {
            program: path.clone(),
            complaint,
        };
        let mut words = answer.stdout.split_whitespace();
        let (name, said) = (words.next(), words.next());
        let said = said.filter(|_| answer.code == Some(0) && name == Some(program));
        let said = said.ok_or_else(|| wrong("does not report its version".to_owned()))?;
        match &number {
            Some(number) if number != said => {
                let complaint = format!("has version {said}, but gdn beside it has {number}");
                return Err(wrong(complaint));
            }
            _ => number = Some(said.to_owned()),
        }
    }
    Ok(number.unwrap_or_default())
}

/// Output of `gdn daemon upgrade --check`: the version, and its support for the state directory's format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reads {
    pub(super) version: String,
    /// State format that the version writes.
    pub(super) wrote: u32,
    /// Oldest format version whose programs can read that format.
    pub(super) readable_from: u32,
}

impl Reads {
    /// Format of this program.
    pub(super) fn this() -> Self {
        Self {
            version: GOONDAN_VERSION.to_owned(),
            wrote: STATE_FORMAT,
            readable_from: STATE_FORMAT_READABLE_FROM,
        }
    }

    /// True if the other version can read what this one writes.
    pub(super) fn can_be_read_by(&self, other: &Self) -> bool {
        self.readable_from <= other.wrote
    }
}

/// Checks if a version can read a state directory; an error if it cannot.
pub(super) fn reads(gdn: &Path, state_root: &Path) -> Result<Reads, AskError> {
    let root = state_root.to_string_lossy();
    let answer = ask(
        gdn,
        &["--json", "--state-root", &root, "upgrade", "--check"],
    )?;
    let parsed = serde_json::from_str(&answer.stdout);
    match (answer.code, parsed) {
        (Some(0), Ok(reads)) => Ok(reads),
        _ => Err(answer.wrong(gdn)),
    }
}

/// State of a daemon, as reported by a version's `gdn`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DaemonProbe {
    pub(super) pid: u32,
    pub(super) number: String,
    pub(super) program: Option<PathBuf>,
    pub(super) ill: BTreeSet<String>,
    /// Workspaces with a process that crashes repeatedly and will not recover on its own.
    pub(super) crashing: BTreeSet<String>,
}

/// Fields of `gdn daemon status` that all versions print.
#[derive(Deserialize)]
struct ProbedStatus {
    pid: u32,
    version: Number,
    program: Option<PathBuf>,
    workspaces: Vec<Workspace>,
}

#[derive(Deserialize)]
struct Number {
    goondan: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Workspace {
    workspace_id: String,
    problem: Option<serde_json::Value>,
    #[serde(default)]
    unhealthy_total: usize,
    #[serde(default)]
    unhealthy: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    state: String,
}

impl Workspace {
    fn is_crashing(&self) -> bool {
        let crashes = ProcessState::CrashLoopBackOff.as_str();
        self.unhealthy
            .iter()
            .any(|process| process.state == crashes)
    }
}

impl From<ProbedStatus> for DaemonProbe {
    fn from(status: ProbedStatus) -> Self {
        let named = |is: &dyn Fn(&Workspace) -> bool| {
            let which = status.workspaces.iter().filter(|it| is(it));
            which.map(|it| it.workspace_id.clone()).collect()
        };
        let (ill, crashing) = (
            named(&|it| it.problem.is_some() || it.unhealthy_total > 0),
            named(&Workspace::is_crashing),
        );
        Self {
            pid: status.pid,
            number: status.version.goondan,
            program: status.program,
            ill,
            crashing,
        }
    }
}

/// State of a state directory's daemon; none if none runs.
pub(super) fn look(gdn: &Path, state_root: &Path) -> Result<Option<DaemonProbe>, AskError> {
    let root = state_root.to_string_lossy();
    let answer = ask(gdn, &["--json", "--state-root", &root, "status"])?;
    let is = |exit: Exit| answer.code == Some(exit.code().into());
    if is(Exit::DaemonNotRunning) {
        return Ok(None);
    }
    match serde_json::from_str::<ProbedStatus>(&answer.stdout) {
        Ok(status) if is(Exit::Ok) || is(Exit::Degraded) => Ok(Some(status.into())),
        _ => Err(answer.wrong(gdn)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_1_unhealthy_workspaces_parse_from_status_of_any_version() {
        let status: ProbedStatus = serde_json::from_str(
            r#"{"schema":"gdn.status/v9","pid":7,"version":{"goondan":"9.9.9","protocol":1000},
                "program":"/p","new":1,"workspaces":[{"workspaceId":"a"},
                {"workspaceId":"b","problem":{"message":"m"}},{"workspaceId":"c","unhealthyTotal":2,
                "unhealthy":[{"role":"agent","name":"x","state":"crashLoopBackOff"}]}]}"#,
        )
        .unwrap();
        let look = DaemonProbe::from(status);
        assert_eq!((look.pid, look.number.as_str()), (7, "9.9.9"));
        assert_eq!(look.ill, ["b", "c"].map(str::to_owned).into());
        assert_eq!(look.crashing, ["c"].map(str::to_owned).into());
    }

    #[test]
    fn rel_1_rollback_is_possible_if_old_version_reads_new_format() {
        let reads = |wrote, readable_from| Reads {
            version: "0.1.0".to_owned(),
            wrote,
            readable_from,
        };
        let old = reads(3, 2);
        assert!(reads(4, 3).can_be_read_by(&old));
        assert!(!reads(4, 4).can_be_read_by(&old));
        assert!(Reads::this().can_be_read_by(&Reads::this()));
    }
}
