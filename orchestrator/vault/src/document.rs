//! One secret as a SOPS document: a flat mapping of keys to encrypted values, and how to open them.
//!
//! ```yaml
//! "token": ENC[AES256_GCM,data:…,iv:…,tag:…,type:str]
//! sops:
//!     age:
//!         - recipient: age1…
//!           enc: |
//!             -----BEGIN AGE ENCRYPTED FILE-----
//!             …
//!     lastmodified: "2026-01-31T12:00:00Z"
//!     mac: ENC[AES256_GCM,…,type:str]
//!     version: 3.9.0
//! ```
//!
//! Each value is bound to its key, and the checksum (`mac`) to the time of the change: it is the
//! SHA-512 of all values in their order, so that no value can be changed, moved, added or left out
//! without the key. SOPS does not bind the document's own name, so a replacement by a complete
//! older or different document is not detected.
//!
//! Documents written by `sops` itself can be read, including numbers, booleans, lists and nested
//! mappings; only strings, numbers and booleans at the top level can be requested. A change that
//! would lose data of such a document is refused.

use std::fmt;
use std::fmt::Write as _;

use goondan_protocol::ids::SecretKey;
use goondan_protocol::limits::{MAX_SECRET_KEYS, MAX_SECRET_VALUE_BYTES};
use goondan_protocol::time::Timestamp;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest as _, Sha512};

use crate::error::DocumentError;
use crate::identity::{Identities, UnwrapResult};
use crate::limits::{RECIPIENTS_MAX, SECRET_DOCUMENT_BYTES_MAX};
use crate::sealed_value::{DataKey, Plain, is_sealed};
use crate::yaml::{self, SecretYamlNode};

/// Key of SOPS's own metadata.
const METADATA: &str = "sops";
/// `sops` leaves values with this suffix of the key in plain text.
const UNENCRYPTED_SUFFIX: &str = "_unencrypted";
/// Version of SOPS with this format.
const VERSION: &str = "3.9.0";
const TEXT: &str = "str";
const BOOLEAN: &str = "bool";
/// Keys of SOPS that goondan does not support. It does not change a document that has one.
const OTHER_KEYS: [&str; 5] = ["pgp", "kms", "gcp_kms", "azure_kv", "hc_vault"];
/// Settings of a document that change its checksum, or the set of encrypted values.
const OTHER_RULES: [&str; 6] = [
    "encrypted_suffix",
    "encrypted_regex",
    "unencrypted_regex",
    "encrypted_comment_regex",
    "unencrypted_comment_regex",
    "mac_only_encrypted",
];

/// A decrypted secret.
pub struct Document {
    entries: Vec<DocumentEntry>,
    /// Data that a rewrite would lose, if any.
    foreign: Option<String>,
}

struct DocumentEntry {
    key: String,
    content: EntryContent,
}

enum EntryContent {
    Value(Plain),
    /// A list, a mapping or null: can be read, but not requested.
    Other,
}

impl Document {
    /// A document without entries.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            foreign: None,
        }
    }

    /// Opens a document and verifies all of its content.
    ///
    /// # Errors
    ///
    /// [`DocumentError`]; then no content is trusted.
    pub fn open(text: &[u8], identities: &Identities) -> Result<Self, DocumentError> {
        let (entries, metadata) = parse(text)?;
        if !metadata
            .get("key_groups")
            .is_none_or(|groups| groups.as_list().is_empty())
        {
            return Err(DocumentError::Unsupported("key groups"));
        }
        if metadata.get("mac_only_encrypted") == Some(&SecretYamlNode::Bool(true)) {
            return Err(DocumentError::Unsupported("`mac_only_encrypted`"));
        }
        let recipients = recipients_of(&metadata)?;
        let key = unwrap(&recipients, identities)?;
        let mut hash = Sha512::new();
        let entries = entries
            .into_iter()
            .map(|(name, node)| {
                let content = open_entry(&name, &node, &key, &mut hash)?;
                Ok(DocumentEntry { key: name, content })
            })
            .collect::<Result<Vec<_>, DocumentError>>()?;
        let modified = metadata.text("lastmodified").unwrap_or_default();
        let mac = metadata.text("mac").and_then(|mac| key.open(mac, modified));
        let expected = mac_text(hash);
        if mac.is_none_or(|mac| *mac.bytes != expected.as_bytes()) {
            let why = "its checksum (`mac`) does not match".to_owned();
            return Err(DocumentError::Damaged(why));
        }
        let foreign = foreign_part(&entries, &metadata, &recipients, identities);
        Ok(Self { entries, foreign })
    }

    /// The value of an entry; `None` if there is no such entry.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Unsupported`] if the value is a list, a mapping, null, or not valid UTF-8.
    pub fn get(&self, key: &str) -> Result<Option<SecretString>, DocumentError> {
        let Some(entry) = self.entries.iter().find(|entry| entry.key == key) else {
            return Ok(None);
        };
        let EntryContent::Value(plain) = &entry.content else {
            return Err(DocumentError::Unsupported("a list or a mapping as a value"));
        };
        let text = std::str::from_utf8(&plain.bytes)
            .map_err(|_| DocumentError::Unsupported("a value that is not text"))?;
        // SOPS writes `True`, YAML and JSON write `true`.
        let text = match (plain.kind.as_str(), text) {
            (BOOLEAN, "True") => "true",
            (BOOLEAN, "False") => "false",
            _ => text,
        };
        Ok(Some(SecretString::from(text.to_owned())))
    }

    /// The keys of its values, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let values = self.entries.iter();
        let values = values.filter(|entry| matches!(entry.content, EntryContent::Value(_)));
        values.map(|entry| entry.key.as_str())
    }

    /// Sets the value of an entry, and returns true if it had one before.
    ///
    /// # Errors
    ///
    /// [`DocumentError`]; then nothing changes.
    pub fn set(&mut self, key: &SecretKey, value: &str) -> Result<bool, DocumentError> {
        self.check_ours()?;
        check_key(key.as_str())?;
        if value.is_empty() || value.len() > MAX_SECRET_VALUE_BYTES {
            return Err(DocumentError::ValueLength(value.len()));
        }
        let content = EntryContent::Value(Plain {
            bytes: Zeroizing::new(value.as_bytes().to_vec()),
            kind: TEXT.to_owned(),
        });
        if let Some(entry) = self
            .entries
            .iter_mut()
            .find(|entry| entry.key == key.as_str())
        {
            entry.content = content;
            return Ok(true);
        }
        if self.entries.len() >= MAX_SECRET_KEYS {
            return Err(DocumentError::TooManyKeys);
        }
        let key = key.as_str().to_owned();
        self.entries.push(DocumentEntry { key, content });
        Ok(false)
    }

    /// Removes an entry, and returns true if it existed.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Foreign`].
    pub fn remove(&mut self, key: &SecretKey) -> Result<bool, DocumentError> {
        self.check_ours()?;
        let before = self.entries.len();
        self.entries.retain(|entry| entry.key != key.as_str());
        Ok(self.entries.len() < before)
    }

    /// True if the document has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Encrypts the document for the current identity, under a new data key.
    ///
    /// # Errors
    ///
    /// [`DocumentError`].
    pub fn seal(&self, identities: &Identities, now: Timestamp) -> Result<String, DocumentError> {
        self.check_ours()?;
        let key = DataKey::generate()?;
        let mut hash = Sha512::new();
        let mut text = String::new();
        for DocumentEntry { key: name, content } in &self.entries {
            let EntryContent::Value(plain) = content else {
                continue;
            };
            hash.update(&plain.bytes);
            let sealed = key.seal(plain, &format!("{name}:"))?;
            // A quoted key is always a string.
            line(&mut text, format_args!("{}: {sealed}", quoted(name)));
        }
        let modified = seconds(now);
        let mac = Plain {
            bytes: Zeroizing::new(mac_text(hash).into_bytes()),
            kind: TEXT.to_owned(),
        };
        let mac = key.seal(&mac, &modified)?;
        let wrapped = identities
            .wrap(&key)
            .map_err(|error| DocumentError::Crypto(error.to_string()))?;
        line(&mut text, format_args!("{METADATA}:\n    age:"));
        let recipient = identities.recipient();
        line(&mut text, format_args!("        - recipient: {recipient}"));
        line(&mut text, format_args!("          enc: |"));
        for armored in wrapped.lines() {
            line(&mut text, format_args!("            {armored}"));
        }
        line(&mut text, format_args!("    lastmodified: \"{modified}\""));
        line(&mut text, format_args!("    mac: {mac}"));
        let suffix = UNENCRYPTED_SUFFIX;
        line(&mut text, format_args!("    unencrypted_suffix: {suffix}"));
        line(&mut text, format_args!("    version: {VERSION}"));
        if text.len() > SECRET_DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge);
        }
        Ok(text)
    }

    fn check_ours(&self) -> Result<(), DocumentError> {
        match &self.foreign {
            None => Ok(()),
            Some(why) => Err(DocumentError::Foreign(why.clone())),
        }
    }
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Document {
    /// Shows the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

/// Unencrypted parts of a document, which are not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The keys of its values.
    pub keys: Vec<String>,
    /// Time of the last change, if the document has it.
    pub changed_at: Option<Timestamp>,
}

impl Outline {
    /// Reads the parts that need no identity.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if it is not a SOPS document.
    pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
        let (entries, metadata) = parse(text)?;
        let values = entries.into_iter();
        let values = values.filter(|(_, node)| node.as_text().is_some());
        let modified = metadata.text("lastmodified");
        Ok(Self {
            keys: values.map(|(key, _)| key).collect(),
            changed_at: modified.and_then(|text| text.parse().ok()),
        })
    }
}

fn line(text: &mut String, content: fmt::Arguments<'_>) {
    // Writing to a `String` does not fail.
    writeln!(text, "{content}").ok();
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A time in the format of SOPS: whole seconds, in UTC.
fn seconds(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text,
    }
}

fn mac_text(hash: Sha512) -> String {
    hash.finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02X}").ok();
            text
        })
}

fn check_key(key: &str) -> Result<(), DocumentError> {
    let why = if key == METADATA {
        "SOPS keeps its own under it"
    } else if key.ends_with(UNENCRYPTED_SUFFIX) {
        "`sops` would leave its value in plain text"
    } else {
        return Ok(());
    };
    let key = key.to_owned();
    Err(DocumentError::ReservedKey { key, why })
}

/// The entries of a document, and its SOPS metadata.
fn parse(text: &[u8]) -> Result<(Vec<(String, SecretYamlNode)>, SecretYamlNode), DocumentError> {
    if text.len() > SECRET_DOCUMENT_BYTES_MAX {
        return Err(DocumentError::TooLarge);
    }
    let not_sops = |why: &str| DocumentError::NotSops(why.to_owned());
    let text = std::str::from_utf8(text).map_err(|_| not_sops("it is not text"))?;
    let SecretYamlNode::Mapping(mut entries) = yaml::parse(text).map_err(DocumentError::NotSops)?
    else {
        return Err(not_sops("it is not a mapping"));
    };
    let at = entries.iter().position(|(key, _)| key == METADATA);
    let at = at.ok_or_else(|| not_sops("it has no `sops` section; is it encrypted?"))?;
    let (_, metadata) = entries.remove(at);
    Ok((entries, metadata))
}

struct Recipient<'n> {
    public: &'n str,
    wrapped: &'n str,
}

fn recipients_of(metadata: &SecretYamlNode) -> Result<Vec<Recipient<'_>>, DocumentError> {
    let all = metadata
        .get("age")
        .map(SecretYamlNode::as_list)
        .unwrap_or_default();
    if all.is_empty() {
        return Err(DocumentError::Unsupported("no age recipient"));
    }
    if all.len() > RECIPIENTS_MAX {
        return Err(DocumentError::Unsupported("too many age recipients"));
    }
    let recipients = all.iter().map(|one| {
        Some(Recipient {
            public: one.text("recipient")?,
            wrapped: one.text("enc")?,
        })
    });
    recipients.collect::<Option<_>>().ok_or_else(|| {
        DocumentError::NotSops("an entry of `sops.age` has no `recipient` or no `enc`".to_owned())
    })
}

/// Opens the data key with the first recipient that belongs to these identities.
fn unwrap(recipients: &[Recipient<'_>], identities: &Identities) -> Result<DataKey, DocumentError> {
    let mut is_damaged = false;
    for recipient in recipients {
        match identities.unwrap(recipient.wrapped) {
            UnwrapResult::Key(key) => return Ok(key),
            UnwrapResult::NotOurs => {}
            UnwrapResult::Damaged => is_damaged = true,
        }
    }
    if is_damaged || recipients.iter().any(|it| identities.is_ours(it.public)) {
        let why = "failed to decrypt its data key".to_owned();
        return Err(DocumentError::Damaged(why));
    }
    let recipients = recipients.iter().map(|it| format!("`{}`", it.public));
    let recipients = recipients.collect::<Vec<_>>().join(", ");
    Err(DocumentError::OtherIdentity { recipients })
}

fn open_entry(
    name: &str,
    node: &SecretYamlNode,
    key: &DataKey,
    hash: &mut Sha512,
) -> Result<EntryContent, DocumentError> {
    let value = open_node(&format!("{name}:"), node, key, hash)?;
    Ok(value.map_or(EntryContent::Other, EntryContent::Value))
}

/// Decrypts the node at a path, in the order of the checksum. Returns the value if it is a single
/// one.
fn open_node(
    path: &str,
    node: &SecretYamlNode,
    key: &DataKey,
    hash: &mut Sha512,
) -> Result<Option<Plain>, DocumentError> {
    let shown = || path.trim_end_matches(':').replace(':', ".");
    match node {
        SecretYamlNode::Text(text) if is_sealed(text) => {
            let plain = key.open(text, path).ok_or_else(|| {
                DocumentError::Damaged(format!("failed to decrypt its entry `{}`", shown()))
            })?;
            hash.update(&plain.bytes);
            Ok(Some(plain))
        }
        // SOPS does not encrypt empty texts and null.
        SecretYamlNode::Text(text) if text.is_empty() => Ok(Some(Plain {
            bytes: Zeroizing::default(),
            kind: TEXT.to_owned(),
        })),
        SecretYamlNode::Null => Ok(None),
        SecretYamlNode::Text(_) | SecretYamlNode::Bool(_) | SecretYamlNode::Number => {
            Err(DocumentError::PlainValue(shown()))
        }
        SecretYamlNode::List(items) => {
            // An entry of a list is bound to the list, not to its position.
            for item in items {
                open_node(path, item, key, hash)?;
            }
            Ok(None)
        }
        SecretYamlNode::Mapping(entries) => {
            for (name, node) in entries {
                open_node(&format!("{path}{name}:"), node, key, hash)?;
            }
            Ok(None)
        }
    }
}

/// Data that a rewrite of the document would lose.
fn foreign_part(
    entries: &[DocumentEntry],
    metadata: &SecretYamlNode,
    recipients: &[Recipient<'_>],
    identities: &Identities,
) -> Option<String> {
    if let Some(entry) = entries
        .iter()
        .find(|it| matches!(it.content, EntryContent::Other))
    {
        return Some(format!("its entry `{}` is a list or a mapping", entry.key));
    }
    if let Some(other) = recipients.iter().find(|it| !identities.is_ours(it.public)) {
        return Some(format!("it is also encrypted for `{}`", other.public));
    }
    let is_used = |name: &&&str| {
        metadata.get(name).is_some_and(|node| match node {
            SecretYamlNode::Null | SecretYamlNode::Bool(false) => false,
            SecretYamlNode::List(items) => !items.is_empty(),
            SecretYamlNode::Text(text) => !text.is_empty(),
            _ => true,
        })
    };
    let other = OTHER_KEYS.iter().chain(&OTHER_RULES).find(is_used);
    if let Some(other) = other {
        return Some(format!("it has the `sops` setting `{other}`"));
    }
    let suffix = metadata.text("unencrypted_suffix");
    suffix
        .filter(|suffix| *suffix != UNENCRYPTED_SUFFIX)
        .map(|_| "it has the `sops` setting `unencrypted_suffix`".to_owned())
}
