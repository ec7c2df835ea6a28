//! Documents that goondan writes itself.

use goondan_protocol::limits::{MAX_SECRET_KEYS, MAX_SECRET_VALUE_BYTES};
use goondan_vault::{Document, DocumentError, Identities, Outline};
use proptest::prelude::*;

use crate::support::{at, sealed, values};

#[test]
fn sys_3_documents_read_back_as_written_without_plain_text() {
    let identities = Identities::generate();
    let given = [
        ("token", "open-sesame"),
        ("2", "two\nlines: and \"more\""),
        ("true", "ä"),
    ];
    let text = sealed(&identities, &given);
    for (_, value) in given {
        assert!(!text.contains(value), "{text}");
    }
    let opened = Document::open(text.as_bytes(), &identities).unwrap();
    let expected: Vec<(String, String)> = given
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    assert_eq!(values(&opened), expected);
    assert!(!format!("{opened:?}").contains("open-sesame"));
    let outline = Outline::read(text.as_bytes()).unwrap();
    assert_eq!(outline.keys, ["token", "2", "true"]);
    assert_eq!(outline.changed_at, Some(at(1_790_000_000)));
    // The same again is another text: a new key, and new random numbers for each value.
    assert_ne!(sealed(&identities, &given), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sys_3_any_text_is_read_back(value in "(?s).{1,200}", other in "\\PC{1,20}") {
        let identities = Identities::generate();
        let text = sealed(&identities, &[("a", &value), ("b", &other)]);
        let opened = Document::open(text.as_bytes(), &identities).unwrap();
        prop_assert_eq!(values(&opened), [("a".to_owned(), value), ("b".to_owned(), other)]);
    }
}

#[test]
fn sec_1_every_changed_byte_is_noticed_or_changes_nothing() {
    let identities = Identities::generate();
    let text = sealed(&identities, &[("token", "open-sesame"), ("other", "value")]);
    let expected = values(&Document::open(text.as_bytes(), &identities).unwrap());
    let mut noticed = 0;
    for at in 0..text.len() {
        for flip in [0x01, 0x20] {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= flip;
            match Document::open(&bytes, &identities) {
                // The name of the recipient, the version, and where lines are indented to.
                Ok(opened) => assert_eq!(values(&opened), expected, "byte {at} ^ {flip}"),
                Err(error) => {
                    noticed += 1;
                    assert!(!error.to_string().contains("open-sesame"));
                }
            }
        }
    }
    assert!(noticed > text.len(), "{noticed} of {}", text.len() * 2);
}

#[test]
fn sec_1_a_document_that_was_cut_anywhere_is_refused() {
    let identities = Identities::generate();
    let text = sealed(&identities, &[("token", "open-sesame")]);
    // The lines after the checksum do not affect the values.
    let needed = text.find("    unencrypted_suffix").unwrap() - 2;
    for len in 0..needed {
        let cut = Document::open(&text.as_bytes()[..len], &identities);
        assert!(cut.is_err(), "{len} of {} bytes: {cut:?}", text.len());
    }
}

#[test]
fn sec_1_entries_cannot_be_moved_dropped_or_copied_from_others() {
    let identities = Identities::generate();
    let text = sealed(&identities, &[("a", "one"), ("b", "two")]);
    let lines: Vec<&str> = text.lines().collect();
    let open = |lines: &[&str]| Document::open(lines.join("\n").as_bytes(), &identities);
    assert!(open(&lines).is_ok());
    let swapped = [&[lines[1], lines[0]], &lines[2..]].concat();
    let left_out = [&lines[..1], &lines[2..]].concat();
    let renamed = lines[0].replace("\"a\"", "\"c\"");
    let renamed = [&[renamed.as_str()], &lines[1..]].concat();
    let doubled = [&[lines[0]], &lines[..]].concat();
    let plain = [&["\"c\": plain"], &lines[..]].concat();
    let older = text.replace("2026-09-2", "2026-09-1");
    let older: Vec<&str> = older.lines().collect();
    assert_ne!(older, lines);
    for (what, changed) in [
        ("swapped", swapped),
        ("left out", left_out),
        ("renamed", renamed),
        ("doubled", doubled),
        ("plain", plain),
        ("older", older),
    ] {
        let opened = open(&changed);
        assert!(opened.is_err(), "{what}: {opened:?}");
    }
}

#[test]
fn another_identity_opens_nothing_and_a_former_one_still_does() {
    let (old, new) = (Identities::generate(), Identities::generate());
    let text = sealed(&old, &[("token", "open-sesame")]);
    match Document::open(text.as_bytes(), &new) {
        Err(DocumentError::OtherIdentity { recipients }) => {
            assert_eq!(recipients, format!("`{}`", old.recipient()));
        }
        other => panic!("{other:?}"),
    }
    let both = |first: &Identities, second: &Identities| {
        use secrecy::ExposeSecret as _;
        let (first, second) = (first.file(at(1)), second.file(at(2)));
        let text = format!("{}{}", first.expose_secret(), second.expose_secret());
        Identities::parse(text.as_bytes()).unwrap()
    };
    let rotated = both(&new, &old);
    assert_eq!(rotated.recipient(), new.recipient());
    let mut opened = Document::open(text.as_bytes(), &rotated).unwrap();
    opened.set(&"more".parse().unwrap(), "2").unwrap();
    // From now on, all of it is encrypted for the new identity.
    let text = opened.seal(&rotated, at(3)).unwrap();
    let opened = Document::open(text.as_bytes(), &new).unwrap();
    assert_eq!(values(&opened).len(), 2);
    assert!(Document::open(text.as_bytes(), &old).is_err());
}

#[test]
fn values_that_could_not_be_read_back_are_rejected() {
    let mut document = Document::new();
    let mut set = |key: &str, value: &str| document.set(&key.parse().unwrap(), value);
    assert!(matches!(
        set("sops", "x"),
        Err(DocumentError::ReservedKey { .. })
    ));
    assert!(matches!(
        set("a_unencrypted", "x"),
        Err(DocumentError::ReservedKey { .. })
    ));
    assert_eq!(set("a", ""), Err(DocumentError::ValueLength(0)));
    let long = "x".repeat(MAX_SECRET_VALUE_BYTES + 1);
    assert_eq!(set("a", &long), Err(DocumentError::ValueLength(long.len())));
    for number in 0..MAX_SECRET_KEYS {
        assert_eq!(set(&format!("k{number}"), "x"), Ok(false));
    }
    assert_eq!(set("k0", "y"), Ok(true));
    assert_eq!(set("more", "x"), Err(DocumentError::TooManyKeys));
    assert_eq!(document.remove(&"k0".parse().unwrap()), Ok(true));
    assert_eq!(document.remove(&"k0".parse().unwrap()), Ok(false));
}

#[test]
fn a_document_too_large_to_be_read_is_not_written() {
    let identities = Identities::generate();
    let mut document = Document::new();
    let long = "x".repeat(MAX_SECRET_VALUE_BYTES);
    for number in 0..MAX_SECRET_KEYS {
        document
            .set(&format!("k{number}").parse().unwrap(), &long)
            .unwrap();
    }
    assert_eq!(
        document.seal(&identities, at(0)),
        Err(DocumentError::TooLarge)
    );
}

#[test]
fn hostile_documents_are_errors() {
    let identities = Identities::generate();
    let nested = format!("sops: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let bomb = format!(
        "a: &a [x,x,x,x,x,x,x,x]\n{}sops: {{}}\n",
        (1..20).fold(String::new(), |text, number| {
            let (name, before) = (char::from(b'a' + number), char::from(b'a' + number - 1));
            text + &format!("{name}: &{name} [*{before},*{before},*{before},*{before}]\n")
        })
    );
    let huge = "x".repeat(2 * 1024 * 1024);
    let cases = [
        "",
        "a: b",
        "[]",
        "sops:",
        "sops: {age: []}",
        "sops: {age: [{recipient: x, enc: y}]}",
        "sops: {age: [{}]}",
        "sops: {key_groups: [x]}",
        "a: [",
        "sops: {}\n---\nsops: {}\n",
        "\u{0}",
        &nested,
        &bomb,
        &huge,
    ];
    for case in cases {
        assert!(
            Document::open(case.as_bytes(), &identities).is_err(),
            "{case:.40}"
        );
    }
    assert!(Document::open(&[0xff, 0xfe], &identities).is_err());
}
