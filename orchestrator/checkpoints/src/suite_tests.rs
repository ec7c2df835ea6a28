//! Goal: the malformed archives in the test suites of GNU tar and libarchive are rejected, too.
//! Method: recreates their cases as a checkpoint's archive: absurd and negative sizes, false
//! extended headers, unterminated long names, sparse files, entries of other systems, truncated,
//! nested and inflated streams.

use tar::EntryType;

use crate::hostile_tests::{FILE, Item, archive, blocks, gzip, is_refused, plant, world};

const F: Item<'_> = Item(FILE, "f", "", 0o644, b"text\n");

/// An entry whose header is changed before its checksum is computed.
fn edited(item: &Item<'_>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut made = blocks(std::slice::from_ref(item));
    edit(&mut made[..512]);
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes().copy_from_slice(&made[..512]);
    header.set_cksum();
    made[..512].copy_from_slice(header.as_bytes());
    made
}

/// An entry with this size field.
fn sized(size: &[u8; 12]) -> Vec<u8> {
    edited(&F, |header| header[124..136].copy_from_slice(size))
}

/// A POSIX extended header with these bytes, then entries.
fn extended(records: &[u8], then: &[Item<'_>]) -> Vec<u8> {
    let header = Item(EntryType::XHeader, "PaxHeaders/f", "", 0o644, records);
    [blocks(&[header]), blocks(then)].concat()
}

/// A record of an extended header, with its length prefix.
fn record(text: &str) -> Vec<u8> {
    let mut len = text.len() + 3;
    while format!("{len} {text}\n").len() != len {
        len += 1;
    }
    format!("{len} {text}\n").into_bytes()
}

/// Terminates an archive properly.
fn ended(mut blocks: Vec<u8>) -> Vec<u8> {
    blocks.resize(blocks.len() + 1024, 0);
    gzip(&blocks)
}

fn all_are_refused(cases: Vec<(String, Vec<u8>)>) {
    for (what, bytes) in cases {
        let world = world();
        plant(&world, &bytes, |_| {});
        is_refused(&world, &what);
    }
}

#[test]
fn ckpt_4_sizes_that_lie_change_nothing() {
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for (what, size) in [
        ("negative in base 256", [0xff; 12]),
        ("over 64 bits", [0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("over 63 bits", [0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("the largest octal", *b"77777777777\0"),
        ("negative octal", *b"-0000000005\0"),
        ("letters", *b"0000000000x\0"),
        ("decimal", *b"00000000009\0"),
    ] {
        cases.push((what.to_owned(), ended(sized(&size))));
    }
    for size in ["6", "4", "18446744073709551615"] {
        let records = record(&format!("size={size}"));
        let bytes = ended(extended(&records, &[F]));
        cases.push((format!("extended size {size}"), bytes));
    }
    let directory = Item(EntryType::Directory, "d/", "", 0o755, &[0; 600]);
    let link = Item(EntryType::Symlink, "l", "f", 0o777, b"hidden");
    for (what, item) in [("a directory", directory), ("a link", link)] {
        cases.push((format!("{what} with content"), gzip(&archive(&[F, item]))));
    }
    all_are_refused(cases);
}

/// An invalid size is ignored, so the entry's own size applies and the content matches the
/// manifest.
#[test]
fn ckpt_4_sizes_that_are_none_are_as_if_they_were_not_there() {
    for size in ["-1", "0x5", "99999999999999999999999", "5 5", ""] {
        let world = world();
        let records = record(&format!("size={size}"));
        plant(&world, &ended(extended(&records, &[F])), |_| {});
        world.restore("latest").unwrap();
        assert_eq!(world.read("f").unwrap(), b"text\n", "{size}");
    }
}

#[test]
fn ckpt_4_extended_headers_that_lie_change_nothing() {
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for text in [
        "path=../f",
        "path=/etc/f",
        "path=.checkpoints/f",
        "path=g",
        "path=",
        "path=f/",
        "path=f\0x",
    ] {
        cases.push((
            text.replace('\0', "\\0"),
            ended(extended(&record(text), &[F])),
        ));
    }
    for records in [
        &b"9999 path=f\n"[..],
        b"0 path=f\n",
        b"-9 path=f\n",
        b"path=f\n",
        b"18446744073709551616 path=f\n",
    ] {
        // An unreadable record is ignored, so the entries after it do not match the manifest.
        let g = Item(FILE, "g", "", 0o644, b"text\n");
        let what = String::from_utf8_lossy(records).into_owned();
        cases.push((what, ended(extended(records, &[g]))));
    }
    let linked = record("linkpath=/etc/passwd");
    let link = Item(EntryType::Link, "f", "f", 0o644, b"");
    cases.push((
        "a hard link out".to_owned(),
        ended(extended(&linked, &[link])),
    ));
    let twice = [
        extended(&record("path=f"), &[]),
        extended(&record("path=../f"), &[F]),
    ];
    cases.push(("two in a row".to_owned(), ended(twice.concat())));
    let large = record(&format!("comment={}", "x".repeat(1 << 20)));
    cases.push(("a large comment".to_owned(), ended(extended(&large, &[F]))));
    let global = Item(EntryType::XGlobalHeader, "g", "", 0o644, b"13 path=../f\n");
    cases.push(("for all entries".to_owned(), gzip(&archive(&[global, F]))));
    let alone = extended(&record("path=f"), &[]);
    cases.push(("of nothing".to_owned(), ended(alone)));
    all_are_refused(cases);
}

#[test]
fn ckpt_4_long_names_and_sparse_or_foreign_entries_do_no_harm() {
    let long = |kind, text: &'static [u8]| Item(kind, "././@LongLink", "", 0o644, text);
    let name = EntryType::GNULongName;
    let link = EntryType::GNULongLink;
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for (what, items) in [
        ("a long name out", vec![long(name, b"../f\0"), F]),
        ("an empty long name", vec![long(name, b"\0"), F]),
        (
            "long names without end",
            vec![long(name, b"f\0"), long(name, b"f\0"), F],
        ),
        (
            "long links without end",
            vec![long(link, b"f\0"), long(link, b"f\0"), F],
        ),
        ("a long name of nothing", vec![long(name, b"f\0")]),
        (
            "a long link out",
            vec![
                long(link, b"/etc/passwd\0"),
                Item(EntryType::Link, "f", "", 0o644, b""),
            ],
        ),
    ] {
        cases.push((what.to_owned(), gzip(&archive(&items))));
    }
    // GNU sparse files, continued files, labels, directory dumps; Solaris ACLs; unknown types.
    for kind in [
        b'S', b'M', b'V', b'D', b'N', b'A', b'E', b'I', b'X', b'Z', b'7', 0xff,
    ] {
        let entry = edited(&F, |header| header[156] = kind);
        cases.push((format!("type {kind:#x}"), ended(entry)));
    }
    let map = [record("GNU.sparse.major=1"), record("GNU.sparse.minor=0")].concat();
    let sparse = Item(FILE, "f", "", 0o644, b"1\n0\n5\n");
    cases.push(("a sparse map".to_owned(), ended(extended(&map, &[sparse]))));
    let prefixed = edited(&F, |header| {
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[345..347].copy_from_slice(b"..");
    });
    cases.push(("a prefix out".to_owned(), ended(prefixed)));
    all_are_refused(cases);
}

#[test]
fn ckpt_4_entry_that_replaces_another_file_kind_changes_nothing() {
    let directory = |name| Item(EntryType::Directory, name, "", 0o755, b"");
    let link = |name, target| Item(EntryType::Symlink, name, target, 0o777, b"");
    let inner = |name| Item(FILE, name, "", 0o644, b"text\n");
    for (what, items) in [
        (
            "link",
            vec![directory("d/"), link("d", "/tmp"), inner("d/f")],
        ),
        (
            "link first",
            vec![link("d", "/tmp"), directory("d/"), inner("d/f")],
        ),
        ("link to itself", vec![link("d", "d"), inner("d/f")]),
        (
            "links in a circle",
            vec![link("d", "e"), link("e", "d"), inner("d/f")],
        ),
        ("file", vec![directory("d/"), inner("d"), inner("d/f")]),
    ] {
        let world = world();
        // The manifest matches the last entries as far as possible.
        plant(&world, &gzip(&archive(&items)), |metadata| {
            let file = metadata["manifest"]["f"].take();
            metadata["manifest"] = serde_json::json!({
                "d": {"kind": "directory", "mode": 0o755},
                "d/f": file,
            });
        });
        is_refused(&world, what);
    }
}

#[test]
fn ckpt_4_nested_inflated_or_truncated_streams_change_nothing() {
    let whole = gzip(&archive(&[F]));
    let [first, rest] = [gzip(&blocks(&[F])), gzip(&[0; 1024])];
    let cut_inside = [&first[..first.len() - 4], &rest].concat();
    let mut reserved = whole.clone();
    reserved[3] = 0xe0;
    let mut method = whole.clone();
    method[2] = 7;
    let zero_between = [
        blocks(&[F]),
        vec![0; 512],
        archive(&[Item(FILE, "g", "", 0o644, b"x")]),
    ];
    let swollen = [blocks(&[F]), vec![0; 100 << 20]].concat();
    let deep = (0..5).fold(whole.clone(), |inner, _| gzip(&inner));
    all_are_refused(vec![
        ("gzip in gzip".to_owned(), deep),
        ("a member cut inside".to_owned(), cut_inside),
        ("reserved flags".to_owned(), reserved),
        ("an unknown method".to_owned(), method),
        (
            "entries behind a zero block".to_owned(),
            gzip(&zero_between.concat()),
        ),
        ("zeros for the end, without end".to_owned(), gzip(&swollen)),
        (
            "bytes between members".to_owned(),
            [first, vec![0; 7], rest].concat(),
        ),
        (
            "the trailer alone".to_owned(),
            whole[whole.len() - 8..].to_vec(),
        ),
    ]);
}
