//! File system access for a daemon that shares some directories with untrusted programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use goondan_durable::disk::{Disk, DiskEntry, DiskFile, EntryKind, RealDisk, Stat};

use crate::{open_beneath, removal};

/// Files are accessible to their owner only (`SEC-4`).
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory with parts that other programs write.
#[derive(Debug, Clone)]
pub struct Guard {
    /// A directory that only the daemon writes.
    pub directory: PathBuf,
    /// Number of path components below it that belong to the daemon too.
    pub own_names: usize,
}

/// The file system, without paths that lead out of a guarded directory (`SEC-7`).
///
/// An agent can replace a directory by a link between two calls of the daemon. Below a guard each
/// path is resolved from a handle and no link is followed, so that the daemon neither writes nor
/// reads elsewhere. Other paths are accessed as by [`RealDisk`].
#[derive(Debug, Clone, Default)]
pub struct GuardedDisk {
    guards: Vec<Guard>,
}

/// A directory, and a name in it.
type NameInDir<'p> = (OwnedFd, &'p OsStr);

impl GuardedDisk {
    /// Creates a disk with these guards.
    #[must_use]
    pub fn new(guards: Vec<Guard>) -> Self {
        Self { guards }
    }

    /// Splits a path below a guard into its trusted part and the rest.
    fn guarded<'p>(&self, path: &'p Path) -> Option<(PathBuf, &'p Path)> {
        self.guards.iter().find_map(|guard| {
            let mut below = path.strip_prefix(&guard.directory).ok()?.components();
            let mut anchor = guard.directory.clone();
            for _ in 0..guard.own_names {
                match below.next()? {
                    Component::Normal(name) => anchor.push(name),
                    _ => return None,
                }
            }
            let rest = below.as_path();
            (!rest.as_os_str().is_empty()).then_some((anchor, rest))
        })
    }

    /// Opens the parent directory of a path and returns it with the name.
    fn place<'p>(&self, path: &'p Path) -> io::Result<NameInDir<'p>> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = match self.guarded(path) {
            Some((anchor, rest)) => {
                let above = rest.parent().unwrap_or(Path::new(""));
                open_beneath::open_directory(directory(&anchor)?, above, OFlags::PATH)?
            }
            None => directory(path.parent().unwrap_or(Path::new("/")))?,
        };
        Ok((parent, name))
    }

    fn open_file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (parent, name) = self.place(path)?;
        // Opening a pipe could block forever, because it may have no other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(fs::openat(parent, name, flags, FILE_MODE)?);
        if !file.metadata()?.is_file() {
            let problem = "not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(file)
    }

    /// Opens a guarded directory to list or sync it.
    fn open_dir(anchor: &Path, rest: &Path) -> io::Result<OwnedFd> {
        Ok(open_beneath::open_directory(
            directory(anchor)?,
            rest,
            OFlags::RDONLY,
        )?)
    }
}

/// Opens a directory that only the daemon can rename.
fn directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
}

fn kind_of(file_type: FileType) -> EntryKind {
    match file_type {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        _ => EntryKind::Other,
    }
}

/// Treats a missing name as success.
fn if_there(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Disk for GuardedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.guarded(path).is_none() {
            return RealDisk.open(path);
        }
        let file = self.open_file(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        Ok(RealDisk::file(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.guarded(path).is_none() {
            return RealDisk.create(path);
        }
        let file = self.open_file(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        file.set_len(0)?;
        Ok(RealDisk::file(file))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.guarded(path).is_none() {
            return RealDisk.open_read(path);
        }
        Ok(RealDisk::file(self.open_file(path, OFlags::RDONLY)?))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        if self.guarded(path).is_none() {
            return RealDisk.stat(path);
        }
        let found = self
            .place(path)
            .and_then(|(parent, name)| Ok(fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?));
        match found {
            Ok(found) => Ok(Some(Stat {
                kind: kind_of(FileType::from_raw_mode(found.st_mode)),
                len: u64::try_from(found.st_size).unwrap_or(0),
                inode: found.st_ino,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        let Some((anchor, rest)) = self.guarded(path) else {
            return RealDisk.list(path);
        };
        let directory = Self::open_dir(&anchor, rest)?;
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let file_type = match entry.file_type() {
                FileType::Unknown => {
                    let found = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                known => known,
            };
            entries.push(DiskEntry {
                name: name.to_owned(),
                kind: kind_of(file_type),
            });
        }
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.guarded(path).is_none() {
            return RealDisk.create_dir(path);
        }
        let (parent, name) = self.place(path)?;
        match fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from) = self.place(from)?;
        let (to_dir, to) = self.place(to)?;
        Ok(fs::renameat(from_dir, from, to_dir, to)?)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        let (file_dir, file) = self.place(file)?;
        let (name_dir, name) = self.place(name)?;
        let flags = AtFlags::empty();
        Ok(fs::linkat(file_dir, file, name_dir, name, flags)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.guarded(path).is_none() {
            return RealDisk.remove_file(path);
        }
        let (parent, name) = self.place(path)?;
        if_there(fs::unlinkat(parent, name, AtFlags::empty()))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            place => {
                let (parent, name) = place?;
                removal::remove(parent, name)
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let Some((anchor, rest)) = self.guarded(path) else {
            return RealDisk.sync_dir(path);
        };
        Ok(fs::fsync(Self::open_dir(&anchor, rest)?)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, read_dir, read_to_string};
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use goondan_durable::disk::{append_all, read_all};
    use rustix::fs::{CWD, RenameFlags, mkfifoat, renameat_with};

    use super::*;

    /// A guarded work area, and a directory outside it.
    struct World {
        temp: tempfile::TempDir,
        disk: GuardedDisk,
    }

    impl World {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            create_dir_all(temp.path().join("areas/task/.logs")).unwrap();
            create_dir_all(temp.path().join("outside")).unwrap();
            let guard = Guard {
                directory: temp.path().to_owned(),
                own_names: 1,
            };
            let disk = GuardedDisk::new(vec![guard]);
            Self { temp, disk }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.temp.path().join(path)
        }

        fn outside(&self) -> Vec<String> {
            let entries = read_dir(self.at("outside")).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        }
    }

    /// Runs every operation on a name, and once more on a directory; returns the number of
    /// successes.
    fn write_all(world: &World) -> usize {
        let disk = &world.disk;
        let at = |name: &str| world.at("areas/task/.logs").join(name);
        let opened = disk
            .open(&at("a"))
            .and_then(|mut file| append_all(file.as_mut(), b"a"));
        let done = [
            opened.is_ok(),
            disk.create(&at("b")).is_ok(),
            disk.create_dir(&at("c")).is_ok(),
            disk.rename(&at("b"), &at("d")).is_ok(),
            disk.link(&at("a"), &at("e")).is_ok(),
            disk.remove_file(&at("d")).is_ok(),
            disk.remove_file(&at("e")).is_ok(),
            disk.remove_tree(&at("c")).is_ok(),
            disk.remove_file(&at("victim")).is_ok(),
            disk.remove_tree(&at("tree")).is_ok(),
            disk.sync_dir(&at("")).is_ok(),
        ];
        done.iter().filter(|is_done| **is_done).count()
    }

    #[test]
    fn sec_7_a_directory_exchanged_meanwhile_leads_nowhere() {
        let world = World::new();
        File::create_new(world.at("outside/victim")).unwrap();
        create_dir_all(world.at("outside/tree/inner")).unwrap();
        let mut kept = world.outside();
        kept.sort();
        symlink("../../outside", world.at("areas/task/link")).unwrap();
        let is_over = AtomicBool::new(false);
        let (logs, link) = (world.at("areas/task/.logs"), world.at("areas/task/link"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &logs, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let done: Vec<usize> = (0..3_000).map(|_| write_all(&world)).collect();
            is_over.store(true, Ordering::Relaxed);
            // The path was sometimes a directory and sometimes a link.
            assert!(done.iter().any(|done| *done > 8) && done.iter().any(|done| *done < 11));
        });
        let mut found = world.outside();
        found.sort();
        assert_eq!(found, kept);
        assert!(world.at("outside/tree/inner").is_dir());
    }

    #[test]
    fn sec_7_a_link_or_pipe_in_the_place_of_a_log_is_refused() {
        let world = World::new();
        let log = world.at("areas/task/.logs/log");
        File::create_new(world.at("outside/secret")).unwrap();
        symlink("../../../outside/secret", &log).unwrap();
        assert!(world.disk.open(&log).is_err() && world.disk.open_read(&log).is_err());
        world.disk.remove_file(&log).unwrap();
        mkfifoat(CWD, &log, Mode::RUSR | Mode::WUSR).unwrap();
        for refused in [
            world.disk.open(&log),
            world.disk.create(&log),
            world.disk.open_read(&log),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.to_string(), "not a regular file");
        }
    }

    #[test]
    fn guarded_disk_behaves_like_the_real_one() {
        let world = World::new();
        let real: &dyn Disk = &RealDisk;
        let guarded: &dyn Disk = &world.disk;
        for (disk, name) in [(real, "real"), (guarded, "guarded")] {
            let dir = world.at("areas/task").join(name);
            let at = |name: &str| dir.join(name);
            disk.create_dir(&dir).unwrap();
            disk.create_dir(&dir).unwrap();
            let mut file = disk.create(&at("file")).unwrap();
            append_all(file.as_mut(), b"one").unwrap();
            let mut file = disk.open(&at("file")).unwrap();
            append_all(file.as_mut(), b" two").unwrap();
            file.sync().unwrap();
            assert!(file.is_at(&at("file")).unwrap());
            disk.link(&at("file"), &at("second")).unwrap();
            disk.rename(&at("second"), &at("third")).unwrap();
            let mut file = disk.open_read(&at("third")).unwrap();
            assert_eq!(read_all(file.as_mut(), 100).unwrap(), b"one two");
            let stat = disk.stat(&at("third")).unwrap().unwrap();
            assert_eq!((stat.kind, stat.len), (EntryKind::File, 7));
            assert_eq!(stat.inode, file.inode().unwrap());
            assert_eq!(disk.stat(&at("second")).unwrap(), None);
            assert!(disk.stat(&at("file/x")).is_err());
            symlink("file", at("link")).unwrap();
            let mut found: Vec<_> = disk
                .list(&dir)
                .unwrap()
                .into_iter()
                .map(|entry| (entry.name, entry.kind))
                .collect();
            found.sort_by(|one, other| one.0.cmp(&other.0));
            let expected = [
                ("file", EntryKind::File),
                ("link", EntryKind::Other),
                ("third", EntryKind::File),
            ];
            assert_eq!(found, expected.map(|(name, kind)| (name.into(), kind)));
            disk.sync_dir(&dir).unwrap();
            disk.remove_file(&at("third")).unwrap();
            disk.remove_file(&at("third")).unwrap();
            assert_eq!(read_to_string(at("file")).unwrap(), "one two");
            disk.remove_tree(&dir).unwrap();
            disk.remove_tree(&dir).unwrap();
            assert!(!dir.exists());
        }
    }
}
