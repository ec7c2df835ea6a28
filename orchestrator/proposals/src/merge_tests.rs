//! Goal: changes of a proposal and of users to the same files are merged into one new proposal, or
//! reported as conflicts per file; nothing else changes.

use goondan_protocol::control::ControlError;
use goondan_protocol::control::{
    CreateProposal, ErrorCode, FileStatus, MergeProposal, ProposalDetail, ProposalState,
    RefusalKind, SandboxRef,
};

use crate::world::{PROJECT, WORK, World, apply, at, refusals, workspace};
use crate::{NoGit, ProposalError};

fn named(agent: &str) -> SandboxRef {
    SandboxRef {
        agent_id: agent.parse().unwrap(),
        ..at()
    }
}

/// The new proposal of a merge without conflicts.
fn made(world: &World) -> ProposalDetail {
    let merged = world.merged().unwrap();
    assert_eq!(merged.conflicts, []);
    merged.proposal.unwrap()
}

#[test]
fn prop_4_stale_proposal_merges_into_a_new_applicable_one() {
    let world = World::with_stale_proposal();
    let refused = world.applied().unwrap_err();
    assert!(matches!(refused, ProposalError::Refused { .. }));
    let hint = ControlError::from(refused).suggestion.unwrap();
    assert!(hint.contains("`gdn proposal merge r1 coder`"), "{hint}");
    let old = world.sandboxes().show(&at()).unwrap();
    let before = world.tree(PROJECT);

    let new = made(&world);
    assert_eq!(world.tree(PROJECT), before, "a merge changes no file");
    assert_eq!(new.info.at, named("coder-merged"));
    let from = new.merged_from.clone().unwrap();
    assert_eq!(
        (from.agent_id, from.digest),
        (at().agent_id, old.info.digest)
    );
    assert_eq!(from.files, ["src/long.txt"]);
    assert_eq!(new.info.notes, "by coder");
    let changed: Vec<_> = new
        .files
        .iter()
        .map(|file| (file.change.path.as_str(), file.change.status))
        .collect();
    let expected = [
        ("src/a.rs", FileStatus::Modified),
        ("src/deep/c.rs", FileStatus::Deleted),
        ("src/long.txt", FileStatus::Modified),
        ("src/new.rs", FileStatus::Added),
    ];
    assert_eq!(changed, expected, "it does not include a person's changes");
    let created = new.history.first().unwrap();
    assert!(created.detail.contains("merged from"), "{created:?}");
    let state = world.sandboxes().show(&at()).unwrap().info.state;
    assert_eq!(state, ProposalState::Open, "the old one stays as it is");

    let mut request = apply();
    request.at = new.info.at.clone();
    request.digest = Some(new.info.digest);
    world.sandboxes().apply(&request).unwrap();
    let long = world.read(PROJECT, "src/long.txt").unwrap();
    assert_eq!(long, "one\n2\n3\n4\nfive\n");
    assert_eq!(world.read(PROJECT, "src/b.rs").unwrap(), "a person's\n");
    assert_eq!(world.read(PROJECT, "src/new.rs").unwrap(), "new\n");
    world.sandboxes().revert(&request.at).unwrap();
    assert_eq!(world.tree(PROJECT), before);
}

#[test]
fn prop_4_conflicting_merge_lists_each_file_and_makes_nothing() {
    let world = World::with_stale_proposal();
    world.write(PROJECT, "src/long.txt", "ONE\n2\n3\n4\n5\n");
    world.write(PROJECT, "src/new.rs", "a person's, too\n");
    world.write(PROJECT, "src/deep/c.rs", "edited\n");
    let merged = world.merged().unwrap();
    assert_eq!(merged.proposal, None);
    let told: Vec<_> = merged
        .conflicts
        .iter()
        .map(|conflict| (conflict.path.as_deref().unwrap(), conflict.reason.as_str()))
        .collect();
    let expected = [
        (
            "src/deep/c.rs",
            "it was changed in the project, and the proposal deletes it",
        ),
        (
            "src/long.txt",
            "the project and the proposal both changed the same lines: in the project line 1",
        ),
        (
            "src/new.rs",
            "it is new in the project and in the proposal, with different content",
        ),
    ];
    assert_eq!(told, expected);
    assert!(
        merged
            .conflicts
            .iter()
            .all(|conflict| conflict.kind == RefusalKind::Conflict && conflict.found.is_some())
    );
    let listed = world.listed();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let names = world.tree("/state/sandboxes/r1");
    let mut names = names.entries().map(|(path, _)| path.to_string());
    assert!(names.all(|name| name == "events.jsonl" || name.starts_with("coder")));
}

#[test]
fn prop_4_file_in_place_of_a_new_directory_is_a_conflict() {
    let world = World::new();
    world.prepared(&["src"]).unwrap();
    world.write(WORK, "src/more/x.rs", "x\n");
    world.created().unwrap();
    world.write(PROJECT, "src/more", "a file by now\n");
    let merged = world.merged().unwrap();
    let paths: Vec<_> = merged
        .conflicts
        .iter()
        .filter_map(|conflict| conflict.path.as_deref())
        .collect();
    assert!(
        paths.iter().any(|path| path.starts_with("src/more")),
        "{merged:?}"
    );
}

#[test]
fn prop_4_a_merge_that_is_not_needed_or_cannot_help_is_refused() {
    let world = World::with_proposal();
    let refused = world.merged().unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("can be applied without a merge"),
        "{refused}"
    );
    // A user made all the same changes.
    world.write(PROJECT, "src/a.rs", "fn a() { 1 }\n");
    world.write(PROJECT, "src/new.rs", "new\n");
    world.remove(PROJECT, "src/deep/c.rs");
    let refused = world.merged().unwrap_err();
    let error = ControlError::from(refused);
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert!(error.message.contains("already"), "{}", error.message);
    world.write(crate::world::PROPOSAL, "summary.md", "changed by an enemy");
    let kinds = refusals(world.merged());
    let tampered = (
        Some("proposal/summary.md".to_owned()),
        RefusalKind::Tampered,
    );
    assert_eq!(kinds, [tampered]);
    world.sandboxes().reject(&at(), "no").unwrap();
    let refused = world.merged().unwrap_err();
    assert!(
        matches!(refused, ProposalError::Standing { .. }),
        "{refused}"
    );
}

#[test]
fn prop_4_merged_proposals_have_names_of_their_own() {
    let world = World::with_stale_proposal();
    let first = made(&world);
    assert_eq!(made(&world).info.at, named("coder-merged-2"));
    // A merged proposal that became stale can be merged again.
    world.write(PROJECT, "src/long.txt", "1\n2\n3\nfour\nfive\n");
    let mut request = MergeProposal {
        workspace_id: workspace(),
        at: first.info.at.clone(),
        into: None,
    };
    let third = world.sandboxes().merge(&request, &NoGit).unwrap();
    let third = third.proposal.unwrap();
    assert_eq!(third.info.at, named("coder-merged-3"));
    assert_eq!(third.merged_from.unwrap().agent_id, first.info.at.agent_id);
    request.into = Some("coder".parse().unwrap());
    let refused = world.sandboxes().merge(&request, &NoGit).unwrap_err();
    assert!(matches!(refused, ProposalError::Taken { .. }), "{refused}");
    request.into = Some("both".parse().unwrap());
    let named = world.sandboxes().merge(&request, &NoGit).unwrap();
    assert_eq!(named.proposal.unwrap().info.at.agent_id.as_str(), "both");
    assert_eq!(world.handed_in().len(), 5);
}

#[test]
fn prop_4_resubmitted_merged_proposal_keeps_its_origin() {
    let world = World::with_stale_proposal();
    let new = made(&world);
    world.write(
        "/state/sandboxes/r1/coder-merged/work",
        "src/a.rs",
        "by hand\n",
    );
    let again = CreateProposal {
        workspace_id: workspace(),
        at: new.info.at.clone(),
        notes: String::new(),
        summary: None,
        test_log: None,
    };
    let again = world.sandboxes().create(&again, &NoGit).unwrap();
    assert_ne!(again.info.digest, new.info.digest);
    assert_eq!(again.merged_from, new.merged_from);
}

#[test]
fn box_2_guarded_files_below_a_given_directory_are_left_out() {
    let world = World::with_work();
    world.write(WORK, "src/.env", "KEY=1\n");
    world.write(WORK, "src/node_modules/x/index.js", "x");
    let made = world.created().unwrap();
    let left: Vec<_> = made
        .left_out
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    assert_eq!(left, ["src/.env", "src/node_modules"]);
    assert_eq!(made.files.len(), 3);
}
