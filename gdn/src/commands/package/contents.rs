//! Selects the files of a project that its package contains, and refuses those it must not contain.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use goondan_packages::limits::{PACKAGE_BYTES_MAX, PACKAGE_DEPTH_MAX, PACKAGE_ENTRIES_MAX};
use goondan_protocol::secret_file::holds_secrets;
use goondan_vault::{RealFiles, Vault, VaultError};
use secrecy::{ExposeSecret as _, SecretString};

use crate::exit::Exit;
use crate::failure::Failure;

/// Ignore files; the first one that exists is used.
const IGNORE_FILES: [&str; 2] = [".goondanignore", ".gitignore"];

/// Patterns that are always excluded.
const NEVER: [&str; 10] = [
    ".git/",
    ".hg/",
    ".svn/",
    ".DS_Store",
    ".goondanignore",
    ".gitignore",
    "/goondan.lock",
    "/goondan.schema.json",
    "/*.tgz",
    "/.vscode/",
];

/// Shorter values occur in too many texts by chance.
const SECRET_BYTES_MIN: usize = 8;

/// Maximum number of files that a refusal names.
const NAMED_MAX: usize = 5;

pub(super) struct PackageFile {
    pub(super) bytes: Vec<u8>,
    pub(super) is_executable: bool,
}

/// Ignore patterns: with `/` inside, relative to the root; with `/` at the end, directories only.
struct IgnorePatterns {
    set: GlobSet,
    only_directories: Vec<bool>,
}

impl IgnorePatterns {
    fn read(patterns: &[&str]) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        let mut only_directories = Vec::new();
        for &pattern in patterns {
            let (name, is_directory) = match pattern.strip_suffix('/') {
                Some(name) => (name, true),
                None => (pattern, false),
            };
            let glob = match name.strip_prefix('/') {
                Some(rooted) => rooted.to_owned(),
                None if name.contains('/') => name.to_owned(),
                None => format!("**/{name}"),
            };
            let mut builder = GlobBuilder::new(&glob);
            set.add(
                builder
                    .literal_separator(true)
                    .backslash_escape(true)
                    .build()?,
            );
            only_directories.push(is_directory);
        }
        Ok(Self {
            set: set.build()?,
            only_directories,
        })
    }

    fn has(&self, path: &str, is_directory: bool) -> bool {
        let found = self.set.matches(path);
        let mut found = found.into_iter();
        found.any(|index| is_directory || self.only_directories.get(index) == Some(&false))
    }
}

/// Collects the files of a package by path.
pub(super) fn of(
    root: &Path,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, PackageFile>, Failure> {
    let rules = IGNORE_FILES
        .iter()
        .find_map(|name| Some((*name, fs::read_to_string(root.join(name)).ok()?)));
    let (file, text) = rules.unwrap_or((".goondanignore", String::new()));
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (exceptions, patterns): (Vec<&str>, Vec<&str>) = lines.partition(|it| it.starts_with('!'));
    if !exceptions.is_empty() {
        notes.push(format!(
            "`!` patterns in {file} are ignored: files that match the other lines are excluded"
        ));
    }
    let ignored =
        IgnorePatterns::read(&[NEVER.as_slice(), &patterns].concat()).map_err(|error| {
            Failure::of(Exit::Conflict, &error, format!("fix the pattern in {file}"))
        })?;
    let mut walk = ContentsWalk {
        ignored,
        found: BTreeMap::new(),
        entries: 0,
        bytes: 0,
    };
    walk.directory(root, "", 0)?;
    Ok(walk.found)
}

struct ContentsWalk {
    ignored: IgnorePatterns,
    found: BTreeMap<String, PackageFile>,
    entries: usize,
    bytes: u64,
}

impl ContentsWalk {
    fn directory(&mut self, dir: &Path, below: &str, depth: usize) -> Result<(), Failure> {
        let unreadable = |error: &std::io::Error| {
            let message = format!("cannot read {}: {error}", dir.display());
            Failure::new(Exit::Internal, message, "check its permissions: `ls -la`")
        };
        for entry in fs::read_dir(dir).map_err(|error| unreadable(&error))? {
            let path = entry.map_err(|error| unreadable(&error))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| refused(&path, "has a name that is not UTF-8"))?;
            let own = format!("{below}{name}");
            let metadata = fs::symlink_metadata(&path).map_err(|error| unreadable(&error))?;
            if self.ignored.has(&own, metadata.is_dir()) {
                continue;
            }
            self.entries += 1;
            if self.entries > PACKAGE_ENTRIES_MAX || depth > PACKAGE_DEPTH_MAX {
                return Err(refused(
                    &path,
                    "exceeds the maximum number of files of a package",
                ));
            }
            if metadata.is_dir() {
                self.directory(&path, &format!("{own}/"), depth + 1)?;
                continue;
            }
            if !metadata.is_file() {
                return Err(refused(&path, "is neither a file nor a directory"));
            }
            self.bytes += metadata.len();
            if self.bytes > PACKAGE_BYTES_MAX {
                return Err(refused(&path, "exceeds the maximum size of a package"));
            }
            let content = PackageFile {
                bytes: fs::read(&path).map_err(|error| unreadable(&error))?,
                is_executable: metadata.permissions().mode() & 0o100 != 0,
            };
            self.found.insert(own, content);
        }
        Ok(())
    }
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{} {why}", path.display()),
        "exclude it in `.goondanignore`",
    )
}

/// Refuses files that hold secrets, by name or because they contain a value of the secret store.
pub(super) fn check(
    contents: &BTreeMap<String, PackageFile>,
    vault: &Vault,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let by_name: Vec<&str> = contents
        .keys()
        .filter(|path| holds_secrets(Path::new(path)))
        .map(String::as_str)
        .collect();
    let secret = |files: &[&str], why: &str| {
        let named = files.iter().take(NAMED_MAX).copied();
        Failure::new(
            Exit::Conflict,
            format!("{}: {why}", named.collect::<Vec<_>>().join(", ")),
            "exclude it in `.goondanignore`, or remove the secret from it",
        )
    };
    if !by_name.is_empty() {
        return Err(secret(
            &by_name,
            "files with this name usually contain secrets",
        ));
    }
    let values = match values(vault) {
        Ok(Some(values)) => values,
        Ok(None) => {
            let note = "the package was not searched for secrets: the key of the secret store is not available";
            notes.push(note.to_owned());
            return Ok(());
        }
        Err(error) => {
            notes.push(format!("the package was not searched for secrets: {error}"));
            return Ok(());
        }
    };
    let holds = |content: &PackageFile| {
        values.iter().any(|value| {
            let value = value.expose_secret().as_bytes();
            content.bytes.windows(value.len()).any(|part| part == value)
        })
    };
    let by_content: Vec<&str> = contents
        .iter()
        .filter(|(_, content)| holds(content))
        .map(|(path, _)| path.as_str())
        .collect();
    if by_content.is_empty() {
        return Ok(());
    }
    Err(secret(
        &by_content,
        "contains a value from the secret store",
    ))
}

/// Values of the secret store that are long enough to detect; none if the store cannot be opened here.
fn values(vault: &Vault) -> Result<Option<Vec<SecretString>>, VaultError> {
    let names = vault.names(&RealFiles)?;
    if names.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let Some(found) = vault.identities(&RealFiles)? else {
        return Ok(None);
    };
    let mut values = Vec::new();
    for name in names {
        let Some(document) = vault.open(&RealFiles, &name, &found.identities)? else {
            continue;
        };
        for key in document.keys() {
            // Lists and mappings are never handed out by goondan, so they are not searched for.
            let value = document.get(key).ok().flatten();
            values.extend(value.filter(|it| it.expose_secret().len() >= SECRET_BYTES_MIN));
        }
    }
    Ok(Some(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_exclude_patterns_match_at_any_depth_or_from_the_root() {
        let more = ["*.log", "/dist", "docs/*.md", "tmp/"];
        let ignored = IgnorePatterns::read(&[NEVER.as_slice(), &more].concat()).unwrap();
        for (path, is_directory) in [
            (".git", true),
            ("a/.git", true),
            ("a/b.log", false),
            ("dist", true),
            ("docs/a.md", false),
            ("a/tmp", true),
            ("goondan.lock", false),
            ("x-1.0.0.tgz", false),
        ] {
            assert!(ignored.has(path, is_directory), "{path}");
        }
        for (path, is_directory) in [
            ("a/dist", true),
            ("docs/a/b.md", false),
            ("tmp", false),
            ("a/goondan.lock", false),
            ("vendor/x.tgz", false),
            ("goondan.yaml", false),
        ] {
            assert!(!ignored.has(path, is_directory), "{path}");
        }
    }
}
