use std::ffi::OsString;
use std::io;

use goondan_durable::disk::{Crash, EntryKind, SimulatedDisk, read_all};
use goondan_protocol::control::{AllowSecret, DenySecret, SecretConsentChanged};
use goondan_protocol::secret::{SecretProblem, SecretStore as _, SecretValue};
use goondan_vault::{ExternalIdentities, ProjectIdentity, SecretReader};

use super::*;

/// Read access to a simulated disk.
pub(super) struct DiskFiles(pub(super) SimulatedDisk);

impl VaultFiles for DiskFiles {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        if self.0.stat(path)?.is_none() {
            return Ok(None);
        }
        let mut file = self.0.open_read(path)?;
        read_all(file.as_mut(), bytes_max).map(Some)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        if self.0.stat(path)?.is_none() {
            return Ok(Vec::new());
        }
        let entries = self.0.list(path)?.into_iter();
        let files = entries.filter(|entry| entry.kind == EntryKind::File);
        Ok(files.map(|entry| entry.name).collect())
    }

    fn is_private(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

/// Files in which the project is allowed to use every secret of these tests.
struct ConsentingFiles<'f>(&'f dyn VaultFiles);

impl VaultFiles for ConsentingFiles<'_> {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        if !path.ends_with("consents.json") {
            return self.0.read(path, bytes_max);
        }
        let consent = |name: &str| json!({"secret": name, "workspaceId": "w", "projectRoot": "/project", "allowedAt": at()});
        let file = json!({"version": 1, "consents": [consent("a"), consent("github")]});
        Ok(Some(file.to_string().into_bytes()))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.0.list(path)
    }

    fn is_private(&self, path: &Path) -> io::Result<bool> {
        self.0.is_private(path)
    }
}

pub(super) fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["/s", "/s/system"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    for dir in ["/", "/s"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    disk
}

pub(super) fn keeper(disk: &SimulatedDisk) -> SecretKeeper {
    let vault = Arc::new(Vault::new(Path::new("/s"), ExternalIdentities::default()));
    let files = Box::new(DiskFiles(disk.clone()));
    let (disk, layout) = (Arc::new(disk.clone()), Layout::new("/s"));
    SecretKeeper::new(vault, files, disk, layout, Arc::default())
}

pub(super) fn at() -> Timestamp {
    Timestamp::from_unix_millis(1_790_000_000_000)
}

pub(super) fn set(
    keeper: &SecretKeeper,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), ControlError> {
    let set = SetSecret {
        name: name.parse().unwrap(),
        key: key.parse().unwrap(),
        value: SecretValue::new(value.to_owned()),
        allow_for: None,
    };
    keeper.carry_out(SecretWork::Set(set), at()).map(drop)
}

fn remove(keeper: &SecretKeeper, name: &str, key: Option<&str>) -> Result<(), ControlError> {
    let remove = RemoveSecret {
        name: name.parse().unwrap(),
        key: key.map(|key| key.parse().unwrap()),
    };
    keeper.carry_out(SecretWork::Remove(remove), at()).map(drop)
}

/// The value as a configuration receives it, if any.
pub(super) fn find(keeper: &SecretKeeper, name: &str, key: &str) -> Option<String> {
    let project = ProjectIdentity::new(Path::new("/project"), None);
    let files = ConsentingFiles(keeper.files.as_ref());
    let reader = SecretReader::with_files(&keeper.vault, &project, &files);
    match reader.find(name, key) {
        Ok(value) => Some(value),
        Err(SecretProblem::NoSecret { .. } | SecretProblem::NoKey { .. }) => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn list(keeper: &SecretKeeper) -> SecretList {
    match keeper.carry_out(SecretWork::List, at()) {
        Ok(SecretsResult::Listed(list)) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sys_1_values_are_kept_listed_without_them_and_removed() {
    let disk = disk();
    let keeper = keeper(&disk);
    assert_eq!(list(&keeper).identity, None);
    set(&keeper, "github", "token", "open-sesame").unwrap();
    set(&keeper, "github", "hmac", "hunter2hunter2").unwrap();
    set(&keeper, "github", "token", "changed-since").unwrap();
    let found = list(&keeper);
    assert_eq!(found.secrets.len(), 1);
    assert_eq!(found.secrets[0].keys, ["token", "hmac"]);
    assert_eq!(found.secrets[0].problem, None);
    assert!(found.identity.unwrap().recipient.starts_with("age1"));
    assert_eq!(find(&keeper, "github", "token").unwrap(), "changed-since");
    assert_eq!(find(&keeper, "github", "hmac").unwrap(), "hunter2hunter2");
    assert_eq!(keeper.masks.text("is changed-since"), "is [masked]");

    remove(&keeper, "github", Some("token")).unwrap();
    assert_eq!(find(&keeper, "github", "token"), None);
    for missing in [Some("token"), Some("more")] {
        let error = remove(&keeper, "github", missing).unwrap_err();
        assert_eq!(error.code, ErrorCode::SecretNotFound);
    }
    remove(&keeper, "github", Some("hmac")).unwrap();
    assert_eq!(list(&keeper).secrets, []);
    let error = remove(&keeper, "github", None).unwrap_err();
    assert_eq!(error.code, ErrorCode::SecretNotFound);
}

#[test]
fn sec_5_every_change_is_in_the_audit_log_and_no_value() {
    let disk = disk();
    let keeper = keeper(&disk);
    set(&keeper, "github", "token", "open-sesame").unwrap();
    remove(&keeper, "github", None).unwrap();
    let bytes = keeper
        .files
        .read(Path::new("/s/system/audit.jsonl"), 1 << 20);
    let text = String::from_utf8(bytes.unwrap().unwrap()).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["identity.created", "secret.set", "secret.removed"]);
    assert_eq!(events[1]["secret"], "github");
    assert_eq!(events[1]["key"], "token");
    assert!(
        !text.contains("open-sesame") && !text.contains("AGE-SECRET"),
        "{text}"
    );
}

#[test]
fn identity_is_created_once_and_never_where_secrets_exist() {
    let disk = disk();
    let keeper = keeper(&disk);
    set(&keeper, "a", "k", "one").unwrap();
    let path = keeper.vault.identity_file();
    let identity = keeper.files.read(&path, 4096).unwrap();
    set(&keeper, "b", "k", "two").unwrap();
    assert_eq!(keeper.files.read(&path, 4096).unwrap(), identity);
    disk.remove_file(&path).unwrap();
    let error = set(&keeper, "a", "k", "three").unwrap_err();
    assert_eq!(error.code, ErrorCode::SecretUnreadable);
    assert!(error.suggestion.unwrap().contains("backup"));
    assert!(
        keeper.files.read(&path, 4096).unwrap().is_none(),
        "another was made"
    );
    // Secrets that can no longer be opened can be removed and then set again.
    assert!(
        list(&keeper)
            .secrets
            .iter()
            .all(|secret| secret.problem.is_some())
    );
    remove(&keeper, "a", None).unwrap();
    remove(&keeper, "b", None).unwrap();
    set(&keeper, "a", "k", "three").unwrap();
    assert_eq!(find(&keeper, "a", "k").unwrap(), "three");
}

#[test]
fn sec_1_damaged_secret_is_reported_and_not_changed() {
    let disk = disk();
    let keeper = keeper(&disk);
    set(&keeper, "a", "k", "one").unwrap();
    let path = keeper.vault.document_file(&"a".parse().unwrap());
    let text = keeper.files.read(&path, 1 << 20).unwrap().unwrap();
    let text = String::from_utf8(text).unwrap();
    let damaged = text.replacen("tag:", "tag:A", 1);
    disk.plant(&path, damaged.as_bytes()).unwrap();
    for key in ["k", "other"] {
        let error = set(&keeper, "a", key, "two").unwrap_err();
        assert_eq!(error.code, ErrorCode::SecretUnreadable, "{error}");
        assert!(error.message.contains("damaged, or changed"), "{error}");
    }
    let now = keeper.files.read(&path, 1 << 20).unwrap().unwrap();
    assert_eq!(now, damaged.as_bytes());
    let listed = &list(&keeper).secrets[0];
    assert!(
        listed
            .problem
            .as_ref()
            .unwrap()
            .contains("damaged, or changed")
    );
}

#[test]
fn sec_1_crash_at_any_call_leaves_old_or_new_value() {
    // The first secret, which also creates the identity, and a later change.
    for before in [None, Some("one")] {
        let start = disk();
        if let Some(value) = before {
            set(&keeper(&start), "a", "k", value).unwrap();
        }
        let start = start.after_crash(Crash::KeepUnsynced);
        let mut crashes = 1;
        loop {
            let disk = start.after_crash(Crash::KeepUnsynced);
            disk.crash_at(disk.calls() + crashes);
            let written = set(&keeper(&disk), "a", "k", "two");
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(crashes),
            ] {
                let after = disk.after_crash(crash);
                let keeper = keeper(&after);
                let found = find(&keeper, "a", "k");
                let is_new = found.as_deref() == Some("two");
                assert!(
                    is_new || (written.is_err() && found.as_deref() == before),
                    "{found:?}"
                );
                // Later writes succeed.
                set(&keeper, "a", "k", "three").unwrap();
                assert_eq!(find(&keeper, "a", "k").as_deref(), Some("three"));
            }
            // The audit log is written last, and a crash during it does not make the operation
            // fail.
            if written.is_ok() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 5, "it never crashed");
    }
}

#[test]
fn empty_values_and_reserved_keys_are_rejected() {
    let disk = disk();
    let keeper = keeper(&disk);
    for (key, value) in [("k", ""), ("sops", "x"), ("a_unencrypted", "x")] {
        let error = set(&keeper, "a", key, value).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{error}");
    }
    assert_eq!(list(&keeper).secrets, []);
}

/// Allows or denies the secret `a` to the project in a directory.
fn change_consent(
    keeper: &SecretKeeper,
    root: &Path,
    allow: bool,
) -> Result<SecretConsentChanged, ControlError> {
    let name = "a".parse().unwrap();
    let project_root = root.to_owned();
    let work = if allow {
        SecretWork::Allow(AllowSecret { name, project_root })
    } else {
        SecretWork::Deny(DenySecret {
            name,
            project_root: Some(project_root),
            workspace_id: None,
        })
    };
    match keeper.carry_out(work, at())? {
        SecretsResult::Allowed(changed) | SecretsResult::Denied(changed) => Ok(changed),
        other => panic!("{other:?}"),
    }
}

/// True if the project in this directory receives the secret `a`.
fn gets(keeper: &SecretKeeper, root: &Path) -> bool {
    let project = ProjectIdentity::new(&root.canonicalize().unwrap(), None);
    let reader = SecretReader::with_files(&keeper.vault, &project, keeper.files.as_ref());
    match reader.find("a", "k") {
        Ok(_) => true,
        Err(SecretProblem::NotAllowed { .. }) => false,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn sec_6_secret_goes_only_to_consented_projects_and_is_audited() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = disk();
    let keeper = keeper(&disk);
    let missing = change_consent(&keeper, ours.path(), true).unwrap_err();
    assert_eq!(missing.code, ErrorCode::SecretNotFound);
    set(&keeper, "a", "k", "hunter2").unwrap();
    let nowhere = change_consent(&keeper, Path::new("/no/such/project"), true).unwrap_err();
    assert_eq!(nowhere.code, ErrorCode::InvalidRequest, "{nowhere}");
    assert!(!gets(&keeper, ours.path()));
    let changed = change_consent(&keeper, ours.path(), true).unwrap().changed;
    assert_eq!(list(&keeper).consents, changed);
    assert!(gets(&keeper, ours.path()) && !gets(&keeper, theirs.path()));
    // Allowing it again changes nothing.
    let again = change_consent(&keeper, ours.path(), true).unwrap();
    assert_eq!(again.changed, []);
    let denied = change_consent(&keeper, ours.path(), false).unwrap();
    assert_eq!(denied.changed, changed);
    assert!(!gets(&keeper, ours.path()));
    let audit = DiskFiles(disk).read(Path::new("/s/system/audit.jsonl"), 1 << 20);
    let audit = String::from_utf8(audit.unwrap().unwrap()).unwrap();
    let of_consents = audit.lines().filter(|line| line.contains("projectRoot"));
    assert_eq!(of_consents.count(), 2, "{audit}");
    assert!(audit.contains("secret.allowed") && audit.contains("secret.denied"));
}

#[test]
fn sec_6_crash_at_any_call_leaves_old_or_new_consents() {
    let project = tempfile::tempdir().unwrap();
    for allow in [true, false] {
        let start = disk();
        set(&keeper(&start), "a", "k", "hunter2").unwrap();
        if !allow {
            change_consent(&keeper(&start), project.path(), true).unwrap();
        }
        let start = start.after_crash(Crash::KeepUnsynced);
        let mut crashes = 1;
        loop {
            let disk = start.after_crash(Crash::KeepUnsynced);
            disk.crash_at(disk.calls() + crashes);
            let done = change_consent(&keeper(&disk), project.path(), allow);
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(crashes),
            ] {
                let keeper = keeper(&disk.after_crash(crash));
                let gets_it = gets(&keeper, project.path());
                assert!(done.is_err() || gets_it == allow, "{done:?}");
                change_consent(&keeper, project.path(), !allow).unwrap();
                assert_eq!(gets(&keeper, project.path()), !allow);
            }
            if done.is_ok() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 5, "it never crashed");
    }
}

#[test]
fn sec_6_damaged_consents_file_allows_nothing_and_is_kept() {
    let project = tempfile::tempdir().unwrap();
    let disk = disk();
    let keeper = keeper(&disk);
    set(&keeper, "a", "k", "hunter2").unwrap();
    let path = Path::new("/s/system/consents.json");
    files::replace(&disk, path, b"{\"version\": 1, \"cons").unwrap();
    let error = change_consent(&keeper, project.path(), true).unwrap_err();
    assert_eq!(error.code, ErrorCode::SecretUnreadable, "{error}");
    assert!(error.suggestion.unwrap().contains("from a backup"));
    let told = list(&keeper).problem.unwrap();
    assert!(told.contains("damaged: "), "{told}");
    let kept = DiskFiles(disk).read(path, 100).unwrap().unwrap();
    assert_eq!(kept, b"{\"version\": 1, \"cons");
}
