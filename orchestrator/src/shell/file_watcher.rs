//! Watches the source files of projects (`SUP-8`).
//!
//! Each watched workspace has a thread. File system notifications are only hints; changes are
//! always detected by comparing the files with the loaded ones. A lost hint therefore only causes a
//! delay, and an extra one only a comparison. The watched directories are determined again after
//! each load, so that a replaced directory, or a whole project that was moved away and back, is
//! found again.
//!
//! Nothing is written into a project.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use goondan_config::Sources;
use goondan_protocol::control::FileWatchMode;
use goondan_protocol::ids::WorkspaceId;
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::event::ShellEvent;
use crate::limits::{WATCH_LOOK_MS, WATCH_POLL_MS, WATCH_QUIET_MAX_MS, WATCH_QUIET_MS};
use goondan_core::CoreInput;

#[derive(Debug, Default)]
pub(super) struct Watches {
    watched: BTreeMap<WorkspaceId, WatchHandle>,
}

/// A watched workspace. Its thread ends when this is dropped.
#[derive(Debug)]
struct WatchHandle {
    hints: Sender<Hint>,
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        // The thread may have ended already.
        drop(self.hints.send(Hint::Stop));
    }
}

/// A message to a watching thread.
#[derive(Debug)]
enum Hint {
    /// The project was loaded again, from these files.
    Read(Arc<Sources>),
    /// Something changed in a watched directory.
    Changed,
    Overflowed,
    Failed(String),
    Stop,
}

impl Watches {
    /// Starts or stops watching the source files of a workspace.
    pub(super) fn set(
        &mut self,
        id: WorkspaceId,
        sources: Option<Arc<Sources>>,
        events: &mpsc::Sender<ShellEvent>,
        tasks: &mut JoinSet<()>,
    ) {
        let Some(sources) = sources else {
            self.watched.remove(&id);
            return;
        };
        let watch = self.watched.entry(id.clone()).or_insert_with(|| {
            let (hints, incoming) = channel();
            let watcher = Watcher {
                id,
                events: events.clone(),
                hints: hints.clone(),
                how: FileWatchMode::Off,
            };
            tasks.spawn_blocking(move || watcher.run(&incoming));
            WatchHandle { hints }
        });
        drop(watch.hints.send(Hint::Read(sources)));
    }
}

/// State of a watching thread.
struct Watcher {
    id: WorkspaceId,
    events: mpsc::Sender<ShellEvent>,
    hints: Sender<Hint>,
    how: FileWatchMode,
}

impl Watcher {
    fn run(mut self, incoming: &Receiver<Hint>) {
        // Hints before the first load are ignored.
        let mut next = incoming.recv().unwrap_or(Hint::Stop);
        while let Hint::Read(sources) = next {
            next = self.watch(&sources, incoming);
        }
    }

    /// Watches these files until the project is loaded again. Returns the hint that ends the watch.
    fn watch(&mut self, sources: &Arc<Sources>, incoming: &Receiver<Hint>) -> Hint {
        let mut system = self.arm(sources);
        let mut is_told = false;
        loop {
            // Checked after arming, so changes since the load are not missed.
            if !is_told && !sources.is_current() {
                is_told = true;
                let workspace_id = self.id.clone();
                self.tell(CoreInput::FilesChanged { workspace_id });
            }
            let wait_ms = match self.how {
                FileWatchMode::Polling => WATCH_POLL_MS,
                FileWatchMode::Events | FileWatchMode::Starting | FileWatchMode::Off => {
                    WATCH_LOOK_MS
                }
            };
            match incoming.recv_timeout(Duration::from_millis(wait_ms)) {
                Ok(ended @ (Hint::Read(_) | Hint::Stop)) => return ended,
                Err(RecvTimeoutError::Disconnected) => return Hint::Stop,
                Ok(Hint::Changed) => {}
                Ok(Hint::Overflowed) => tracing::warn!(
                    workspace_id = %self.id,
                    "too many file changes to report; comparing all files"
                ),
                Ok(Hint::Failed(problem)) => {
                    system = None;
                    self.fall_back(&problem);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if system.is_none() {
                        system = self.arm(sources);
                    }
                    continue;
                }
            }
            if let Some(ended) = self.settle(incoming, &mut system) {
                return ended;
            }
        }
    }

    /// Waits until changes pause, because saving or switching a branch changes many files in
    /// sequence. Returns a hint if it ends the watch.
    fn settle(
        &mut self,
        incoming: &Receiver<Hint>,
        system: &mut Option<RecommendedWatcher>,
    ) -> Option<Hint> {
        let deadline = Instant::now() + Duration::from_millis(WATCH_QUIET_MAX_MS);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match incoming.recv_timeout(left.min(Duration::from_millis(WATCH_QUIET_MS))) {
                Ok(ended @ (Hint::Read(_) | Hint::Stop)) => return Some(ended),
                Ok(Hint::Changed | Hint::Overflowed) if left > Duration::ZERO => {}
                Ok(Hint::Failed(problem)) => {
                    *system = None;
                    self.fall_back(&problem);
                }
                Ok(Hint::Changed | Hint::Overflowed) | Err(RecvTimeoutError::Timeout) => {
                    return None;
                }
                Err(RecvTimeoutError::Disconnected) => return Some(Hint::Stop),
            }
        }
    }

    /// Registers for notifications; if that fails, the files are compared every few seconds.
    fn arm(&mut self, sources: &Arc<Sources>) -> Option<RecommendedWatcher> {
        match self.watch_directories(sources) {
            Ok(system) => {
                if self.how == FileWatchMode::Polling {
                    tracing::info!(workspace_id = %self.id, "file change notifications work again");
                }
                self.now(FileWatchMode::Events);
                Some(system)
            }
            Err(error) => {
                self.fall_back(&goondan_log::error_chain(&error));
                None
            }
        }
    }

    fn watch_directories(&self, sources: &Arc<Sources>) -> notify::Result<RecommendedWatcher> {
        let (hints, concerned) = (self.hints.clone(), sources.clone());
        let mut system = notify::recommended_watcher(move |event| {
            if let Some(hint) = hint_of(event, &concerned) {
                // The receiver is closed only while the watch is ending.
                drop(hints.send(hint));
            }
        })?;
        for directory in sources.directories() {
            match system.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {}
                // It was removed again, which its watched parent will report.
                Err(_) if !directory.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(system)
    }

    fn fall_back(&mut self, problem: &str) {
        if self.how != FileWatchMode::Polling {
            tracing::warn!(
                workspace_id = %self.id,
                problem,
                every_ms = WATCH_POLL_MS,
                "no file change notifications; comparing files instead"
            );
        }
        self.now(FileWatchMode::Polling);
    }

    fn now(&mut self, how: FileWatchMode) {
        if self.how != how {
            self.how = how;
            let workspace_id = self.id.clone();
            self.tell(CoreInput::Watching { workspace_id, how });
        }
    }

    fn tell(&self, input: CoreInput) {
        // The receiver is closed only while the daemon is ending.
        drop(self.events.blocking_send(ShellEvent::Input(input)));
    }
}

/// The hint in a notification about the source files, if any.
fn hint_of(event: notify::Result<notify::Event>, sources: &Sources) -> Option<Hint> {
    let event = match event {
        Ok(event) => event,
        Err(error) => return Some(Hint::Failed(goondan_log::error_chain(&error))),
    };
    if event.need_rescan() {
        return Some(Hint::Overflowed);
    }
    // Reads are not changes, and comparing files causes reads.
    let is_reading = matches!(event.kind, EventKind::Access(kind)
        if kind != AccessKind::Close(AccessMode::Write));
    let concerns = event.paths.iter().any(|path| sources.concerns(path));
    (concerns && !is_reading).then_some(Hint::Changed)
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, Flag};
    use std::path::Path;

    use super::*;

    #[test]
    fn sup_8_watch_overflow_and_failure_differ_from_a_change() {
        let sources = Sources::of(Path::new("/p"));
        let hint = |event| hint_of(event, &sources);
        let at = |kind, path: &str| Ok(notify::Event::new(kind).add_path(path.into()));
        let created = EventKind::Create(CreateKind::File);
        assert!(matches!(
            hint(at(created, "/p/goondan.yaml")),
            Some(Hint::Changed)
        ));
        assert!(hint(at(created, "/p/README.md")).is_none());
        let read = EventKind::Access(AccessKind::Open(AccessMode::Any));
        assert!(hint(at(read, "/p/goondan.yaml")).is_none());
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(matches!(
            hint(at(written, "/p/goondan.yaml")),
            Some(Hint::Changed)
        ));
        let rescan = notify::Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(matches!(hint(Ok(rescan)), Some(Hint::Overflowed)));
        let failed = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        assert!(matches!(hint(Err(failed)), Some(Hint::Failed(_))));
    }
}
