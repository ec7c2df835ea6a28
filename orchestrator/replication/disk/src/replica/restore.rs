//! Creates files from a snapshot.

use std::io;

use goondan_replication::record::RecordFault;
use goondan_replication::record::parts::SnapshotPart;
use goondan_replication::tree::FileMismatch;

use super::Replica;

/// Reason why files could not be created from a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// I/O error of the disk or of the snapshot store.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("part {0} of the snapshot is missing")]
    Missing(u32),
    #[error("part {number} of the snapshot is damaged: {fault}")]
    Part {
        /// Number of the part, from 0.
        number: u32,
        fault: RecordFault,
    },
    /// A part changes a file that does not match.
    #[error("part {number} of the snapshot does not fit the earlier parts: {misfit}")]
    Misfit {
        /// Number of the part, from 0.
        number: u32,
        misfit: FileMismatch,
    },
    /// The files differ from the captured ones.
    #[error("the restored files do not match the snapshot's digest")]
    Differs,
}

impl Replica {
    /// Durably creates files from the parts of [`Capture::give`](crate::Capture::give), after
    /// [`clear`](Replica::clear). `read` returns a part by its number; `None` if it is missing.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]. The created files then match no record and must be cleared.
    pub fn restore(
        &mut self,
        read: &mut dyn FnMut(u32) -> io::Result<Option<Vec<u8>>>,
    ) -> Result<(), RestoreError> {
        for number in 0.. {
            let bytes = read(number)?.ok_or(RestoreError::Missing(number))?;
            let part = SnapshotPart::decode(&bytes);
            let part = part.map_err(|fault| RestoreError::Part { number, fault })?;
            let made = self.apply(&part.operations)?;
            made.and_then(|()| self.owes())
                .map_err(|misfit| RestoreError::Misfit { number, misfit })?;
            let Some(digest) = part.digest else {
                continue;
            };
            self.sync()?;
            return if self.digest()? == digest {
                Ok(())
            } else {
                Err(RestoreError::Differs)
            };
        }
        Err(RestoreError::Missing(u32::MAX))
    }
}
