//! Packages that the runner of an MCP server, such as `npx`, keeps between starts (`PROV-1`).
//!
//! The directory belongs to one command of one connection. Its server can write in it, so that
//! another command never runs what this one left there.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use goondan_confinement::ProgramRights;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::sandbox::SandboxPath;

use crate::limits::{
    PACKAGE_CACHE_BYTES_MAX, PACKAGE_CACHE_CLEAR_MS, PACKAGE_CACHE_FILE_BYTES_MIN,
};

/// Exists once a server has started with the packages in the directory.
const FILLED: &str = "filled";

/// Exists once the packages were removed after a failed start; its time is the time of the removal.
const CLEARED: &str = "cleared";

/// Variables with the directories of the runners, and their names in the cache. `uv`, `pnpm`,
/// `deno` and `yarn` use those of XDG.
const PLACES: [(&str, &str); 6] = [
    ("npm_config_cache", "npm"),
    ("npm_config_store_dir", "pnpm"),
    ("BUN_INSTALL_CACHE_DIR", "bun"),
    ("PIPX_HOME", "pipx"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
];

/// Without these, npm tries an unreachable registry for more than a minute.
const FEWER_RETRIES: (&str, &str) = ("npm_config_fetch_retries", "1");

/// Lets runners start what the cache has, without the registry.
const FROM_CACHE: [(&str, &str); 2] = [("npm_config_prefer_offline", "true"), ("UV_OFFLINE", "1")];

/// Creates the cache of a connection before its process is confined. Removes the caches of its
/// earlier commands, and the content of one that is too large. If it cannot be used, each start
/// downloads the packages again.
pub(crate) fn prepare(assignment: &mut ConnectorAssignment) {
    let Some(cache) = &assignment.package_cache else {
        return;
    };
    if let Err(error) = make(cache, PACKAGE_CACHE_BYTES_MAX) {
        tracing::warn!(
            %error,
            directory = %cache.display(),
            "failed to prepare the package cache; packages are downloaded at each start"
        );
        assignment.package_cache = None;
    }
}

fn make(cache: &Path, bytes_max: u64) -> io::Result<()> {
    let create = || {
        let mut directory = DirBuilder::new();
        directory.recursive(true).mode(0o700).create(cache)
    };
    create()?;
    if let Some(of_connection) = cache.parent() {
        for entry in fs::read_dir(of_connection)? {
            let path = entry?.path();
            if path != cache {
                fs::remove_dir_all(path)?;
            }
        }
    }
    if exceeds(cache, bytes_max)? {
        tracing::info!(directory = %cache.display(), "clearing the package cache, which is too large");
        fs::remove_dir_all(cache)?;
        create()?;
    }
    Ok(())
}

/// True if the files of a directory take more than `bytes_max`. Links are not followed.
fn exceeds(directory: &Path, bytes_max: u64) -> io::Result<bool> {
    let mut bytes: u64 = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            bytes = bytes.saturating_add(metadata.len().max(PACKAGE_CACHE_FILE_BYTES_MIN));
            if bytes > bytes_max {
                return Ok(true);
            }
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(false)
}

/// Gives a server its cache: the right to write there, and the variables of its runner.
pub(crate) fn grant(allowed: &mut ProgramRights, cache: &Path) {
    let Ok(path) = SandboxPath::try_from(cache.to_owned()) else {
        return;
    };
    allowed.policy.write.push(path);
    let set = |(name, value): (&'static str, &str)| (name, Some(OsString::from(value)));
    let places = PLACES.iter().map(|(name, place)| {
        let place = cache.join(place).into_os_string();
        (*name, Some(place))
    });
    allowed.environment.extend(places);
    allowed.environment.push(set(FEWER_RETRIES));
    if is_filled(cache) {
        allowed.environment.extend(FROM_CACHE.map(set));
    }
}

/// True if a server has started with the packages of this cache.
pub(crate) fn is_filled(cache: &Path) -> bool {
    cache.join(FILLED).exists()
}

/// Notes a start of the server. After a failed one, the next start asks the registry again. If that
/// start fails, too, the packages may be incomplete, for example after a full disk, and runners use
/// incomplete packages again: the cache is cleared, at most once in [`PACKAGE_CACHE_CLEAR_MS`].
pub(crate) fn note_start(cache: &Path, has_started: bool) {
    let noted = match (has_started, is_filled(cache)) {
        (true, true) => Ok(()),
        (true, false) => mark(&cache.join(FILLED)),
        (false, true) => fs::remove_dir(cache.join(FILLED)),
        (false, false) if was_cleared_lately(cache) => Ok(()),
        (false, false) => clear_incomplete(cache),
    };
    if let Err(error) = noted {
        tracing::warn!(%error, "failed to note the state of the package cache");
    }
}

fn mark(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn was_cleared_lately(cache: &Path) -> bool {
    let modified = fs::metadata(cache.join(CLEARED)).and_then(|it| it.modified());
    let age = modified.ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age < Duration::from_millis(PACKAGE_CACHE_CLEAR_MS))
}

/// Removes all packages after a failed start.
fn clear_incomplete(cache: &Path) -> io::Result<()> {
    tracing::info!(
        directory = %cache.display(),
        "clearing the package cache after a failed start; its packages may be incomplete"
    );
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    mark(&cache.join(CLEARED))
}

#[cfg(test)]
mod tests {
    use goondan_protocol::sandbox::SandboxPolicy;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a file of a test")]
    fn write(path: &Path, bytes: usize) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; bytes]).unwrap();
    }

    #[test]
    fn prov_1_a_package_cache_is_kept_until_it_is_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("files/c1");
        make(&cache, 100_000).unwrap();
        let kept = cache.join("npm/index");
        write(&kept, 60_000);
        // Links lead nowhere, and a small file counts as a block.
        std::os::unix::fs::symlink("/", cache.join("root")).unwrap();
        make(&cache, 100_000).unwrap();
        assert!(kept.exists());
        write(&cache.join("npm/large"), 40_000);
        make(&cache, 100_000).unwrap();
        assert!(cache.is_dir() && !kept.exists());
        for number in 0..5 {
            write(&cache.join(format!("small-{number}")), 1);
        }
        assert!(exceeds(&cache, 4 * PACKAGE_CACHE_FILE_BYTES_MIN).unwrap());
        assert!(!exceeds(&cache, 5 * PACKAGE_CACHE_FILE_BYTES_MIN).unwrap());
    }

    #[test]
    fn sec_3_changed_command_starts_without_earlier_packages() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        for cache in ["files/c1", "other/c1"] {
            write(&of(cache).join("npm/package"), 1);
        }
        make(&of("files/c2"), 100_000).unwrap();
        assert!(of("files/c2").is_dir() && !of("files/c1").exists());
        assert!(of("other/c1/npm/package").exists());
    }

    #[test]
    fn prov_1_incomplete_packages_are_removed_after_a_failed_start() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path();
        let package = cache.join("npm/_npx/half");
        write(&package, 1);
        std::os::unix::fs::symlink("/", cache.join("link")).unwrap();
        note_start(cache, true);
        note_start(cache, false);
        assert!(package.exists(), "the next start asks the registry");
        note_start(cache, false);
        assert!(!package.exists() && !cache.join("link").exists());
        // Another reason keeps the server from starting: nothing is downloaded again and again.
        write(&package, 1);
        note_start(cache, false);
        assert!(package.exists());
        note_start(cache, true);
        assert!(is_filled(cache) && package.exists());
    }

    #[test]
    fn prov_1_a_filled_cache_needs_no_registry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path();
        let granted = || {
            let mut allowed = ProgramRights {
                policy: SandboxPolicy::default(),
                egress: None,
                environment: vec![("XDG_CACHE_HOME", None)],
            };
            grant(&mut allowed, cache);
            assert_eq!(allowed.policy.write.len(), 1);
            let set = |name: &str| {
                let mut set = allowed.environment.iter().rev();
                let found = set.find(|(found, _)| *found == name);
                found.and_then(|(_, value)| value.clone())
            };
            assert_eq!(set("XDG_CACHE_HOME").unwrap(), cache.join("cache"));
            (set("npm_config_prefer_offline"), set("UV_OFFLINE"))
        };
        assert_eq!(granted(), (None, None));
        note_start(cache, true);
        note_start(cache, true);
        assert_eq!(granted(), (Some("true".into()), Some("1".into())));
        note_start(cache, false);
        note_start(cache, false);
        assert_eq!(granted(), (None, None));
    }
}
