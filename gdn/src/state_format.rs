//! Reads the format of the state root, for code that reads its files without a daemon (`REL-1`).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use goondan_protocol::limits::STATE_FORMAT_BYTES_MAX;
use goondan_protocol::state_format::{NewerFormat, STATE_FORMAT_FILE, StateFormat};

use crate::exit::Exit;
use crate::failure::Failure;

/// Reason why the files of a state root are not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    /// A newer goondan version wrote them in an unknown format.
    #[error("the state directory {} has a newer format", state_root.display())]
    Newer {
        state_root: PathBuf,
        #[source]
        source: NewerFormat,
    },
    /// The format file is unreadable or invalid.
    #[error("{} does not contain the format of the state directory", path.display())]
    Unknown {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FormatError {
    /// Advice for the user.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Newer { source, .. } => source.hint(),
            Self::Unknown { path, .. } => format!(
                "restore the file from a backup; if no newer goondan ever ran here: `rm '{}'`",
                path.display()
            ),
        }
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        let exit = match &error {
            FormatError::Newer { .. } => Exit::VersionMismatch,
            FormatError::Unknown { .. } => Exit::Damaged,
        };
        Self::of(exit, &error, error.hint())
    }
}

/// Reads the format of a state root; none if the root does not exist, or is older than the format file.
pub(crate) fn read(state_root: &Path) -> Result<Option<StateFormat>, FormatError> {
    let path = state_root.join("system").join(STATE_FORMAT_FILE);
    let mut text = Vec::new();
    // A file that is too long is truncated, and then is not valid JSON.
    let read = File::open(&path).and_then(|file| {
        file.take(STATE_FORMAT_BYTES_MAX as u64)
            .read_to_end(&mut text)
    });
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FormatError::Unknown { path, source }),
    }
    let format = StateFormat::parse(&text).map_err(|error| FormatError::Unknown {
        path,
        source: error.into(),
    })?;
    format.check().map_err(|source| FormatError::Newer {
        state_root: state_root.to_owned(),
        source,
    })?;
    Ok(Some(format))
}

pub(crate) fn format_text(format: Option<&StateFormat>) -> String {
    match format {
        Some(format) => format!("{}, written by goondan {}", format.wrote, format.goondan),
        None => "1, not recorded".to_owned(),
    }
}
