//! Cgroups (version 2): one around each child and all its descendants.
//!
//! If the daemon is alone in a delegated cgroup (a service with `Delegate=`, or a container), it
//! moves into the cgroup `orchestrator` below it and creates one sibling for each child. Limits
//! then apply to a child together with its tools, the kernel reports OOM kills, and a kill reaches
//! processes that left the process group. Otherwise no cgroups are used, which is logged.
//!
//! The control files are small and respond immediately, so they are read and written synchronously.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::process_limits::ProcessLimits;

use goondan_core::{CHILD_GROUP_PREFIX, PROGRAM_GROUP, ProcessId, child_group, program_group};

/// Cgroup of the daemon itself, because a cgroup with child cgroups must not contain processes.
const OWN_GROUP: &str = "orchestrator";

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Reason that no cgroups are available.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoGroups {
    /// The system has no cgroups of version 2.
    #[error("this process is not in a version 2 control group")]
    NotThere,
    /// The daemon's cgroup contains other processes.
    #[error("`{}` also contains other processes", dir.display())]
    Shared { dir: PathBuf },
    /// The daemon's cgroup is not delegated to it.
    #[error("`{}` is not delegated to the daemon", dir.display())]
    NotDelegated { dir: PathBuf },
    /// A control file could not be read or written.
    #[error("`{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The cgroups of a daemon, if available.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    root: Option<Root>,
    /// Cgroups of exited processes that could not be removed yet.
    leftovers: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
struct Root {
    dir: PathBuf,
    has_memory: bool,
    has_pids: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    dir: PathBuf,
    /// Limits that the cgroup does not enforce.
    rest: ProcessLimits,
    memory_bytes: Option<u64>,
}

impl Cgroups {
    /// Takes over the cgroup of this process.
    ///
    /// # Errors
    ///
    /// The reason that no cgroups are available.
    pub(super) fn take() -> Result<Self, NoGroups> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|_| NoGroups::NotThere)?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|_| NoGroups::NotThere)?;
        let dir = own_group(&mounts, &own).ok_or(NoGroups::NotThere)?;
        let user = nix::unistd::geteuid().as_raw();
        Self::take_dir(&dir, std::process::id(), user)
    }

    fn take_dir(dir: &Path, pid: u32, user: u32) -> Result<Self, NoGroups> {
        let dir = dir.to_owned();
        // The root cgroup of a machine has no such file and cannot be delegated.
        let is_owned = fs::metadata(dir.join("cgroup.events")).is_ok()
            && fs::metadata(dir.join("cgroup.procs")).is_ok_and(|file| file.uid() == user);
        if !is_owned {
            return Err(NoGroups::NotDelegated { dir });
        }
        let processes = read(&dir, "cgroup.procs")?;
        if processes.split_whitespace().ne([pid.to_string().as_str()]) {
            return Err(NoGroups::Shared { dir });
        }
        let offered = read(&dir, "cgroup.controllers")?;
        let has = |name: &str| offered.split_whitespace().any(|offered| offered == name);
        let root = Root {
            has_memory: has("memory"),
            has_pids: has("pids"),
            dir,
        };
        let own = root.dir.join(OWN_GROUP);
        make_group(&own)?;
        write(&own, "cgroup.procs", &pid.to_string())?;
        let wanted: Vec<String> = CONTROLLERS
            .into_iter()
            .filter(|name| has(name))
            .map(|name| format!("+{name}"))
            .collect();
        let divided = match wanted.as_slice() {
            [] => Ok(()),
            wanted => write(&root.dir, "cgroup.subtree_control", &wanted.join(" ")),
        };
        if let Err(error) = divided {
            // Restores the original state.
            write(&root.dir, "cgroup.procs", &pid.to_string())?;
            fs::remove_dir(&own).ok();
            return Err(error);
        }
        let mut groups = Self {
            leftovers: child_groups(&root.dir),
            root: Some(root),
        };
        groups.sweep();
        Ok(groups)
    }

    /// Path prefix of the children's cgroups in `/proc/<pid>/cgroup`; `None` without cgroups.
    pub(super) fn child_groups(&self) -> Option<String> {
        self.root.as_ref()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        child_groups_beside(&own)
    }

    pub(super) fn dir(&self) -> Option<&Path> {
        self.root.as_ref().map(|root| root.dir.as_path())
    }

    /// Creates the cgroup of a process that will be started; `None` without cgroups. With
    /// `for_program`, a nested cgroup allows freezing a program independently of the process
    /// (`TASK-8`); the limits apply to both.
    ///
    /// # Errors
    ///
    /// Fails if the limits cannot be set, because a process must not start without them.
    pub(super) fn make(
        &self,
        process: ProcessId,
        limits: &ProcessLimits,
        for_program: bool,
    ) -> io::Result<Option<Cgroup>> {
        let Some(root) = &self.root else {
            return Ok(None);
        };
        match root.make(process, limits) {
            Ok(group) => {
                if for_program && let Err(error) = make_group(&program_group(&root.dir, process)) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "no control group for a task's program; pausing it with signals"
                    );
                }
                Ok(Some(group))
            }
            Err(error) if limits.is_none() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "no control group for a process"
                );
                Ok(None)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Kills the processes left in the cgroup of an exited process, and removes it.
    pub(super) fn bury(&mut self, group: Cgroup) {
        self.leftovers.push(group.dir);
        self.sweep();
    }

    /// Removes the cgroups of exited processes. Killed processes may not have exited yet; such a
    /// cgroup is removed by a later call.
    pub(super) fn sweep(&mut self) {
        self.leftovers.retain(|dir| {
            let removed = remove_group(dir).or_else(|_| {
                kill(dir);
                remove_group(dir)
            });
            !matches!(removed, Ok(()))
                && !removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        });
    }
}

impl Root {
    fn make(&self, process: ProcessId, limits: &ProcessLimits) -> Result<Cgroup, NoGroups> {
        let dir = child_group(&self.dir, process);
        make_group(&dir)?;
        let mut rest = *limits;
        let limited = || -> Result<(), NoGroups> {
            if let Some(bytes) = limits.memory_bytes.filter(|_| self.has_memory) {
                write(&dir, "memory.max", &bytes.to_string())?;
                // Kills the whole cgroup on OOM, because a partly killed agent is useless.
                write(&dir, "memory.oom.group", "1")?;
                // Swapped memory would not be counted. The file is missing on systems without swap.
                write(&dir, "memory.swap.max", "0").ok();
                rest.memory_bytes = None;
            }
            if let Some(processes) = limits.processes.filter(|_| self.has_pids) {
                write(&dir, "pids.max", &processes.to_string())?;
                rest.processes = None;
            }
            Ok(())
        }();
        if let Err(error) = limited {
            fs::remove_dir(&dir).ok();
            return Err(error);
        }
        let memory_bytes = limits.memory_bytes;
        Ok(Cgroup {
            dir,
            rest,
            memory_bytes,
        })
    }
}

impl Cgroup {
    /// Moves a newly started process into the cgroup. Its descendants inherit it.
    pub(super) fn admit(&self, pid: u32) -> io::Result<()> {
        write(&self.dir, "cgroup.procs", &pid.to_string()).map_err(io::Error::other)
    }

    /// Limits that the cgroup does not enforce.
    pub(super) fn rest(&self) -> ProcessLimits {
        self.rest
    }

    /// Kills all processes in the cgroup.
    pub(super) fn kill(&self) {
        kill(&self.dir);
    }

    /// Memory usage of the cgroup in bytes; `None` if the kernel does not report it.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let current = read(&self.dir, "memory.current").ok()?;
        current.trim().parse().ok()
    }

    /// Description of an OOM kill in the cgroup, if one occurred.
    pub(super) fn out_of_memory(&self) -> Option<String> {
        let events = read(&self.dir, "memory.events").ok()?;
        let kills = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        if kills?.trim() == "0" {
            return None;
        }
        Some(match self.memory_bytes {
            Some(bytes) => format!(
                "out of memory: the limit is {} MiB for the process and its tools together",
                bytes >> 20
            ),
            None => "out of memory: the machine has no free memory".to_owned(),
        })
    }
}

/// Kills all processes in a cgroup. Unsupported by older kernels, where killing the process group
/// must suffice.
fn kill(dir: &Path) {
    write(dir, "cgroup.kill", "1").ok();
}

/// Removes the cgroup of a child, including a nested one for a program.
fn remove_group(dir: &Path) -> io::Result<()> {
    // If this fails, removing the outer one fails as well.
    fs::remove_dir(dir.join(PROGRAM_GROUP)).ok();
    fs::remove_dir(dir)
}

/// Children's cgroups of an earlier daemon.
fn child_groups(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.starts_with(CHILD_GROUP_PREFIX))
    });
    names.map(|entry| entry.path()).collect()
}

/// Path prefix of the children's cgroups, from the daemon's `/proc/self/cgroup`.
fn child_groups_beside(own: &str) -> Option<String> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let divided = path.strip_suffix(OWN_GROUP)?;
    Some(format!("{divided}{CHILD_GROUP_PREFIX}"))
}

fn make_group(dir: &Path) -> Result<(), NoGroups> {
    match fs::create_dir(dir) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(NoGroups::File {
            path: dir.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn read(dir: &Path, name: &str) -> Result<String, NoGroups> {
    let path = dir.join(name);
    fs::read_to_string(&path).map_err(|source| NoGroups::File { path, source })
}

#[expect(
    clippy::disallowed_methods,
    reason = "cgroup control files are not durable state"
)]
fn write(dir: &Path, name: &str, text: &str) -> Result<(), NoGroups> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(|source| NoGroups::File { path, source })
}

/// The directory of a process's cgroup, from its `mountinfo` and `cgroup` files.
fn own_group(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // `36 35 98:0 /root /mount options - type source options`, with any number of options.
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (top, at) = (words.next()?, words.next()?);
        let is_it = file_system.starts_with("cgroup2 ") && !at.contains('\\');
        let within = Path::new(path).strip_prefix(top).ok()?;
        is_it.then(|| Path::new(at).join(within))
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const PID: u32 = 4_242;
    const LIMITS: ProcessLimits = ProcessLimits {
        memory_bytes: Some(64 << 20),
        open_files: Some(128),
        processes: Some(32),
    };

    /// A directory with the files that the kernel would create. It does not create those of nested
    /// cgroups and does not remove cgroups that contain files.
    fn tree(controllers: &str, processes: &str) -> TempDir {
        let tree = tempfile::tempdir().unwrap();
        write(tree.path(), "cgroup.events", "populated 1\n").unwrap();
        write(tree.path(), "cgroup.controllers", controllers).unwrap();
        write(tree.path(), "cgroup.procs", processes).unwrap();
        tree
    }

    fn take(tree: &TempDir) -> Result<Cgroups, NoGroups> {
        let user = nix::unistd::geteuid().as_raw();
        Cgroups::take_dir(tree.path(), PID, user)
    }

    fn text(tree: &TempDir, path: &str) -> String {
        read(tree.path(), path).unwrap()
    }

    #[test]
    fn cgroup_is_delegated_and_limits_are_written_at_their_level() {
        let tree = tree("cpuset cpu io memory pids\n", "4242\n");
        let groups = take(&tree).unwrap();
        assert_eq!(groups.dir(), Some(tree.path()));
        assert_eq!(text(&tree, "orchestrator/cgroup.procs"), "4242");
        assert_eq!(text(&tree, "cgroup.subtree_control"), "+memory +pids");

        let group = groups.make(ProcessId(7), &LIMITS, false).unwrap().unwrap();
        group.admit(99).unwrap();
        assert_eq!(text(&tree, "child-7/cgroup.procs"), "99");
        assert_eq!(text(&tree, "child-7/memory.max"), "67108864");
        assert_eq!(text(&tree, "child-7/memory.oom.group"), "1");
        assert_eq!(text(&tree, "child-7/memory.swap.max"), "0");
        assert_eq!(text(&tree, "child-7/pids.max"), "32");
        let open_files = ProcessLimits {
            open_files: Some(128),
            ..ProcessLimits::default()
        };
        assert_eq!(group.rest(), open_files);

        assert!(!tree.path().join("child-7/program").exists());
        let free = groups.make(ProcessId(8), &ProcessLimits::default(), true);
        assert!(tree.path().join("child-8/program").is_dir());
        assert!(free.unwrap().unwrap().rest().is_none());
        assert!(!tree.path().join("child-8/memory.max").exists());
    }

    #[test]
    fn limits_without_a_controller_are_left_to_other_means() {
        let tree = tree("hugetlb\n", "4242\n");
        let groups = take(&tree).unwrap();
        assert!(!tree.path().join("cgroup.subtree_control").exists());
        let group = groups.make(ProcessId(7), &LIMITS, false).unwrap().unwrap();
        assert_eq!(group.rest(), LIMITS);
    }

    #[test]
    fn a_group_that_is_shared_or_not_owned_is_left_alone() {
        let shared = tree("memory pids\n", "1\n4242\n");
        assert!(matches!(take(&shared), Err(NoGroups::Shared { .. })));
        let other = Cgroups::take_dir(shared.path(), PID, u32::MAX);
        assert!(matches!(other, Err(NoGroups::NotDelegated { .. })));
        let topmost = tree("memory pids\n", "4242\n");
        fs::remove_file(topmost.path().join("cgroup.events")).unwrap();
        assert!(matches!(take(&topmost), Err(NoGroups::NotDelegated { .. })));
        for tree in [shared, topmost] {
            assert!(!tree.path().join(OWN_GROUP).exists());
        }
        let groups = Cgroups::default();
        assert!(groups.make(ProcessId(1), &LIMITS, false).unwrap().is_none());
    }

    #[test]
    fn a_group_that_cannot_be_divided_is_left_as_it_was() {
        let tree = tree("memory pids\n", "4242\n");
        fs::create_dir(tree.path().join("cgroup.subtree_control")).unwrap();
        let error = take(&tree).unwrap_err().to_string();
        assert!(error.contains("cgroup.subtree_control`: "), "{error}");
        assert_eq!(text(&tree, "cgroup.procs"), "4242");
    }

    #[test]
    fn limits_that_cannot_be_set_keep_a_process_from_starting() {
        let tree = tree("memory pids\n", "4242\n");
        let groups = take(&tree).unwrap();
        fs::create_dir_all(tree.path().join("child-7/pids.max")).unwrap();
        let error = groups
            .make(ProcessId(7), &LIMITS, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("pids.max`: "), "{error}");
        write(tree.path(), "child-9", "in the way").unwrap();
        assert!(groups.make(ProcessId(9), &LIMITS, false).is_err());
    }

    #[test]
    fn out_of_memory_is_distinguished_from_other_exits() {
        let tree = tree("memory\n", "4242\n");
        let groups = take(&tree).unwrap();
        let group = groups.make(ProcessId(7), &LIMITS, false).unwrap().unwrap();
        assert_eq!(group.out_of_memory(), None);
        write(
            &group.dir,
            "memory.events",
            "low 0\nmax 7\noom 0\noom_kill 0\n",
        )
        .unwrap();
        assert_eq!(group.out_of_memory(), None);
        write(
            &group.dir,
            "memory.events",
            "low 0\noom 1\noom_kill 3\noom_group_kill 1\n",
        )
        .unwrap();
        assert_eq!(
            group.out_of_memory().unwrap(),
            "out of memory: the limit is 64 MiB for the process and its tools together"
        );
        write(&group.dir, "memory.current", "1234\n").unwrap();
        assert_eq!(group.memory_bytes(), Some(1_234));
    }

    #[test]
    fn cgroups_of_this_and_earlier_daemons_are_emptied_and_removed() {
        let tree = tree("memory pids\n", "4242\n");
        fs::create_dir_all(tree.path().join("child-3/program")).unwrap();
        let mut groups = take(&tree).unwrap();
        assert!(!tree.path().join("child-3").exists());
        let group = groups
            .make(ProcessId(7), &ProcessLimits::default(), true)
            .unwrap()
            .unwrap();
        group.admit(99).unwrap();
        groups.bury(group);
        assert_eq!(text(&tree, "child-7/cgroup.kill"), "1");
        assert_eq!(groups.leftovers, [tree.path().join("child-7")]);
        for file in ["cgroup.procs", "cgroup.kill"] {
            fs::remove_file(tree.path().join("child-7").join(file)).unwrap();
        }
        groups.sweep();
        assert_eq!(groups.leftovers, Vec::<PathBuf>::new());
        assert!(!tree.path().join("child-7").exists());
    }

    #[test]
    fn sec_4_groups_of_children_are_beside_the_daemons_own() {
        let beside =
            child_groups_beside("4:memory:/a\n0::/user.slice/goondan.service/orchestrator\n");
        assert_eq!(beside.unwrap(), "/user.slice/goondan.service/child-");
        assert_eq!(
            child_groups_beside("0::/orchestrator\n").unwrap(),
            "/child-"
        );
        assert_eq!(child_groups_beside("0::/elsewhere\n"), None);
    }

    #[test]
    fn the_group_of_a_process_is_found_on_both_kinds_of_systems() {
        let unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let of = |mounts: &str, own: &str| own_group(mounts, own);
        assert_eq!(
            of(unified, "0::/user.slice/goondan.service\n").unwrap(),
            Path::new("/sys/fs/cgroup/user.slice/goondan.service")
        );
        let both = "31 24 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                    32 24 0:28 / /sys/fs/cgroup/unified rw shared:10 master:1 - cgroup2 cgroup rw\n";
        assert_eq!(
            of(both, "4:memory:/a\n0::/b\n").unwrap(),
            Path::new("/sys/fs/cgroup/unified/b")
        );
        let bound = "40 24 0:26 /lxc/a /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(
            of(bound, "0::/lxc/a/b\n").unwrap(),
            Path::new("/sys/fs/cgroup/b")
        );
        assert_eq!(of(bound, "0::/elsewhere\n"), None);
        assert_eq!(
            of("31 24 0:27 / /x rw - cgroup cgroup rw\n", "4:memory:/a\n"),
            None
        );
    }
}
