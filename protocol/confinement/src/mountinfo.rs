//! The kernel's table of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::mount::MountFlags;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    /// Restrictions of the mount, which a user namespace cannot remove.
    pub(crate) has: MountFlags,
}

/// Parses `/proc/self/mountinfo`.
pub(crate) fn mount_points(table: &[u8]) -> impl Iterator<Item = MountPoint> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let path = unescaped(fields.nth(4)?);
        let options = fields.next()?.split(|byte| *byte == b',');
        let has = options.map(flag).collect();
        let path = PathBuf::from(OsString::from_vec(path));
        Some(MountPoint { path, has })
    })
}

fn flag(option: &[u8]) -> MountFlags {
    match option {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"nosymfollow" => MountFlags::NOSYMFOLLOW,
        // Access time options keep their values unless they are set.
        _ => MountFlags::empty(),
    }
}

/// Decodes octal escapes of spaces, tabs, line feeds and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let escape = behind.split_first_chunk::<3>().filter(|_| *byte == b'\\');
        let number = escape
            .and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (number, escape) {
            (Some(number), Some((_, behind))) => {
                path.push(number);
                rest = behind;
            }
            _ => {
                path.push(*byte);
                rest = behind;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_parsed_with_its_restrictions() {
        let table = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            28 27 0:25 / /a\\040b/c\\134d ro,nosuid,nodev,noexec,noatime shared:1 - tmpfs t ro\n";
        let all = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let read: Vec<_> = mount_points(table).collect();
        let expected = [("/", MountFlags::empty()), ("/a b/c\\d", all)];
        let expected = expected.map(|(path, has)| MountPoint {
            path: path.into(),
            has,
        });
        assert_eq!(read, expected);
    }
}
