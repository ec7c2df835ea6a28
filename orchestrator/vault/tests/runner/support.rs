//! Documents to test with.

use goondan_protocol::time::Timestamp;
use goondan_vault::{Document, Identities};
use secrecy::ExposeSecret as _;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(seconds * 1_000)
}

/// A document with these values, as it is written.
pub(crate) fn sealed(identities: &Identities, values: &[(&str, &str)]) -> String {
    let mut document = Document::new();
    for (key, value) in values {
        document.set(&key.parse().unwrap(), value).unwrap();
    }
    document.seal(identities, at(1_790_000_000)).unwrap()
}

/// Every value of a document, in order.
pub(crate) fn values(document: &Document) -> Vec<(String, String)> {
    let keys: Vec<String> = document.keys().map(str::to_owned).collect();
    let value = |key: String| {
        let value = document.get(&key).unwrap().unwrap();
        (key, value.expose_secret().to_owned())
    };
    keys.into_iter().map(value).collect()
}
