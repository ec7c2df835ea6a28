//! Checking that sandboxes and proposals are as they were written, without changing any (`MSG-11`).
//!
//! Checked are the log of each run, what each sandbox says it was given, its baseline, and the proposal as it
//! was made: record, patch, frozen files. Not checked are `work/` and `proposal/`, where workers write.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{Folder, NodeKind};
use goondan_durable::journal::Journal;
use goondan_durable::sealed_log;
use goondan_durable::{Finding, FindingKind, Severity, VerificationResult};
use goondan_protocol::control::{ProposalState, SandboxRef};
use goondan_trees::limits::PATCH_BYTES_MAX;
use goondan_trees::swap;
use goondan_trees::{Digest, Manifest, Names, RelativePath, TreeEntry, observe};

use crate::error::{IoContext as _, ProposalError};
use crate::limits::TREE_FINDINGS_MAX;
use crate::place::{
    AFTER, APPLY, DETAILS, EVENTS, INPUT, KEPT, PATCH, PLAN, RECORD, REMOVING, REVERT, SANDBOX,
};
use crate::record::read_file;
use crate::run_log::{self, ProposalStatus};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

impl Sandboxes<'_> {
    /// Checks every sandbox and proposal. Returns the number of sandboxes, and the findings.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Io`] if the directories cannot be listed, or descriptors or memory ran out.
    pub fn verify(&self) -> Result<(u64, VerificationResult), ProposalError> {
        let mut out = VerificationResult::default();
        let mut count = 0;
        let mut last_run = None;
        self.check_queue(&mut out)?;
        for (path, at) in self.directories(None)? {
            let run = path.parent().map(Path::to_path_buf);
            if run != last_run {
                if let Some(run) = &run {
                    self.check_run(run, &mut out)?;
                }
                last_run = run;
            }
            match at {
                Some(at) => {
                    count += 1;
                    self.check_sandbox(&at, &path, &mut out)?;
                }
                None => out.findings.push(Finding::new(
                    &path,
                    FindingKind::UnknownFile,
                    "its name is not a sandbox name",
                )),
            }
        }
        Ok((count, out))
    }

    /// Checks the log of a run, and the remains of an interrupted removal.
    fn check_run(&self, run: &Path, out: &mut VerificationResult) -> Result<(), ProposalError> {
        let disk = self.files.disk();
        for entry in disk.list(run).during("list", run)? {
            if entry
                .name
                .as_encoded_bytes()
                .starts_with(REMOVING.as_bytes())
            {
                let problem = "a sandbox whose removal was interrupted";
                out.findings.push(Finding::new(
                    &run.join(entry.name),
                    FindingKind::UnknownFile,
                    problem,
                ));
            }
        }
        let path = run.join(EVENTS);
        let finding = |kind, problem: String| {
            Finding::new(&path, kind, problem).advice(
                "the status of this run's proposals may be wrong: check the project before you apply one",
            )
        };
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            let problem = "the history of the run's proposals is missing".to_owned();
            let finding = finding(FindingKind::MissingFile, problem);
            out.findings.push(finding.severity(Severity::Error));
            return Ok(());
        }
        self.check_log(&path, finding, out)
    }

    /// Checks the records of the merge queue, if they exist.
    fn check_queue(&self, out: &mut VerificationResult) -> Result<(), ProposalError> {
        let path = self.queue_path()?;
        let found = self.files.disk().stat(&path).during("inspect", &path)?;
        if found.is_none() {
            return Ok(());
        }
        let finding = |kind, problem: String| {
            Finding::new(&path, kind, problem).advice(
                "the merge queue does not run: restore the file from a backup, or move it away and add the proposals again",
            )
        };
        self.check_log(&path, finding, out)
    }

    /// A file of sealed records.
    fn check_log(
        &self,
        path: &Path,
        finding: impl Fn(FindingKind, String) -> Finding,
        out: &mut VerificationResult,
    ) -> Result<(), ProposalError> {
        let read = Journal::open(self.files.disk(), path).and_then(|mut journal| {
            let reading = sealed_log::read(&mut journal)?;
            Ok((journal.len(), reading))
        });
        match read {
            Ok((len, reading)) => {
                out.count(len);
                let told = reading.findings.into_iter();
                out.findings
                    .extend(told.map(|found| finding(found.kind, found.problem)));
            }
            Err(error) if error.is_shortage() => return Err(error.into()),
            Err(error) => {
                let error = goondan_log::error_chain(&error);
                out.findings
                    .push(finding(FindingKind::UnreadableFile, error));
            }
        }
        Ok(())
    }

    fn check_sandbox(
        &self,
        at: &SandboxRef,
        path: &Path,
        out: &mut VerificationResult,
    ) -> Result<(), ProposalError> {
        let SandboxRef { run_id, agent_id } = at;
        let renew = format!(
            "remove it with `gdn proposal sandbox remove --force {run_id} {agent_id}`, then prepare a new one"
        );
        let open = match self.look(at) {
            Ok(open) => open,
            Err(error) if error.is_shortage() => return Err(error),
            Err(error) => {
                let problem = goondan_log::error_chain(&error);
                let finding =
                    Finding::new(&path.join(SANDBOX), FindingKind::UnreadableFile, problem);
                out.findings.push(finding.advice(renew));
                return Ok(());
            }
        };
        out.count(size(open.folder.as_ref(), SANDBOX));
        let given = &open.record.given;
        let input = path.join(INPUT);
        let base = (input.as_path(), open.input(), given);
        check_tree(base, "files cannot be verified against it", &renew, out)?;
        let standing = self.standing(at)?;
        check_journals(&open, standing.as_ref(), out)?;
        match self.kept(&open) {
            Ok(kept) => check_kept(&open, &kept, out),
            Err(ProposalError::NoProposal { .. }) => Ok(()),
            Err(error) if error.is_shortage() => Err(error),
            Err(error) => {
                let events = self.events(run_id).unwrap_or_default();
                let standing = run_log::standing(&events, agent_id);
                let digest = standing.map(|standing| standing.digest).unwrap_or_default();
                let record = path.join(KEPT).join(digest).join(RECORD);
                let problem = goondan_log::error_chain(&error);
                let finding = Finding::new(&record, FindingKind::UnreadableFile, problem);
                out.findings.push(finding.advice(renew));
                Ok(())
            }
        }
    }
}

/// Checks the stored copy of a proposal.
fn check_kept(
    open: &OpenSandbox,
    kept: &StoredProposal,
    out: &mut VerificationResult,
) -> Result<(), ProposalError> {
    let SandboxRef { run_id, agent_id } = &open.at;
    let dir = open.path.join(KEPT).join(&kept.standing.digest);
    let advice = match kept.standing.state {
        ProposalState::Open => format!(
            "submit it again: `gdn proposal create {run_id} {agent_id}`; the damaged one is refused"
        ),
        ProposalState::Applied => {
            "its changes are in the project; to revert them, use a backup or your repository"
                .to_owned()
        }
        ProposalState::Rejected | ProposalState::Reverted => {
            "nothing to do: it is no longer applied".to_owned()
        }
    };
    let folder = kept.folder.as_ref();
    for name in [RECORD, DETAILS] {
        out.count(size(folder, name));
    }
    let patch = read_file(folder, PATCH, PATCH_BYTES_MAX);
    let problem = match patch {
        Ok(Some(text)) => {
            out.count(text.len() as u64);
            let digest = Digest::of(&text).to_string();
            (digest != kept.record.patch_sha256)
                .then(|| "it does not match the proposal's digest".to_owned())
        }
        Ok(None) => Some("it does not exist".to_owned()),
        Err(error) if error.is_shortage() => return Err(error),
        Err(error) => Some(goondan_log::error_chain(&error)),
    };
    if let Some(problem) = problem {
        let finding = Finding::new(&dir.join(PATCH), FindingKind::ReplacedFile, problem);
        out.findings.push(finding.advice(&advice));
    }
    let after = &kept.details.after;
    if after.digest()?.to_string() != kept.record.result_sha256 {
        let problem = "its list of files does not match the proposal's digest";
        let finding = Finding::new(&dir.join(DETAILS), FindingKind::ReplacedFile, problem);
        out.findings.push(finding.advice(&advice));
    }
    let at = Path::new(AFTER);
    let found = folder.below(at).during("open", &dir.join(at));
    let what = "it is not the submitted content";
    check_tree((&dir.join(at), found, after), what, &advice, out)
}

/// Checks the journals of applied proposals: the old files, which a revert needs.
fn check_journals(
    open: &OpenSandbox,
    standing: Option<&ProposalStatus>,
    out: &mut VerificationResult,
) -> Result<(), ProposalError> {
    let at = Path::new(KEPT);
    if open.folder.look(at).during("inspect", at)?.is_none() {
        return Ok(());
    }
    let digests = open.folder.names(at).during("list", at)?;
    for (digest, journal) in digests.iter().flat_map(|it| [(it, APPLY), (it, REVERT)]) {
        let state = standing
            .filter(|standing| standing.digest.as_str() == digest)
            .map(|standing| standing.state);
        let name = at.join(digest).join(journal);
        let plan = name.join(PLAN);
        let is_unfinished = matches!(
            (journal, state),
            (APPLY, Some(ProposalState::Open)) | (REVERT, Some(ProposalState::Applied))
        );
        if is_unfinished || open.folder.look(&plan).during("inspect", &plan)?.is_none() {
            continue;
        }
        let advice = match state {
            Some(ProposalState::Applied) => {
                "it cannot be reverted: restore the folder from a backup, or use your repository"
            }
            _ => "nothing to do: it is no longer needed",
        };
        let folder = open.folder.below(&name).during("open", &name)?;
        let problem = "the stored previous files are damaged";
        let findings = match swap::check(folder.as_ref(), Names::Portable) {
            Ok(damage) => damage
                .into_iter()
                .map(|damage| {
                    let kind = match damage.is_missing {
                        true => FindingKind::MissingFile,
                        false => FindingKind::ReplacedFile,
                    };
                    let path = open.path.join(&name).join(damage.path);
                    Finding::new(&path, kind, problem)
                })
                .collect(),
            Err(error) => {
                let error = ProposalError::from(error);
                if error.is_shortage() {
                    return Err(error);
                }
                let text = goondan_log::error_chain(&error);
                let path = open.path.join(&plan);
                vec![Finding::new(&path, FindingKind::UnreadableFile, text)]
            }
        };
        for finding in findings {
            out.findings
                .push(finding.severity(Severity::Error).advice(advice));
        }
    }
    Ok(())
}

/// Compares a read-only tree with its manifest. Permission bits are goondan's own.
fn check_tree(
    (path, folder, manifest): (&Path, Result<Box<dyn Folder>, ProposalError>, &Manifest),
    what: &str,
    advice: &str,
    out: &mut VerificationResult,
) -> Result<(), ProposalError> {
    let mut findings = Vec::new();
    match folder {
        Ok(folder) => look_through(path, folder.as_ref(), manifest, out, &mut findings)?,
        Err(error) if error.is_shortage() => return Err(error),
        Err(error) => {
            let problem = goondan_log::error_chain(&error);
            findings.push(Finding::new(path, FindingKind::UnreadableFile, problem));
        }
    }
    let more = findings.len().saturating_sub(TREE_FINDINGS_MAX);
    findings.truncate(TREE_FINDINGS_MAX);
    for mut finding in findings {
        finding.problem = format!("{}: {what}", finding.problem);
        out.findings
            .push(finding.severity(Severity::Error).advice(advice));
    }
    if more > 0 {
        let problem = format!("{more} more files are damaged: {what}");
        let finding = Finding::new(path, FindingKind::ReplacedFile, problem);
        out.findings.push(finding.advice(advice));
    }
    Ok(())
}

fn look_through(
    root: &Path,
    folder: &dyn Folder,
    manifest: &Manifest,
    out: &mut VerificationResult,
    findings: &mut Vec<Finding>,
) -> Result<(), ProposalError> {
    let mut directories = vec![None];
    for (path, expected) in manifest.entries() {
        let at = root.join(path.as_path());
        let found = observe(folder, path.as_path()).during("read", &at);
        let found = match found {
            Ok(found) => found,
            Err(error) if error.is_shortage() => return Err(error),
            Err(error) => {
                let problem = goondan_log::error_chain(&error);
                findings.push(Finding::new(&at, FindingKind::UnreadableFile, problem));
                continue;
            }
        };
        match (expected, found) {
            (TreeEntry::Directory { .. }, Some(TreeEntry::Directory { .. })) => {
                directories.push(Some(path));
            }
            (
                TreeEntry::File { bytes, sha256, .. },
                Some(TreeEntry::File {
                    bytes: found_bytes,
                    sha256: found,
                    ..
                }),
            ) if (*bytes, *sha256) == (found_bytes, found) => out.count(found_bytes),
            (expected, Some(found)) if *expected == found => {}
            (_, None) => {
                let finding = Finding::new(&at, FindingKind::MissingFile, "it does not exist");
                findings.push(finding);
            }
            _ => {
                let problem = "its content has changed since it was written";
                findings.push(Finding::new(&at, FindingKind::ReplacedFile, problem));
            }
        }
    }
    for directory in directories {
        let (at, names) = match directory {
            Some(path) => (path.as_path(), folder.names(path.as_path())),
            None => (Path::new(""), folder.names(Path::new(""))),
        };
        for name in names.during("list", &root.join(at))? {
            let path = at.join(&name);
            let known = RelativePath::new(path.as_os_str().as_bytes()).ok();
            if known.is_none_or(|known| manifest.get(&known).is_none()) {
                let problem = "it was never written there";
                findings.push(Finding::new(
                    &root.join(path),
                    FindingKind::UnknownFile,
                    problem,
                ));
            }
        }
    }
    Ok(())
}

/// Size of a file that was read, in bytes.
fn size(folder: &dyn Folder, name: &str) -> u64 {
    let found = folder.look(Path::new(name)).ok().flatten();
    found
        .filter(|stat| stat.kind == NodeKind::File)
        .map_or(0, |stat| stat.len)
}
