//! Open files that a process got from whoever started it.

use std::path::Path;

use nix::unistd::close;

/// The open files of the process by their numbers.
#[cfg(target_os = "linux")]
const OPEN_FILES: &str = "/proc/self/fd";
#[cfg(not(target_os = "linux"))]
const OPEN_FILES: &str = "/dev/fd";

/// The first descriptor behind standard input, output and error.
const FIRST: i32 = 3;

/// Closes every open file but standard input, output and error. To be called before anything else is opened:
/// whoever holds one of them does not learn of it.
///
/// # Errors
///
/// If the open files cannot be listed.
pub fn close_inherited_files() -> std::io::Result<()> {
    let listed: Vec<i32> = Path::new(OPEN_FILES)
        .read_dir()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in listed.into_iter().filter(|number| *number >= FIRST) {
        // The listing itself was one of them, and is closed already.
        close(number).ok();
    }
    Ok(())
}
