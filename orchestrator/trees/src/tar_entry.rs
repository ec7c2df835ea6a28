//! Headers of tar entries, in the format of GNU tar.

use goondan_durable::disk::NodeStat;
use tar::{EntryType, Header};

use crate::manifest::TreeEntry;
use crate::path::RelativePath;

/// Bytes of a block.
const BLOCK: usize = 512;

/// Name of an entry that holds the long name or target of the next one.
const LONG: &[u8] = b"././@LongLink";

/// Writes the headers before an entry's content.
pub fn push_header(out: &mut Vec<u8>, path: &RelativePath, stat: &NodeStat, entry: &TreeEntry) {
    let mut name = path.as_bytes().to_vec();
    let (kind, mode, bytes, target) = match entry {
        TreeEntry::File { mode, bytes, .. } => (EntryType::Regular, *mode, *bytes, None),
        TreeEntry::Directory { mode } => {
            name.push(b'/');
            (EntryType::Directory, *mode, 0, None)
        }
        TreeEntry::Link { target } => (EntryType::Symlink, 0o777, 0, Some(target.as_slice())),
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(seconds(stat));
    header.set_uid(0);
    header.set_gid(0);
    if let Some(target) = target {
        let is_short = header
            .as_gnu_mut()
            .is_some_and(|gnu| put(&mut gnu.linkname, target));
        if !is_short {
            push_long(out, EntryType::GNULongLink, target);
        }
    }
    let is_short = header
        .as_gnu_mut()
        .is_some_and(|gnu| put(&mut gnu.name, &name));
    if !is_short {
        push_long(out, EntryType::GNULongName, &name);
    }
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
}

/// Returns the padding of the last block.
#[must_use]
pub fn padding(bytes: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = usize::try_from(bytes % BLOCK as u64).unwrap_or_default();
    let missing = (BLOCK - over) % BLOCK;
    ZEROS.get(..missing).unwrap_or_default()
}

/// Returns the modification time in whole seconds.
#[must_use]
pub fn seconds(stat: &NodeStat) -> u64 {
    let [_, _, written_ns, _] = stat.version;
    u64::try_from(written_ns / 1_000_000_000).unwrap_or_default()
}

/// Copies as much of a text as fits into a field; true if the whole text fits.
fn put(field: &mut [u8], text: &[u8]) -> bool {
    field
        .iter_mut()
        .zip(text)
        .for_each(|(to, from)| *to = *from);
    text.len() <= field.len()
}

fn push_long(out: &mut Vec<u8>, kind: EntryType, text: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    // Including the terminating zero.
    let bytes = text.len() as u64 + 1;
    header.set_size(bytes);
    if let Some(gnu) = header.as_gnu_mut() {
        put(&mut gnu.name, LONG);
    }
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(text);
    out.push(0);
    out.extend_from_slice(padding(bytes));
}
