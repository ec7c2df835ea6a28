//! Unpacking of untrusted archives (`PKG-3`, `CKPT-4`).

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use goondan_durable::disk::{Folder, append_all};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use crate::error::{IoContext as _, TreeError};
use crate::fresh;
use crate::limits::{
    COPY_CHUNK_BYTES, EXTRACT_FREE_BYTES, EXTRACT_HEADER_BYTES_MAX, EXTRACT_RATIO_MAX,
    LINK_TARGET_BYTES_MAX, Limits,
};
use crate::manifest::{Digest, Manifest, ManifestBuilder, TreeEntry};
use crate::path::{Names, RelativePath};
use crate::quote::to_text;

mod listed_archive;

pub use listed_archive::extract_listed;

/// Format of an archive, and limits of the extraction.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// True if the archive is gzip-compressed; several members form one stream.
    pub is_gzip: bool,
    /// True to strip the first name of every path, such as npm's `package/`. It must be the same
    /// for all.
    pub strips_first_name: bool,
    /// Limits of the extracted tree.
    pub limits: Limits,
}

/// Mode of directories that the archive does not list, and the mask for all modes: no write access
/// for others, no set-user-id.
const DIRECTORY_MODE: u32 = 0o755;
const MODE_MASK: u32 = 0o755;

/// Unpacks a tar archive to a new directory `name` of `parent`. The directory appears complete and
/// durable, or not at all.
///
/// Accepts files, directories, and links that stay in the tree. Modes are masked with `0o755`;
/// owners and times are dropped.
///
/// # Errors
///
/// [`TreeError`]: any other entry; an invalid or duplicate path, or two paths that differ only in
/// case; exceeded limits; more than [`EXTRACT_RATIO_MAX`] times the archive's size; damage.
pub fn extract(
    archive: impl Read,
    parent: &dyn Folder,
    name: &str,
    options: Options,
) -> Result<Manifest, TreeError> {
    let read = Rc::new(Cell::new(0));
    let source = CountingReader {
        inner: archive,
        count: Rc::clone(&read),
    };
    let source: Box<dyn Read + '_> = if options.is_gzip {
        Box::new(MultiGzDecoder::new(source))
    } else {
        Box::new(source)
    };
    let allowance = Rc::new(Cell::new(0));
    let guarded = RatioLimitReader {
        inner: source,
        came: 0,
        read,
        allowance: Rc::clone(&allowance),
    };
    let built = fresh::build(parent, name, |folder| {
        let mut extraction = Extraction {
            folder,
            options,
            builder: ManifestBuilder::new(options.limits, Names::Portable),
            first_name: None,
        };
        unpack(&mut extraction, guarded, &allowance)?;
        Ok((extraction.builder.finish(), ()))
    });
    built.map(|(manifest, ())| manifest)
}

/// Counts the bytes read from the archive.
struct CountingReader<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

/// Limits the output to the current allowance and to the ratio of the archive's size.
struct RatioLimitReader<R> {
    inner: R,
    came: u64,
    read: Rc<Cell<u64>>,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for RatioLimitReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.came += read as u64;
        let most = self.read.get().saturating_mul(EXTRACT_RATIO_MAX) + EXTRACT_FREE_BYTES;
        if self.came > most {
            return Err(io::Error::other(
                "the output is much larger than an archive of this size can hold",
            ));
        }
        let left = self.allowance.get().checked_sub(read as u64);
        self.allowance
            .set(left.ok_or_else(|| io::Error::other("a header or name is too long"))?);
        Ok(read)
    }
}

fn damaged(error: &io::Error) -> TreeError {
    TreeError::Archive {
        problem: error.to_string(),
    }
}

fn refused(problem: &str) -> TreeError {
    TreeError::Archive {
        problem: problem.to_owned(),
    }
}

fn unpack(
    extraction: &mut Extraction<'_>,
    source: impl Read,
    allowance: &Cell<u64>,
) -> Result<(), TreeError> {
    let mut archive = tar::Archive::new(source);
    allowance.set(EXTRACT_HEADER_BYTES_MAX);
    let entries = archive.entries().map_err(|error| damaged(&error))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        // Content, padding, and the next headers.
        let size = entry.size();
        allowance.set(size.saturating_add(EXTRACT_HEADER_BYTES_MAX));
        extraction.entry(&mut entry)?;
        allowance.set(EXTRACT_HEADER_BYTES_MAX);
    }
    let mut rest = archive.into_inner();
    // Reading to the end verifies the checksum of the compressed data.
    allowance.set(EXTRACT_FREE_BYTES);
    io::copy(&mut rest, &mut io::sink()).map_err(|error| damaged(&error))?;
    Ok(())
}

struct Extraction<'e> {
    folder: &'e dyn Folder,
    options: Options,
    builder: ManifestBuilder,
    first_name: Option<Vec<u8>>,
}

impl Extraction<'_> {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), TreeError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let raw = entry.path_bytes().into_owned();
        let Some(path) = self.path(&raw, kind == EntryType::Directory)? else {
            return Ok(());
        };
        let mode = entry.header().mode().map_err(|error| damaged(&error))? & MODE_MASK;
        for parent in self.builder.missing_parents(&path) {
            self.directory(&parent, DIRECTORY_MODE)?;
        }
        match kind {
            // An earlier entry created the directory.
            EntryType::Directory if self.builder.has_directory(&path) => Ok(()),
            EntryType::Directory => self.directory(&path, mode),
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.link(path, target)
            }
            EntryType::Regular | EntryType::Continuous => self.file(&path, mode, entry),
            _ => Err(TreeError::Special { path }),
        }
    }

    /// Returns the path of an entry; `None` for the root itself.
    fn path(&mut self, raw: &[u8], is_directory: bool) -> Result<Option<RelativePath>, TreeError> {
        let mut raw = raw.strip_prefix(b"./").unwrap_or(raw);
        if is_directory {
            raw = raw.strip_suffix(b"/").unwrap_or(raw);
            if raw.is_empty() || raw == b"." {
                return Ok(None);
            }
        }
        let path = RelativePath::new(raw)?;
        if !self.options.strips_first_name {
            return Ok(Some(path));
        }
        let mut parts = path.as_bytes().splitn(2, |byte| *byte == b'/');
        let first = parts.next().unwrap_or_default();
        let known = self.first_name.get_or_insert_with(|| first.to_vec());
        if known != first {
            return Err(refused("not all entries are in one directory"));
        }
        match parts.next() {
            Some(rest) => Ok(Some(RelativePath::new(rest)?)),
            None if is_directory => Ok(None),
            None => Err(refused("not all entries are in one directory")),
        }
    }

    fn directory(&mut self, path: &RelativePath, mode: u32) -> Result<(), TreeError> {
        // Validated first, because an invalid name must not reach the file system.
        self.builder
            .add(path.clone(), TreeEntry::Directory { mode })?;
        let made = self.folder.create_dir(path.as_path(), mode | 0o700);
        made.during("create", path)
    }

    fn link(&mut self, path: RelativePath, target: Vec<u8>) -> Result<(), TreeError> {
        if target.is_empty() || target.len() > LINK_TARGET_BYTES_MAX || target.contains(&0) {
            return Err(refused("a link has no target"));
        }
        if path.leads_outside(&target) {
            return Err(TreeError::OutsideLink {
                path,
                target: to_text(&target),
            });
        }
        let to = Path::new(OsStr::from_bytes(&target)).to_owned();
        self.builder.add(path.clone(), TreeEntry::Link { target })?;
        self.folder
            .create_link(path.as_path(), &to)
            .during("create", &path)
    }

    fn file<R: Read>(
        &mut self,
        path: &RelativePath,
        mode: u32,
        entry: &mut tar::Entry<'_, R>,
    ) -> Result<(), TreeError> {
        let bytes = entry.size();
        if bytes > self.builder.bytes_left() {
            return Err(TreeError::limit("bytes", self.options.limits.bytes(), path));
        }
        // Validates the name before anything is written.
        let unread = TreeEntry::File {
            mode,
            bytes: 0,
            sha256: Digest::of(b""),
        };
        self.builder.add(path.clone(), unread)?;
        let mut file = self
            .folder
            .create(path.as_path(), mode | 0o600)
            .during("create", path)?;
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; COPY_CHUNK_BYTES];
        let mut came = 0;
        loop {
            let read = entry.read(&mut chunk).map_err(|error| damaged(&error))?;
            if read == 0 {
                break;
            }
            let piece = chunk.get(..read).unwrap_or_default();
            came += read as u64;
            hasher.update(piece);
            append_all(file.as_mut(), piece).during("write", path)?;
        }
        if came != bytes {
            return Err(refused("the archive ends in the middle of a file"));
        }
        file.sync().during("sync", path)?;
        let sha256 = Digest::finish(hasher);
        let mode = mode | 0o600;
        self.builder.fill(
            path,
            TreeEntry::File {
                mode,
                bytes,
                sha256,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use goondan_durable::disk::SimulatedDisk;

    use super::*;
    use crate::random_trees::read;

    fn options() -> Options {
        Options {
            is_gzip: true,
            strips_first_name: false,
            limits: Limits::new(100, 100_000_000),
        }
    }

    struct Item<'i>(EntryType, &'i str, &'i str, &'i [u8]);

    /// Builds an archive with raw names that the crate's own writer would reject.
    fn archive(items: &[Item<'_>]) -> Vec<u8> {
        let mut tar = Vec::new();
        for Item(kind, name, target, content) in items {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            header.set_size(content.len() as u64);
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
            header.set_cksum();
            tar.extend_from_slice(header.as_bytes());
            tar.extend_from_slice(content);
            tar.resize(tar.len().next_multiple_of(512), 0);
        }
        tar.resize(tar.len() + 1024, 0);
        tar
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn extracted(archive: &[u8], options: Options) -> (SimulatedDisk, Result<Manifest, TreeError>) {
        let disk = SimulatedDisk::new();
        let parent = disk.folder(Path::new("/"));
        let came = extract(archive, parent.as_ref(), "new", options);
        let names = parent.names(Path::new("")).unwrap();
        assert_eq!(names.len(), usize::from(came.is_ok()), "{names:?}");
        (disk, came)
    }

    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn pkg_3_archive_is_extracted_completely() {
        let items = [
            Item(EntryType::Directory, "package/", "", b""),
            Item(FILE, "package/a/b.txt", "", b"text"),
            Item(EntryType::Symlink, "package/a/l", "../c", b""),
            Item(FILE, "package/c", "", b""),
        ];
        let options = Options {
            strips_first_name: true,
            ..options()
        };
        let (disk, came) = extracted(&gzip(&archive(&items)), options);
        let manifest = came.unwrap();
        let shown: Vec<String> = manifest
            .entries()
            .map(|(path, _)| path.to_string())
            .collect();
        assert_eq!(shown, ["a", "a/b.txt", "a/l", "c"]);
        assert_eq!(read(disk.folder(Path::new("/new")).as_ref()), manifest);
        // Several members form one stream.
        let tar = archive(&items);
        let (one, other) = tar.split_at(700);
        let (_, again) = extracted(&[gzip(one), gzip(other)].concat(), options);
        assert_eq!(again.unwrap(), manifest);
    }

    #[test]
    fn pkg_3_hostile_archives_leave_nothing() {
        let hostile: &[(&str, &[Item<'_>])] = &[
            ("absolute", &[Item(FILE, "/etc/x", "", b"x")]),
            ("upwards", &[Item(FILE, "../x", "", b"x")]),
            ("upwards inside", &[Item(FILE, "a/../../x", "", b"x")]),
            ("git", &[Item(FILE, ".git/hooks/post-checkout", "", b"x")]),
            ("git on Windows", &[Item(FILE, "GIT~1/config", "", b"x")]),
            (
                "link to absolute",
                &[Item(EntryType::Symlink, "l", "/etc", b"")],
            ),
            (
                "link upwards",
                &[Item(EntryType::Symlink, "a/l", "../../x", b"")],
            ),
            ("link nowhere", &[Item(EntryType::Symlink, "l", "", b"")]),
            (
                "hard link",
                &[
                    Item(FILE, "a", "", b"x"),
                    Item(EntryType::Link, "b", "a", b""),
                ],
            ),
            ("device", &[Item(EntryType::Char, "d", "", b"")]),
            ("pipe", &[Item(EntryType::Fifo, "p", "", b"")]),
            (
                "through a link",
                &[
                    Item(EntryType::Symlink, "l", "d", b""),
                    Item(FILE, "l/x", "", b"x"),
                ],
            ),
            (
                "below a file",
                &[Item(FILE, "f", "", b""), Item(FILE, "f/x", "", b"x")],
            ),
            (
                "twice",
                &[Item(FILE, "f", "", b"1"), Item(FILE, "f", "", b"2")],
            ),
            (
                "a link in the place of a file",
                &[
                    Item(FILE, "f", "", b"1"),
                    Item(EntryType::Symlink, "f", "g", b""),
                ],
            ),
            (
                "twins",
                &[Item(FILE, "Read", "", b"1"), Item(FILE, "rEAD", "", b"2")],
            ),
            (
                "twin directories",
                &[Item(FILE, "d/a", "", b"1"), Item(FILE, "D/b", "", b"2")],
            ),
        ];
        for (what, items) in hostile {
            let (_, came) = extracted(&gzip(&archive(items)), options());
            assert!(came.is_err(), "{what} was taken");
        }
    }

    #[test]
    fn pkg_3_too_much_and_too_little_leave_nothing() {
        let zeros = vec![0; 40_000_000];
        let (_, came) = extracted(
            &gzip(&archive(&[Item(FILE, "bomb", "", &zeros)])),
            options(),
        );
        assert!(came.unwrap_err().to_string().contains("much larger"));
        let few = Options {
            limits: Limits::new(1, 10),
            ..options()
        };
        let many = archive(&[Item(FILE, "a", "", b"1"), Item(FILE, "b", "", b"2")]);
        assert!(matches!(
            extracted(&gzip(&many), few).1,
            Err(TreeError::Limit { .. })
        ));
        let large = archive(&[Item(FILE, "a", "", b"more than ten bytes")]);
        assert!(matches!(
            extracted(&gzip(&large), few).1,
            Err(TreeError::Limit { .. })
        ));
        let name = vec![b'n'; 1_000_000];
        let long = archive(&[
            Item(EntryType::GNULongName, "x", "", &name),
            Item(FILE, "a", "", b""),
        ]);
        assert!(extracted(&gzip(&long), options()).1.is_err());
        // Truncated at each position, and damaged at each position.
        let content: Vec<u8> = (0..5000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        let whole = gzip(&archive(&[Item(FILE, "a", "", &content)]));
        assert!(extracted(&whole, options()).1.is_ok());
        for cut in (1..whole.len()).step_by(97) {
            assert!(
                extracted(&whole[..cut], options()).1.is_err(),
                "cut at {cut}"
            );
            let mut damaged = whole.clone();
            damaged[cut] ^= 0x10;
            // The gzip header's time and OS fields are not checked.
            assert!(
                cut < 10 || extracted(&damaged, options()).1.is_err(),
                "damaged at {cut}"
            );
        }
    }
}
