//! Message-IDs, and the thread of a message (`CONN-2`). Pure.
//!
//! A thread is named by its first message. Message-IDs of goondan contain the thread, because some
//! mail programs pass on only the last Message-ID.

use sha2::{Digest as _, Sha256};

use crate::limits::EMAIL_ID_BYTES_MAX;

/// Start of Message-IDs that goondan makes.
const OWN: &str = "goondan.";

/// Most Message-IDs of one header that are followed.
const IDS_MAX: usize = 100;

/// Bytes of a hash that names a thread or a message.
const HASH_BYTES: usize = 16;

/// The Message-IDs in a header, without angle brackets.
pub(super) fn ids(header: &str) -> Vec<String> {
    let parts = header.split('<').skip(1);
    let ids = parts.filter_map(|part| part.split_once('>'));
    let ids = ids.map(|(id, _)| id.trim()).filter(|id| is_id(id));
    ids.take(IDS_MAX).map(str::to_owned).collect()
}

/// True if a Message-ID can be repeated in a header.
pub(super) fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>".contains(&byte);
    !id.is_empty() && id.len() <= EMAIL_ID_BYTES_MAX && id.bytes().all(is_plain)
}

/// Name of a text of any length.
pub(super) fn hash(text: &[u8]) -> String {
    let hash = Sha256::digest(text);
    hex::encode(hash.get(..HASH_BYTES).unwrap_or_default())
}

/// The thread of a message with these references, in order. `own` is the message itself.
pub(super) fn thread_of(references: &[String], own: &str) -> String {
    let known = references.iter().rev().find_map(|id| own_thread(id));
    let first = || hash(references.first().map_or(own, String::as_str).as_bytes());
    known.map_or_else(first, str::to_owned)
}

/// The thread in a Message-ID of goondan.
fn own_thread(id: &str) -> Option<&str> {
    let (thread, rest) = id.strip_prefix(OWN)?.split_once('.')?;
    let (mark, _) = rest.split_once('@')?;
    (is_hash(thread) && is_hash(mark)).then_some(thread)
}

fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * HASH_BYTES && text.bytes().all(is_digit)
}

/// True for a Message-ID that goondan made for this address.
pub(super) fn is_own(id: &str, address: &str) -> bool {
    own_thread(id).is_some() && domain(id).eq_ignore_ascii_case(domain(address))
}

/// The Message-ID of an outgoing message: the same for the same mark, so that a repeated message is
/// recognized. Without a thread, it begins one.
pub(super) fn own_id(thread: Option<&str>, mark: &str, address: &str) -> String {
    let mark = hash(format!("{address}\n{mark}").as_bytes());
    let thread = thread.filter(|thread| is_hash(thread)).unwrap_or(&mark);
    format!("{OWN}{thread}.{mark}@{}", domain(address))
}

/// The part of an address after the last `@`.
pub(super) fn domain(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// True for an address that can be used in a command and in a header as it is: ASCII without spaces,
/// quotes and comments.
pub(super) fn is_address(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&byte);
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let is_domain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.len() <= 254
        && !local.is_empty()
        && local.bytes().all(is_plain)
        && !domain.is_empty()
        && domain.bytes().all(is_domain)
}

/// True if a list of addresses and domains, with or without `@` before them, covers an address.
pub(super) fn is_listed(list: &[String], address: &str) -> bool {
    list.iter().any(|entry| match entry.split_once('@') {
        Some(("", domain_only)) => domain(address).eq_ignore_ascii_case(domain_only),
        Some(_) => address.eq_ignore_ascii_case(entry),
        None => domain(address).eq_ignore_ascii_case(entry),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn conn_2_thread_is_found_by_its_first_message_or_ours() {
        assert_eq!(ids("<a@x>\t <b@y> <bad id> <> <c"), owned(&["a@x", "b@y"]));
        let root = thread_of(&[], "a@x");
        assert_eq!(thread_of(&owned(&["a@x", "b@y"]), "c@z"), root);
        let ours = own_id(Some(&root), "event", "help@example.org");
        assert!(ours.starts_with(&format!("goondan.{root}.")), "{ours}");
        assert!(is_own(&ours, "help@EXAMPLE.org") && !is_own(&ours, "help@example.com"));
        // Only the last Message-ID was passed on.
        assert_eq!(thread_of(std::slice::from_ref(&ours), "d@x"), root);
        assert_eq!(thread_of(&owned(&["other@x", &ours]), "d@x"), root);
        assert_eq!(own_id(Some(&root), "event", "help@example.org"), ours);
        assert_ne!(own_id(Some(&root), "event/2", "help@example.org"), ours);
        // A message that begins a thread is its first one.
        let first = own_id(None, "call", "help@example.org");
        let thread = own_thread(&first).unwrap().to_owned();
        assert_eq!(thread_of(&[first], "e@x"), thread);
        assert!(!is_own("goondan.x.y@example.org", "help@example.org"));
    }

    #[test]
    fn conn_1_addresses_that_could_change_a_command_are_refused() {
        for good in ["ada@example.com", "a+b.c@sub.example.co", "x@localhost"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "", "ada", "@x", "a@", "a@b@c", "a b@c", "a@b>", "<a@b", "a\r\n@b", "ä@b", "\"a\"@b",
            "a@b,c@d", "a@b c",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
        let list = owned(&["ada@example.com", "example.org", "@Example.net"]);
        for good in ["Ada@Example.com", "x@EXAMPLE.org", "y@example.net"] {
            assert!(is_listed(&list, good), "{good}");
        }
        for bad in [
            "bob@example.com",
            "x@sub.example.org",
            "x@badexample.org",
            "example.org",
        ] {
            assert!(!is_listed(&list, bad), "{bad}");
        }
    }
}
