//! Proposals without a task in chats (`NEED-2`).
//!
//! Chats show the open proposals that `gdn inbox` lists: not those of tasks, which are decided with
//! the task, and not those of the merge queue. This state is not durable: it is read again after a
//! start, and after each change of a proposal. A decision is an operation on the proposal like a
//! client's, which refuses a second decision and a proposal that was replaced.

use std::collections::BTreeMap;

use goondan_config::{ApprovalChat, DecisionClass, DecisionKind};
use goondan_protocol::control::{
    ApplyProposal, ControlError, ListProposals, MERGE_QUEUE, ProposalDetail, ProposalInfo,
    ProposalState, ProposalsPage, RejectProposal, SandboxRef, ShowProposal,
};
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionChoice, DecisionForm, DecisionNotice, DecisionShow,
    DecisionSubject, DecisionVerdict,
};
use goondan_protocol::ids::{DecisionId, WorkspaceId};
use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::bus::queue::{Message, Notice};
use crate::exchange::chat_proposals::ChatProposalStep;
use crate::exchange::{ChildRequest, ProposalWork, TaskRef};
use crate::limits::{CHAT_PROPOSAL_FILES_MAX, CHAT_PROPOSAL_SUMMARY_CHARS_MAX};
use crate::requests::proposals::ProposalRequester;
use crate::tasks::proposals::in_words;
use crate::{Core, LogEvent};

/// The proposals of each workspace that has chats.
#[derive(Debug, Default)]
pub(crate) struct ChatProposals(BTreeMap<WorkspaceId, ProposalSpace>);

#[derive(Debug, Default)]
struct ProposalSpace {
    known: BTreeMap<DecisionId, ChatProposal>,
    /// True if all proposals were read once.
    is_read: bool,
    /// True if a proposal changed since the last reading began.
    is_stale: bool,
    /// Proposals of the pages read so far, while the list is read.
    reading: Option<Vec<ProposalInfo>>,
    /// True while the files of a proposal are read.
    is_reading_files: bool,
}

#[derive(Debug)]
struct ChatProposal {
    info: ProposalInfo,
    /// Summary of its files; `None` until they are read.
    text: Option<String>,
    /// True while a decision is carried out.
    is_deciding: bool,
    /// Outcome of a decision in a chat.
    outcome: Option<String>,
}

impl ChatProposal {
    fn is_open(&self) -> bool {
        let is_sound = self.info.problem.is_none() && self.outcome.is_none();
        self.info.state == ProposalState::Open && is_sound
    }

    fn outcome(&self) -> Option<String> {
        let is_closed = self.info.state != ProposalState::Open;
        let state = is_closed.then(|| self.info.state.as_str().to_owned());
        self.outcome.clone().or(state)
    }

    /// As chats show it; `None` until its files are read.
    fn shown(&self, decision_id: &DecisionId) -> Option<DecisionShow> {
        let SandboxRef { run_id, agent_id } = &self.info.at;
        let choice = |answer, label: &str| DecisionChoice {
            answer,
            label: label.to_owned(),
        };
        Some(DecisionShow {
            decision_id: decision_id.clone(),
            about: DecisionSubject::Proposal(DecisionNotice {
                of: format!("proposal {run_id}/{agent_id}"),
                text: self.text.clone()?,
                command: format!("proposal show {run_id} {agent_id}"),
            }),
            form: DecisionForm {
                choices: vec![
                    choice(DecisionButton::Approve, "Approve"),
                    choice(DecisionButton::Deny, "Reject"),
                ],
                reply: Some("reject it with a reason".to_owned()),
            },
            expires: None,
        })
    }
}

/// Id of a proposal in chats. A proposal that replaces another one has another id.
fn id_of(info: &ProposalInfo) -> DecisionId {
    let SandboxRef { run_id, agent_id } = &info.at;
    let created_at = info.created_at.as_unix_millis();
    let text = format!(
        "proposal\0{run_id}\0{agent_id}\0{created_at}\0{}",
        info.digest
    );
    digest_id(&text)
}

/// Id that is derived from a text, the same after each start.
pub(crate) fn digest_id(text: &str) -> DecisionId {
    let digest = Sha256::digest(text);
    let mut short = [0; 8];
    short
        .iter_mut()
        .zip(digest)
        .for_each(|(to, from)| *to = from);
    DecisionId::of_digest(short)
}

/// Changed files, and the start of the author's summary.
fn text_of(detail: &ProposalDetail) -> String {
    let mut text = match detail.files.len() {
        1 => "1 changed file".to_owned(),
        files => format!("{files} changed files"),
    };
    for file in detail.files.iter().take(CHAT_PROPOSAL_FILES_MAX) {
        let status = file.change.status.as_str();
        text.push_str(&format!("\n- {} ({status})", file.change.path));
    }
    if let Some(more @ 1..) = detail.files.len().checked_sub(CHAT_PROPOSAL_FILES_MAX) {
        text.push_str(&format!("\n- and {more} more"));
    }
    let summary = detail.summary.trim();
    if !summary.is_empty() {
        let mut chars = summary.chars();
        text.push('\n');
        text.extend(chars.by_ref().take(CHAT_PROPOSAL_SUMMARY_CHARS_MAX));
        text.extend(chars.next().map(|_| '…'));
    }
    text
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, String> {
    serde_json::from_value(answer).map_err(|error| error.to_string())
}

impl ChatProposals {
    /// True if all proposals of a workspace were read since its chats appeared.
    pub(crate) fn are_read(&self, id: &WorkspaceId) -> bool {
        self.0.get(id).is_some_and(|space| space.is_read)
    }

    /// Drops a closed workspace.
    pub(crate) fn forget(&mut self, id: &WorkspaceId) {
        self.0.remove(id);
    }

    fn get(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<&ChatProposal> {
        self.0.get(id)?.known.get(decision_id)
    }

    fn get_mut(&mut self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<&mut ChatProposal> {
        self.0.get_mut(id)?.known.get_mut(decision_id)
    }

    /// Outcome of a proposal that is no longer open, for people to read.
    pub(crate) fn outcome_of(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<String> {
        self.get(id, decision_id)?.outcome()
    }
}

impl ProposalSpace {
    /// Replaces the proposals by those of a complete list.
    fn replace(&mut self, listed: Vec<ProposalInfo>) {
        let mut before = std::mem::take(&mut self.known);
        for info in listed {
            let decision_id = id_of(&info);
            let proposal = match before.remove(&decision_id) {
                Some(known) => ChatProposal { info, ..known },
                None => ChatProposal {
                    info,
                    text: None,
                    is_deciding: false,
                    outcome: None,
                },
            };
            self.known.insert(decision_id, proposal);
        }
        self.is_read = true;
    }
}

impl Core {
    /// Notes that a proposal of a workspace has changed.
    pub(crate) fn note_proposals(&mut self, id: &WorkspaceId) {
        // A workspace without chats has none to show.
        if let Some(space) = self.chat_proposals.0.get_mut(id) {
            space.is_stale = true;
            let notice = Notice::Decisions(id.clone());
            self.fleet.post(Message::Notice(notice));
        }
    }

    /// Reads the proposals of a workspace with chats, if they may have changed.
    pub(crate) fn read_proposals(&mut self, id: &WorkspaceId) {
        let space = self.chat_proposals.0.entry(id.clone()).or_default();
        let is_current = space.is_read && !space.is_stale;
        if space.reading.is_none() && !is_current {
            space.reading = Some(Vec::new());
            space.is_stale = false;
            self.list_proposals(id, None);
        }
        self.read_proposal_files(id);
    }

    fn list_proposals(&mut self, id: &WorkspaceId, after: Option<SandboxRef>) {
        let list = ListProposals {
            workspace_id: id.clone(),
            run_id: None,
            after,
            limit: None,
        };
        let step = ChatProposalStep::List(id.clone());
        let asker = ProposalRequester::Chat(Box::new(step));
        self.use_proposals(asker, ProposalWork::List(list));
    }

    /// True if chats decide about the proposal. Tasks and the merge queue decide about theirs.
    fn is_for_chats(&self, id: &WorkspaceId, info: &ProposalInfo) -> bool {
        let run_id = info.at.run_id.as_str();
        let task: Option<TaskId> = run_id.parse().ok();
        let task = task.map(|task| TaskRef::new(id, &task));
        let is_of_task = task.is_some_and(|at| self.tasks.is_known(&at));
        self.tasks.are_read(id) && run_id != MERGE_QUEUE && !is_of_task
    }

    /// Reads the files of the next open proposal, one after the other.
    fn read_proposal_files(&mut self, id: &WorkspaceId) {
        let Some(space) = self.chat_proposals.0.get(id) else {
            return;
        };
        if space.is_reading_files {
            return;
        }
        let unread = space
            .known
            .iter()
            .find(|(_, it)| it.is_open() && it.text.is_none() && self.is_for_chats(id, &it.info));
        let Some((decision_id, proposal)) = unread else {
            return;
        };
        let (decision_id, at) = (decision_id.clone(), proposal.info.at.clone());
        if let Some(space) = self.chat_proposals.0.get_mut(id) {
            space.is_reading_files = true;
        }
        let show = ShowProposal {
            at,
            workspace_id: id.clone(),
        };
        let step = ChatProposalStep::Files(id.clone(), decision_id);
        let asker = ProposalRequester::Chat(Box::new(step));
        self.use_proposals(asker, ProposalWork::Show(show));
    }

    /// True if a proposal waits for a decision, also while its files are not read yet.
    pub(crate) fn is_proposal_open(&self, id: &WorkspaceId, decision_id: &DecisionId) -> bool {
        let proposal = self.chat_proposals.get(id, decision_id);
        proposal.is_some_and(|it| it.is_open() && self.is_for_chats(id, &it.info))
    }

    /// Open proposals of a workspace, as chats show them, with the time since when each is open.
    pub(crate) fn open_proposals(&self, id: &WorkspaceId) -> Vec<(Timestamp, DecisionShow)> {
        let spaces = self.chat_proposals.0.get(id).into_iter();
        let known = spaces.flat_map(|space| &space.known);
        let open = known.filter(|(_, it)| it.is_open() && self.is_for_chats(id, &it.info));
        let shown = open.filter_map(|(decision_id, it)| {
            let show = it.shown(decision_id)?;
            Some((it.info.created_at, show))
        });
        shown.collect()
    }

    /// Handles the result of an operation that chats wait for.
    pub(crate) fn on_chat_proposals(
        &mut self,
        step: &ChatProposalStep,
        result: Result<Value, ControlError>,
    ) {
        match step {
            ChatProposalStep::List(id) => {
                let page = result.map_err(|error| in_words(&error)).and_then(read);
                self.on_proposals_listed(id, page);
            }
            ChatProposalStep::Files(id, decision_id) => {
                let detail = result.map_err(|error| in_words(&error)).and_then(read);
                self.on_proposal_files(id, decision_id, detail);
            }
            ChatProposalStep::Decide {
                workspace_id,
                decision_id,
                press,
                how,
                by,
            } => {
                let about = (workspace_id, decision_id);
                let verdict = self.on_proposal_decided(about, result.map(drop), (how, by));
                self.fleet.cx().answer_press(*press, verdict);
            }
        }
    }

    fn on_proposals_listed(&mut self, id: &WorkspaceId, page: Result<ProposalsPage, String>) {
        let Some(space) = self.chat_proposals.0.get_mut(id) else {
            return;
        };
        let mut listed = space.reading.take().unwrap_or_default();
        match page {
            Ok(page) => {
                listed.extend(page.proposals);
                if page.next.is_some() {
                    space.reading = Some(listed);
                    return self.list_proposals(id, page.next);
                }
                space.replace(listed);
                let notice = Notice::Decisions(id.clone());
                self.fleet.post(Message::Notice(notice));
            }
            Err(problem) => {
                // The next change of a decision tries again.
                space.is_stale = true;
                self.log_unread_proposals(id, problem);
            }
        }
    }

    fn on_proposal_files(
        &mut self,
        id: &WorkspaceId,
        decision_id: &DecisionId,
        detail: Result<ProposalDetail, String>,
    ) {
        let Some(space) = self.chat_proposals.0.get_mut(id) else {
            return;
        };
        space.is_reading_files = false;
        match detail {
            Ok(detail) => {
                // A proposal that was replaced in the meantime is listed again.
                let proposal = space.known.get_mut(decision_id);
                let proposal = proposal.filter(|it| it.info.digest == detail.info.digest);
                match proposal {
                    Some(proposal) => proposal.text = Some(text_of(&detail)),
                    None => space.is_stale = true,
                }
                let notice = Notice::Decisions(id.clone());
                self.fleet.post(Message::Notice(notice));
            }
            Err(problem) => {
                space.is_stale = true;
                self.log_unread_proposals(id, problem);
            }
        }
    }

    fn log_unread_proposals(&mut self, id: &WorkspaceId, problem: String) {
        let event = LogEvent::warn("failed to read proposals for chats");
        let event = event.with("workspaceId", id.as_str());
        self.fleet.cx().log(event.with("problem", problem));
    }

    /// Carries out the decision of an authorized person; `None` if no proposal has this id. The
    /// connection receives the result once it is durable.
    pub(crate) fn decide_proposal(
        &mut self,
        (id, decision_id): (&WorkspaceId, &DecisionId),
        press: ChildRequest,
        (by, answer): &(String, &DecisionAnswer),
        chat: &ApprovalChat,
    ) -> Option<Result<(), DecisionVerdict>> {
        let proposal = self.chat_proposals.get(id, decision_id)?;
        let info = &proposal.info;
        if !self.is_for_chats(id, info) {
            return None;
        }
        let class = DecisionClass {
            agent: None,
            kind: DecisionKind::Proposal,
        };
        let not_allowed = |message: &str| {
            let message = message.to_owned();
            Some(Err(DecisionVerdict::NotAllowed { message }))
        };
        if let Some(reason) = chat.refusal(class) {
            return not_allowed(reason);
        }
        if let Some(how) = proposal.outcome() {
            return Some(Err(DecisionVerdict::DecidedBefore { how }));
        }
        if proposal.is_deciding {
            // It may fail.
            let message = "another decision about it is being carried out".to_owned();
            return Some(Err(DecisionVerdict::NotNow { message }));
        }
        let reject = |reason: &str| {
            ProposalWork::Reject(RejectProposal {
                at: info.at.clone(),
                workspace_id: id.clone(),
                reason: reason.to_owned(),
            })
        };
        let (work, how) = match answer {
            DecisionAnswer::Button(DecisionButton::Approve) => {
                let apply = ApplyProposal {
                    at: info.at.clone(),
                    workspace_id: id.clone(),
                    digest: Some(info.digest.clone()),
                    allow_moved_base: false,
                };
                (ProposalWork::Apply(apply), format!("applied by {by}"))
            }
            DecisionAnswer::Button(DecisionButton::Deny) => {
                (reject(""), format!("rejected by {by}"))
            }
            DecisionAnswer::Text(text) => {
                let text = text.trim();
                (reject(text), format!("rejected by {by}: {text}"))
            }
            DecisionAnswer::Button(DecisionButton::Option(_)) => {
                return not_allowed("a proposal has no options");
            }
        };
        let step = ChatProposalStep::Decide {
            workspace_id: id.clone(),
            decision_id: decision_id.clone(),
            press,
            how,
            by: by.clone(),
        };
        if let Some(proposal) = self.chat_proposals.get_mut(id, decision_id) {
            proposal.is_deciding = true;
        }
        self.use_proposals(ProposalRequester::Chat(Box::new(step)), work);
        Some(Ok(()))
    }

    fn on_proposal_decided(
        &mut self,
        (id, decision_id): (&WorkspaceId, &DecisionId),
        result: Result<(), ControlError>,
        (how, by): (&str, &str),
    ) -> DecisionVerdict {
        // After a failure, another person may have decided it.
        self.note_proposals(id);
        let proposal = self.chat_proposals.get_mut(id, decision_id);
        let Some(proposal) = proposal else {
            return match result {
                Ok(()) => DecisionVerdict::Decided {
                    how: how.to_owned(),
                },
                Err(_) => DecisionVerdict::Over {},
            };
        };
        proposal.is_deciding = false;
        if let Err(error) = result {
            let message = in_words(&error);
            return DecisionVerdict::NotAllowed { message };
        }
        proposal.outcome = Some(how.to_owned());
        let SandboxRef { run_id, agent_id } = &proposal.info.at;
        let details = json!({
            "runId": run_id, "agentId": agent_id, "digest": proposal.info.digest, "by": by,
            "outcome": how,
        });
        self.fleet
            .cx()
            .audit_workspace(id, "proposalDecided", details);
        DecisionVerdict::Decided {
            how: how.to_owned(),
        }
    }
}
