//! Files made of a snapshot.

use std::io;

use goondan_replication::record::RecordFault;
use goondan_replication::record::parts::SnapshotPart;
use goondan_replication::tree::DoesNotFit;

use super::Replica;

/// Why files could not be made of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The disk failed, or whoever keeps the parts.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A part is not kept.
    #[error("part {0} of the snapshot is missing")]
    Missing(u32),
    /// A part is none.
    #[error("part {number} of the snapshot is damaged: {fault}")]
    Part {
        /// Which, from 0.
        number: u32,
        /// What is wrong.
        fault: RecordFault,
    },
    /// A part changes what is not there.
    #[error("part {number} of the snapshot does not fit those before it: {misfit}")]
    Misfit {
        /// Which, from 0.
        number: u32,
        /// What is wrong.
        misfit: DoesNotFit,
    },
    /// The files are not those that were captured.
    #[error("the files that the snapshot makes have another digest than those it was made of")]
    Differs,
}

impl Replica {
    /// Makes files of the parts that [`Capture::give`](crate::Capture::give) gave, in what
    /// [`clear`](Replica::clear) left, durably. `read` gets a part by its number; none if it is not kept.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]. What was made is nothing that any record makes then: clear it.
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
