//! Packages from git repositories: pinned to a commit, and fetched without executing anything from
//! the repository (`PKG-3`).

#![expect(
    clippy::disallowed_methods,
    reason = "git repositories, which change without goondan"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use goondan_tests::tree::snapshot;
use goondan_tests::{Home, needs};

const PROJECT: &str = "apiVersion: goondan.ai/v1
kind: Package
metadata: {name: shop}
spec:
  version: 1.0.0
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: main}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: hello}]}}
";

fn git(dir: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// Commits a version of the package in `packages/words`, and returns the commit.
fn commit(home: &Home, version: &str, word: &str) -> String {
    let repository = home.path().join("repository");
    if !repository.exists() {
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    }
    let yaml = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: words}}\nspec: {{version: {version}}}\n"
    );
    home.write("repository/packages/words/goondan.yaml", &yaml);
    home.write("repository/packages/words/word.txt", word);
    git(&repository, &["add", "--all"]);
    git(&repository, &["commit", "--quiet", "--message", version]);
    git(&repository, &["rev-parse", "HEAD"])
}

fn place(home: &Home, revision: &str) -> String {
    let repository = home.path().join("repository");
    format!(
        "git+file://{}#{revision}:packages/words",
        repository.display()
    )
}

fn word(home: &Home, version: &str) -> String {
    let dir = home.state_root().join(format!("packages/words@{version}"));
    fs::read_to_string(dir.join("word.txt")).unwrap()
}

fn lock(home: &Home) -> String {
    fs::read_to_string(home.project().join("goondan.lock")).unwrap()
}

#[test]
fn pkg_3_git_package_stays_at_its_commit_until_it_is_updated() {
    if !needs::program("git") {
        return;
    }
    let home = Home::new(PROJECT);
    let first = commit(&home, "1.0.0", "one");
    let short = |commit: &str| commit.chars().take(10).collect::<String>();
    home.gdn(&["package", "add", &place(&home, "main")])
        .exits(0)
        .prints(&[&format!("+ words 1.0.0 (commit {})", short(&first))]);
    assert!(lock(&home).contains(&format!("#{first}:packages/words\"")));
    assert_eq!(word(&home, "1.0.0"), "one");
    home.gdn(&["validate"]).exits(0);

    // The branch advances, and another machine still gets the locked commit.
    let second = commit(&home, "1.0.0", "two");
    let locked = lock(&home);
    fs::remove_dir_all(home.state_root().join("packages")).unwrap();
    home.gdn(&["package", "install", "--frozen-lockfile"])
        .exits(0);
    assert_eq!(word(&home, "1.0.0"), "one");
    assert_eq!(lock(&home), locked);

    home.gdn(&["package", "update"]).exits(0).prints(&[&format!(
        "~ words 1.0.0 (commit {}) → 1.0.0 (commit {})",
        short(&first),
        short(&second)
    )]);
    assert_eq!(word(&home, "1.0.0"), "two");

    // A commit stays pinned when its branch moves.
    home.gdn(&["package", "add", &place(&home, &first)])
        .exits(0);
    home.gdn(&["package", "update"])
        .exits(0)
        .prints(&["everything is installed"]);
    assert!(lock(&home).contains(&format!("#{first}:packages/words\"")));
}

#[test]
fn pkg_3_git_hooks_and_attributes_have_no_effect() {
    if !needs::program("git") {
        return;
    }
    let home = Home::new(PROJECT);
    commit(&home, "1.0.0", "one");
    let repository = home.path().join("repository");
    let hook = repository.join(".git/hooks/post-checkout");
    let ran = home.path().join("ran");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    // Attributes that would exclude files, write the commit into them, or change every byte.
    home.write(
        "repository/packages/words/.gitattributes",
        "word.txt export-ignore\nnote.txt export-subst ident\nlines.txt text eol=crlf\n\
         code.js text working-tree-encoding=UTF-16LE\n",
    );
    let package = repository.join("packages/words");
    home.write("repository/packages/words/note.txt", "$Format:%H$ $Id$");
    home.write("repository/packages/words/lines.txt", "one\r\ntwo\r\n");
    let code: Vec<u8> = "let a;\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fs::write(package.join("code.js"), code).unwrap();
    fs::write(package.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(package.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("word.txt", package.join("link")).unwrap();
    commit(&home, "1.1.0", "two");

    home.gdn(&["package", "add", &place(&home, "main")])
        .exits(0);
    assert_eq!(word(&home, "1.1.0"), "two");
    let stored = home.state_root().join("packages/words@1.1.0");
    let read = |name: &str| fs::read_to_string(stored.join(name)).unwrap();
    assert_eq!(read("note.txt"), "$Format:%H$ $Id$");
    assert_eq!(read("lines.txt"), "one\ntwo\n");
    assert_eq!(read("code.js"), "let a;\n");
    assert_eq!(
        fs::read_link(stored.join("link")).unwrap(),
        Path::new("word.txt")
    );
    let mode = |name: &str| {
        fs::metadata(stored.join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert!(mode("run.sh") & 0o100 != 0 && mode("word.txt") & 0o111 == 0);
    assert!(!ran.exists());

    let before = snapshot(&home.project(), |_| true);
    let absent = "0123456789".repeat(4);
    for (wanted, exit, says) in [
        (place(&home, "gone"), 10, "git cannot fetch from file://"),
        (place(&home, &absent), 10, "git cannot fetch from file://"),
        (
            format!("git+file://{}#main:packages", repository.display()),
            10,
            "has no goondan.yaml",
        ),
        (
            format!("git+file://{}#main:nothing", repository.display()),
            10,
            "git cannot fetch from file://",
        ),
        (
            "git+ssh://git@127.0.0.1/r".to_owned(),
            2,
            "does not use a safe protocol",
        ),
        (
            "git+http://127.0.0.1/r".to_owned(),
            2,
            "does not use a safe protocol",
        ),
    ] {
        home.gdn(&["package", "add", &wanted])
            .exits(exit)
            .tells(&[says]);
        assert_eq!(snapshot(&home.project(), |_| true), before, "{wanted}");
    }
}

#[test]
fn pkg_3_lfs_and_submodule_content_of_a_commit_is_refused() {
    if !needs::program("git") {
        return;
    }
    let home = Home::new(PROJECT);
    commit(&home, "1.0.0", "one");
    let repository = home.path().join("repository");
    let refused = |says: &str| {
        home.gdn(&["package", "add", &place(&home, "main")])
            .exits(10)
            .tells(&[says, "nothing was changed"]);
        assert!(!home.state_root().join("packages/words@1.0.0").exists());
    };
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n";
    home.write("repository/packages/words/large.bin", pointer);
    commit(&home, "1.0.0", "one");
    refused("`large.bin` of ");
    fs::remove_file(repository.join("packages/words/large.bin")).unwrap();

    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    git(&other, &["init", "--quiet"]);
    home.write("other/file", "of another");
    git(&other, &["add", "--all"]);
    git(&other, &["commit", "--quiet", "--message", "other"]);
    let url = other.to_str().unwrap();
    let inner = "packages/words/inner";
    git(&repository, &["submodule", "--quiet", "add", url, inner]);
    commit(&home, "1.0.0", "one");
    refused("`inner` of ");
}
