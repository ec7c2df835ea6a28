//! Creates a repository in the copy of a project, with the installed git (`REPO-1`).
//!
//! The objects are packed in the project's repository and unpacked in the new one: the two share
//! nothing, and no program that either repository configures is started. The new one is created
//! without a template, before its worker starts.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use goondan_proposals::{BranchMaker, NewBranch, NewRepository, RepositoryMaker};
use tokio::process::Command;
use tokio::runtime::Handle;

use super::git::{Git, command_in, words};
use crate::limits::GIT_COPY_TIMEOUT_MS;

/// Digits of a commit in a repository whose objects are named by SHA-256.
const SHA_256_DIGITS: usize = 64;

/// Domain of addresses that do not exist.
const NO_DOMAIN: &str = "goondan.invalid";

impl RepositoryMaker for Git {
    fn make(&self, wanted: &NewRepository<'_>) -> Result<(), String> {
        match in_time(make(wanted)) {
            Ok(()) | Err(RepositoryFailure::NotInstalled) => Ok(()),
            Err(RepositoryFailure::Failed(problem)) => Err(problem),
        }
    }
}

impl BranchMaker for Git {
    fn branch(&self, wanted: &NewBranch<'_>) -> Result<(), String> {
        in_time(branch(wanted)).map_err(|fault| match fault {
            RepositoryFailure::NotInstalled => "git is not installed".to_owned(),
            RepositoryFailure::Failed(problem) => problem,
        })
    }
}

fn in_time(
    work: impl Future<Output = Result<(), RepositoryFailure>>,
) -> Result<(), RepositoryFailure> {
    let limit = Duration::from_millis(GIT_COPY_TIMEOUT_MS);
    Handle::current().block_on(async {
        let done = tokio::time::timeout(limit, work).await;
        done.unwrap_or_else(|_| Err(RepositoryFailure::Failed("it took too long".to_owned())))
    })
}

/// Reason why a repository was not created.
enum RepositoryFailure {
    NotInstalled,
    Failed(String),
}

impl From<io::Error> for RepositoryFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotInstalled,
            _ => Self::Failed(error.to_string()),
        }
    }
}

async fn make(wanted: &NewRepository<'_>) -> Result<(), RepositoryFailure> {
    let NewRepository {
        project,
        head,
        work,
        branch,
        author,
    } = wanted;
    let format = match head.len() {
        SHA_256_DIGITS => "sha256",
        _ => "sha1",
    };
    let branch_option = format!("--initial-branch={branch}");
    let format_option = format!("--object-format={format}");
    let init = [
        "init",
        "--quiet",
        "--template=",
        &branch_option,
        &format_option,
    ];
    run(git_in(work).args(init)).await?;
    copy_objects(project, head, work).await?;
    let reference = format!("refs/heads/{branch}");
    run(git_in(work).args(["update-ref", &reference, head])).await?;
    run(git_in(work).args(["read-tree", head])).await?;
    // The exit code reports files that differ from the commit, which is allowed.
    git_in(work)
        .args(["update-index", "-q", "--refresh"])
        .output()
        .await?;
    let address = format!("{author}@{NO_DOMAIN}");
    for (name, value) in [("user.name", *author), ("user.email", address.as_str())] {
        run(git_in(work).args(["config", "--local", name, value])).await?;
    }
    Ok(())
}

/// Packs the commit with all that it is made of and comes from, and unpacks that.
async fn copy_objects(project: &Path, head: &str, work: &Path) -> Result<(), RepositoryFailure> {
    let (reader, writer) = io::pipe()?;
    let (wanted, mut ask) = io::pipe()?;
    ask.write_all(head.as_bytes())?;
    drop(ask);
    // Each command is dropped with its ends of the pipes, so that either program sees when the other is gone.
    let pack = git_in(project)
        .args([
            "pack-objects",
            "--quiet",
            "--revs",
            "--stdout",
            "--delta-base-offset",
        ])
        .stdin(wanted)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()?;
    let unpack = git_in(work)
        .args(["index-pack", "--stdin"])
        .stdin(reader)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let (packed, unpacked) = tokio::join!(pack.wait_with_output(), unpack.wait_with_output());
    // The error of the first command is more useful.
    succeeded(&packed?)?;
    succeeded(&unpacked?)
}

async fn run(command: &mut Command) -> Result<(), RepositoryFailure> {
    succeeded(&command.output().await?)
}

fn succeeded(output: &Output) -> Result<(), RepositoryFailure> {
    match output.status.success() {
        true => Ok(()),
        false => Err(RepositoryFailure::Failed(words(output))),
    }
}

/// Git in one directory, which is the root of its repository.
fn git_in(directory: &Path) -> Command {
    let mut command = command_in(directory);
    // The daemon may read the project, whoever owns it; only git's own programs are started there.
    command.args(["-c", "safe.directory=*", "-c", "core.fsync=all"]);
    command
}

/// Makes the commit in an index of its own: no file of the project, no branch that is checked out and no hook has a part
/// in it.
async fn branch(wanted: &NewBranch<'_>) -> Result<(), RepositoryFailure> {
    let NewBranch {
        project,
        base,
        patch,
        scratch,
        message,
        branch,
        author,
        at,
    } = wanted;
    let index = scratch.join(".branch-index");
    // Remains of a killed daemon.
    for left in [&index, &scratch.join(".branch-index.lock")] {
        drop(std::fs::remove_file(left));
    }
    let address = format!("{author}@{NO_DOMAIN}");
    let date = format!("{} +0000", at.as_unix_millis() / 1_000);
    let by_author = || {
        let mut command = git_in(project);
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), author)
                .env(format!("GIT_{who}_EMAIL"), &address)
                .env(format!("GIT_{who}_DATE"), &date);
        }
        command
    };
    let in_index = || {
        let mut command = git_in(project);
        command.env("GIT_INDEX_FILE", &index);
        command
    };
    let made: Result<String, RepositoryFailure> = async {
        run(in_index().args(["read-tree", base])).await?;
        let apply = ["apply", "--cached", "--whitespace=nowarn"];
        run(in_index().args(apply).arg(patch)).await?;
        said(in_index().arg("write-tree")).await
    }
    .await;
    // The index is no longer needed; the next call rewrites it.
    drop(std::fs::remove_file(&index));
    let tree = made?;
    let words = ["commit-tree", &tree, "-p", base, "-m", message];
    let commit = said(by_author().args(words)).await?;
    let reference = format!("refs/heads/{branch}");
    let mut verify = git_in(project);
    let known = verify.args(["rev-parse", "--verify", "--quiet", &reference]);
    let known = known.output().await?;
    let known = String::from_utf8_lossy(&known.stdout).trim().to_owned();
    if known == commit {
        return Ok(());
    }
    if !known.is_empty() {
        let problem = "another branch has that name; rename or delete it, and try again";
        return Err(RepositoryFailure::Failed(problem.to_owned()));
    }
    // An empty old value: the branch is created only if it does not exist.
    run(by_author().args(["update-ref", &reference, &commit, ""])).await
}

/// Output of a command, trimmed.
async fn said(command: &mut Command) -> Result<String, RepositoryFailure> {
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    succeeded(&output)?;
    Ok(said)
}
