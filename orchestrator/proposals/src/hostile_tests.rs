//! Malicious changes to `proposal/` or to the stored copies leave the Project Root unchanged.

use goondan_protocol::control::RefusalKind;

use crate::ProposalError;
use crate::world::{PROJECT, PROPOSAL, WORK, World, at, refusals};

const KEPT: &str = "/state/sandboxes/r1/coder/kept";

#[test]
fn prop_4_proposal_altered_after_creation_changes_nothing() {
    let base = World::with_proposal();
    let before = base.tree(PROJECT);
    let patch = base.read(PROPOSAL, "changes.patch").unwrap();
    let record = base.read(PROPOSAL, "proposal.json").unwrap();
    let new_file = |path: &str| {
        format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\nindex \
             0000000000000000000000000000000000000000..3e757656cf36eca53338e520d134963a44f793f8\n\
             --- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+new\n"
        )
    };
    let patches = [
        String::new(),
        "garbage".to_owned(),
        patch.replace("src/new.rs", "../outside"),
        patch.replace("src/new.rs", "/etc/outside"),
        patch.replace("src/new.rs", ".git/hooks/pre-commit"),
        patch.replace("src/new.rs", "src/.GIT/config"),
        patch.replace("src/new.rs", "README.md"),
        patch.replace("src/new.rs", "SRC/A.rs"),
        patch.replace("100644", "120000"),
        patch.replace("fn a() { 1 }", "fn a() { evil }"),
        format!("{patch}{}", new_file("README.md")),
        format!(
            "{patch}diff --git a/src/b.rs b/README.md\nsimilarity index 100%\nrename from src/b.rs\nrename to README.md\n"
        ),
        patch.replace("+new\n", "+new\n++ b/README.md\n"),
        patch.replace(
            "+new\n",
            "+new\n--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-x\n+y\n",
        ),
    ];
    let records = [
        String::new(),
        "{}".to_owned(),
        "[".repeat(100_000),
        record.replace("\"r1\"", "\"r2\""),
        record.replace("\"coder\"", "\"other\""),
        record.replace("src/new.rs", "../outside"),
        record.replace("proposal/changes.patch", "../../../other.patch"),
        record.replace("\"version\": \"1\"", "\"version\": \"2\""),
        record.replacen("\"patchSha256\": \"", "\"patchSha256\": \"00", 1),
        record.replace("\"added\"", "\"deleted\""),
    ];
    let cases = patches.into_iter().map(|text| ("changes.patch", text));
    let cases = cases.chain(records.into_iter().map(|text| ("proposal.json", text)));
    for (name, text) in cases {
        let world = base.copy();
        assert_ne!(world.read(PROPOSAL, name).as_deref(), Some(text.as_str()));
        world.write(PROPOSAL, name, &text);
        let refused = refusals(world.applied());
        let expected = (Some(format!("proposal/{name}")), RefusalKind::Tampered);
        assert_eq!(refused, [expected], "{text}");
        assert_eq!(world.tree(PROJECT), before, "{text}");
        // The worker submits it again.
        world.created().unwrap();
        world.applied().unwrap();
    }
}

/// Malicious changes to goondan's own copies.
#[test]
fn prop_4_inconsistent_stored_proposal_changes_nothing() {
    let base = World::with_proposal();
    let before = base.tree(PROJECT);
    let digest = base.sandboxes().show(&at()).unwrap().info.digest;
    let dir = format!("{KEPT}/{digest}");
    let patch = base.read(&dir, "changes.patch").unwrap();
    let evil = patch.replace("fn a() { 1 }", "fn a() { evil }");
    let input = "/state/sandboxes/r1/coder/input";
    type Tamper<'t> = &'t dyn Fn(&World);
    let tampers: [(&str, Tamper<'_>); 6] = [
        ("both patches", &|world| {
            world.write(&dir, "changes.patch", &evil);
            world.write(PROPOSAL, "changes.patch", &evil);
        }),
        ("the frozen files", &|world| {
            world.write(&dir, "after/src/a.rs", "fn a() { evil }\n");
        }),
        ("the baseline", &|world| {
            world.write(input, "src/a.rs", "fn a() { evil }\n");
        }),
        ("the record", &|world| {
            let text = world
                .read(&dir, "proposal.json")
                .unwrap()
                .replace("coder", "other");
            world.write(&dir, "proposal.json", &text);
            world.write(PROPOSAL, "proposal.json", &text);
        }),
        ("the details", &|world| {
            let text =
                world
                    .read(&dir, "details.json")
                    .unwrap()
                    .replacen("src/new.rs", "src/evil.rs", 1);
            world.write(&dir, "details.json", &text);
        }),
        ("given files", &|world| {
            let root = "/state/sandboxes/r1/coder";
            let text = world
                .read(root, "sandbox.json")
                .unwrap()
                .replace("src/a.rs", "src/x.rs");
            world.write(root, "sandbox.json", &text);
        }),
    ];
    for (what, tamper) in tampers {
        let world = base.copy();
        tamper(&world);
        let refused = world.applied().unwrap_err();
        assert!(!matches!(refused, ProposalError::Unfinished(_)), "{what}");
        assert_eq!(world.tree(PROJECT), before, "{what}: {refused}");
    }
}

#[test]
fn prop_4_case_conflict_with_a_file_not_given_is_refused() {
    let world = World::new();
    world.prepared(&["src"]).unwrap();
    world.write(WORK, "src/Extra.rs", "the worker's\n");
    world.created().unwrap();
    world.write(PROJECT, "src/extra.rs", "a person's\n");
    let refused = refusals(world.applied());
    assert_eq!(
        refused,
        [(Some("src/Extra.rs".to_owned()), RefusalKind::NeverGiven)]
    );
}

#[test]
fn prov_1_a_rename_that_only_changes_case_is_applied() {
    let world = World::new();
    world.prepared(&["src"]).unwrap();
    world.remove(WORK, "src/a.rs");
    world.write(WORK, "src/A.rs", "fn a() {}\n");
    world.created().unwrap();
    world.applied().unwrap();
    assert_eq!(world.read(PROJECT, "src/a.rs"), None);
    assert_eq!(
        world.read(PROJECT, "src/A.rs").as_deref(),
        Some("fn a() {}\n")
    );
}

#[test]
fn prop_4_a_directory_that_became_a_link_is_not_followed() {
    let base = World::with_proposal();
    let world = base.copy();
    let folder = world.disk().folder(std::path::Path::new(PROJECT));
    for name in ["src", "elsewhere"].map(std::path::Path::new) {
        if name.ends_with("src") {
            folder
                .rename_new(name, std::path::Path::new("elsewhere"))
                .unwrap();
            folder
                .create_link(name, std::path::Path::new("elsewhere"))
                .unwrap();
        }
    }
    let refused = refusals(world.applied());
    assert!(refused.len() >= 3, "{refused:?}");
    assert_eq!(world.read(PROJECT, "elsewhere/src/new.rs"), None);
    assert_eq!(world.read(PROJECT, "elsewhere/new.rs"), None);
}

#[test]
fn worker_links_do_not_redirect_reads_or_writes_of_goondan() {
    let world = World::with_work();
    let folder = world
        .disk()
        .folder(std::path::Path::new("/state/sandboxes/r1/coder"));
    let proposal = std::path::Path::new("proposal");
    folder.remove_dir(proposal).unwrap();
    folder
        .create_link(proposal, std::path::Path::new("/project/src"))
        .unwrap();
    let before = world.tree(PROJECT);
    world.created().unwrap();
    assert_eq!(world.tree(PROJECT), before);
    assert!(world.read(PROPOSAL, "proposal.json").is_some());
    let world = World::with_work();
    let work = world.disk().folder(std::path::Path::new(WORK));
    work.create_link(
        std::path::Path::new("src/leak"),
        std::path::Path::new("/etc/passwd"),
    )
    .unwrap();
    let refused = world.created().unwrap_err().to_string();
    assert!(refused.contains("leads out"), "{refused}");
}
