//! Control group of a run's program, used to freeze it (`TASK-8`).
//!
//! The daemon creates the group below this process's own, where the machine supports control
//! groups. The program's supervisor is moved into it before it starts anything, so that the group
//! contains every descendant, even those that leave their process group, session or parents. This
//! process stays outside and keeps receiving messages from the daemon. The group's files are opened
//! before this process confines itself.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use goondan_clock::{Instant, sleep};

/// Maximum time until the whole program is frozen. Only a process that is stuck in the kernel takes
/// longer.
const FREEZING_TIME_MAX: Duration = Duration::from_secs(2);

/// Interval of the check.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Maximum bytes of the group's state file.
const EVENTS_BYTES_MAX: usize = 4 << 10;

/// Control group of a program. Dropping it thaws the program, because nothing else would.
#[derive(Debug)]
pub(super) struct Freezer {
    processes: File,
    freeze: File,
    events: File,
    is_frozen: bool,
}

impl Freezer {
    /// Opens the files of a group.
    ///
    /// # Errors
    ///
    /// The file system's error: the group does not exist, or is not accessible to this process.
    pub(super) fn open(group: &Path) -> io::Result<Self> {
        let write = |name| OpenOptions::new().write(true).open(group.join(name));
        Ok(Self {
            processes: write("cgroup.procs")?,
            freeze: write("cgroup.freeze")?,
            events: File::open(group.join("cgroup.events"))?,
            is_frozen: false,
        })
    }

    /// Moves a process into the group; its later children follow.
    ///
    /// # Errors
    ///
    /// The kernel's error; the process is not moved then.
    pub(super) fn admit(&self, pid: u32) -> io::Result<()> {
        self.processes.write_all_at(pid.to_string().as_bytes(), 0)
    }

    /// True if the kernel reports the whole group as frozen.
    fn stands_still(&self) -> io::Result<bool> {
        let mut text = [0; EVENTS_BYTES_MAX];
        let read = self.events.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default());
        Ok(text.lines().any(|line| line == "frozen 1"))
    }

    /// Freezes the program, and waits until all processes are frozen. After a timeout, the program
    /// is thawed.
    ///
    /// # Errors
    ///
    /// The reason why it could not be frozen. It is thawed then, and can be stopped by other means.
    pub(super) async fn freeze(&mut self) -> io::Result<()> {
        self.freeze.write_all_at(b"1", 0)?;
        self.is_frozen = true;
        let frozen = self.wait_until_still().await;
        if frozen.is_err() {
            self.thaw();
        }
        frozen
    }

    async fn wait_until_still(&self) -> io::Result<()> {
        let until = Instant::now() + FREEZING_TIME_MAX;
        while !self.stands_still()? {
            if Instant::now() > until {
                let what = "some of its processes did not freeze in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// Thaws the program; false if it was not frozen.
    pub(super) fn thaw(&mut self) -> bool {
        if !std::mem::take(&mut self.is_frozen) {
            return false;
        }
        if let Err(error) = self.freeze.write_all_at(b"0", 0) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to resume the program; ending it with its control group"
            );
        }
        true
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory with the files that the kernel would provide.
    #[expect(
        clippy::disallowed_methods,
        reason = "a kernel control file is not state of goondan"
    )]
    fn group(events: &str) -> tempfile::TempDir {
        let group = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.procs", ""),
            ("cgroup.freeze", "0"),
            ("cgroup.events", events),
        ] {
            fs::write(group.path().join(name), text).unwrap();
        }
        group
    }

    fn text(group: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(group.path().join(name)).unwrap()
    }

    #[tokio::test]
    async fn task_8_frozen_group_resumes_on_thaw_or_drop() {
        let group = group("populated 1\nfrozen 1\n");
        let mut freezer = Freezer::open(group.path()).unwrap();
        freezer.admit(4_242).unwrap();
        assert_eq!(text(&group, "cgroup.procs"), "4242");
        assert!(!freezer.thaw(), "nothing is held");
        freezer.freeze().await.unwrap();
        assert_eq!(text(&group, "cgroup.freeze"), "1");
        assert!(freezer.thaw());
        assert_eq!(text(&group, "cgroup.freeze"), "0");
        freezer.freeze().await.unwrap();
        drop(freezer);
        assert_eq!(text(&group, "cgroup.freeze"), "0");
    }

    #[tokio::test(start_paused = true)]
    async fn task_8_freeze_that_times_out_is_undone() {
        let group = group("populated 1\nfrozen 0\n");
        let mut freezer = Freezer::open(group.path()).unwrap();
        let error = freezer.freeze().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(text(&group, "cgroup.freeze"), "0");
        assert!(Freezer::open(&group.path().join("none")).is_err());
    }

    #[tokio::test]
    async fn task_8_failed_freeze_thaws_the_group_before_the_fallback() {
        let group = group("");
        let events = group.path().join("cgroup.events");
        fs::remove_file(&events).unwrap();
        fs::create_dir(&events).unwrap();
        let mut freezer = Freezer::open(group.path()).unwrap();
        freezer.freeze().await.unwrap_err();
        assert_eq!(text(&group, "cgroup.freeze"), "0");
        assert!(!freezer.thaw(), "it must be resumed as it was stopped");
    }
}
