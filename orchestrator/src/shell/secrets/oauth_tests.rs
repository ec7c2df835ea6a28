use goondan_durable::disk::{Crash, Disk as _};
use goondan_oauth::{DocumentKey, GrantKey};
use goondan_protocol::ids::OAuthSubject;
use goondan_protocol::oauth::OAuthNeed;

use super::super::tests::{at, disk, keeper};
use super::*;

fn place() -> DocumentKey {
    DocumentKey::Grant(GrantKey {
        workspace_id: "w".parse().unwrap(),
        need: OAuthNeed {
            app: app(),
            subject: OAuthSubject::global(),
        },
    })
}

fn app() -> ResourceName {
    "github".parse().unwrap()
}

fn fields(token: &str) -> Fields {
    let value = |text: &str| SecretValue::new(text.to_owned());
    Fields::new(BTreeMap::from([
        ("kind".to_owned(), value("grant")),
        ("accessToken".to_owned(), value(token)),
    ]))
}

fn token(keeper: &SecretKeeper) -> Option<String> {
    let documents = keeper.read_oauth(&app());
    assert_eq!(documents.problems, Vec::<String>::new());
    let fields = documents.found.first()?;
    let (_, value) = fields.iter().find(|(name, _)| *name == "accessToken")?;
    Some(value.expose().to_owned())
}

#[test]
fn sys_3_documents_are_kept_encrypted_read_back_and_removed() {
    let disk = disk();
    let keeper = keeper(&disk);
    assert_eq!(token(&keeper), None);
    keeper
        .write_oauth(&place(), &fields("open-sesame"), at())
        .unwrap();
    assert_eq!(token(&keeper).as_deref(), Some("open-sesame"));
    let path = keeper.oauth_dir().join(place().path());
    let bytes = keeper.files.read(&path, 100_000).unwrap().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"accessToken\": ENC[AES256_GCM,"), "{text}");
    assert!(!text.contains("open-sesame"), "{text}");
    keeper.remove_oauth(&place()).unwrap();
    keeper.remove_oauth(&place()).unwrap();
    assert_eq!(token(&keeper), None);
}

#[test]
fn sys_2_crash_at_any_call_leaves_old_or_new_document() {
    for before in [None, Some("first-token")] {
        let start = disk();
        if let Some(token) = before {
            let written = keeper(&start).write_oauth(&place(), &fields(token), at());
            written.unwrap();
        }
        let start = start.after_crash(Crash::KeepUnsynced);
        let mut crashes = 1;
        loop {
            let disk = start.after_crash(Crash::KeepUnsynced);
            disk.crash_at(disk.calls() + crashes);
            let written = keeper(&disk).write_oauth(&place(), &fields("second-token"), at());
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(crashes),
            ] {
                let keeper = keeper(&disk.after_crash(crash));
                let found = token(&keeper);
                let is_new = found.as_deref() == Some("second-token");
                assert!(
                    is_new || (written.is_err() && found.as_deref() == before),
                    "{found:?}"
                );
                // Later writes succeed.
                let third = keeper.write_oauth(&place(), &fields("third-token"), at());
                third.unwrap();
                assert_eq!(token(&keeper).as_deref(), Some("third-token"));
            }
            if written.is_ok() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 4, "it never crashed");
    }
}

#[test]
fn sys_3_lost_identity_is_reported_and_not_replaced() {
    let disk = disk();
    keeper(&disk)
        .write_oauth(&place(), &fields("open-sesame"), at())
        .unwrap();
    disk.remove_file(Path::new("/s/system/identity.age"))
        .unwrap();
    let keeper = keeper(&disk);
    let documents = keeper.read_oauth(&app());
    assert_eq!(documents.problems.len(), 1, "{:?}", documents.problems);
    let error = keeper
        .write_oauth(&place(), &fields("other"), at())
        .unwrap_err();
    assert!(error.contains("no identity found"), "{error}");
}
