//! Creates many conversations on disk, without an agent turn for each.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::Home;

/// File with a conversation's key, and the key of the existing one.
const METADATA: &str = "metadata.json";
const KEY: &str = "\"main\"";

/// Creates copies of the conversation `main`, which must be the only one, with the keys `copy00000`
/// and so on. No daemon may run.
///
/// # Errors
///
/// If there is no conversation, or writing fails.
pub fn copy_conversation(home: &Home, copies: usize) -> io::Result<()> {
    let instances = home.workspace_dir().join("instances");
    let one = fs::read_dir(&instances)?.next();
    let one = one.ok_or(ErrorKind::NotFound)??.path();
    copy_into(home, &one, &instances, copies)
}

/// Creates copies of the conversation `main` in the directory `one` among the conversations of
/// another workspace, with the same keys as [`copy_conversation`]. No daemon may run.
///
/// # Errors
///
/// If writing fails.
pub fn copy_into(home: &Home, one: &Path, instances: &Path, copies: usize) -> io::Result<()> {
    fs::create_dir_all(instances)?;
    for number in 0..copies {
        let key = format!("copy{number:05}");
        copy(home, one, &instances.join(&key), &key)?;
    }
    Ok(())
}

/// Copies a directory, and changes the key in its metadata.
fn copy(home: &Home, from: &Path, to: &Path, key: &str) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(home, &entry.path(), &target, key)?;
        } else if entry.file_name() == METADATA {
            let text = fs::read_to_string(entry.path())?;
            let text = text.replace(KEY, &format!("\"{key}\""));
            home.write(&target.to_string_lossy(), &text);
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
