//! `schedules.json`: schedules that the instance's agent created.
//!
//! Replaced as a whole, so a crash leaves either the old or the new content. Another crate
//! interprets the content; this one stores and checks it.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use serde_json::value::RawValue;

use super::InstanceStore;
use crate::error::StoreError;
use crate::limits::SCHEDULES_BYTES_MAX;

/// File name in the instance's folder.
pub(super) const SCHEDULES: &str = "schedules.json";

/// Reads the schedules of the instance in `dir`, if it has any.
///
/// # Errors
///
/// [`FileError::Io`]; [`FileError::Damaged`] if the file is not valid JSON.
pub fn read_schedules(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<RawValue>>, StoreError> {
    let path = dir.join(SCHEDULES);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    // The extra byte is the trailing newline.
    let bytes = read_all(file.as_mut(), SCHEDULES_BYTES_MAX + 1).during("read", &path)?;
    let schedules = serde_json::from_slice(&bytes).map_err(|error| FileError::Damaged {
        path,
        line: u64::try_from(error.line()).unwrap_or(0),
        problem: error.to_string(),
    })?;
    Ok(Some(schedules))
}

impl InstanceStore {
    /// Replaces the schedules. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`], which changes nothing; [`FileError::Io`].
    pub fn set_schedules(&self, schedules: &RawValue) -> Result<(), StoreError> {
        let bytes = schedules.get().len();
        if bytes > SCHEDULES_BYTES_MAX {
            return Err(StoreError::TooLarge {
                bytes,
                max: SCHEDULES_BYTES_MAX,
            });
        }
        let line = format!("{}\n", schedules.get());
        let path = self.dir.join(SCHEDULES);
        Ok(files::replace(self.disk.as_ref(), &path, line.as_bytes())?)
    }
}

/// Moves a file that is not JSON aside. Returns its new path.
pub(super) fn set_aside(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, StoreError> {
    match read_schedules(disk, dir) {
        Err(StoreError::File(FileError::Damaged { path, .. })) => {
            let (aside, _) = files::aside_name(disk, &path, "damaged", None)?;
            files::install(disk, &path, &aside)?;
            Ok(Some(aside))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use goondan_durable::VerificationResult;
    use goondan_durable::disk::RealDisk;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "damages a file")]
    fn schedules_are_replaced_whole_and_set_aside_if_damaged() {
        let temp = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let (key, agent) = ("k".parse().unwrap(), "a".parse().unwrap());
        let store =
            InstanceStore::create(disk.clone(), temp.path(), &key, &agent, at, ".new").unwrap();
        let dir = store.dir().to_owned();
        let read = || {
            let found = read_schedules(disk.as_ref(), &dir).unwrap();
            found.map(|found| found.get().to_owned())
        };
        assert_eq!(read(), None);
        store.set_schedules(&raw(r#"{"a":1}"#)).unwrap();
        let largest = format!("\"{}\"", "x".repeat(SCHEDULES_BYTES_MAX - 2));
        store.set_schedules(&raw(&largest)).unwrap();
        assert_eq!(read(), Some(largest));
        let too_large = format!("\"{}\"", "x".repeat(SCHEDULES_BYTES_MAX));
        let error = store.set_schedules(&raw(&too_large)).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
        store.set_schedules(&raw(r#"{"a":2}"#)).unwrap();
        assert_eq!(read().as_deref(), Some(r#"{"a":2}"#));
        let findings = || {
            let mut found = VerificationResult::default();
            super::super::check(disk.as_ref(), &dir, &mut found).unwrap();
            found.findings
        };
        assert_eq!(findings(), []);
        assert_eq!(set_aside(disk.as_ref(), &dir).unwrap(), None);

        std::fs::write(dir.join(SCHEDULES), "{").unwrap();
        let error = read_schedules(disk.as_ref(), &dir).unwrap_err();
        assert!(error.is_permanent(), "{error}");
        assert_eq!(findings().len(), 1);
        let aside = set_aside(disk.as_ref(), &dir).unwrap().unwrap();
        assert!(aside.is_file());
        assert_eq!(read(), None);
    }
}
