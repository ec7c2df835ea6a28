//! Carrying out what is to be done about sandboxes and proposals, and finishing at the start what an earlier
//! daemon did not (`PROP-3`).

use std::path::Path;

use goondan_core::{Input, ProposalWork, ProposalsDone};
use goondan_durable::disk::Disk;
use goondan_proposals::{ProposalError, RealFiles, Sandboxes};
use goondan_protocol::control::{ControlError, Done, ErrorCode};
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::workspace;
use serde::Serialize;
use serde_json::Value;

mod git;

use git::Git;

/// Does what the core asks for. Blocks.
pub(super) fn carry_out(
    layout: &Layout,
    project_root: &Path,
    work: ProposalWork,
    at: Timestamp,
) -> ProposalsDone {
    let files = RealFiles;
    let dir = layout.sandboxes(work.workspace_id());
    let mut sandboxes = Sandboxes::new(&files, dir, project_root, at);
    let answer = perform(&mut sandboxes, work).unwrap_or_else(|error| Err(error.into()));
    ProposalsDone {
        answer,
        happened: sandboxes.take_happened(),
    }
}

type Answer = Result<Value, ControlError>;

fn perform(sandboxes: &mut Sandboxes<'_>, work: ProposalWork) -> Result<Answer, ProposalError> {
    Ok(match work {
        ProposalWork::Prepare(request) => answer(&sandboxes.prepare(&request)?),
        ProposalWork::ListSandboxes(request) => answer(&sandboxes.list(&request)?),
        ProposalWork::ShowSandbox(request) => answer(&sandboxes.show_sandbox(&request.at)?),
        ProposalWork::Remove(request) => {
            sandboxes.remove(&request.at, request.force)?;
            answer(&Done {})
        }
        ProposalWork::Create(request) => answer(&sandboxes.create(&request, &Git)?),
        ProposalWork::List(request) => answer(&sandboxes.list_proposals(&request)?),
        ProposalWork::Show(request) => answer(&sandboxes.show(&request.at)?),
        ProposalWork::Diff(request) => answer(&sandboxes.diff(&request.at, request.offset)?),
        ProposalWork::Check(request) => answer(&sandboxes.check(&request.at)?),
        ProposalWork::Apply(request) => answer(&sandboxes.apply(&request)?),
        ProposalWork::Reject(request) => answer(&sandboxes.reject(&request.at, &request.reason)?),
        ProposalWork::Revert(request) => answer(&sandboxes.revert(&request.at)?),
        ProposalWork::Verify(_) => answer(&sandboxes.verify()?),
        ProposalWork::Merge(request) => answer(&sandboxes.merge(&request, &Git)?),
    })
}

fn answer(result: &impl Serialize) -> Answer {
    serde_json::to_value(result)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}

/// Finishes, in every workspace there is, what was interrupted. Blocks. What cannot be finished is logged, and
/// tried again by the next request about it.
pub(super) fn recover(disk: &dyn Disk, layout: &Layout, at: Timestamp) -> Vec<Input> {
    // Whoever opens workspaces says why they cannot be listed.
    let (records, _) = workspace::list(disk, layout).unwrap_or_default();
    let mut inputs = Vec::new();
    for record in records {
        let dir = layout.sandboxes(&record.workspace_id);
        if !matches!(disk.stat(&dir), Ok(Some(_))) {
            continue;
        }
        let files = RealFiles;
        let mut sandboxes = Sandboxes::new(&files, dir, &record.project_root, at);
        for problem in sandboxes.recover_all() {
            tracing::error!(
                workspace_id = %record.workspace_id,
                error = &problem as &dyn std::error::Error,
                "what an earlier daemon did about a proposal cannot be finished yet"
            );
        }
        let happened = sandboxes.take_happened();
        if !happened.is_empty() {
            inputs.push(Input::Proposals {
                workspace_id: record.workspace_id,
                is_asked: false,
                done: ProposalsDone {
                    answer: Ok(Value::Null),
                    happened,
                },
            });
        }
    }
    inputs
}
