//! Standing approvals, read from a workspace's audit log (`NEED-1`, `STEER-3`).
//!
//! A person who approves a call can also approve later calls of the same agent and tool with equal
//! arguments. The audit log holds one record of the approval, and one if a person revokes it. The
//! standing approvals of a conversation end with its deletion.
//!
//! Secret values in the arguments are masked in the audit log. Calls are therefore compared by a
//! digest of the arguments, so that a call with the mask itself is not covered.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::approval::ApprovalScope;
use goondan_protocol::control::StandingApprovalInfo;
use goondan_protocol::ids::{AgentName, ApprovalId, InstanceKey, WorkspaceId};
use goondan_protocol::limits::MAX_STANDING_APPROVALS;
use goondan_protocol::time::Timestamp;
use goondan_store::instance::Metadata;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Audit event of a new standing approval, after the prefix `instance.`.
pub(crate) const STANDING_CREATED: &str = "standingApprovalCreated";
/// Audit event of a revoked one.
pub(crate) const STANDING_REVOKED: &str = "standingApprovalRevoked";

/// The calls that one standing approval covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StandingApproval {
    pub(crate) at: Timestamp,
    /// The conversation of the approved call, and the only covered one unless the scope is the
    /// workspace.
    pub(crate) instance_key: InstanceKey,
    pub(crate) agent_name: AgentName,
    pub(crate) tool_name: String,
    /// The arguments, for display: secret values are masked after a restart.
    pub(crate) input: Value,
    /// [`digest_of`] the arguments.
    pub(crate) input_digest: String,
    pub(crate) scope: ApprovalScope,
}

/// Digest of a call's arguments. It does not depend on the order of the names in objects.
pub(crate) fn digest_of(input: &Value) -> String {
    let mut sorted = input.clone();
    sorted.sort_all_objects();
    hex::encode(Sha256::digest(sorted.to_string()))
}

/// The standing approvals of a workspace, by the approval that created them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandingApprovals(BTreeMap<ApprovalId, StandingApproval>);

/// An audit record about one standing approval, or about a whole conversation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StandingRecord {
    event: String,
    instance_key: InstanceKey,
    #[serde(default)]
    approval_id: Option<ApprovalId>,
}

impl StandingApprovals {
    /// Substrings that identify the relevant lines of an audit log.
    pub const RECORDS: [&str; 3] = [STANDING_CREATED, STANDING_REVOKED, "instance.deleted"];

    /// Applies a record of the workspace's audit log. Records must be applied in order.
    pub fn follow(&mut self, fields: JsonObject) {
        let fields = Value::Object(fields);
        let Ok(record) = StandingRecord::deserialize(&fields) else {
            return;
        };
        let what = record.event.strip_prefix("instance.").unwrap_or_default();
        match (what, record.approval_id) {
            (STANDING_CREATED, Some(id)) => {
                if let Ok(standing) = StandingApproval::deserialize(&fields) {
                    self.add(id, standing);
                }
            }
            (STANDING_REVOKED, Some(id)) => drop(self.remove(&id)),
            ("deleted", _) => self.forget(&record.instance_key),
            _ => {}
        }
    }

    /// Drops those of conversations that no longer exist, or that were created again since: the
    /// daemon may have ended between a deletion and its audit record.
    pub fn retain_existing(&mut self, found: &[Metadata]) {
        self.0.retain(|_, standing| {
            let mut found = found.iter();
            let is_same = |of: &Metadata| {
                of.instance_key == standing.instance_key && of.created_at <= standing.at
            };
            standing.scope == ApprovalScope::Workspace || found.any(is_same)
        });
    }

    /// Adds one, unless there are too many.
    pub(crate) fn add(&mut self, id: ApprovalId, standing: StandingApproval) {
        if self.has_room() {
            self.0.insert(id, standing);
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < MAX_STANDING_APPROVALS
    }

    pub(crate) fn remove(&mut self, id: &ApprovalId) -> Option<StandingApproval> {
        self.0.remove(id)
    }

    /// Drops those of a deleted conversation.
    pub(crate) fn forget(&mut self, key: &InstanceKey) {
        self.0.retain(|_, standing| {
            standing.scope == ApprovalScope::Workspace || standing.instance_key != *key
        });
    }

    pub(crate) fn get(&self, id: &ApprovalId) -> Option<&StandingApproval> {
        self.0.get(id)
    }

    /// The standing approval that covers a call.
    pub(crate) fn covering(
        &self,
        (key, agent): (&InstanceKey, &AgentName),
        (tool_name, input): (&str, &Value),
    ) -> Option<&ApprovalId> {
        if self.0.is_empty() {
            return None;
        }
        let digest = digest_of(input);
        let mut all = self.0.iter();
        let found = all.find(|(_, standing)| {
            let is_in_scope = match standing.scope {
                ApprovalScope::Workspace => true,
                ApprovalScope::Conversation => standing.instance_key == *key,
            };
            is_in_scope
                && standing.agent_name == *agent
                && standing.tool_name == tool_name
                && standing.input_digest == digest
        });
        found.map(|(id, _)| id)
    }

    /// All standing approvals of a workspace, unordered.
    pub(crate) fn all(&self, id: &WorkspaceId) -> impl Iterator<Item = StandingApprovalInfo> {
        let all = self.0.iter();
        all.map(move |(approval_id, standing)| standing.info(id, approval_id))
    }
}

impl StandingApproval {
    pub(crate) fn info(&self, id: &WorkspaceId, approval_id: &ApprovalId) -> StandingApprovalInfo {
        let key = self.instance_key.clone();
        StandingApprovalInfo {
            workspace_id: id.clone(),
            approval_id: approval_id.clone(),
            instance_key: (self.scope == ApprovalScope::Conversation).then_some(key),
            agent_name: self.agent_name.clone(),
            tool_name: self.tool_name.clone(),
            input: self.input.clone(),
            created_at: self.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(id: &str, key: &str, scope: &str) -> JsonObject {
        let record = json!({
            "at": "2026-01-01T00:00:05.000Z",
            "event": "instance.standingApprovalCreated",
            "instanceKey": key, "agentName": "clerk", "approvalId": id,
            "toolName": "bash__exec", "input": {"command": "make"},
            "inputDigest": digest_of(&json!({"command": "make"})), "scope": scope,
        });
        record.as_object().unwrap().clone()
    }

    fn record(event: &str, key: &str, id: Option<&str>) -> JsonObject {
        let mut record = json!({
            "at": "2026-01-01T00:00:06.000Z", "event": format!("instance.{event}"),
            "instanceKey": key,
        });
        if let Some(id) = id {
            record["approvalId"] = id.into();
        }
        record.as_object().unwrap().clone()
    }

    fn after(records: &[JsonObject]) -> StandingApprovals {
        let mut all = StandingApprovals::default();
        for record in records {
            all.follow(record.clone());
        }
        all
    }

    fn covers(all: &StandingApprovals, key: &str, agent: &str, tool: &str, input: &Value) -> bool {
        let (key, agent) = (key.parse().unwrap(), agent.parse().unwrap());
        all.covering((&key, &agent), (tool, input)).is_some()
    }

    #[test]
    fn need_1_standing_approval_covers_only_the_same_call() {
        let all = after(&[created("a-1", "main", "conversation")]);
        let make = json!({"command": "make"});
        assert!(covers(&all, "main", "clerk", "bash__exec", &make));
        assert!(!covers(&all, "other", "clerk", "bash__exec", &make));
        assert!(!covers(&all, "main", "cook", "bash__exec", &make));
        assert!(!covers(&all, "main", "clerk", "bash__open", &make));
        for input in [
            json!({"command": "make "}),
            json!({"command": "make", "cwd": "/"}),
            json!({}),
        ] {
            assert!(!covers(&all, "main", "clerk", "bash__exec", &input));
        }
        let all = after(&[created("a-1", "main", "workspace")]);
        assert!(covers(&all, "other", "clerk", "bash__exec", &make));
        assert!(!covers(&all, "other", "cook", "bash__exec", &make));
    }

    #[test]
    fn need_1_standing_approval_ends_by_revocation_or_deletion() {
        let make = json!({"command": "make"});
        let own = created("a-1", "main", "conversation");
        let all = created("a-2", "main", "workspace");
        let covered =
            |records: &[JsonObject]| covers(&after(records), "main", "clerk", "bash__exec", &make);
        assert!(covered(std::slice::from_ref(&own)));
        let revoked = record(STANDING_REVOKED, "main", Some("a-1"));
        assert!(!covered(&[own.clone(), revoked.clone()]));
        assert!(covered(&[own.clone(), all.clone(), revoked]));
        let deleted = record("deleted", "main", None);
        assert!(!covered(&[own.clone(), deleted.clone()]));
        assert!(covered(&[own, all, deleted]));
        // Damaged records cover nothing.
        let mut damaged = created("a-1", "main", "conversation");
        damaged.remove("inputDigest");
        assert!(!covered(&[damaged, JsonObject::new()]));
    }

    #[test]
    fn need_1_standing_approval_compares_the_call_before_masking() {
        let call =
            json!({"command": "push", "token": "hunter2hunter2", "n": [1, {"b": 2, "a": 1}]});
        let masked = json!({"command": "push", "token": "***", "n": [1, {"b": 2, "a": 1}]});
        let mut record = created("a-1", "main", "conversation");
        record.insert("input".to_owned(), masked.clone());
        record.insert("inputDigest".to_owned(), digest_of(&call).into());
        let all = after(&[record]);
        assert!(covers(&all, "main", "clerk", "bash__exec", &call));
        assert!(!covers(&all, "main", "clerk", "bash__exec", &masked));
        // The order of names means nothing; that of values and their types do.
        let same =
            json!({"n": [1, {"a": 1, "b": 2}], "token": "hunter2hunter2", "command": "push"});
        assert!(covers(&all, "main", "clerk", "bash__exec", &same));
        for n in [json!([{"a": 1, "b": 2}, 1]), json!(["1", {"a": 1, "b": 2}])] {
            let other = json!({"command": "push", "token": "hunter2hunter2", "n": n});
            assert!(!covers(&all, "main", "clerk", "bash__exec", &other));
        }
    }

    #[test]
    fn need_1_standing_approval_does_not_survive_an_unrecorded_deletion() {
        let metadata = |key: &str, created_at: &str| {
            let metadata = json!({
                "instanceKey": key, "agentName": "clerk", "status": "idle",
                "createdAt": created_at, "updatedAt": created_at,
            });
            serde_json::from_value::<Metadata>(metadata).unwrap()
        };
        let make = json!({"command": "make"});
        let covered = |scope: &str, found: &[Metadata]| {
            let mut all = after(&[created("a-1", "main", scope)]);
            all.retain_existing(found);
            covers(&all, "main", "clerk", "bash__exec", &make)
        };
        let before = metadata("main", "2026-01-01T00:00:01.000Z");
        let later = metadata("main", "2026-01-01T00:00:09.000Z");
        let other = metadata("other", "2026-01-01T00:00:01.000Z");
        assert!(covered("conversation", &[other.clone(), before]));
        assert!(!covered("conversation", std::slice::from_ref(&later)));
        assert!(!covered("conversation", &[other]));
        assert!(covered("workspace", &[later]));
    }

    #[test]
    fn need_1_number_of_standing_approvals_is_limited() {
        let mut all = StandingApprovals::default();
        for n in 0..=MAX_STANDING_APPROVALS {
            all.follow(created(&format!("a-{n}"), "main", "conversation"));
        }
        assert_eq!(all.0.len(), MAX_STANDING_APPROVALS);
        assert!(!all.has_room());
    }
}
