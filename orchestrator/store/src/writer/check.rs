//! Checking an instance whose files this thread owns.

use goondan_durable::IoContext as _;
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::time::Timestamp;

use super::{Report, Worker};
use crate::error::StoreError;
use crate::instance::{self, InstanceStore};
use crate::verify;

impl Worker {
    pub(super) fn verify(
        &mut self,
        at: &InstanceRef,
        repair: bool,
        now: Timestamp,
    ) -> Result<Report, StoreError> {
        let dir = self.dir_of(at);
        if self.disk.stat(&dir).during("look at", &dir)?.is_none() {
            let key = at.instance_key.clone();
            return Err(StoreError::NoInstance { key });
        }
        if let Some(held) = self.open.get_mut(at) {
            held.store.sync()?;
            self.fold(at, InstanceStore::clear_journal);
        }
        let mut verified = verify::instance(self.disk.as_ref(), &dir)?;
        if repair && verified.worst() > Some(goondan_durable::Severity::Info) {
            let was_kept = self.open.remove(at).is_some_and(|held| held.is_kept);
            verified.kept = instance::repair(&self.disk, &dir, now)?;
            self.held(at)?.is_kept |= was_kept;
        }
        Ok(Report::Verified(Box::new(verified)))
    }
}
