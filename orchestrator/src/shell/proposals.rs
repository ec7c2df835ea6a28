//! Executes operations on sandboxes and proposals, and at the start finishes interrupted ones of an
//! earlier daemon (`PROP-3`).

use std::path::Path;

use goondan_core::{
    ApplyByAgent, CoreInput, NoteDelivery, ProposalWork, ProposalsResult, QueueStep, QueueWork,
    QueuedSandbox, ReviewByAgent, ReviewingAgent, VerifySandboxes,
};
use goondan_durable::VerificationResult;
use goondan_proposals::{
    AgentReviewer, FileAccess, ProposalError, QueueGit, QueuePlace, QueuedProposal,
    RepositoryClone, Sandboxes,
};
use goondan_protocol::control::{ControlError, EmptyResult, ErrorCode};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::workspace;
use serde::Serialize;
use serde_json::Value;

mod git;
mod repositories;

use super::daemon_files::DaemonFiles;
use super::verification::Verification;
use git::Git;

#[derive(Debug, Clone)]
pub(super) struct ProposalFiles {
    files: DaemonFiles,
    /// True if there are other nodes.
    hands_on: bool,
}

impl ProposalFiles {
    pub(super) fn new(files: DaemonFiles, hands_on: bool) -> Self {
        Self { files, hands_on }
    }

    fn sandboxes(
        &self,
        layout: &Layout,
        workspace: &WorkspaceId,
        project_root: &Path,
        at: Timestamp,
    ) -> Sandboxes<'_> {
        let sandboxes = Sandboxes::new(&self.files, layout.sandboxes(workspace), project_root, at);
        match self.hands_on {
            true => sandboxes.handing_on(),
            false => sandboxes,
        }
    }
}

/// Executes an operation of the core. Blocks.
pub(super) fn carry_out(
    files: &ProposalFiles,
    layout: &Layout,
    project_root: &Path,
    work: ProposalWork,
    at: Timestamp,
) -> ProposalsResult {
    let mut sandboxes = files.sandboxes(layout, work.workspace_id(), project_root, at);
    let others = |request: &VerifySandboxes| {
        let verification = Verification {
            disk: files.files.disk(),
            layout,
            workspace_id: &request.workspace_id,
            repair: request.repair,
            open_tasks: &request.open_tasks,
            now: at,
        };
        Ok(verification.run()?)
    };
    let answer = perform(&mut sandboxes, project_root, others, work)
        .unwrap_or_else(|error| Err(error.into()));
    ProposalsResult {
        answer,
        happened: sandboxes.take_happened(),
    }
}

type ProposalAnswer = Result<Value, ControlError>;

/// Merges findings from sandboxes and elsewhere, without duplicates of the same file.
fn verified(
    (count, mut found): (u64, VerificationResult),
    mut others: VerificationResult,
) -> ProposalAnswer {
    let told = |path: &Path| found.findings.iter().any(|finding| finding.path == path);
    others.findings.retain(|finding| !told(&finding.path));
    found.files += others.files;
    found.bytes += others.bytes;
    found.kept.extend(others.kept);
    found.findings.extend(others.findings);
    answer(&(count, found))
}

fn perform(
    sandboxes: &mut Sandboxes<'_>,
    project_root: &Path,
    others: impl FnOnce(&VerifySandboxes) -> Result<VerificationResult, ControlError>,
    work: ProposalWork,
) -> Result<ProposalAnswer, ProposalError> {
    Ok(match work {
        ProposalWork::Prepare(request) => answer(&sandboxes.prepare(&request)?),
        ProposalWork::PrepareForTask(request) => {
            let source = request.source.as_ref().map(|source| RepositoryClone {
                source,
                credentials: request.credentials.as_ref(),
            });
            let (prepare, made_at) = (&request.prepare, request.made_at);
            answer(&sandboxes.prepare_for_task(prepare, made_at, source.as_ref(), &Git)?)
        }
        ProposalWork::ProposeForTask(request) => {
            let words = request.words.as_deref();
            answer(&sandboxes.propose(&request.create, words, &Git)?)
        }
        ProposalWork::Deliver(request) => answer(&sandboxes.deliver(&request)?),
        ProposalWork::DeliverBranch(request) => {
            let credentials = request.credentials.as_ref();
            answer(&sandboxes.deliver_branch(&request.apply, credentials, &Git)?)
        }
        ProposalWork::NoteDelivery(request) => {
            let NoteDelivery {
                at,
                digest,
                delivered_as,
                ..
            } = &request;
            sandboxes.note_delivered(at, digest, delivered_as)?;
            answer(&EmptyResult {})
        }
        ProposalWork::ListSandboxes(request) => answer(&sandboxes.list(&request)?),
        ProposalWork::ShowSandbox(request) => answer(&sandboxes.show_sandbox(&request.at)?),
        ProposalWork::Remove(request) => {
            sandboxes.remove(&request.at, request.force)?;
            answer(&EmptyResult {})
        }
        ProposalWork::Create(request) => answer(&sandboxes.create(&request, &Git)?),
        ProposalWork::List(request) => answer(&sandboxes.list_proposals(&request)?),
        ProposalWork::Show(request) => answer(&sandboxes.show(&request.at)?),
        ProposalWork::Diff(request) => answer(&sandboxes.diff(&request.at, request.offset)?),
        ProposalWork::Check(request) => answer(&sandboxes.check(&request.at)?),
        ProposalWork::Review(request) => answer(&sandboxes.review(&request.at)?),
        ProposalWork::Apply(request) => answer(&sandboxes.apply(&request)?),
        ProposalWork::ReviewByAgent(ReviewByAgent { at, by, .. }) => {
            let is_configuration = |path: &Path| by.sources.concerns(&project_root.join(path));
            answer(&sandboxes.review_by_agent(&at, &reviewer(&by, &is_configuration))?)
        }
        ProposalWork::ApplyByAgent(ApplyByAgent { apply, by, .. }) => {
            let is_configuration = |path: &Path| by.sources.concerns(&project_root.join(path));
            answer(&sandboxes.apply_by_agent(&apply, &reviewer(&by, &is_configuration))?)
        }
        ProposalWork::Reject(request) => answer(&sandboxes.reject(&request.at, &request.reason)?),
        ProposalWork::Comment(request) => answer(&sandboxes.comment(&request)?),
        ProposalWork::Uncomment(request) => {
            sandboxes.uncomment(&request)?;
            answer(&EmptyResult {})
        }
        ProposalWork::TakeComments(request) => {
            answer(&sandboxes.take_comments(&request.at, request.round)?)
        }
        ProposalWork::Revert(request) => answer(&sandboxes.revert(&request.at)?),
        ProposalWork::Verify(request) => {
            let found = sandboxes.verify()?;
            others(&request).and_then(|others| verified(found, others))
        }
        ProposalWork::Merge(request) => answer(&sandboxes.merge(&request, &Git)?),
        ProposalWork::Queue(request) => serve_queue(sandboxes, request)?,
    })
}

fn serve_queue(
    sandboxes: &mut Sandboxes<'_>,
    work: QueueWork,
) -> Result<ProposalAnswer, ProposalError> {
    let git = QueueGit {
        patches: &Git,
        repositories: &Git,
        branches: &Git,
    };
    let repository = work.repository.as_ref().map(|repository| RepositoryClone {
        source: &repository.source,
        credentials: repository.credentials.as_ref(),
    });
    let place = QueuePlace {
        workspace_id: &work.workspace_id,
        exclude: &work.exclude,
        repository,
    };
    let of = |QueuedSandbox { task, at, digest }| QueuedProposal { task, at, digest };
    let all = |proposals: Vec<QueuedSandbox>| proposals.into_iter().map(of).collect::<Vec<_>>();
    Ok(match work.step {
        QueueStep::Load => answer(&sandboxes.queue_records()?),
        QueueStep::Record(records) => {
            sandboxes.record_queue(&records)?;
            answer(&EmptyResult {})
        }
        QueueStep::Rebase { attempt, proposals } => {
            answer(&sandboxes.rebase_queued(&place, attempt, &all(proposals), git)?)
        }
        QueueStep::Land { landing, proposals } => {
            answer(&sandboxes.land_queued(&place, &landing, &all(proposals), git)?)
        }
        QueueStep::Find { landing } => answer(&sandboxes.find_landing(&place, &landing, git)?),
        QueueStep::Discard { attempt } => {
            sandboxes.discard_attempt(attempt)?;
            answer(&EmptyResult {})
        }
        QueueStep::HandBack(queued) => answer(&sandboxes.hand_back(&place, &of(queued), &Git)?),
    })
}

fn reviewer<'a>(
    by: &'a ReviewingAgent,
    is_configuration: &'a dyn Fn(&Path) -> bool,
) -> AgentReviewer<'a> {
    AgentReviewer {
        agent: by.agent.as_str(),
        conversation: by.instance_key.as_str(),
        paths: &by.paths,
        is_configuration,
    }
}

fn answer(result: &impl Serialize) -> ProposalAnswer {
    serde_json::to_value(result)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}

/// Finishes interrupted operations in every workspace. Blocks. Failures are logged, and retried by
/// the next request about the same proposal.
pub(super) fn recover_all(files: &ProposalFiles, layout: &Layout, at: Timestamp) -> Vec<CoreInput> {
    // An error of the listing is reported when workspaces are opened.
    let (records, _) = workspace::list(files.files.disk(), layout).unwrap_or_default();
    let recovered = records.into_iter().map(|record| {
        recover(
            files,
            layout,
            &record.workspace_id,
            &record.project_root,
            at,
        )
    });
    recovered.flatten().collect()
}

/// Finishes interrupted operations in one workspace, after it has taken over operations of other
/// nodes.
pub(super) fn recover(
    files: &ProposalFiles,
    layout: &Layout,
    workspace_id: &WorkspaceId,
    project_root: &Path,
    at: Timestamp,
) -> Option<CoreInput> {
    let dir = layout.sandboxes(workspace_id);
    if !matches!(files.files.disk().stat(&dir), Ok(Some(_))) {
        return None;
    }
    let mut sandboxes = files.sandboxes(layout, workspace_id, project_root, at);
    for problem in sandboxes.take_on() {
        tracing::error!(
            workspace_id = %workspace_id,
            error = &problem as &dyn std::error::Error,
            "cannot yet unpack a proposal from another node"
        );
    }
    for problem in sandboxes.recover_all() {
        tracing::error!(
            workspace_id = %workspace_id,
            error = &problem as &dyn std::error::Error,
            "cannot yet finish an earlier daemon's change of a proposal"
        );
    }
    let happened = sandboxes.take_happened();
    (!happened.is_empty()).then(|| CoreInput::Proposals {
        workspace_id: workspace_id.clone(),
        is_asked: false,
        done: ProposalsResult {
            answer: Ok(Value::Null),
            happened,
        },
    })
}
