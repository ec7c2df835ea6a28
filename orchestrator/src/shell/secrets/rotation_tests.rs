use std::collections::BTreeMap;

use goondan_core::SecretsResult;
use goondan_durable::disk::{CallFault, Crash, Disk as _, SimulatedDisk};
use goondan_oauth::{DocumentKey, Fields, GrantKey};
use goondan_protocol::ids::OAuthSubject;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::secret::SecretValue;
use goondan_vault::{DocumentError, VaultFiles as _};

use super::super::tests::{DiskFiles, at, disk, find, keeper, set};
use super::*;
use goondan_core::SecretWork;

const VALUE: &str = "hunter2hunter2";
const TASK: &str = "/s/workspaces/w/tasks/shop";

/// The documents of a System Root with one of each kind.
const DOCUMENTS: [&str; 6] = [
    "/s/system/oauth/grants",
    "/s/system/oauth/locks",
    "/s/system/oauth/sessions",
    "/s/system/secrets/a.sops.yaml",
    "/s/system/secrets/github.sops.yaml",
    "/s/workspaces/w/tasks/shop/.metadata/secrets.yaml",
];

fn identity_of(disk: &SimulatedDisk) -> Vec<u8> {
    let files = DiskFiles(disk.clone());
    let read = files.read(Path::new("/s/system/identity.age"), 10_000);
    read.unwrap().unwrap()
}

/// The paths of a grant, of a renewal in progress, and of a login.
fn places() -> [DocumentKey; 3] {
    let key = GrantKey {
        workspace_id: "w".parse().unwrap(),
        need: OAuthNeed {
            app: "idp".parse().unwrap(),
            subject: OAuthSubject::global(),
        },
    };
    [
        DocumentKey::Grant(key.clone()),
        DocumentKey::Lock(key.clone()),
        DocumentKey::Session(key, "login-1".parse().unwrap()),
    ]
}

/// A System Root with one document of each kind, and the leftovers of a crash.
fn filled() -> SimulatedDisk {
    let disk = disk();
    let keeper = keeper(&disk);
    for name in ["a", "github"] {
        set(&keeper, name, "k", VALUE).unwrap();
    }
    let value = SecretValue::new(VALUE.to_owned());
    let fields = Fields::new(BTreeMap::from([("accessToken".to_owned(), value)]));
    for place in places() {
        keeper.write_oauth(&place, &fields, at()).unwrap();
    }
    let metadata = format!("{TASK}/.metadata");
    files::ensure_dir(&disk, Path::new("/s"), Path::new(&metadata)).unwrap();
    let register = Register::of(&disk, Path::new(TASK)).here();
    keeper
        .keep_for_task(Path::new(TASK), &register, "key", VALUE, at())
        .unwrap();
    for left in ["secrets/a.sops.yaml.tmp", "identity.age.tmp"] {
        let path = Path::new("/s/system").join(left);
        disk.plant(&path, b"half of").unwrap();
    }
    disk.after_crash(Crash::KeepUnsynced)
}

fn documents(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let found = keeper(disk).all_documents();
    assert_eq!(found.problems, Vec::<String>::new());
    let each = found.documents.iter().zip(DOCUMENTS);
    for (path, expected) in each {
        assert!(path.starts_with(expected), "{}", path.display());
    }
    assert_eq!(found.documents.len(), DOCUMENTS.len());
    found.documents
}

/// True for each document that can be opened with these identities.
fn open_with(disk: &SimulatedDisk, identities: &Identities) -> Vec<bool> {
    let opened = documents(disk).into_iter().map(|path| {
        let bytes = DiskFiles(disk.clone()).read(&path, 100_000);
        match Document::open(&bytes.unwrap().unwrap(), identities) {
            Ok(_) => true,
            Err(DocumentError::OtherIdentity { .. }) => false,
            Err(other) => panic!("{}: {other}", path.display()),
        }
    });
    opened.collect()
}

/// Checks that every document can be opened with the stored identities.
fn all_is_readable(disk: &SimulatedDisk, when: &str) {
    let identities = Identities::parse(&identity_of(disk)).unwrap();
    let opened = open_with(disk, &identities);
    assert!(opened.iter().all(|it| *it), "{when}: {opened:?}");
    let keeper = keeper(disk);
    for name in ["a", "github"] {
        assert_eq!(find(&keeper, name, "k").as_deref(), Some(VALUE), "{when}");
    }
    let read = keeper.read_for_task(Path::new(TASK), &["key"]).unwrap();
    assert_eq!(read["key"].0, VALUE, "{when}");
    let tokens = keeper.read_oauth(&"idp".parse().unwrap());
    assert_eq!(tokens.problems, Vec::<String>::new(), "{when}");
    assert_eq!(tokens.found.len(), 3, "{when}");
}

fn rotate(disk: &SimulatedDisk) -> Option<SecretsRotated> {
    match keeper(disk).carry_out(SecretWork::Rotate, at()) {
        Ok(SecretsResult::Rotated(rotated)) => Some(rotated),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

/// Checks that an undisturbed rotation completes, and that the old identity opens no document
/// afterward.
fn finishes(disk: &SimulatedDisk, before: &[u8]) {
    let done = rotate(disk).unwrap();
    assert_eq!(done.problems, Vec::<String>::new());
    assert_eq!((done.documents, done.former_kept), (6, false));
    all_is_readable(disk, "at the end");
    let former = Identities::parse(before).unwrap();
    assert_eq!(open_with(disk, &former), [false; 6]);
    let now = identity_of(disk);
    assert_ne!(now, before);
    let secrets = now.split(|byte| *byte == b'\n');
    let secrets = secrets.filter(|line| line.starts_with(b"AGE-SECRET-KEY-"));
    assert_eq!(secrets.count(), 1);
}

#[test]
fn sys_3_crashed_rotation_stays_readable_and_a_repeat_ends_it() {
    let start = filled();
    let before = identity_of(&start);
    let mut crashes = 1;
    loop {
        let disk = start.after_crash(Crash::KeepUnsynced);
        disk.crash_at(disk.calls() + crashes);
        let rotated = rotate(&disk);
        for crash in [Crash::LoseUnsynced, Crash::Subset(crashes)] {
            let after = disk.after_crash(crash);
            all_is_readable(&after, &format!("{crash:?} {crashes}"));
            finishes(&after, &before);
        }
        if rotated.is_some_and(|rotated| rotated.problems.is_empty()) {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 30, "it crashed {crashes} times only");
}

#[test]
fn sys_3_failed_rotation_keeps_the_old_identity_while_needed() {
    let start = filled();
    let before = identity_of(&start);
    let calls = {
        let disk = start.after_crash(Crash::KeepUnsynced);
        rotate(&disk).unwrap();
        disk.calls()
    };
    let mut kept = 0;
    for call in 1..=calls {
        let disk = start.after_crash(Crash::KeepUnsynced);
        disk.fail_at(disk.calls() + call, CallFault::Errno(5), false);
        let rotated = rotate(&disk);
        let after = disk.after_crash(Crash::ProcessOnly);
        all_is_readable(&after, &format!("call {call}"));
        if let Some(rotated) = rotated {
            assert_eq!(rotated.former_kept, !rotated.problems.is_empty());
            kept += usize::from(rotated.former_kept);
        }
        finishes(&after, &before);
    }
    // Each directory and each document was unavailable once.
    assert!(kept > 20, "{kept} of {calls}");
}

#[test]
fn sys_3_unreadable_document_is_named_and_keeps_old_identity() {
    let disk = filled();
    let path = Path::new(DOCUMENTS[3]);
    let stranger = Identities::generate();
    let text = Document::new().seal(&stranger, at()).unwrap();
    disk.plant(path, text.as_bytes()).unwrap();
    let before = identity_of(&disk);
    let rotated = rotate(&disk).unwrap();
    assert_eq!((rotated.documents, rotated.former_kept), (5, true));
    let problem = &rotated.problems[0];
    assert!(problem.contains(DOCUMENTS[3]), "{problem}");
    assert_eq!(rotated.problems.len(), 1);
    let now = identity_of(&disk);
    assert!(now.ends_with(&before), "the old identity is gone");
    assert_eq!(find(&keeper(&disk), "github", "k").as_deref(), Some(VALUE));
}

#[test]
fn sys_3_nothing_is_reported_lost_when_nothing_is_encrypted() {
    let refused = |disk: &SimulatedDisk| {
        keeper(disk)
            .carry_out(SecretWork::Rotate, at())
            .unwrap_err()
    };
    let empty = refused(&disk());
    assert!(empty.message.contains("nothing is encrypted"), "{empty:?}");
    let disk = filled();
    disk.remove_file(Path::new("/s/system/identity.age"))
        .unwrap();
    let lost = refused(&disk);
    assert!(
        lost.message.contains("no identity found: neither"),
        "{lost:?}"
    );
}
