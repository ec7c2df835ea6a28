//! Proposals and their patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::control::{DiffProposal, ListProposals, Method as _, ShowProposal};
use goondan_protocol::ids::WorkspaceId;
use serde_json::{Value, json};

use super::{Hit, Pause, Search, items, optional_text, text_of};
use crate::limits::{SEARCH_PAGE_ITEMS, SEARCH_PATCH_BYTES_MAX};

/// Fields of a proposal with text of people, its agent and programs.
const PROPOSAL_FIELDS: [&str; 6] = [
    "notes", "summary", "files", "comments", "testLog", "history",
];

impl Search<'_> {
    pub(super) async fn proposals(&mut self, workspace: &WorkspaceId) -> Result<(), Pause> {
        loop {
            let params = json!({
                "workspaceId": workspace, "after": self.cursor.after, "limit": SEARCH_PAGE_ITEMS,
            });
            let Some(page) = self.ask(ListProposals::NAME, &params).await? else {
                return Ok(());
            };
            for proposal in items(&page, "proposals") {
                let at = json!({
                    "runId": text_of(proposal, "runId"), "agentId": text_of(proposal, "agentId"),
                });
                self.proposal(workspace, proposal, &at).await?;
                self.cursor.after = Some(at);
                self.read += 1;
                self.rest().await?;
            }
            if !self.turn(page.get("next")) {
                return Ok(());
            }
        }
    }

    async fn proposal(
        &mut self,
        workspace: &WorkspaceId,
        proposal: &Value,
        at: &Value,
    ) -> Result<(), Pause> {
        let name = format!("{}/{}", text_of(at, "runId"), text_of(at, "agentId"));
        let params = json!({ "workspaceId": workspace, "sandbox": at });
        // The list has a damaged proposal, too, which cannot be shown.
        let is_damaged = proposal.get("problem").is_some();
        let detail = match is_damaged {
            true => None,
            false => self.ask(ShowProposal::NAME, &params).await?,
        };
        let shown = detail.as_ref().unwrap_or(proposal);
        let text = self.needle.find(&name);
        if let Some(text) = text.or_else(|| self.needle.find_in_fields(shown, &PROPOSAL_FIELDS)) {
            self.hit(Hit {
                kind: "proposal",
                workspace_id: Some(workspace.as_str()),
                id: &name,
                title: &name,
                text,
                at: optional_text(proposal, "createdAt"),
                place: None,
            })
            .await?;
        }
        match is_damaged {
            true => Ok(()),
            false => self.patch(workspace, &name, at).await,
        }
    }

    /// The lines of a patch; one hit for each file.
    async fn patch(
        &mut self,
        workspace: &WorkspaceId,
        name: &str,
        at: &Value,
    ) -> Result<(), Pause> {
        let (mut offset, mut file, mut is_found) = (0, String::new(), false);
        let mut rest = Vec::new();
        loop {
            let params = json!({ "workspaceId": workspace, "sandbox": at, "offset": offset });
            let Some(part) = self.ask(DiffProposal::NAME, &params).await? else {
                return Ok(());
            };
            let data = STANDARD.decode(text_of(&part, "data")).unwrap_or_default();
            rest.extend_from_slice(&data);
            let next = part.get("next").and_then(Value::as_u64);
            let is_last = next.is_none();
            // The next part continues the last line.
            let complete = match is_last {
                true => rest.len(),
                false => rest
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |at| at + 1),
            };
            let lines: Vec<u8> = rest.drain(..complete).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                if line.starts_with("diff --git ") {
                    file.clear();
                    is_found = false;
                }
                for side in ["--- a/", "+++ b/"] {
                    if let Some(path) = line.strip_prefix(side) {
                        path.clone_into(&mut file);
                    }
                }
                if is_found {
                    continue;
                }
                let Some(text) = self.needle.find(line) else {
                    continue;
                };
                is_found = true;
                self.hit(Hit {
                    kind: "patch",
                    workspace_id: Some(workspace.as_str()),
                    id: name,
                    title: name,
                    text,
                    at: None,
                    place: Some(&file)
                        .filter(|file| !file.is_empty())
                        .map(String::as_str),
                })
                .await?;
            }
            match next {
                // A longer line is not text: the rest of the patch is skipped.
                Some(next) if next > offset && rest.len() < SEARCH_PATCH_BYTES_MAX => {
                    offset = next;
                }
                _ => return Ok(()),
            }
            if usize::try_from(offset).is_ok_and(|offset| offset >= SEARCH_PATCH_BYTES_MAX) {
                return Ok(());
            }
        }
    }
}
