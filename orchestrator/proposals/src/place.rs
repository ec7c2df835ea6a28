//! Paths of sandboxes, and access to their files.

use std::path::{Path, PathBuf};

use goondan_durable::names;
use goondan_protocol::control::SandboxRef;
use goondan_protocol::ids::RunId;
pub(crate) use goondan_trees::swap::PLAN;

/// The log of a run, in the folder of the run.
pub(crate) const EVENTS: &str = "events.jsonl";
/// Record of the sandbox: the files that the worker received.
pub(crate) const SANDBOX: &str = "sandbox.json";
pub(crate) const INPUT: &str = "input";
/// Directory in which the worker works.
pub(crate) const WORK: &str = "work";
/// Files for people and workers to read.
pub(crate) const PROPOSAL: &str = "proposal";
/// Stored copies of proposals.
pub(crate) const KEPT: &str = "kept";
pub(crate) const RECORD: &str = "proposal.json";
pub(crate) const PATCH: &str = "changes.patch";
/// Summary of the changes and the reasons for them.
pub(crate) const SUMMARY: &str = "summary.md";
pub(crate) const TEST_LOG: &str = "test.log";
/// Other data about a proposal: its resulting files and the paths left out.
pub(crate) const DETAILS: &str = "details.json";
/// The frozen files of a proposal.
pub(crate) const AFTER: &str = "after";
/// The journal of the swap that applied it.
pub(crate) const APPLY: &str = "apply";
/// Journal of the swap that reverted the proposal.
pub(crate) const REVERT: &str = "revert";
/// Marks that `proposal/` was filled.
pub(crate) const PUBLISHED: &str = "published";
/// Name of a directory until it is complete.
pub(crate) const PARTIAL: &str = ".partial";
/// In the folder of a run: proposals for other nodes.
pub(crate) const HANDED_ON: &str = ".handed-on";
/// Bare repository from which the files of a task were cloned; the worker cannot reach it.
pub(crate) const ORIGIN: &str = "origin.git";
/// Suffix of the name of a directory in which a repository is checked out.
pub(crate) const CHECKOUT: &str = ".checkout";
/// Prefix of the name of a sandbox that was replaced by one of another node.
pub(crate) const SUPERSEDED: &str = ".superseded-";
/// Prefix of the name of a sandbox that is being removed.
pub(crate) const REMOVING: &str = ".removing-";
/// Directory in the Project Root that exists during a swap.
pub(crate) const STAGING: &str = ".goondan-swap";

/// In the folder of the merge queue's run: the records of the queue.
pub(crate) const QUEUE: &str = "queue.jsonl";
/// Begins the name of a tree with some of the proposals of an attempt.
pub(crate) const STACKED: &str = ".stacked-";
/// The baseline that replaces the present one.
pub(crate) const NEXT_INPUT: &str = ".next-input";
/// The baseline that was replaced.
pub(crate) const OLD_INPUT: &str = ".old-input";
/// The repository with the commits of the next baseline.
pub(crate) const NEXT_ORIGIN: &str = ".next-origin";
/// The one that was replaced.
pub(crate) const OLD_ORIGIN: &str = ".old-origin";
/// The files to bring into `work/`.
pub(crate) const NEXT_WORK: &str = ".next-work";
/// The record that replaces the present one: the intent to do so.
pub(crate) const NEXT_RECORD: &str = ".next-sandbox.json";
/// The name that it has until it is whole.
pub(crate) const NEXT_RECORD_PARTIAL: &str = ".next-sandbox.json.partial";

pub(crate) fn run_dir(sandboxes: &Path, run: &RunId) -> PathBuf {
    sandboxes.join(names::encode_directory(run.as_str()))
}

/// The name of a sandbox in the folder of its run.
pub(crate) fn sandbox_name(at: &SandboxRef) -> String {
    names::encode_directory(at.agent_id.as_str())
}

pub(crate) fn sandbox_dir(sandboxes: &Path, at: &SandboxRef) -> PathBuf {
    run_dir(sandboxes, &at.run_id).join(sandbox_name(at))
}
