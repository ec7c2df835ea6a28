//! Checking the files of conversations and workspaces, and setting damage aside (`MSG-11`).

use std::collections::btree_map::Entry;

use goondan_durable::{Severity, VerificationResult};
use goondan_protocol::control::{
    ControlError, ErrorCode, FileFinding, FindingSeverity, Verification, VerifyInstances,
    VerifyRoot,
};
use goondan_protocol::ids::{InstanceKey, InstanceRef, WorkspaceId};
use goondan_store::StoreError;
use goondan_store::writer::operation::{VerifyInstance, VerifyRootFiles, VerifyWorkspaceFiles};
use serde_json::json;

use super::proposals::ProposalRequester;
use crate::exchange::{ProposalWork, SecretWork, VerifySandboxes};
use crate::fleet::Fleet;
use crate::fleet::conversation::Conversation;
use crate::jobs::{Continuation, continuation};
use crate::{Core, CoreEffect, ListPurpose, RequestToken, control_error};

/// A verification that still waits for some of its instances.
#[derive(Debug, Default)]
pub(super) struct PendingVerification {
    outstanding: usize,
    /// The workspace whose damage is set aside.
    repaired: Option<WorkspaceId>,
    found: Verification,
    failure: Option<ControlError>,
}

continuation! {
    /// A conversation that is checked for a client.
    VerifyingInstance { token: RequestToken, is_repair: bool } after VerifyInstance => &core.on_verified
}

/// A client's check of the files of a workspace, or of the system's own files.
#[derive(Debug)]
struct OwnFilesVerification {
    token: RequestToken,
    /// Workspace whose losses a person acknowledges.
    repaired: Option<WorkspaceId>,
}

impl Continuation<VerifyWorkspaceFiles> for OwnFilesVerification {
    fn instance(&self) -> Option<&InstanceRef> {
        None
    }

    fn resume(
        self: Box<Self>,
        core: &mut Core,
        result: Result<Box<VerificationResult>, StoreError>,
    ) {
        core.on_own_files_verified(*self, result);
    }
}

impl Continuation<VerifyRootFiles> for OwnFilesVerification {
    fn instance(&self) -> Option<&InstanceRef> {
        None
    }

    fn resume(
        self: Box<Self>,
        core: &mut Core,
        result: Result<Box<VerificationResult>, StoreError>,
    ) {
        core.on_own_files_verified(*self, result);
    }
}

fn is_in_turn(fleet: &Fleet, at: &InstanceRef) -> bool {
    let entry = fleet.conversation(at);
    entry.is_some_and(Conversation::is_in_turn)
}

impl Core {
    /// Checks one conversation or all of a workspace.
    pub(super) fn verify(&mut self, token: RequestToken, request: VerifyInstances) {
        if let Err(error) = self.fleet.workspace(&request.workspace_id) {
            return self.fleet.respond_error(token, error);
        }
        if let Some(key) = request.instance_key.clone() {
            return self.verify_all(token, &request, vec![key]);
        }
        let workspace_id = request.workspace_id.clone();
        let purpose = ListPurpose::Verify { token, request };
        self.fleet.cx().emit(CoreEffect::ListMetadata {
            purpose,
            workspace_id,
        });
    }

    pub(super) fn verify_all(
        &mut self,
        token: RequestToken,
        request: &VerifyInstances,
        keys: Vec<InstanceKey>,
    ) {
        let wall = self.fleet.now().wall;
        let instances: Vec<InstanceRef> = keys
            .into_iter()
            .map(|instance_key| InstanceRef {
                workspace_id: request.workspace_id.clone(),
                instance_key,
            })
            .collect();
        if request.repair
            && let Some(busy) = instances.iter().find(|at| is_in_turn(&self.fleet, at))
        {
            let message = format!("conversation `{}` is in a turn", busy.instance_key);
            let error = ControlError::new(ErrorCode::Overloaded, message)
                .suggest("wait until the turn ends (see `gdn ps`), then repair");
            return self.fleet.respond_error(token, error);
        }
        let is_whole = request.instance_key.is_none();
        let verifying = PendingVerification {
            // The instances, the workspace's own files, and its sandboxes, tasks and checkpoints.
            outstanding: instances.len() + 2 * usize::from(is_whole),
            repaired: request.repair.then(|| request.workspace_id.clone()),
            ..PendingVerification::default()
        };
        self.requests.verifications.insert(token, verifying);
        if is_whole {
            let workspace_id = request.workspace_id.clone();
            let repair = request.repair;
            let repaired = repair.then(|| workspace_id.clone());
            let op = VerifyWorkspaceFiles {
                workspace_id,
                repair,
            };
            self.fleet
                .cx()
                .store(op, OwnFilesVerification { token, repaired });
            let work = ProposalWork::Verify(VerifySandboxes {
                workspace_id: request.workspace_id.clone(),
                repair: request.repair,
                open_tasks: self.tasks.open_tasks(&request.workspace_id),
            });
            self.use_proposals(ProposalRequester::Verification(token), work);
        }
        for instance in instances {
            if request.repair
                && let Some((entry, cx)) = self.fleet.conversation_and_cx(&instance)
            {
                entry.end_idle_process(cx);
            }
            let op = VerifyInstance {
                instance: instance.clone(),
                repair: request.repair,
                at: wall,
            };
            let is_repair = request.repair;
            let verifying = VerifyingInstance {
                instance,
                token,
                is_repair,
            };
            self.fleet.cx().store(op, verifying);
        }
        self.finish_verification(token);
    }

    /// Checks the files that belong to no workspace.
    pub(super) fn verify_root(&mut self, token: RequestToken, request: &VerifyRoot) {
        let verifying = PendingVerification {
            // The system's own files, and the encrypted documents.
            outstanding: 2,
            ..PendingVerification::default()
        };
        self.requests.verifications.insert(token, verifying);
        let repair = request.repair;
        let repaired = None;
        let op = VerifyRootFiles { repair };
        self.fleet
            .cx()
            .store(op, OwnFilesVerification { token, repaired });
        self.use_secrets(token, SecretWork::Verify { repair });
    }

    /// The encrypted documents were checked.
    pub(super) fn on_documents_verified(&mut self, token: RequestToken, found: VerificationResult) {
        self.take_verified(token, None, Ok(found));
    }

    fn on_verified(
        &mut self,
        verifying: &VerifyingInstance,
        result: Result<Box<VerificationResult>, StoreError>,
    ) {
        let (at, token) = (&verifying.instance, verifying.token);
        let found = match result {
            Ok(found) => Ok(*found),
            Err(error) => Err(control_error(&error)),
        };
        if verifying.is_repair {
            if let Ok(found) = &found
                && !(found.kept.is_empty() && found.findings.is_empty())
            {
                let known: Vec<&str> = found.findings.iter().map(|f| f.problem.as_str()).collect();
                let details = json!({"kept": found.kept, "findings": known});
                self.fleet.audit(at, "repaired", details);
            }
            if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
                workspace.invalidate_queue(cx, at);
            }
        }
        self.take_verified(token, Some(&at.instance_key), found);
    }

    fn on_own_files_verified(
        &mut self,
        verifying: OwnFilesVerification,
        result: Result<Box<VerificationResult>, StoreError>,
    ) {
        let OwnFilesVerification { token, repaired } = verifying;
        let found = match result {
            Ok(found) => Ok(*found),
            Err(error) => Err(control_error(&error)),
        };
        if let (Some(id), Ok(found)) = (repaired, &found)
            && !found.findings.is_empty()
        {
            let known: Vec<&str> = found.findings.iter().map(|f| f.problem.as_str()).collect();
            self.fleet
                .cx()
                .audit_workspace(&id, "acknowledged", json!({ "findings": known }));
        }
        self.take_verified(token, None, found);
    }

    /// The sandboxes of a workspace were checked, or the check failed.
    pub(super) fn on_sandboxes_verified(
        &mut self,
        token: RequestToken,
        result: Result<serde_json::Value, ControlError>,
    ) {
        let found = result.and_then(|value| {
            serde_json::from_value::<(u64, VerificationResult)>(value)
                .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
        });
        let verifying = self.requests.verifications.get(&token);
        if let Some(id) = verifying.and_then(|verifying| verifying.repaired.clone()) {
            self.tasks.on_repaired(&mut self.fleet, &id);
        }
        let found = found.map(|(sandboxes, found)| {
            if let Some(verifying) = self.requests.verifications.get_mut(&token) {
                verifying.found.sandboxes += sandboxes;
            }
            found
        });
        self.take_verified(token, None, found);
    }

    fn take_verified(
        &mut self,
        token: RequestToken,
        of: Option<&InstanceKey>,
        found: Result<VerificationResult, ControlError>,
    ) {
        if let Some(verifying) = self.requests.verifications.get_mut(&token) {
            verifying.outstanding = verifying.outstanding.saturating_sub(1);
            match found {
                Ok(found) => verifying.add(of, found),
                Err(error) => verifying.failure = Some(error),
            }
        }
        self.finish_verification(token);
    }

    fn finish_verification(&mut self, token: RequestToken) {
        let Entry::Occupied(entry) = self.requests.verifications.entry(token) else {
            return;
        };
        if entry.get().outstanding > 0 {
            return;
        }
        let verifying = entry.remove();
        match verifying.failure {
            Some(error) => self.fleet.respond_error(token, error),
            None => self.fleet.respond(token, &verifying.found),
        }
    }
}

impl PendingVerification {
    fn add(&mut self, of: Option<&InstanceKey>, found: VerificationResult) {
        self.found.instances += u64::from(of.is_some());
        self.found.files += found.files;
        self.found.bytes += found.bytes;
        self.found.kept.extend(found.kept);
        let findings = found.findings.into_iter();
        let findings = findings.map(|finding| finding_told(of.cloned(), finding));
        self.found.findings.extend(findings);
    }
}

/// Converts a finding to the format for clients.
#[must_use]
pub fn finding_told(
    instance_key: Option<InstanceKey>,
    finding: goondan_durable::Finding,
) -> FileFinding {
    let kind = serde_json::to_value(finding.kind).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default().to_owned();
    FileFinding {
        instance_key,
        severity: match finding.severity {
            Severity::Info => FindingSeverity::Info,
            Severity::Warning => FindingSeverity::Warning,
            Severity::Error => FindingSeverity::Error,
        },
        kind,
        path: finding.path,
        line: finding.line,
        bytes: finding.bytes.map(|bytes| [bytes.from, bytes.to]),
        problem: finding.problem,
        advice: finding.advice,
        kept_in: finding.kept_in,
    }
}
