//! Computes the visible parts of the machine's file system before anything is changed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use goondan_protocol::sandbox::SandboxPath;

use crate::plan::ConfinementPlan;

/// Harmless devices that most programs need.
#[cfg(target_os = "linux")]
pub(crate) const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Permitted access to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Content of the new root. Paths are absolute; mount paths contain no symbolic links.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Mounts; each precedes those beneath it.
    pub(crate) mounts: BTreeMap<PathBuf, Access>,
    /// Symbolic links by location, with their targets.
    pub(crate) links: BTreeMap<PathBuf, PathBuf>,
}

impl Layout {
    /// # Errors
    ///
    /// A path does not exist, or contains a link that a confined program could have created.
    pub(crate) fn of(plan: &ConfinementPlan) -> io::Result<Self> {
        let read = plan.read.iter().map(SandboxPath::as_path);
        Self::of_paths(read, plan.write.iter().map(SandboxPath::as_path))
    }

    /// # Errors
    ///
    /// As [`Self::of`].
    pub(crate) fn of_paths<'p>(
        read: impl Iterator<Item = &'p Path>,
        write: impl Iterator<Item = &'p Path>,
    ) -> io::Result<Self> {
        let mut layout = Self::default();
        for path in read {
            let real = layout.resolve(path)?;
            layout.mounts.insert(real, Access::Read);
        }
        for path in write {
            let real = layout.resolve(path)?;
            layout.mounts.insert(real, Access::Write);
        }
        let planted = layout.links.keys().find(|link| {
            let access = layout.nearest(link.parent().unwrap_or(link));
            access == Some(Access::Write)
        });
        if let Some(link) = planted {
            let text = format!("`{}` is a link in a writable directory", link.display());
            return Err(io::Error::other(text));
        }
        layout.simplify();
        layout.pin();
        Ok(layout)
    }

    /// Makes each directory between a writable mount and a read-only mount beneath it a mount of
    /// its own. A mount point can be neither renamed nor removed; otherwise a program could rename
    /// a directory above the read-only one, and create another in its place.
    fn pin(&mut self) {
        let mut between = Vec::new();
        let read_only = self
            .mounts
            .iter()
            .filter(|(_, access)| **access == Access::Read);
        for (path, _) in read_only {
            let above = path.ancestors().skip(1);
            let above: Vec<&Path> = above
                .take_while(|directory| !self.mounts.contains_key(*directory))
                .collect();
            let outer = above.last().and_then(|outermost| outermost.parent());
            if outer.and_then(|outer| self.mounts.get(outer)) == Some(&Access::Write) {
                between.extend(above.into_iter().map(Path::to_path_buf));
            }
        }
        let pinned = between.into_iter().map(|path| (path, Access::Write));
        self.mounts.extend(pinned);
    }

    pub(crate) fn nearest(&self, path: &Path) -> Option<Access> {
        let mut above = path.ancestors();
        above.find_map(|path| self.mounts.get(path).copied())
    }

    /// True if an ancestor of the path is mounted.
    pub(crate) fn is_beneath_a_mount(&self, path: &Path) -> bool {
        path.parent()
            .is_some_and(|parent| self.nearest(parent).is_some())
    }

    /// Removes mounts and links that an ancestor's mount already contains.
    fn simplify(&mut self) {
        let is_needed = |(path, access): (&PathBuf, &Access)| {
            let above = path.parent().and_then(|parent| self.nearest(parent));
            above != Some(*access)
        };
        let needed = self.mounts.iter().filter(|entry| is_needed(*entry));
        self.mounts = needed
            .map(|(path, access)| (path.clone(), *access))
            .collect();
        let links = std::mem::take(&mut self.links);
        let own = links
            .into_iter()
            .filter(|(link, _)| !self.is_beneath_a_mount(link));
        self.links = own.collect();
    }

    /// Resolves the symbolic links of a path and records each of them.
    fn resolve(&mut self, path: &Path) -> io::Result<PathBuf> {
        /// The kernel's limit.
        const MOST_LINKS: usize = 40;
        let mut left: Vec<PathBuf> = parts_reversed(path);
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop() {
            if part == Path::new("..") {
                real.pop();
                continue;
            }
            real.push(part);
            let at = |error| {
                io::Error::new(
                    io::Error::kind(&error),
                    format!("`{}`: {error}", path.display()),
                )
            };
            if fs::symlink_metadata(&real).map_err(at)?.is_symlink() {
                let target = fs::read_link(&real).map_err(at)?;
                links += 1;
                if links > MOST_LINKS {
                    return Err(at(io::Error::from(io::ErrorKind::InvalidInput)));
                }
                self.links.insert(real.clone(), target.clone());
                if target.is_absolute() {
                    real = PathBuf::from("/");
                } else {
                    real.pop();
                }
                left.extend(parts_reversed(&target));
            }
        }
        Ok(real)
    }
}

fn parts_reversed(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(PathBuf::from(part)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use goondan_protocol::sandbox::Level;

    fn layout(read: &[&Path], write: &[&Path]) -> io::Result<Layout> {
        let paths = |paths: &[&Path]| -> Vec<SandboxPath> {
            let paths = paths.iter().map(|path| path.to_path_buf().try_into());
            paths.collect::<Result<_, _>>().unwrap()
        };
        Layout::of(&ConfinementPlan {
            level: Level::Full,
            read: paths(read),
            write: paths(write),
            network: crate::Network::None,
        })
    }

    #[test]
    fn sec_6_links_are_recreated_and_covered_paths_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::create_dir_all(at("work")).unwrap();
        std::os::unix::fs::symlink("usr/bin", at("bin")).unwrap();
        let all = [at("usr"), at("bin"), at("usr/bin")];
        let read: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
        let layout = layout(&read, &[&at("work"), &at("usr/bin")]).unwrap();
        let mounts = [
            (at("usr"), Access::Read),
            (at("usr/bin"), Access::Write),
            (at("work"), Access::Write),
        ];
        assert_eq!(layout.mounts, mounts.into());
        assert_eq!(layout.links, [(at("bin"), "usr/bin".into())].into());
    }

    #[test]
    fn sec_3_directories_above_a_read_only_file_cannot_be_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("project/a/b/c")).unwrap();
        fs::create_dir_all(at("project/.git/hooks")).unwrap();
        fs::create_dir_all(at("other/x")).unwrap();
        let read = [at("project/a/b/c"), at("project/.git/hooks"), at("other/x")];
        let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
        let layout = layout(&read, &[&at("project")]).unwrap();
        let mounts = [
            (at("project"), Access::Write),
            (at("project/a"), Access::Write),
            (at("project/a/b"), Access::Write),
            (at("project/a/b/c"), Access::Read),
            (at("project/.git"), Access::Write),
            (at("project/.git/hooks"), Access::Read),
            (at("other/x"), Access::Read),
        ];
        assert_eq!(layout.mounts, mounts.into());
    }

    #[test]
    fn sec_6_a_link_that_a_program_could_have_made_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("work")).unwrap();
        fs::create_dir_all(at("secret")).unwrap();
        std::os::unix::fs::symlink("../secret", at("work/input")).unwrap();
        let refused = layout(&[&at("work/input")], &[&at("work")]).unwrap_err();
        assert!(refused.to_string().contains("work/input"), "{refused}");
        assert!(layout(&[&at("work/input")], &[]).is_ok());
        assert!(layout(&[&at("missing")], &[]).is_err());
    }
}
