//! Tests of sandboxes, proposals, and their results.

use goondan_durable::disk::Disk as _;
use goondan_protocol::control::{
    ApplyProposal, EntryStanding, FileStatus, GitCheck, ProposalRecord, ProposalState, RefusalKind,
    RunEventKind,
};
use goondan_protocol::time::Timestamp;
use goondan_trees::RelativePath;
use std::path::Path;

use crate::world::{
    PROJECT, PROPOSAL, SANDBOXES, WORK, World, apply, at, create, prepare, refusals,
};
use crate::{NoGit, NoRepositories, PatchCheck, PatchVerifier, ProposalError, git_head};

/// The directory of the one sandbox.
const SANDBOX: &str = "/state/sandboxes/r1/coder";

fn given(world: &World, files: &[&str]) -> Vec<String> {
    let detail = world.prepared(files).unwrap();
    detail.given.into_iter().map(|file| file.path).collect()
}

#[test]
fn box_1_the_chosen_files_are_in_input_and_work_alike() {
    let world = World::new();
    assert_eq!(
        given(&world, &["src/a.rs", "README.md"]),
        ["README.md", "src/a.rs"]
    );
    let input = "/state/sandboxes/r1/coder/input";
    for path in ["src/a.rs", "README.md"] {
        let content = world.read(PROJECT, path);
        assert!(content.is_some());
        assert_eq!(world.read(WORK, path), content);
        assert_eq!(world.read(input, path), content);
    }
    assert_eq!(world.tree(WORK).len(), 3);
    for (_, entry) in world.tree(input).entries() {
        let mode = match entry {
            goondan_trees::TreeEntry::File { mode, .. }
            | goondan_trees::TreeEntry::Directory { mode } => *mode,
            goondan_trees::TreeEntry::Link { .. } => 0,
        };
        assert_eq!(mode & 0o222, 0);
    }
    assert!(matches!(
        world.prepared(&["src"]),
        Err(ProposalError::Taken { .. })
    ));
}

#[test]
fn box_2_outside_or_guarded_paths_are_refused_unless_allowed() {
    let world = World::new();
    for (path, told) in [
        ("../x", "are not allowed"),
        ("src/../../x", "are not allowed"),
        ("/etc/passwd", "absolute"),
        (".git/config", ".git"),
        (".git", ".git"),
        ("src/.GIT/x", ".git"),
        ("node_modules", "node_modules/"),
        ("node_modules/x/index.js", "node_modules/"),
        ("dist/out.js", "dist/"),
        (".env", "secrets"),
        (".goondan/x", ".goondan*"),
        ("nowhere.rs", "`nowhere.rs` does not exist"),
        ("", "empty"),
    ] {
        let refused = world.prepared(&[path]).unwrap_err().to_string();
        assert!(refused.contains(told), "{path}: {refused}");
    }
    // In a copy of the whole project they are left out and listed.
    let detail = world.prepared(&[]).unwrap();
    let paths: Vec<&str> = detail.given.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        ["README.md", "src/a.rs", "src/b.rs", "src/deep/c.rs"]
    );
    let paths: Vec<&str> = detail
        .not_given
        .iter()
        .map(|not| not.path.as_str())
        .collect();
    assert_eq!(paths, [".env", "dist", "node_modules"]);
    world.sandboxes().remove(&at(), false).unwrap();
    let mut allowed = prepare(&["dist/out.js", ".env"]);
    allowed.allow = vec!["dist/".to_owned(), ".env".to_owned()];
    let detail = world.sandboxes().prepare(&allowed).unwrap();
    assert_eq!(detail.given.len(), 2);
}

#[test]
fn box_2_a_link_that_leads_out_is_refused() {
    let world = World::new();
    let folder = world.disk().folder(Path::new(PROJECT));
    folder
        .create_link(Path::new("src/out"), Path::new("../../etc/passwd"))
        .unwrap();
    let refused = world.prepared(&["src"]).unwrap_err().to_string();
    assert!(refused.contains("leads out"), "{refused}");
    assert!(world.listed().is_empty());
}

#[test]
fn box_4_the_git_head_is_read_without_git() {
    let id = "0123456789abcdef0123456789abcdef01234567";
    let other = "89abcdef0123456789abcdef0123456789abcdef";
    let world = World::new();
    let head = |world: &World, dir: &str| git_head(world.disk(), Path::new(dir)).unwrap();
    assert_eq!(head(&world, PROJECT), None);
    world.write(PROJECT, ".git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(head(&world, PROJECT), None, "no commit yet");
    let packed = format!("# pack-refs with: peeled\n{id} refs/heads/main\n^{other}\n");
    world.write(PROJECT, ".git/packed-refs", &packed);
    assert_eq!(head(&world, "/project/src").as_deref(), Some(id));
    world.write(PROJECT, ".git/refs/heads/main", &format!("{other}\n"));
    assert_eq!(head(&world, PROJECT).as_deref(), Some(other));
    world.write(PROJECT, ".git/HEAD", &format!("{id}\n"));
    assert_eq!(head(&world, PROJECT).as_deref(), Some(id), "detached");
    // With reftable, HEAD names nothing, and `refs/heads` is a file.
    world.write(PROJECT, "table/.git/HEAD", "ref: refs/heads/.invalid\n");
    world.write(
        PROJECT,
        "table/.git/refs/heads",
        "this repository uses the reftable format\n",
    );
    assert_eq!(head(&world, "/project/table"), None, "reftable");
    for bad in ["ref: ../../etc/passwd", "ref: refs/../../x", "nonsense", ""] {
        world.write(PROJECT, ".git/HEAD", bad);
        assert_eq!(head(&world, PROJECT), None, "{bad}");
    }
    // A linked worktree: shared files are in the repository, its own files beside it.
    world.write(PROJECT, ".git/HEAD", &format!("{id}\n"));
    world.write(PROJECT, ".git/worktrees/w/HEAD", "ref: refs/heads/main\n");
    world.write(PROJECT, ".git/worktrees/w/commondir", "../..\n");
    world.write(PROJECT, "tree/.git", "gitdir: /project/.git/worktrees/w\n");
    let found = head(&world, "/project/tree");
    // The simulated disk does not resolve `..`, so shared files are not found, and no wrong commit
    // is reported.
    assert!(
        found.is_none() || found.as_deref() == Some(other),
        "{found:?}"
    );
}

#[test]
fn box_4_a_sandbox_records_the_head_and_a_digest_of_each_file() {
    let id = "0123456789abcdef0123456789abcdef01234567";
    let world = World::new();
    world.write(PROJECT, ".git/HEAD", &format!("{id}\n"));
    world.prepared(&["src"]).unwrap();
    let text = world.read(SANDBOX, "sandbox.json").unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["base"]["gitHead"], id);
    let given = record["given"].as_object().unwrap().iter();
    let files: Vec<&str> = given
        .filter(|(_, entry)| entry["kind"] == "file")
        .map(|(path, entry)| {
            let content = world.read(SANDBOX, &format!("input/{path}")).unwrap();
            let digest = goondan_trees::Digest::of(content.as_bytes()).to_string();
            assert_eq!(entry["sha256"], digest, "{path}");
            path.as_str()
        })
        .collect();
    assert_eq!(files, ["src/a.rs", "src/b.rs", "src/deep/c.rs"]);
    // A proposal has the same base, even if the head moves.
    world.write(WORK, "src/a.rs", "changed");
    world.write(PROJECT, ".git/HEAD", &format!("{}\n", id.replace('0', "1")));
    world.created().unwrap();
    let text = world.read(PROPOSAL, "proposal.json").unwrap();
    let proposal: ProposalRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(proposal.base.git_head.as_deref(), Some(id));
    assert_eq!(record["base"]["sha256"], proposal.base.sha256);
}

#[test]
fn prop_1_proposal_lists_all_changes() {
    let world = World::with_work();
    world.write(PROPOSAL, "summary.md", "# Better\n");
    world.write(PROPOSAL, "test.log", "ok\n");
    let detail = world.created().unwrap();
    assert_eq!(detail.info.state, ProposalState::Open);
    assert_eq!(detail.git, GitCheck::NotInstalled);
    assert_eq!(detail.summary, "# Better\n");
    assert_eq!(detail.test_log.as_deref(), Some("ok\n"));
    let files: Vec<(&str, FileStatus)> = detail
        .files
        .iter()
        .map(|file| (file.change.path.as_str(), file.change.status))
        .collect();
    assert_eq!(
        files,
        [
            ("src/a.rs", FileStatus::Modified),
            ("src/deep/c.rs", FileStatus::Deleted),
            ("src/new.rs", FileStatus::Added),
        ]
    );
    let text = world.read(PROPOSAL, "proposal.json").unwrap();
    let record: ProposalRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(record.version, "1");
    // Each path is valid relative to the sandbox's directory.
    let paths = serde_json::to_value(&record.paths).unwrap();
    for (name, path, held) in [
        ("inputDir", "input", Some("input/src/a.rs")),
        ("workDir", "work", Some("work/src/new.rs")),
        ("patchFile", "proposal/changes.patch", None),
        ("summaryFile", "proposal/summary.md", None),
        ("testLogFile", "proposal/test.log", None),
    ] {
        assert_eq!(paths[name], path);
        let read = world.read(SANDBOX, held.unwrap_or(path));
        assert!(read.is_some_and(|text| !text.is_empty()), "{name}: {path}");
    }
    assert_eq!(record.base.git_head, None);
    assert_eq!(record.notes, "by coder");
    let patch = world.read(PROPOSAL, "changes.patch").unwrap();
    assert!(
        patch.starts_with("diff --git a/src/a.rs b/src/a.rs\n"),
        "{patch}"
    );
    let whole: Vec<String> = world
        .sandboxes()
        .diff(&at(), 0)
        .into_iter()
        .map(|part| part.data)
        .collect();
    assert_eq!(whole.len(), 1);
}

#[test]
fn empty_or_out_of_scope_proposal_is_refused() {
    let world = World::new();
    world.prepared(&["src/a.rs"]).unwrap();
    let nothing = world.created().unwrap_err().to_string();
    assert!(nothing.contains("changed nothing"), "{nothing}");
    world.write(WORK, "src/b.rs", "never given\n");
    let refused = refusals(world.created());
    assert_eq!(
        refused,
        [(Some("src/b.rs".to_owned()), RefusalKind::NotAllowed)]
    );
    // Files left behind by tools are not included.
    world.remove(WORK, "src/b.rs");
    world.write(WORK, "node_modules/left/pad.js", "x");
    world.write(WORK, ".env", "x");
    world.write(WORK, "src/a.rs", "changed");
    let detail = world.created().unwrap();
    assert_eq!(detail.files.len(), 1);
    let left: Vec<&str> = detail
        .left_out
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    assert_eq!(left, [".env", "node_modules"]);
}

#[test]
fn prop_3_a_proposal_is_applied_and_taken_back() {
    let world = World::with_work();
    let before = world.tree(PROJECT);
    world.created().unwrap();
    assert!(world.sandboxes().check(&at()).unwrap().can_apply);
    let applied = world.applied().unwrap();
    assert_eq!(applied.files, ["src/a.rs", "src/deep/c.rs", "src/new.rs"]);
    assert_eq!(applied.proposal.state, ProposalState::Applied);
    assert_eq!(
        world.read(PROJECT, "src/a.rs").as_deref(),
        Some("fn a() { 1 }\n")
    );
    assert_eq!(world.read(PROJECT, "src/deep/c.rs"), None);
    assert!(matches!(
        world.applied(),
        Err(ProposalError::Standing { .. })
    ));
    assert!(matches!(
        world.created(),
        Err(ProposalError::Standing { .. })
    ));
    let reverted = world.sandboxes().revert(&at()).unwrap();
    assert_eq!(reverted.proposal.state, ProposalState::Reverted);
    assert_eq!(world.tree(PROJECT), before);
}

#[test]
fn prop_5_the_runs_log_has_every_event() {
    let world = World::with_proposal();
    // Read-only operations write nothing.
    let before = world.read(SANDBOXES, "r1/events.jsonl").unwrap();
    world.sandboxes().check(&at()).unwrap();
    assert_eq!(world.read(SANDBOXES, "r1/events.jsonl").unwrap(), before);
    world.sandboxes().review(&at()).unwrap();
    world.sandboxes().reject(&at(), "not so").unwrap();
    assert!(matches!(
        world.applied(),
        Err(ProposalError::Standing { .. })
    ));
    world.created().unwrap();
    world.applied().unwrap();
    let log = world.read(SANDBOXES, "r1/events.jsonl").unwrap();
    let types: Vec<String> = log
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["agentId"], "coder");
            line["type"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected = [
        RunEventKind::SandboxPrepared,
        RunEventKind::ProposalCreated,
        RunEventKind::ProposalReviewed,
        RunEventKind::ProposalRejected,
        RunEventKind::ProposalCreated,
        RunEventKind::ProposalReviewed,
        RunEventKind::ProposalApplied,
    ];
    assert_eq!(types, expected.map(RunEventKind::as_str));
    let history = world.sandboxes().show(&at()).unwrap().history;
    assert_eq!(history.len(), 3, "that of the newest alone");
}

#[test]
fn prop_4_each_changed_input_file_is_listed_with_its_digests() {
    let world = World::with_proposal();
    world.write(PROJECT, "src/a.rs", "a person's\n");
    world.remove(PROJECT, "src/deep/c.rs");
    world.write(PROJECT, "src/new.rs", "a person's new\n");
    world.write(PROJECT, "src/b.rs", "other base\n");
    let before = world.tree(PROJECT);
    let review = world.sandboxes().check(&at()).unwrap();
    assert!(!review.can_apply);
    let told: Vec<(Option<&str>, RefusalKind)> = review
        .refusals
        .iter()
        .map(|refusal| (refusal.path.as_deref(), refusal.kind))
        .collect();
    assert_eq!(
        told,
        [
            (Some("src/a.rs"), RefusalKind::Changed),
            (Some("src/deep/c.rs"), RefusalKind::Deleted),
            (Some("src/new.rs"), RefusalKind::Created),
            (Some("src/b.rs"), RefusalKind::BaseChanged),
        ]
    );
    let digest = |standing: &Option<EntryStanding>| match standing {
        Some(EntryStanding::File { sha256, .. }) => Some(sha256.clone()),
        _ => None,
    };
    let changed = &review.refusals[0];
    let three = [&changed.given, &changed.proposed, &changed.found].map(digest);
    assert!(three.iter().all(Option::is_some));
    assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    assert_eq!(refusals(world.applied()).len(), 4);
    assert_eq!(world.tree(PROJECT), before);
}

#[test]
fn prop_4_changed_head_or_base_is_refused_unless_overridden() {
    let world = World::new();
    world.write(
        PROJECT,
        ".git/HEAD",
        "0123456789abcdef0123456789abcdef01234567\n",
    );
    world.prepared(&["src"]).unwrap();
    world.work();
    world.created().unwrap();
    world.write(
        PROJECT,
        ".git/HEAD",
        "99abcdef0123456789abcdef0123456789abcdef\n",
    );
    world.write(PROJECT, "src/b.rs", "other base\n");
    let refused = refusals(world.applied());
    let kinds: Vec<RefusalKind> = refused.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [RefusalKind::BaseChanged, RefusalKind::HeadMoved]);
    let mut anyway = apply();
    anyway.allow_moved_base = true;
    world.sandboxes().apply(&anyway).unwrap();
    assert_eq!(
        world.read(PROJECT, "src/b.rs").as_deref(),
        Some("other base\n")
    );
    assert_eq!(world.read(PROJECT, "src/new.rs").as_deref(), Some("new\n"));
}

#[test]
fn prop_4_only_the_reviewed_proposal_is_applied() {
    let world = World::with_proposal();
    let seen = world.sandboxes().show(&at()).unwrap().info.digest;
    world.write(WORK, "src/a.rs", "something else\n");
    world.created().unwrap();
    let mut confirmed = apply();
    confirmed.digest = Some(seen);
    let refused = world.sandboxes().apply(&confirmed).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a newer proposal was submitted"),
        "{refused}"
    );
    assert_eq!(
        world.read(PROJECT, "src/a.rs").as_deref(),
        Some("fn a() {}\n")
    );
}

#[test]
fn revert_does_not_overwrite_later_user_edits() {
    let world = World::with_proposal();
    world.applied().unwrap();
    world.write(PROJECT, "src/a.rs", "a person's\n");
    let refused = refusals(world.sandboxes().revert(&at()));
    assert_eq!(
        refused,
        [(Some("src/a.rs".to_owned()), RefusalKind::Changed)]
    );
    assert_eq!(
        world.read(PROJECT, "src/a.rs").as_deref(),
        Some("a person's\n")
    );
    assert_eq!(world.read(PROJECT, "src/new.rs").as_deref(), Some("new\n"));
}

#[test]
fn git_that_does_not_agree_refuses_the_proposal() {
    struct RejectingVerifier;
    impl PatchVerifier for RejectingVerifier {
        fn verify(&self, check: &PatchCheck<'_>) -> Result<GitCheck, String> {
            assert_eq!(check.changed.len(), 3);
            Err("git lists other files".to_owned())
        }
    }
    let world = World::with_work();
    let refused = world
        .sandboxes()
        .create(&create(), &RejectingVerifier)
        .unwrap_err();
    assert!(refused.to_string().contains("other files"), "{refused}");
    assert!(matches!(
        world.sandboxes().show(&at()),
        Err(ProposalError::NoProposal { .. })
    ));
    world.sandboxes().create(&create(), &NoGit).unwrap();
}

#[test]
fn moved_file_is_listed_as_renamed() {
    let world = World::with_work();
    world.remove(WORK, "src/b.rs");
    world.write(WORK, "src/moved.rs", "fn b() {}\n");
    let detail = world.created().unwrap();
    let moved: Vec<_> = detail
        .files
        .iter()
        .filter_map(|file| Some((file.change.path.as_str(), file.renamed_from.as_deref()?)))
        .collect();
    assert_eq!(moved, [("src/moved.rs", "src/b.rs")]);
}

#[test]
fn sandbox_with_a_pending_proposal_is_removed_only_by_force() {
    let world = World::with_proposal();
    let refused = world.sandboxes().remove(&at(), false);
    assert!(matches!(refused, Err(ProposalError::Standing { .. })));
    world.sandboxes().remove(&at(), true).unwrap();
    assert!(world.listed().is_empty());
    assert!(
        world
            .disk()
            .stat(Path::new("/state/sandboxes/r1/coder"))
            .unwrap()
            .is_none()
    );
    let none = world.sandboxes().show(&at()).unwrap_err();
    assert!(matches!(none, ProposalError::NoSandbox { .. }));
    // A new sandbox with the same name starts without a proposal.
    world.prepared(&["src"]).unwrap();
    let none = world.sandboxes().show(&at()).unwrap_err();
    assert!(matches!(none, ProposalError::NoProposal { .. }));
}

#[test]
fn directories_and_modes_outside_the_patch_apply_and_revert() {
    let world = World::with_work();
    let folder = world.disk().folder(Path::new(WORK));
    folder.create_dir(Path::new("src/empty"), 0o755).unwrap();
    folder.sync_dir(Path::new("src")).unwrap();
    let before = world.tree(PROJECT);
    let detail = world.created().unwrap();
    let made: Vec<(&str, bool)> = detail
        .directories
        .iter()
        .map(|change| (change.path.as_str(), change.is_made))
        .collect();
    assert_eq!(made, [("src/empty", true)]);
    world.applied().unwrap();
    let empty = RelativePath::new(b"src/empty").unwrap();
    assert!(world.tree(PROJECT).get(&empty).is_some());
    world.sandboxes().revert(&at()).unwrap();
    assert_eq!(world.tree(PROJECT), before);
}

#[test]
fn repo_1_ignored_files_are_not_copied_for_a_task_nor_proposed() {
    let world = World::new();
    for (path, content) in [
        (".gitignore", "target/\n*.log\n!src/keep.log\n"),
        ("src/.gitignore", "/made\n"),
        ("target/debug/app", "built"),
        ("src/a.log", "log"),
        ("src/keep.log", "keep"),
        ("src/made/x", "made"),
        ("src/deep/made/x", "written"),
    ] {
        world.write(PROJECT, path, content);
    }
    let made_at = Timestamp::from_unix_millis(0);
    let request = prepare(&[]);
    let prepared = world
        .sandboxes()
        .prepare_for_task(&request, made_at, None, &NoRepositories)
        .unwrap();
    // It is taken as it is, unless it is of an earlier task.
    world
        .sandboxes()
        .prepare_for_task(&request, made_at, None, &NoRepositories)
        .unwrap();
    let later = Timestamp::from_unix_millis(1 << 42);
    world
        .sandboxes()
        .prepare_for_task(&request, later, None, &NoRepositories)
        .unwrap_err();
    let given: Vec<&str> = prepared
        .given
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    for (path, is_given) in [
        ("target/debug/app", false),
        ("src/a.log", false),
        ("src/keep.log", true),
        ("src/made/x", false),
        ("src/deep/made/x", true),
    ] {
        assert_eq!(given.contains(&path), is_given, "{path}");
    }
    world.write(WORK, "target/debug/app", "built anew");
    world.write(WORK, "src/keep.log", "kept");
    // Changes to the worker's ignore files do not affect the proposal.
    world.write(WORK, ".gitignore", "*.rs\n");
    world.write(WORK, "src/a.rs", "fn a() { 1 }\n");
    let proposed = world
        .sandboxes()
        .propose(&create(), Some("I built it."), &NoGit);
    let proposed = proposed.unwrap().unwrap();
    let changed: Vec<&str> = proposed
        .files
        .iter()
        .map(|it| it.change.path.as_str())
        .collect();
    assert_eq!(changed, [".gitignore", "src/a.rs", "src/keep.log"]);
    assert_eq!(proposed.summary, "I built it.");
    assert!(
        proposed.left_out.iter().any(|it| it.path == "target"),
        "{:?}",
        proposed.left_out
    );
}

#[test]
fn repo_3_task_that_reverts_its_changes_leaves_no_proposal() {
    let world = World::new();
    let made_at = Timestamp::from_unix_millis(0);
    world
        .sandboxes()
        .prepare_for_task(&prepare(&[]), made_at, None, &NoRepositories)
        .unwrap();
    let propose = || world.sandboxes().propose(&create(), None, &NoGit).unwrap();
    assert!(propose().is_none());
    world.write(WORK, "src/a.rs", "fn a() { 1 }\n");
    let digest = propose().unwrap().info.digest;
    world.write(WORK, "src/a.rs", "fn a() {}\n");
    assert!(propose().is_none());
    world.sandboxes().apply(&apply()).unwrap_err();
    world.write(WORK, "src/a.rs", "fn a() { 2 }\n");
    let again = propose().unwrap().info.digest;
    assert_ne!(again, digest);
    // It is delivered once, however often that is asked for.
    let request = ApplyProposal {
        digest: Some(again),
        ..apply()
    };
    for _ in 0..2 {
        let delivered = world.sandboxes().deliver(&request).unwrap();
        assert_eq!(delivered.files, ["src/a.rs"]);
    }
    let other = ApplyProposal {
        digest: Some(digest),
        ..apply()
    };
    world.sandboxes().deliver(&other).unwrap_err();
}
