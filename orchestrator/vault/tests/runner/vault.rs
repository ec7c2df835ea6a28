//! Finding identities and secrets below a System Root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use goondan_protocol::secret::{SecretProblem, SecretStore as _};
use goondan_vault::{
    ExternalIdentities, Identities, IdentityError, IdentityOrigin, ProjectIdentity, RealFiles,
    SecretReader, Vault, VaultError,
};
use secrecy::ExposeSecret as _;

use crate::support::{at, sealed};

fn put(path: &Path, content: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Not durable, and need not be.
    let mut file = fs::OpenOptions::new();
    let mut file = file
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap();
    std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text_of(identities: &Identities) -> String {
    identities.file(at(0)).expose_secret().to_owned()
}

#[test]
fn credential_overrides_identity_file_and_invalid_one_fails() {
    let root = tempfile::tempdir().unwrap();
    let credentials = root.path().join("credentials");
    let given = ExternalIdentities {
        credentials: Some(credentials.clone()),
        variable: false,
    };
    let vault = Vault::new(root.path(), given);
    assert!(vault.identities(&RealFiles).unwrap().is_none());
    assert!(
        !root.path().join("system").exists(),
        "reading made something"
    );

    let file = Identities::generate();
    put(&vault.identity_file(), &text_of(&file), 0o600);
    let found = vault.identities(&RealFiles).unwrap().unwrap();
    assert_eq!(found.identities.recipient(), file.recipient());
    assert_eq!(found.origin, IdentityOrigin::File(vault.identity_file()));

    // systemd restricts access itself, with its own modes.
    let given = Identities::generate();
    put(
        &credentials.join("goondan-identity"),
        &text_of(&given),
        0o440,
    );
    let found = vault.identities(&RealFiles).unwrap().unwrap();
    assert_eq!(found.identities.recipient(), given.recipient());

    put(&credentials.join("goondan-identity"), "", 0o440);
    let error = vault.identities(&RealFiles).unwrap_err();
    assert!(matches!(error, VaultError::Identity { .. }), "{error}");
}

#[test]
fn sec_4_identity_readable_by_others_or_a_link_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let vault = Vault::new(root.path(), ExternalIdentities::default());
    let path = vault.identity_file();
    put(&path, &text_of(&Identities::generate()), 0o640);
    let error = vault.identities(&RealFiles).unwrap_err();
    assert!(matches!(error, VaultError::Exposed { .. }), "{error}");
    assert!(error.help().contains("chmod 600"));
    let elsewhere = root.path().join("elsewhere");
    fs::remove_file(&path).unwrap();
    put(&elsewhere, &text_of(&Identities::generate()), 0o600);
    symlink(&elsewhere, &path).unwrap();
    let error = vault.identities(&RealFiles).unwrap_err();
    assert!(matches!(error, VaultError::Io { .. }), "{error}");
}

#[test]
fn invalid_identity_is_reported_by_line_and_never_quoted() {
    let parse = |text: &str| Identities::parse(text.as_bytes()).unwrap_err();
    assert_eq!(parse(""), IdentityError::Empty);
    assert_eq!(parse("# only a comment\n"), IdentityError::Empty);
    let secret = "AGE-SECRET-KEY-1QQQ";
    let error = parse(&format!("\n{secret}\n"));
    assert_eq!(error, IdentityError::NotAnIdentity { line: 2 });
    assert!(!error.to_string().contains("1QQQ"), "{error}");
    let many: String = (0..9).map(|_| text_of(&Identities::generate())).collect();
    assert_eq!(parse(&many), IdentityError::TooMany);
    assert_eq!(
        Identities::parse(&[0xff]).unwrap_err(),
        IdentityError::NotText
    );
    let shown = Identities::generate();
    assert!(!format!("{shown:?}").contains("AGE-SECRET"));
}

#[test]
fn secret_lookup_of_a_missing_name_lists_the_existing_ones() {
    let root = tempfile::tempdir().unwrap();
    let vault = Vault::new(root.path(), ExternalIdentities::default());
    let project = ProjectIdentity::new(Path::new("/project"), None);
    let find = |name: &str, key: &str| SecretReader::new(&vault, &project).find(name, key);
    let none = SecretProblem::NoSecret { names: Vec::new() };
    assert_eq!(find("github", "token"), Err(none));
    assert!(!vault.system_dir().exists(), "reading made something");
    for hostile in ["", "../x", "a/b", "a\0b", &"x".repeat(200)] {
        let found = find(hostile, "k");
        assert!(
            matches!(found, Err(SecretProblem::InvalidName(_))),
            "{hostile:?}"
        );
    }

    let identities = Identities::generate();
    let name = "github".parse().unwrap();
    let text = sealed(&identities, &[("token", "open-sesame")]);
    put(&vault.document_file(&name), &text, 0o600);
    let Err(SecretProblem::Unreadable { message, help }) = find("github", "token") else {
        panic!("it was read without an identity");
    };
    assert!(message.contains("no identity found"), "{message}");
    assert!(help.contains("backup"), "{help}");

    put(&vault.identity_file(), &text_of(&identities), 0o600);
    // The secret exists and can be opened, but it is not allowed.
    let project_root = project.root.clone();
    let not_allowed = Err(SecretProblem::NotAllowed { project_root });
    assert_eq!(find("github", "token"), not_allowed);
    let consents = r#"{"version":1,"consents":[{"secret":"github","workspaceId":"project__no-package",
        "projectRoot":"/project","allowedAt":"2026-01-01T00:00:00.000Z"}]}"#;
    put(&vault.consents_file(), consents, 0o644);
    let Err(SecretProblem::Unreadable { help, .. }) = find("github", "token") else {
        panic!("a file that others can read was believed");
    };
    assert!(help.contains("chmod 600"), "{help}");
    put(&vault.consents_file(), consents, 0o600);
    assert_eq!(find("github", "token"), Ok("open-sesame".to_owned()));
    let keys = vec!["token".to_owned()];
    assert_eq!(find("github", "tokn"), Err(SecretProblem::NoKey { keys }));
    let names = vec!["github".to_owned()];
    assert_eq!(
        find("githup", "token"),
        Err(SecretProblem::NoSecret { names })
    );

    put(
        &vault.document_file(&name),
        &text.replace("type:str", "type:int"),
        0o600,
    );
    let Ok(_) = find("github", "token") else {
        // The kind is not bound to anything by SOPS, and changes nothing here.
        panic!("the kind of a value decides nothing");
    };
    put(
        &vault.document_file(&name),
        &text.replacen("data:", "data:AAAA", 1),
        0o600,
    );
    let Err(SecretProblem::Unreadable { message, .. }) = find("github", "token") else {
        panic!("a damaged document was believed");
    };
    assert!(
        message.contains("failed to decrypt its entry `token`"),
        "{message}"
    );
    fs::remove_file(vault.document_file(&name)).unwrap();
    symlink("/etc/hostname", vault.document_file(&name)).unwrap();
    assert!(matches!(
        find("github", "token"),
        Err(SecretProblem::Unreadable { .. })
    ));
}
