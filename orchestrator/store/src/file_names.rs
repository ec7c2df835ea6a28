//! Mapping of ids to file names: workspace ids (`ROOT-9`) and instance directories (`INST-1`).
//!
//! Both are pure and injective.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use goondan_durable::names::{
    decode, decode_directory, encode, encode_directory, renamed_directory,
};
use goondan_protocol::ids::{
    ConnectionName, ExtensionName, InstanceKey, InvalidId, RunId, WorkerId, WorkspaceId,
};
use goondan_protocol::limits::MAX_WORKSPACE_ID_BYTES;
use sha2::{Digest as _, Sha256};

/// Package token of a workspace without a Package document.
const NO_PACKAGE: &str = "no-package";
/// Hex digits of the hash suffix of a lossy workspace id.
const HASH_DIGITS: usize = 12;

/// Returns the id of the workspace of one (Project Root, package) pair (`ROOT-9`).
///
/// The id reads as the path and the package. It ends in a hash of both if the readable form would
/// lose information or be too long.
///
/// # Errors
///
/// [`InvalidId`] never in practice: every generated id is valid.
pub fn workspace_id(project_root: &Path, package: Option<&str>) -> Result<WorkspaceId, InvalidId> {
    let root = project_root.to_string_lossy();
    let folder = token(&root);
    let package_token = package.map_or_else(|| NO_PACKAGE.to_owned(), token);
    let id = format!("{folder}__{package_token}");

    let is_lossless = format!("/{}", folder.replace('_', "/")) == root
        && project_root.to_str().is_some()
        && !folder.is_empty()
        && package_of_token(&package_token) == Some(package.map(str::to_owned))
        && !ends_like_a_hash(&id);
    if is_lossless && id.len() <= MAX_WORKSPACE_ID_BYTES {
        return WorkspaceId::new(id);
    }

    let mut hash = Sha256::new();
    hash.update(project_root.as_os_str().as_encoded_bytes());
    hash.update(b"\n");
    hash.update(package.unwrap_or_default().as_bytes());
    let digits: String = hex::encode(hash.finalize())
        .chars()
        .take(HASH_DIGITS)
        .collect();
    // A token is ASCII, so each character is one byte.
    let head: String = id
        .chars()
        .take(MAX_WORKSPACE_ID_BYTES - HASH_DIGITS - 1)
        .collect();
    WorkspaceId::new(format!("{head}-{digits}"))
}

/// Keeps `[A-Za-z0-9.-]`; every other run becomes one `_`, except at the ends.
fn token(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out.trim_matches('_').to_owned()
}

/// Decodes a token into its package: `goondan_sample` is `@goondan/sample`, `sample` is `sample`.
/// The outer `Option` is `None` if the token is not a package name.
fn package_of_token(token: &str) -> Option<Option<String>> {
    if token == NO_PACKAGE {
        return Some(None);
    }
    match token.split_once('_') {
        None if token.is_empty() => None,
        None => Some(Some(token.to_owned())),
        Some((scope, name)) if !name.contains('_') => Some(Some(format!("@{scope}/{name}"))),
        Some(_) => None,
    }
}

/// True if an id ends like a lossy id. Such an id must be treated as lossy, or two inputs could
/// share one id.
fn ends_like_a_hash(id: &str) -> bool {
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    id.rsplit_once('-')
        .is_some_and(|(_, tail)| tail.len() == HASH_DIGITS && tail.chars().all(is_digit))
}

/// Returns the directory name of an instance key (`INST-1`).
///
/// Lower-case letters, digits, `-`, `_` and inner `.` are kept; every other byte becomes `~xx`.
/// Only lower case is written, so that no two names meet on a file system that ignores case. A key
/// whose name would be too long keeps its head and ends in its SHA-256; `metadata.json` holds it in
/// full.
#[must_use]
pub fn instance_dir_name(key: &InstanceKey) -> String {
    encode_directory(key.as_str())
}

/// True if a directory of this name is the instance's, by its name of today or by that of format 1.
pub(crate) fn is_dir_of(name: &OsStr, key: &InstanceKey) -> bool {
    let today = instance_dir_name(key);
    let older = name.to_str().and_then(renamed_directory);
    *name == *today || older.is_some_and(|older| older == today)
}

/// The folder of a run, below the sandboxes of a workspace.
#[must_use]
pub fn run_dir(sandboxes: &Path, run: &RunId) -> PathBuf {
    sandboxes.join(encode_directory(run.as_str()))
}

/// Returns the folder of a worker's sandbox for one run, below the sandboxes of a workspace
/// (`BOX-1`).
#[must_use]
pub fn sandbox_dir(sandboxes: &Path, run: &RunId, agent: &WorkerId) -> PathBuf {
    run_dir(sandboxes, run).join(encode_directory(agent.as_str()))
}

/// Returns the file name of an extension's state, by the same rule (`EXT-1`).
#[must_use]
pub fn extension_file_name(extension: &ExtensionName) -> String {
    format!("{}.json", encode(extension.as_str()))
}

/// Returns the file name of a connection's state, by the same rule.
#[must_use]
pub fn connection_file_name(connection: &ConnectionName) -> String {
    format!("{}.json", encode(connection.as_str()))
}

/// Decodes a directory name into its key; `None` for the name of a long key and for an invalid
/// name.
#[must_use]
pub fn instance_key_of(name: &str) -> Option<InstanceKey> {
    InstanceKey::new(decode_directory(name)?).ok()
}

/// Decodes the file name of an extension's state; `None` as with [`instance_key_of`].
#[must_use]
pub fn extension_of(file_name: &str) -> Option<ExtensionName> {
    ExtensionName::new(decode(file_name.strip_suffix(".json")?)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use goondan_durable::names::PLAIN_NAME_BYTES;
    use proptest::prelude::*;

    use super::*;

    fn id(root: &str, package: Option<&str>) -> String {
        workspace_id(Path::new(root), package)
            .unwrap()
            .as_str()
            .to_owned()
    }

    #[test]
    fn root_9_the_example_of_the_clause() {
        assert_eq!(
            id("/Users/alice/projects/my-agent", Some("@goondan/sample-10")),
            "Users_alice_projects_my-agent__goondan_sample-10"
        );
        assert_eq!(id("/srv/bot", None), "srv_bot__no-package");
    }

    #[test]
    fn root_9_lossy_workspace_names_end_in_a_hash() {
        let lossy = [
            ("/a b", None),
            ("/a_b", None),
            ("/a", Some("no-package")),
            ("/a", Some("goondan/sample")),
            ("/a", Some("x-0123456789ab")),
            ("/", Some("p")),
        ];
        for (root, package) in lossy {
            assert!(ends_like_a_hash(&id(root, package)), "{root} {package:?}");
        }
        let long = format!("/{}", "d".repeat(300));
        assert_eq!(id(&long, None).len(), MAX_WORKSPACE_ID_BYTES);
    }

    #[test]
    fn root_9_the_hash_is_of_root_newline_package() {
        let digest = hex::encode(Sha256::digest(b"/a b\np"));
        let expected: String = digest.chars().take(HASH_DIGITS).collect();
        assert!(id("/a b", Some("p")).ends_with(&format!("-{expected}")));
    }

    /// 10,000 pairs built from few pieces, so that near-collisions are frequent (`ROOT-9`).
    #[test]
    fn root_9_ten_thousand_pairs_do_not_collide() {
        let pieces = ["a", "b", "a_b", "a b", "a-b", "A", "é", "..", "a.b", "_"];
        let mut packages: Vec<Option<String>> = vec![None, Some("no-package".into())];
        for scope in ["a", "b", "a_b", "é"] {
            for name in ["p", "p-0123456789ab", "p_q", "no-package", "P"] {
                packages.push(Some(format!("@{scope}/{name}")));
                packages.push(Some(format!("{scope}/{name}")));
            }
        }
        let mut seen: HashMap<String, (String, Option<String>)> = HashMap::new();
        let mut roots = HashSet::new();
        for a in pieces {
            for b in pieces {
                roots.insert(format!("/{a}/{b}"));
                roots.insert(format!("/{a}_{b}"));
                roots.insert(format!("/{a}//{b}"));
            }
        }
        for root in &roots {
            for package in &packages {
                let this = (root.clone(), package.clone());
                let made = id(root, package.as_deref());
                assert!(made.len() <= MAX_WORKSPACE_ID_BYTES);
                if let Some(other) = seen.insert(made.clone(), this.clone()) {
                    panic!("{other:?} and {this:?} are both {made}");
                }
            }
        }
        assert!(seen.len() >= 10_000, "only {} pairs", seen.len());
    }

    #[test]
    fn inst_1_hostile_keys_are_safe_and_distinct() {
        let long = "k".repeat(300);
        let long2 = format!("{}x", "k".repeat(299));
        let keys = [
            "user@a",
            "user#a",
            "가나다",
            "라마바",
            "../../x",
            ".",
            "..",
            "telegram:123",
            "A",
            "a",
            "con",
            "a/b",
            "a%2fb",
            "a\0b",
            " ",
            "a ",
            "ａ",
            "a.",
            ".a",
            &long,
            &long2,
        ];
        let mut seen = HashSet::new();
        for key in keys {
            let key = InstanceKey::new(key).unwrap();
            let name = instance_dir_name(&key);
            assert!(name.len() <= PLAIN_NAME_BYTES + 8, "{name}");
            assert!(!name.starts_with('.') && !name.contains('/') && !name.contains('\0'));
            assert!(name.is_ascii() && name.to_lowercase() == name);
            assert!(seen.insert(name.clone()), "{key} collides in {name}");
            if key.as_str().len() < 60 {
                assert_eq!(instance_key_of(&name), Some(key));
            }
        }
    }

    proptest! {
        #[test]
        fn inst_1_names_are_reversible(key in "\\PC{1,16}|[\\x00-\\x7f]{1,60}") {
            let key = InstanceKey::new(key).unwrap();
            let name = instance_dir_name(&key);
            prop_assert_eq!(instance_key_of(&name), Some(key));
        }

        #[test]
        fn foreign_directory_name_is_not_an_instance_key(name in "\\PC{0,30}") {
            if let Some(key) = instance_key_of(&name) {
                prop_assert_eq!(instance_dir_name(&key), name);
            }
        }
    }
}
