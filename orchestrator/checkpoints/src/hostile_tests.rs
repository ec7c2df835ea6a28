//! Goal: malicious content in `.checkpoints` is restored exactly or rejected, and nothing is
//! written outside the work area. Method: malicious archives and records of every kind, with
//! matching digests.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use goondan_trees::Digest;
use tar::EntryType;

use crate::world::{World, at};
use crate::{CheckpointError, CheckpointSelector};

pub(crate) struct Item<'i>(
    pub(crate) EntryType,
    pub(crate) &'i str,
    pub(crate) &'i str,
    pub(crate) u32,
    pub(crate) &'i [u8],
);

pub(crate) const FILE: EntryType = EntryType::Regular;

pub(crate) fn blocks(items: &[Item<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for Item(kind, name, target, mode, content) in items {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar
}

pub(crate) fn archive(items: &[Item<'_>]) -> Vec<u8> {
    let mut tar = blocks(items);
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

const METADATA: &str = ".checkpoints/checkpoint_001/metadata.json";
const SNAPSHOT: &str = ".checkpoints/checkpoint_001/snapshot.tar.gz";

/// A work area with one file and a checkpoint.
pub(crate) fn world() -> World {
    let world = World::empty();
    world.write("f", "text\n");
    world.make("periodic").unwrap();
    world.write("f", "changed\n");
    world
}

/// Replaces the checkpoint's archive and updates its digest.
pub(crate) fn plant(world: &World, archive: &[u8], edit: impl FnOnce(&mut serde_json::Value)) {
    world.write(SNAPSHOT, archive);
    let text = world.read(METADATA).unwrap();
    let mut metadata: serde_json::Value = serde_json::from_slice(&text).unwrap();
    metadata["snapshotSize"] = archive.len().into();
    metadata["checksum"] = Digest::of(archive).to_string().into();
    edit(&mut metadata);
    let manifest = serde_json::to_vec(&metadata["manifest"]).unwrap();
    metadata["manifestDigest"] = Digest::of(&manifest).to_string().into();
    world.write(METADATA, serde_json::to_vec(&metadata).unwrap());
}

/// Checks that a restore fails and changes nothing outside `.checkpoints`, and that a drill reports
/// it.
pub(crate) fn is_refused(world: &World, what: &str) {
    let before = world.nodes();
    for which in [
        CheckpointSelector::Latest,
        CheckpointSelector::Id("checkpoint_001".parse().unwrap()),
    ] {
        let refused = world.store().restore(which, false, at(1));
        let error = refused.err().unwrap_or_else(|| panic!("{what} was taken"));
        assert!(
            matches!(
                error,
                CheckpointError::Damaged { .. } | CheckpointError::AllDamaged { .. }
            ),
            "{what}: {error}"
        );
        assert_eq!(world.nodes(), before, "{what}");
    }
    let drill = world.store().drill(at(2)).unwrap();
    assert!(drill.problem.is_some(), "{what} passed a drill");
    let names = world.folder().names(Path::new(".checkpoints")).unwrap();
    assert!(names.len() <= 3, "{what} left {names:?}");
}

#[test]
fn ckpt_4_the_archive_of_these_tests_is_one_that_is_taken() {
    let world = world();
    plant(
        &world,
        &gzip(&archive(&[Item(FILE, "f", "", 0o644, b"text\n")])),
        |_| {},
    );
    assert_eq!(world.store().drill(at(1)).unwrap().problem, None);
    world.restore("latest").unwrap();
    assert_eq!(world.read("f").unwrap(), b"text\n");
}

#[test]
fn ckpt_4_hostile_archives_change_nothing() {
    const F: Item<'_> = Item(FILE, "f", "", 0o644, b"text\n");
    let hostile: &[(&str, &[Item<'_>])] = &[
        ("nothing", &[]),
        ("absolute", &[F, Item(FILE, "/etc/x", "", 0o644, b"x")]),
        ("upwards", &[F, Item(FILE, "../x", "", 0o644, b"x")]),
        (
            "upwards inside",
            &[F, Item(FILE, "a/../../x", "", 0o644, b"x")],
        ),
        (
            "more than is listed",
            &[F, Item(FILE, "g", "", 0o644, b"x")],
        ),
        (
            "link outside",
            &[F, Item(EntryType::Symlink, "l", "/etc", 0o777, b"")],
        ),
        (
            "a link in the place of the file",
            &[Item(EntryType::Symlink, "f", "/etc/passwd", 0o777, b"")],
        ),
        (
            "a link, then the file",
            &[Item(EntryType::Symlink, "f", "/tmp/x", 0o777, b""), F],
        ),
        (
            "hard link",
            &[F, Item(EntryType::Link, "h", "f", 0o644, b"")],
        ),
        (
            "a hard link in its place",
            &[Item(EntryType::Link, "f", "/etc/passwd", 0o644, b"")],
        ),
        (
            "character device",
            &[Item(EntryType::Char, "f", "", 0o644, b"")],
        ),
        (
            "block device",
            &[F, Item(EntryType::Block, "d", "", 0o644, b"")],
        ),
        ("pipe", &[Item(EntryType::Fifo, "f", "", 0o644, b"")]),
        (
            "sparse",
            &[Item(EntryType::GNUSparse, "f", "", 0o644, b"text\n")],
        ),
        (
            "directory",
            &[Item(EntryType::Directory, "f/", "", 0o755, b"")],
        ),
        ("twice", &[F, F]),
        ("other content", &[Item(FILE, "f", "", 0o644, b"evil\n")]),
        ("other length", &[Item(FILE, "f", "", 0o644, b"text\n\n")]),
        ("other mode", &[Item(FILE, "f", "", 0o755, b"text\n")]),
        ("setuid", &[Item(FILE, "f", "", 0o4644, b"text\n")]),
        ("below the file", &[F, Item(FILE, "f/x", "", 0o644, b"x")]),
        (
            "checkpoints",
            &[F, Item(FILE, ".checkpoints/x", "", 0o644, b"x")],
        ),
    ];
    for (what, items) in hostile {
        let world = world();
        plant(&world, &gzip(&archive(items)), |_| {});
        is_refused(&world, what);
    }
}

#[test]
fn ckpt_4_truncated_or_overlong_archives_change_nothing() {
    let whole = archive(&[Item(FILE, "f", "", 0o644, b"text\n")]);
    let mut huge = blocks(&[Item(FILE, "f", "", 0o644, b"")]);
    // A length of eight gigabytes, in base 256.
    huge[124] = 0x80;
    huge[125..136].copy_from_slice(&[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let mut checksum = blocks(&[Item(FILE, "f", "", 0o644, b"text\n")]);
    checksum[148] ^= 1;
    let long_name = archive(&[Item(
        EntryType::GNULongName,
        "././@LongLink",
        "",
        0o644,
        &vec![b'n'; 1_000_000],
    )]);
    let mut damaged_trailer = gzip(&whole);
    let at = damaged_trailer.len() - 6;
    damaged_trailer[at] ^= 1;
    let zeros = gzip(&vec![0; 64_000_000]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no gzip", whole.clone()),
        ("empty", Vec::new()),
        ("cut", gzip(&whole)[..40].to_vec()),
        (
            "cut in the trailer",
            gzip(&whole)[..gzip(&whole).len() - 3].to_vec(),
        ),
        ("damaged trailer", damaged_trailer),
        (
            "garbage behind",
            [gzip(&whole), b"garbage".to_vec()].concat(),
        ),
        (
            "half a member behind",
            [gzip(&whole), gzip(b"x")[..12].to_vec()].concat(),
        ),
        (
            "a member with something behind",
            [gzip(&whole), gzip(b"more")].concat(),
        ),
        (
            "another archive behind",
            [
                gzip(&whole),
                gzip(&archive(&[Item(FILE, "g", "", 0o644, b"x")])),
            ]
            .concat(),
        ),
        ("zeros without end", [gzip(&whole), zeros].concat()),
        ("huge", gzip(&huge)),
        ("checksum of a header", gzip(&checksum)),
        ("long name", gzip(&long_name)),
        ("half a header", gzip(&whole[..300])),
        ("half a file", gzip(&whole[..514])),
    ];
    for (what, bytes) in cases {
        let world = world();
        plant(&world, &bytes, |_| {});
        is_refused(&world, what);
    }
}

#[test]
fn ckpt_4_hostile_manifests_change_nothing() {
    let item = |name| Item(FILE, name, "", 0o644, b"text\n");
    for name in ["../x", "/etc/x", "a/../../x", "./f", "a//b", ".", ""] {
        let world = world();
        plant(&world, &gzip(&archive(&[item(name)])), |metadata| {
            let entry = metadata["manifest"]["f"].take();
            metadata["manifest"] = serde_json::json!({name: entry});
        });
        is_refused(&world, name);
    }
    for (field, value) in [
        ("id", serde_json::json!("checkpoint_002")),
        ("id", serde_json::json!("../../x")),
        ("snapshotSize", serde_json::json!(-1)),
        ("snapshotSize", serde_json::json!(7)),
        ("checksum", serde_json::json!("00")),
        ("phase", serde_json::json!("one")),
        (
            "manifest",
            serde_json::json!({"f/x": {"kind": "directory", "mode": 493}}),
        ),
        (
            "manifest",
            serde_json::json!({"f": {"kind": "directory", "mode": 0o1777}}),
        ),
        ("manifest", serde_json::json!([])),
    ] {
        let world = world();
        let bytes = gzip(&archive(&[item("f")]));
        plant(&world, &bytes, |metadata| metadata[field] = value.clone());
        is_refused(&world, field);
    }
    let world = world();
    world.damage(METADATA, |text| text.truncate(100));
    is_refused(&world, "half a record");
}

/// Paths excluded from snapshots are not restored, even if a manifest and an archive contain them.
#[test]
fn ckpt_3_excluded_paths_are_never_written_by_a_restore() {
    for name in [".logs", ".env", ".metadata", ".cache"] {
        let world = world();
        let items = [
            Item(FILE, name, "", 0o644, b"text\n"),
            Item(FILE, "f", "", 0o644, b"text\n"),
        ];
        plant(&world, &gzip(&archive(&items)), |metadata| {
            let entry = metadata["manifest"]["f"].clone();
            metadata["manifest"] = serde_json::json!({name: entry, "f": entry});
        });
        world.restore("latest").unwrap();
        assert_eq!(world.read(name), None);
        assert_eq!(world.read("f").unwrap(), b"text\n");
    }
}

#[test]
fn ckpt_4_a_folder_of_checkpoints_that_is_a_link_is_refused() {
    let world = World::empty();
    let folder = world.folder();
    let link = Path::new(".checkpoints");
    folder.create_link(link, Path::new("/elsewhere")).unwrap();
    let refused = world.open().unwrap_err();
    assert!(matches!(refused, CheckpointError::Invalid { .. }));
}
