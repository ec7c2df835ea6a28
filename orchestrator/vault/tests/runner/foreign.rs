//! Documents that `sops` 3.8.1 wrote, with the identity they are for: public test data of the project
//! `sops-age`.

use goondan_vault::{Document, DocumentError, Identities};

use crate::support::values;

const IDENTITY: &[u8] = include_bytes!("../fixtures/identity.age");
const FLAT: &[u8] = include_bytes!("../fixtures/flat.sops.yaml");
const NESTED: &[u8] = include_bytes!("../fixtures/nested.sops.yaml");

fn identities() -> Identities {
    Identities::parse(IDENTITY).unwrap()
}

#[test]
fn sys_3_sops_files_are_readable() {
    let flat = Document::open(FLAT, &identities()).unwrap();
    assert_eq!(
        values(&flat),
        [("secret".to_owned(), "this is a secret".to_owned())]
    );
    let nested = Document::open(NESTED, &identities()).unwrap();
    let expected = [
        ("secret", "this is a secret"),
        ("string", "string"),
        ("int", "7"),
        ("float", "3.14"),
        ("boolean", "true"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(values(&nested), expected);
    assert!(nested.get("complex").is_err());
    assert!(nested.get("value").unwrap().is_none());
}

#[test]
fn sec_1_the_checksum_of_nested_values_is_checked_too() {
    let text = std::str::from_utf8(NESTED).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let items = lines
        .iter()
        .position(|line| line.contains("data:dDBg"))
        .unwrap();
    // Entries of a list are bound to their list only: of their order the checksum alone speaks.
    let mut swapped = lines.clone();
    swapped.swap(items, items + 1);
    let opened = Document::open(swapped.join("\n").as_bytes(), &identities());
    assert!(
        matches!(opened, Err(DocumentError::Damaged(_))),
        "{opened:?}"
    );
    let mut left_out = lines;
    left_out.remove(items);
    assert!(Document::open(left_out.join("\n").as_bytes(), &identities()).is_err());
}

#[test]
fn document_that_would_lose_data_is_not_changed() {
    let key = "secret".parse().unwrap();
    for (document, why) in [
        (FLAT, "age19j4d6v9"),
        (NESTED, "`complex` is a list or a mapping"),
    ] {
        let mut document = Document::open(document, &identities()).unwrap();
        match document.set(&key, "new") {
            Err(DocumentError::Foreign(problem)) => assert!(problem.contains(why), "{problem}"),
            other => panic!("{other:?}"),
        }
        assert!(document.remove(&key).is_err());
        assert_eq!(values(&document)[0].1, "this is a secret");
    }
}
