//! Open files that a process inherited from its parent.

use std::path::Path;

use nix::unistd::close;

/// Directory of the process's open files, by descriptor number.
#[cfg(target_os = "linux")]
const OPEN_FILES: &str = "/proc/self/fd";
#[cfg(not(target_os = "linux"))]
const OPEN_FILES: &str = "/dev/fd";

/// The first descriptor after standard input, output and error.
const FIRST: i32 = 3;

/// Closes every open file except standard input, output and error. Call this before anything else
/// opens files, because their owners are not notified.
///
/// # Errors
///
/// The open files cannot be listed.
pub fn close_inherited_files() -> std::io::Result<()> {
    let listed: Vec<i32> = Path::new(OPEN_FILES)
        .read_dir()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in listed.into_iter().filter(|number| *number >= FIRST) {
        // The directory handle itself was listed and is already closed.
        close(number).ok();
    }
    Ok(())
}
