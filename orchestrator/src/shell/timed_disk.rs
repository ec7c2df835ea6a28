//! A disk that measures the duration of each sync (`OBS-3`), and whose changes wait while a backup is
//! made.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use goondan_durable::disk::{Disk, DiskEntry, DiskFile, Stat};
use goondan_protocol::metrics::{Histogram, Metric, Micros};
use goondan_trees::GuardedDisk;

use super::write_gate::WriteGate;

/// Durations of syncs. Clones share the data.
#[derive(Debug, Clone, Default)]
pub(super) struct SyncTimes(Arc<Mutex<Histogram>>);

impl SyncTimes {
    pub(super) fn read(&self) -> Histogram {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let known = self.0.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.observe(Metric::StoreSync.info().bounds, Micros(took));
        done
    }
}

/// The operating system's file system, with timed syncs.
#[derive(Debug, Default)]
pub(super) struct TimedDisk {
    disk: GuardedDisk,
    times: SyncTimes,
    gate: WriteGate,
}

impl TimedDisk {
    pub(super) fn new(disk: GuardedDisk) -> Self {
        Self {
            disk,
            times: SyncTimes::default(),
            gate: WriteGate::default(),
        }
    }

    pub(super) fn gate(&self) -> WriteGate {
        self.gate.clone()
    }

    pub(super) fn times(&self) -> SyncTimes {
        self.times.clone()
    }

    fn timed(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(TimedFile {
            file,
            times: self.times.clone(),
            gate: self.gate.clone(),
        })
    }
}

impl Disk for TimedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let _pass = self.gate.pass();
        Ok(self.timed(self.disk.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let _pass = self.gate.pass();
        Ok(self.timed(self.disk.create(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        // A file opened for reading is never synced.
        self.disk.open_read(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        self.disk.stat(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        self.disk.list(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.disk.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.disk.rename(from, to)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.disk.link(file, name)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.disk.remove_file(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.disk.remove_tree(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.times.time(|| self.disk.sync_dir(path))
    }
}

#[derive(Debug)]
struct TimedFile {
    file: Box<dyn DiskFile>,
    times: SyncTimes,
    gate: WriteGate,
}

impl DiskFile for TimedFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        let _pass = self.gate.pass();
        self.file.append(buf)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let _pass = self.gate.pass();
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn inode(&self) -> io::Result<u64> {
        self.file.inode()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.times.time(|| self.file.sync())
    }

    fn share(&mut self, source: &dyn DiskFile) -> io::Result<bool> {
        let _pass = self.gate.pass();
        self.file.share(source)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obs_3_every_sync_is_timed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = TimedDisk::default();
        let mut file = disk.create(&dir.path().join("a")).unwrap();
        file.append(b"a").unwrap();
        assert_eq!(disk.times().read().count, 0);
        file.sync().unwrap();
        disk.sync_dir(dir.path()).unwrap();
        assert_eq!(disk.times().read().count, 2);
    }
}
