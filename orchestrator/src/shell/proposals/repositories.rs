//! Creates a repository in the copy of a project, clones other repositories, and delivers branches,
//! with the installed git (`REPO-1`, `REPO-3`).
//!
//! The objects are packed in the project's repository and unpacked in the new one: the two share
//! nothing, and no program that either repository configures is started. The new one is created
//! without a template, before its worker starts.
//!
//! Git uses the network only in a bare repository that no worker and no user writes, with one
//! protocol, without redirects, and without submodules. Credentials are in its environment, which
//! no worker can read.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_proposals::limits::{SANDBOX_BYTES_MAX, SANDBOX_ENTRIES_MAX};
use goondan_proposals::{
    BranchMaker, BranchPlace, BranchPush, FetchedRepository, NewBranch, NewRepository,
    RepositoryClone, RepositoryMaker,
};
use goondan_protocol::control::MERGE_QUEUE;
use goondan_protocol::git::{
    RepositoryAddress, RepositoryUrl, network_advice, network_environment,
};
use goondan_protocol::task::GitCredentials;
use goondan_protocol::time::Timestamp;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::runtime::Handle;

use super::git::{Git, command_in, words};
use crate::limits::{GIT_COPY_TIMEOUT_MS, GIT_STALL_TIMEOUT_S};

/// Digits of a commit in a repository whose objects are named by SHA-256.
const SHA_256_DIGITS: usize = 64;

/// Reason why a branch is not created.
const NAME_TAKEN: &str = "another branch has that name; rename or delete it, and try again";

/// Domain of addresses that do not exist.
const NO_DOMAIN: &str = "goondan.invalid";

impl RepositoryMaker for Git {
    fn make(&self, wanted: &NewRepository<'_>) -> Result<(), String> {
        match in_time(make(wanted)) {
            Ok(()) | Err(RepositoryFailure::NotInstalled) => Ok(()),
            Err(RepositoryFailure::Failed(problem)) => Err(problem),
        }
    }

    fn fetch(
        &self,
        source: &RepositoryClone<'_>,
        address: &RepositoryAddress,
        origin: &Path,
        files: &Path,
    ) -> Result<FetchedRepository, String> {
        let fetched = in_time(async {
            let fetched = match address {
                RepositoryAddress::Path(path) => fetch_from_path(source, path, origin).await?,
                RepositoryAddress::Url(url) => fetch_from_url(source, url, origin).await?,
            };
            check_size(origin, &fetched.commit).await?;
            check_out(origin, files, &fetched.commit).await?;
            Ok(fetched)
        });
        fetched.map_err(|failure| failure.without(source.credentials))
    }
}

impl BranchMaker for Git {
    fn branch(&self, wanted: &NewBranch<'_>) -> Result<String, String> {
        in_time(branch(wanted)).map_err(|failure| failure.without(None))
    }

    fn push(&self, wanted: &BranchPush<'_>) -> Result<(), String> {
        in_time(push(wanted)).map_err(|failure| failure.without(wanted.credentials))
    }

    fn commit(&self, wanted: &NewBranch<'_>) -> Result<String, String> {
        in_time(commit(wanted)).map_err(|failure| failure.without(None))
    }

    fn has_files(&self, wanted: &NewBranch<'_>, commit: &str) -> Result<bool, String> {
        in_time(has_files(wanted, commit)).map_err(|failure| failure.without(None))
    }

    fn place(&self, at: &BranchPlace<'_>, to: &str, replaces: &[&str]) -> Result<bool, String> {
        in_time(place(at, to, replaces)).map_err(|failure| failure.without(at.credentials))
    }

    fn tip(&self, place: &BranchPlace<'_>) -> Result<Option<String>, String> {
        in_time(tip(place)).map_err(|failure| failure.without(place.credentials))
    }

    fn advance(&self, place: &BranchPlace<'_>, from: &str, to: &str) -> Result<bool, String> {
        in_time(advance(place, from, to)).map_err(|failure| failure.without(place.credentials))
    }

    fn contains(&self, place: &BranchPlace<'_>, commit: &str) -> Result<bool, String> {
        in_time(contains(place, commit)).map_err(|failure| failure.without(place.credentials))
    }
}

fn in_time<T>(
    work: impl Future<Output = Result<T, RepositoryFailure>>,
) -> Result<T, RepositoryFailure> {
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

impl RepositoryFailure {
    /// The reason as text, without credentials.
    fn without(self, credentials: Option<&GitCredentials>) -> String {
        match self {
            Self::NotInstalled => "git is not installed".to_owned(),
            Self::Failed(problem) => match credentials.filter(|it| !it.token.is_empty()) {
                Some(it) => problem.replace(&it.token, "…").replace(
                    &STANDARD.encode(format!("{}:{}", it.username, it.token)),
                    "…",
                ),
                None => problem,
            },
        }
    }
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
    let format = object_format(head);
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

/// Hash function of a repository with this commit.
fn object_format(commit: &str) -> &'static str {
    match commit.len() {
        SHA_256_DIGITS => "sha256",
        _ => "sha1",
    }
}

async fn init_bare(origin: &Path, commit: &str) -> Result<(), RepositoryFailure> {
    let format = format!("--object-format={}", object_format(commit));
    let init = ["init", "--quiet", "--bare", "--template=", &format];
    run(git_in(origin).args(init)).await
}

/// Fetches from a repository on this machine, as from the project: by its objects alone.
async fn fetch_from_path(
    source: &RepositoryClone<'_>,
    path: &Path,
    origin: &Path,
) -> Result<FetchedRepository, RepositoryFailure> {
    let reference = source.source.reference.as_deref().unwrap_or("HEAD");
    if !path.is_dir() {
        let problem = format!("`{}` is not a directory", path.display());
        return Err(RepositoryFailure::Failed(problem));
    }
    let revision = format!("{reference}^{{commit}}");
    let parse = ["rev-parse", "--verify", "--end-of-options", &revision];
    let commit = output_of_command(git_in(path).args(parse)).await;
    let commit = commit.map_err(|failure| match failure {
        RepositoryFailure::Failed(why) if why.contains("single revision") => {
            let problem = format!("`{reference}` is not a branch, a tag or a commit there");
            RepositoryFailure::Failed(problem)
        }
        other => other,
    })?;
    init_bare(origin, &commit).await?;
    copy_objects(path, &commit, origin).await?;
    Ok(FetchedRepository {
        commit,
        branch: None,
    })
}

/// Fetches over the network.
async fn fetch_from_url(
    source: &RepositoryClone<'_>,
    url: &RepositoryUrl,
    origin: &Path,
) -> Result<FetchedRepository, RepositoryFailure> {
    let reference = source.source.reference.as_deref();
    let branch_name = reference.map(|name| format!("refs/heads/{name}"));
    let git = || git_over_network(origin, url, source.credentials);
    let mut list = git();
    list.args(["ls-remote", "--symref", "--", url.as_str(), "HEAD"]);
    list.args(&branch_name);
    let refs = RemoteRefs::parse(&output_of_command(&mut list).await?);
    let sample = refs.ids.first().ok_or_else(|| {
        RepositoryFailure::Failed("the repository has no branch or is empty".to_owned())
    })?;
    init_bare(origin, sample).await?;
    fetch(git(), url, reference.unwrap_or("HEAD")).await?;
    let parse = ["rev-parse", "--verify", "FETCH_HEAD^{commit}"];
    let commit = output_of_command(git_in(origin).args(parse)).await?;
    let is_branch = branch_name.is_some_and(|name| refs.names.contains(&name));
    let branch = match reference {
        Some(reference) if is_branch => Some(reference.to_owned()),
        _ => refs.default_branch,
    };
    Ok(FetchedRepository { commit, branch })
}

/// Output of `git ls-remote --symref`.
#[derive(Debug, Default, PartialEq, Eq)]
struct RemoteRefs {
    ids: Vec<String>,
    names: Vec<String>,
    default_branch: Option<String>,
}

impl RemoteRefs {
    /// Parses lines of `ID TAB NAME`, and `ref: NAME TAB HEAD`.
    fn parse(listing: &str) -> Self {
        let mut refs = Self::default();
        for line in listing.lines() {
            let Some((left, name)) = line.split_once('\t') else {
                continue;
            };
            match left.strip_prefix("ref: refs/heads/") {
                Some(branch) if name == "HEAD" => refs.default_branch = Some(branch.to_owned()),
                Some(_) => {}
                None => {
                    refs.ids.push(left.to_owned());
                    refs.names.push(name.to_owned());
                }
            }
        }
        refs
    }
}

/// Refuses a commit with more files or bytes than a sandbox can have, before they are written.
async fn check_size(origin: &Path, commit: &str) -> Result<(), RepositoryFailure> {
    let mut command = git_in(origin);
    command.args(["ls-tree", "-r", "-l", "-z", commit]);
    let mut listing = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(output) = listing.stdout.take() else {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    };
    let mut entries = BufReader::new(output).split(0);
    let (mut count, mut bytes) = (0_usize, 0_u64);
    while let Some(entry) = entries.next_segment().await? {
        let text = String::from_utf8_lossy(&entry);
        let size = text.split_whitespace().nth(3);
        let size = size.and_then(|size| size.parse::<u64>().ok());
        count += 1;
        bytes = bytes.saturating_add(size.unwrap_or_default());
        if count > SANDBOX_ENTRIES_MAX || bytes > SANDBOX_BYTES_MAX {
            let problem = format!(
                "it has more than {SANDBOX_ENTRIES_MAX} files, or more than {SANDBOX_BYTES_MAX} bytes"
            );
            return Err(RepositoryFailure::Failed(problem));
        }
    }
    let status = listing.wait().await?;
    match status.success() {
        true => Ok(()),
        false => Err(RepositoryFailure::Failed(format!(
            "git could not list the files of commit `{commit}`: {status}"
        ))),
    }
}

/// Writes the files of a commit. The repository configures no filters, so none are started.
async fn check_out(origin: &Path, files: &Path, commit: &str) -> Result<(), RepositoryFailure> {
    let mut command = git_in(origin);
    command
        .args(["-c", "core.bare=false"])
        .args(["read-tree", "--reset", "-u", commit])
        .env("GIT_DIR", origin)
        .env("GIT_WORK_TREE", files)
        .env("GIT_INDEX_FILE", origin.join(".checkout-index"));
    run(&mut command).await?;
    Ok(std::fs::remove_file(origin.join(".checkout-index"))?)
}

/// Pushes the branch only if it does not exist there, or is the same commit.
async fn push(wanted: &BranchPush<'_>) -> Result<(), RepositoryFailure> {
    let BranchPush {
        origin,
        url,
        branch,
        credentials,
    } = wanted;
    let reference = format!("refs/heads/{branch}");
    let output = git_over_network(origin, url, *credentials)
        .args(["push", "--quiet", "--no-verify", "--no-follow-tags"])
        .args(["--recurse-submodules=no", "--no-signed"])
        .arg(format!("--force-with-lease={reference}:"))
        .args(["--", url.as_str(), &format!("{reference}:{reference}")])
        .output()
        .await?;
    let failed = succeeded(&output);
    let is_taken = String::from_utf8_lossy(&output.stderr).contains("stale info");
    match failed {
        Err(_) if is_taken => Err(RepositoryFailure::Failed(NAME_TAKEN.to_owned())),
        other => other,
    }
}

/// Git that may use one protocol to reach the origin of a URL, in a repository without settings.
fn git_over_network(
    origin: &Path,
    url: &RepositoryUrl,
    credentials: Option<&GitCredentials>,
) -> Command {
    let mut command = git_in(origin);
    command
        .args(["-c", "protocol.ext.allow=never"])
        .args(["-c", "http.followRedirects=false"])
        .args(["-c", "http.lowSpeedLimit=1"])
        .args(["-c", &format!("http.lowSpeedTime={GIT_STALL_TIMEOUT_S}")])
        .args(["-c", "submodule.recurse=false"])
        .envs(network_environment(|name| std::env::var_os(name)))
        .env("GIT_ALLOW_PROTOCOL", url.scheme());
    if let Some(GitCredentials { username, token }) = credentials {
        let encoded = STANDARD.encode(format!("{username}:{token}"));
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "http.extraHeader")
            .env(
                "GIT_CONFIG_VALUE_0",
                format!("Authorization: Basic {encoded}"),
            );
    }
    command
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
        false => {
            let mut why = words(output);
            if let Some(advice) = network_advice(&why) {
                why = format!("{why}; {advice}");
            }
            Err(RepositoryFailure::Failed(why))
        }
    }
}

/// Git in one directory, which is the root of its repository.
fn git_in(directory: &Path) -> Command {
    let mut command = command_in(directory);
    // The daemon may read the project, whoever owns it; only git's own programs are started there.
    command.args(["-c", "safe.directory=*", "-c", "core.fsync=all"]);
    command
}

/// Git whose commits and changes of branches have this author, and this time instead of the current
/// one.
fn git_by(directory: &Path, author: &str, at: Option<Timestamp>) -> Command {
    let mut command = git_in(directory);
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), author)
            .env(format!("GIT_{who}_EMAIL"), format!("{author}@{NO_DOMAIN}"));
        if let Some(at) = at {
            let date = format!("{} +0000", at.as_unix_millis() / 1_000);
            command.env(format!("GIT_{who}_DATE"), date);
        }
    }
    command
}

/// Makes the commit in an index of its own: no file of the project, no branch that is checked out and no hook has a part
/// in it.
async fn commit(wanted: &NewBranch<'_>) -> Result<String, RepositoryFailure> {
    let tree = tree_of(wanted).await?;
    let NewBranch {
        project,
        base,
        parent,
        message,
        author,
        at,
        ..
    } = wanted;
    let parent = parent.unwrap_or(base);
    let mut by_author = git_by(project, author, Some(*at));
    output_of_command(by_author.args(["commit-tree", &tree, "-p", parent, "-m", message])).await
}

async fn has_files(wanted: &NewBranch<'_>, commit: &str) -> Result<bool, RepositoryFailure> {
    let tree = tree_of(wanted).await?;
    let name = format!("{commit}^{{tree}}");
    let parse = ["rev-parse", "--verify", "--end-of-options", &name];
    let found = output_of_command(git_in(wanted.project).args(parse)).await?;
    Ok(found == tree)
}

/// The tree of the base with the patch.
async fn tree_of(wanted: &NewBranch<'_>) -> Result<String, RepositoryFailure> {
    let NewBranch {
        project,
        base,
        patch,
        scratch,
        ..
    } = wanted;
    let index = scratch.join(".branch-index");
    // Remains of a killed daemon.
    for left in [&index, &scratch.join(".branch-index.lock")] {
        drop(std::fs::remove_file(left));
    }
    let in_index = || {
        let mut command = git_in(project);
        command.env("GIT_INDEX_FILE", &index);
        command
    };
    let made: Result<String, RepositoryFailure> = async {
        run(in_index().args(["read-tree", base])).await?;
        let apply = ["apply", "--cached", "--whitespace=nowarn"];
        run(in_index().args(apply).arg(patch)).await?;
        output_of_command(in_index().arg("write-tree")).await
    }
    .await;
    // The index is no longer needed; the next call rewrites it.
    drop(std::fs::remove_file(&index));
    made
}

async fn branch(wanted: &NewBranch<'_>) -> Result<String, RepositoryFailure> {
    let NewBranch {
        project,
        branch,
        author,
        at,
        ..
    } = wanted;
    let commit = commit(wanted).await?;
    let reference = format!("refs/heads/{branch}");
    let mut verify = git_in(project);
    let known = verify.args(["rev-parse", "--verify", "--quiet", &reference]);
    let known = known.output().await?;
    let known = String::from_utf8_lossy(&known.stdout).trim().to_owned();
    if known == commit {
        return Ok(commit);
    }
    if !known.is_empty() {
        return Err(RepositoryFailure::Failed(NAME_TAKEN.to_owned()));
    }
    // An empty old value: the branch is created only if it does not exist.
    let update = ["update-ref", &reference, &commit, ""];
    run(git_by(project, author, Some(*at)).args(update)).await?;
    Ok(commit)
}

/// The commit of a branch in a repository on this machine.
async fn local_tip(path: &Path, reference: &str) -> Result<Option<String>, RepositoryFailure> {
    let parse = ["rev-parse", "--verify", "--quiet", reference];
    let output = git_in(path).args(parse).output().await?;
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(Some(commit).filter(|commit| !commit.is_empty()))
}

async fn tip(place: &BranchPlace<'_>) -> Result<Option<String>, RepositoryFailure> {
    let reference = format!("refs/heads/{}", place.branch);
    let url = match place.address {
        RepositoryAddress::Path(path) => return local_tip(path, &reference).await,
        RepositoryAddress::Url(url) => url,
    };
    let mut list = git_over_network(place.commits, url, place.credentials);
    list.args(["ls-remote", "--", url.as_str(), &reference]);
    let refs = RemoteRefs::parse(&output_of_command(&mut list).await?);
    let mut found = refs.names.into_iter().zip(refs.ids);
    let found = found.find(|(name, _)| *name == reference);
    Ok(found.map(|(_, id)| id))
}

/// Moves a reference from one commit to another, if it is still there. An empty `from`: creates it, if
/// it does not exist.
async fn update_reference(
    place: &BranchPlace<'_>,
    reference: &str,
    from: &str,
    to: &str,
) -> Result<Output, RepositoryFailure> {
    let mut git = match place.address {
        RepositoryAddress::Path(path) => {
            let mut git = git_by(path, MERGE_QUEUE, None);
            git.args(["update-ref", reference, to, from]);
            git
        }
        RepositoryAddress::Url(url) => {
            let mut git = git_over_network(place.commits, url, place.credentials);
            git.args(["push", "--quiet", "--no-verify", "--no-follow-tags"])
                .args(["--recurse-submodules=no", "--no-signed"])
                .arg(format!("--force-with-lease={reference}:{from}"))
                .args(["--", url.as_str(), &format!("{to}:{reference}")]);
            git
        }
    };
    Ok(git.output().await?)
}

/// Moves a branch. If another program moves it at the same time, one of the two fails.
async fn advance(place: &BranchPlace<'_>, from: &str, to: &str) -> Result<bool, RepositoryFailure> {
    let branch = place.branch;
    let reference = format!("refs/heads/{branch}");
    if let RepositoryAddress::Path(path) = place.address {
        let list = ["worktree", "list", "--porcelain"];
        let trees = output_of_command(git_in(path).args(list)).await?;
        let checked_out = format!("branch {reference}");
        // Its files would no longer be those of the branch.
        if trees.lines().any(|line| line == checked_out) {
            return Err(RepositoryFailure::Failed(format!(
                "branch `{branch}` is checked out in {}; check out another one there, or use a bare \
                 repository",
                path.display()
            )));
        }
    }
    let output = update_reference(place, &reference, from, to).await?;
    match succeeded(&output) {
        Ok(()) => Ok(true),
        Err(failure) => match tip(place).await? {
            Some(tip) if tip == from => Err(failure),
            _ => Ok(false),
        },
    }
}

/// Makes a branch, or moves it from a commit that may be replaced. If another program changes it at
/// the same time, one of the two fails.
async fn place(
    place: &BranchPlace<'_>,
    to: &str,
    replaces: &[&str],
) -> Result<bool, RepositoryFailure> {
    let found = tip(place).await?;
    let from = match &found {
        Some(found) if found == to => return Ok(true),
        Some(found) if replaces.contains(&found.as_str()) => found.as_str(),
        Some(_) => return Ok(false),
        None => "",
    };
    let reference = format!("refs/heads/{}", place.branch);
    let output = update_reference(place, &reference, from, to).await?;
    match succeeded(&output) {
        Ok(()) => Ok(true),
        Err(failure) => match tip(place).await? {
            Some(tip) if tip == to => Ok(true),
            tip if tip == found => Err(failure),
            _ => Ok(false),
        },
    }
}

async fn contains(place: &BranchPlace<'_>, commit: &str) -> Result<bool, RepositoryFailure> {
    let Some(tip) = tip(place).await? else {
        return Ok(false);
    };
    if tip == commit {
        return Ok(true);
    }
    if let RepositoryAddress::Url(url) = place.address {
        let git = git_over_network(place.commits, url, place.credentials);
        fetch(git, url, &format!("refs/heads/{}", place.branch)).await?;
    }
    // A commit that was never pushed may be missing.
    let ancestor = ["merge-base", "--is-ancestor", commit, &tip];
    let output = git_in(place.commits).args(ancestor).output().await?;
    Ok(output.status.success())
}

/// Fetches one reference, without tags, submodules or maintenance.
async fn fetch(
    mut git: Command,
    url: &RepositoryUrl,
    reference: &str,
) -> Result<(), RepositoryFailure> {
    git.args(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"])
        .args(["--no-write-commit-graph", "--no-auto-maintenance", "--"])
        .args([url.as_str(), reference]);
    run(&mut git).await
}

/// Output of a command, trimmed.
async fn output_of_command(command: &mut Command) -> Result<String, RepositoryFailure> {
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    succeeded(&output)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repo_1_remote_references_and_default_branch_are_parsed() {
        let listing = "ref: refs/heads/main\tHEAD\n0a\tHEAD\n0b\trefs/heads/fix/a\nwarning\n";
        let refs = RemoteRefs::parse(listing);
        assert_eq!(refs.default_branch.as_deref(), Some("main"));
        assert_eq!(refs.ids, ["0a", "0b"]);
        assert_eq!(refs.names, ["HEAD", "refs/heads/fix/a"]);
        assert_eq!(
            RemoteRefs::parse("ref: refs/tags/x\tHEAD\n").default_branch,
            None
        );
    }
}
