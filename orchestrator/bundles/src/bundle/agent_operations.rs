//! Operations of an agent on its bundle: open, write and propose changesets.

use goondan_protocol::bundle::{
    BundleAsk, BundleAskResult, CHANGESET_FILE_BYTES_MAX, ChangesetInfo, ChangesetState,
};
use goondan_protocol::ids::{ChangesetId, RevisionId};
use goondan_trees::RelativePath;

use super::{Bundle, ConfigPreflight, chosen, cut, found, must_be};
use crate::diff::diff;
use crate::error::BundleError;
use crate::limits::UNDECIDED_CHANGESETS_MAX;
use crate::machine::{ChangesetVerdict, CheckedProposal};

impl<G: ConfigPreflight> Bundle<'_, G> {
    /// Executes an agent's request. `call` is the id of its tool call, which makes the request
    /// idempotent.
    ///
    /// # Errors
    ///
    /// [`BundleError`]: nothing was changed then.
    pub fn ask(
        &mut self,
        ask: &BundleAsk,
        call: &ChangesetId,
    ) -> Result<BundleAskResult, BundleError> {
        match ask {
            BundleAsk::Open { revision } => self.open(call, revision.as_ref()),
            BundleAsk::Write {
                changeset_id,
                path,
                content,
            } => self.write(changeset_id.as_ref(), path, content.as_deref()),
            BundleAsk::Diff { changeset_id } => {
                let state = self.begin()?;
                let id = chosen(&state, changeset_id.as_ref())?;
                let shown = self.shown(&state, &id)?;
                Ok(BundleAskResult {
                    changeset: Some(shown.changeset),
                    diff: Some(shown.diff),
                    ..BundleAskResult::default()
                })
            }
            BundleAsk::Commit {
                changeset_id,
                message,
            } => self.commit(changeset_id.as_ref(), call, message),
            BundleAsk::Status {} => {
                let state = self.begin()?;
                self.remember(&state);
                Ok(BundleAskResult {
                    status: Some(self.status_of(&state)?),
                    ..BundleAskResult::default()
                })
            }
            BundleAsk::Revert { reason } => {
                let mut state = self.begin()?;
                let to = state.back();
                self.go_back(&mut state, call, to, ("agent", reason))?;
                Ok(BundleAskResult {
                    status: Some(self.status_of(&state)?),
                    ..BundleAskResult::default()
                })
            }
        }
    }

    fn open(
        &mut self,
        call: &ChangesetId,
        revision: Option<&RevisionId>,
    ) -> Result<BundleAskResult, BundleError> {
        let mut state = self.begin()?;
        if state.changeset(call).is_none() {
            if state.undecided() >= UNDECIDED_CHANGESETS_MAX {
                let text = format!(
                    "{UNDECIDED_CHANGESETS_MAX} changesets are open or waiting for approval; commit one, or wait"
                );
                return Err(BundleError::Invalid(text));
            }
            let base = revision.unwrap_or(&state.head).clone();
            let tree = self.store.tree(&base)?;
            self.store.working_copies()?.stage(call, &tree)?;
            let gone = state.open(call, base, self.with.at);
            self.save(&mut state)?;
            self.store.tidy(&state, &gone)?;
        }
        let info = found(&state, call)?.clone();
        let files = self.store.tree(&info.base)?;
        let files = files.into_iter().filter(|(_, text)| text.is_some());
        Ok(BundleAskResult {
            workdir: Some(self.store.workdir(call)),
            files: files.map(|(path, _)| path).collect(),
            changeset: Some(info),
            ..BundleAskResult::default()
        })
    }

    fn write(
        &mut self,
        id: Option<&ChangesetId>,
        path: &str,
        content: Option<&str>,
    ) -> Result<BundleAskResult, BundleError> {
        let state = self.begin()?;
        let id = chosen(&state, id)?;
        let info = found(&state, &id)?;
        must_be_open(info)?;
        let plain = path.strip_prefix("./").unwrap_or(path);
        RelativePath::new(plain.as_bytes())
            .map_err(|problem| BundleError::Invalid(problem.to_string()))?;
        if content.is_some_and(|text| text.len() > CHANGESET_FILE_BYTES_MAX) {
            let text = format!("a file may have {CHANGESET_FILE_BYTES_MAX} bytes");
            return Err(BundleError::Invalid(text));
        }
        self.store.working_copies()?.write(&id, plain, content)?;
        Ok(BundleAskResult {
            workdir: Some(self.store.workdir(&id)),
            changeset: Some(info.clone()),
            ..BundleAskResult::default()
        })
    }

    fn commit(
        &mut self,
        id: Option<&ChangesetId>,
        call: &ChangesetId,
        message: &str,
    ) -> Result<BundleAskResult, BundleError> {
        let mut state = self.begin()?;
        // If a repeated call after a crash finds no open changeset, it has already committed one.
        let id = match id {
            Some(id) => id.clone(),
            None => match state.committed_by(call) {
                Some(id) => id.clone(),
                None => chosen(&state, None)?,
            },
        };
        let info = found(&state, &id)?.clone();
        if info.state == ChangesetState::Open {
            let base = self.store.tree(&info.base)?;
            let copies = self.store.working_copies()?;
            let proposed = match copies.read(&id, &base) {
                Ok(made) => {
                    copies.write_diff(&id, &diff(&base, &made))?;
                    let on_head = self.on_head(&state, &base, &made)?;
                    self.check(&state, on_head, false)?
                }
                Err(BundleError::Invalid(why)) => CheckedProposal {
                    revision: None,
                    summary: Vec::new(),
                    paths: Vec::new(),
                    verdict: ChangesetVerdict::Rejected(why),
                },
                Err(error) => return Err(error),
            };
            state.commit(&id, call, cut(message), proposed, self.with.at);
            self.save(&mut state)?;
            self.tell_decided(&state, &id);
        }
        self.remember(&state);
        Ok(BundleAskResult {
            changeset: Some(found(&state, &id)?.clone()),
            ..BundleAskResult::default()
        })
    }
}

fn must_be_open(info: &ChangesetInfo) -> Result<(), BundleError> {
    let needed = "only an open changeset can be written";
    must_be(info, ChangesetState::Open, needed)
}
