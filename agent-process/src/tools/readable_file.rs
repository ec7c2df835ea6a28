//! Regular files that tools read as text.

use std::fs::File;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::fault::ToolFault;
use super::rooted_files::{Root, fault_of};
use super::secret_files::real_path;

/// Largest file that tools read or edit, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Opens a regular file of at most [`MAX_FILE_BYTES`] for reading.
pub(crate) fn open_file(root: &Root, path: &Path, shown: &str) -> Result<File, ToolFault> {
    let secrets = root.secret_files();
    if secrets.refuses_path(path) {
        return Err(secret(shown));
    }
    let opened = root.open_beneath(path, OFlag::O_RDONLY, Mode::empty());
    let file = File::from(opened.map_err(|errno| fault_of(shown, errno))?);
    // A link to a secret file is refused too. Path components above the root are not checked.
    let real = real_path(&file);
    let real = real.as_deref().and_then(|real| root.beneath(real));
    if real.is_some_and(|real| secrets.refuses_path(real)) {
        return Err(secret(shown));
    }
    let metadata = file.metadata().map_err(|error| io_fault(shown, &error))?;
    if secrets.refuses_file(&metadata) {
        return Err(secret(shown));
    }
    if metadata.is_dir() {
        return Err(fault_of(shown, nix::errno::Errno::EISDIR));
    }
    if !metadata.is_file() {
        return Err(fault_of(shown, nix::errno::Errno::ENXIO));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(ToolFault::new(
            "E_TOO_LARGE",
            format!(
                "`{shown}` has {} bytes; at most {MAX_FILE_BYTES} are read; use a shell command to \
                 read a part",
                metadata.len()
            ),
        ));
    }
    Ok(file)
}

pub(crate) fn not_text(shown: &str) -> ToolFault {
    ToolFault::new("E_NOT_TEXT", format!("`{shown}` is not UTF-8 text"))
}

pub(crate) fn io_fault(shown: &str, error: &std::io::Error) -> ToolFault {
    ToolFault::new("E_IO", format!("`{shown}`: {error}"))
}

fn secret(shown: &str) -> ToolFault {
    ToolFault::new(
        "E_FILE_SECRET",
        format!(
            "`{shown}` is a secret file, which file tools do not open because their output stays \
             in the conversation; ask the person for the parts you need, or read its template"
        ),
    )
}
