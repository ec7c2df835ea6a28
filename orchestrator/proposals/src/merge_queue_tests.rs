//! Goal: a queued proposal is merged with the project's current files, lands only on exactly these,
//! and is otherwise handed back to its task on the project's current files; also if the machine
//! stops at any call.

use std::path::Path;

use goondan_durable::disk::Crash;
use goondan_merge_queue::{Landing, LandingResult, Proposal, Rebase, Record, Target};
use goondan_protocol::control::{CreateProposal, PrepareSandbox, ProposalState, SandboxRef};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;

use crate::limits::LANDINGS_KEPT;
use crate::world::{PROJECT, SimulatedDiskFiles, World, workspace};
use crate::{
    NoGit, NoRepositories, ProposalError, QueueGit, QueuePlace, QueuedChanges, QueuedProposal,
};

fn sandbox(task: &str) -> SandboxRef {
    SandboxRef {
        run_id: task.parse().unwrap(),
        agent_id: "coder".parse().unwrap(),
    }
}

fn work(task: &str) -> String {
    format!("/state/sandboxes/{task}/coder/work")
}

/// Prepares the sandbox of a task from the project's current files.
fn prepare(world: &World, task: &str) {
    let request = PrepareSandbox {
        workspace_id: workspace(),
        at: sandbox(task),
        files: Vec::new(),
        allow: Vec::new(),
        exclude: Vec::new(),
        may_create: Vec::new(),
    };
    let made_at = Timestamp::from_unix_millis(0);
    let mut sandboxes = world.sandboxes();
    sandboxes
        .prepare_for_task(&request, made_at, None, &NoRepositories)
        .unwrap();
}

/// Creates the proposal of a task from its `work/`.
fn propose(world: &World, task: &str) -> QueuedProposal {
    let request = CreateProposal {
        workspace_id: workspace(),
        at: sandbox(task),
        notes: String::new(),
        summary: None,
        test_log: None,
    };
    let made = world.sandboxes().create(&request, &NoGit).unwrap();
    QueuedProposal {
        task: task.parse().unwrap(),
        title: format!("Do {task}"),
        at: sandbox(task),
        digest: made.info.digest,
    }
}

/// The proposal of a task that writes these files.
fn proposal(world: &World, task: &str, files: &[(&str, &str)]) -> QueuedProposal {
    prepare(world, task);
    for (path, content) in files {
        world.write(&work(task), path, content);
    }
    propose(world, task)
}

/// The project, as a place.
fn on_project(id: &WorkspaceId) -> QueuePlace<'_> {
    QueuePlace {
        workspace_id: id,
        exclude: &[],
        repository: None,
    }
}

const GIT: QueueGit<'static> = QueueGit {
    patches: &NoGit,
    repositories: &NoRepositories,
    branches: &NoRepositories,
};

fn rebase(world: &World, attempt: u64, proposals: &[QueuedProposal]) -> Rebase {
    let id = workspace();
    let mut sandboxes = world.sandboxes();
    let changed = QueuedChanges {
        earlier: &[],
        proposals,
        is_pull_request: false,
    };
    sandboxes
        .rebase_queued(&on_project(&id), attempt, changed, GIT)
        .unwrap()
}

fn find(world: &World, landing: &Landing) -> LandingResult {
    let id = workspace();
    let mut sandboxes = world.sandboxes();
    sandboxes
        .find_landing(&on_project(&id), landing, GIT)
        .unwrap()
}

fn hand_back(world: &World, queued: &QueuedProposal) -> Result<Vec<String>, ProposalError> {
    let id = workspace();
    let mut sandboxes = world.sandboxes();
    sandboxes.hand_back(&on_project(&id), queued, &NoRepositories)
}

/// A rebase without conflicts, as it is landed.
fn clean(world: &World, attempt: u64, proposals: &[QueuedProposal]) -> Landing {
    let Rebase::Clean { base, result } = rebase(world, attempt, proposals) else {
        panic!("a conflict");
    };
    let entries = proposals.iter().map(|queued| Proposal {
        task: queued.task.clone(),
        digest: queued.digest.clone(),
        priority: 0,
        target: Target::Project,
    });
    Landing {
        attempt,
        proposals: entries.collect(),
        base,
        result,
        replaces: Vec::new(),
    }
}

fn land(world: &World, landing: &Landing, proposals: &[QueuedProposal]) -> LandingResult {
    let id = workspace();
    let mut sandboxes = world.sandboxes();
    sandboxes
        .land_queued(&on_project(&id), landing, proposals, GIT)
        .unwrap()
}

/// Two tasks that change other lines of the same file, and a third file.
fn two_tasks() -> (World, [QueuedProposal; 2]) {
    let world = World::new();
    world.write(PROJECT, "src/long.txt", "1\n2\n3\n4\n5\n");
    let one = proposal(&world, "one", &[("src/long.txt", "one\n2\n3\n4\n5\n")]);
    let files = [
        ("src/long.txt", "1\n2\n3\n4\nfive\n"),
        ("src/new.rs", "new\n"),
    ];
    let two = proposal(&world, "two", &files);
    (world, [one, two])
}

#[test]
fn queue_1_proposals_are_stacked_and_land_together() {
    let (world, proposals) = two_tasks();
    let before = world.tree(PROJECT);
    let landing = clean(&world, 1, &proposals);
    assert_eq!(world.tree(PROJECT), before, "a rebase changes no file");
    let attempt = "/state/sandboxes/merge-queue/attempt-1/work";
    let long = "one\n2\n3\n4\nfive\n";
    assert_eq!(world.read(attempt, "src/long.txt").unwrap(), long);
    // Files of the proof are not part of the landing.
    world.write(attempt, "src/coverage.txt", "91 %\n");
    let found = find(&world, &landing);
    assert_eq!(found, LandingResult::TargetMoved, "it has not landed yet");
    assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
    assert_eq!(world.read(PROJECT, "src/long.txt").unwrap(), long);
    assert_eq!(world.read(PROJECT, "src/new.rs").unwrap(), "new\n");
    assert_eq!(world.read(PROJECT, "src/coverage.txt"), None);
    let found = find(&world, &landing);
    assert_eq!(found, LandingResult::Done);
    assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
    // It can be reverted after its files were discarded.
    world.sandboxes().discard_attempt(1).unwrap();
    assert_eq!(world.read(attempt, "src/long.txt"), None);
    let at = SandboxRef {
        run_id: "merge-queue".parse().unwrap(),
        agent_id: "attempt-1".parse().unwrap(),
    };
    world.sandboxes().revert(&at).unwrap();
    assert_eq!(world.tree(PROJECT), before);
    assert!(world.sandboxes().verify().unwrap().1.findings.is_empty());
}

#[test]
fn queue_1_project_that_changed_since_the_proof_is_not_landed_on() {
    let (world, proposals) = two_tasks();
    let landing = clean(&world, 1, &proposals);
    // No file of the proposals, but the proof ran without it.
    world.write(PROJECT, "README.md", "read this\n");
    let before = world.tree(PROJECT);
    let result = land(&world, &landing, &proposals);
    assert_eq!(result, LandingResult::TargetMoved);
    assert_eq!(world.tree(PROJECT), before);
    world.sandboxes().discard_attempt(1).unwrap();
    let landing = clean(&world, 2, &proposals);
    assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
    assert_eq!(world.read(PROJECT, "README.md").unwrap(), "read this\n");
    let attempts = world.tree("/state/sandboxes/merge-queue");
    let mut attempts = attempts.entries().map(|(path, _)| path.to_string());
    assert!(attempts.all(|path| !path.starts_with("attempt-1")));
}

#[test]
fn queue_1_interrupted_attempts_take_no_place_of_a_landing() {
    let world = World::new();
    let mut landings = Vec::new();
    let mut interrupted = Vec::new();
    for number in 0..LANDINGS_KEPT + 3 {
        let name = format!("task-{number}");
        let proposals = [proposal(&world, &name, &[("src/new.rs", &name)])];
        // A kill before the landing, and a restart that loses the removal of its files.
        let attempt = 2 * number as u64;
        clean(&world, attempt, &proposals);
        interrupted.push(format!("attempt-{attempt}"));
        let landing = clean(&world, attempt + 1, &proposals);
        assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
        let mut sandboxes = world.sandboxes();
        sandboxes.discard_attempt(landing.attempt).unwrap();
        landings.push(format!("attempt-{}", landing.attempt));
    }
    let files = world.tree("/state/sandboxes/merge-queue");
    let is_kept = |name: &&String| files.entries().any(|(path, _)| path.to_string() == **name);
    let kept: Vec<&String> = landings.iter().filter(is_kept).collect();
    let newest: Vec<&String> = landings.iter().skip(3).collect();
    assert_eq!(kept, newest);
    // All newest landings can be reverted, in reverse order.
    for (number, name) in newest.into_iter().enumerate().rev() {
        let at = SandboxRef {
            run_id: "merge-queue".parse().unwrap(),
            agent_id: name.parse().unwrap(),
        };
        world.sandboxes().revert(&at).unwrap();
        let earlier = format!("task-{}", number + 2);
        assert_eq!(world.read(PROJECT, "src/new.rs").unwrap(), earlier);
    }
    // Files of interrupted attempts do not accumulate.
    assert_eq!(interrupted.iter().filter(is_kept).count(), LANDINGS_KEPT);
}

#[test]
fn queue_1_newest_landings_stay_when_numbers_begin_again() {
    let world = World::new();
    let numbers = (0..LANDINGS_KEPT as u64).map(|number| 100 + number);
    for (round, attempt) in numbers.chain([1]).enumerate() {
        let name = format!("task-{round}");
        let proposals = [proposal(&world, &name, &[("src/new.rs", &name)])];
        let landing = clean(&world, attempt, &proposals);
        assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
        world.sandboxes().discard_attempt(attempt).unwrap();
    }
    let files = world.tree("/state/sandboxes/merge-queue");
    let is_kept = |name: &str| files.entries().any(|(path, _)| path.to_string() == name);
    assert!(is_kept("attempt-1") && is_kept("attempt-101"));
    assert!(!is_kept("attempt-100"));
}

#[test]
fn queue_1_attempt_replaces_the_one_of_an_earlier_queue() {
    let (world, [one, two]) = two_tasks();
    let first = [one];
    let landing = clean(&world, 1, &first);
    assert_eq!(land(&world, &landing, &first), LandingResult::Done);
    // A person moved the records away, so that the numbers begin again.
    let second = [two];
    let landing = clean(&world, 1, &second);
    assert_eq!(land(&world, &landing, &second), LandingResult::Done);
    assert_eq!(world.read(PROJECT, "src/new.rs").unwrap(), "new\n");
}

#[test]
fn queue_1_changes_that_the_project_has_land_without_a_swap() {
    let (world, [one, _]) = two_tasks();
    world.write(PROJECT, "src/long.txt", "one\n2\n3\n4\n5\n");
    let proposals = [one];
    let landing = clean(&world, 1, &proposals);
    assert_eq!(landing.base, landing.result);
    assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
}

#[test]
fn queue_1_conflict_names_the_task_and_its_files() {
    let (world, [one, two]) = two_tasks();
    world.write(PROJECT, "src/long.txt", "1\n2\n3\n4\nFIVE\n");
    let found = rebase(&world, 1, &[one, two]);
    let Rebase::Conflict { task, text, .. } = found else {
        panic!("{found:?}");
    };
    assert_eq!(task.as_str(), "two");
    assert_eq!(
        text,
        "src/long.txt: the project and the proposal both changed the same lines: in the project \
         line 5"
    );
}

#[test]
fn queue_1_agent_continues_on_the_projects_current_files() {
    let (world, [_, two]) = two_tasks();
    // A program that the agent built; `.git` is never part of a proposal.
    world.write(&work("two"), "node_modules/x.js", "built\n");
    world.write(PROJECT, "src/long.txt", "1\n2\n3\n4\nFIVE\n");
    world.write(PROJECT, "src/b.rs", "a person's\n");
    world.remove(PROJECT, "README.md");
    let lost = hand_back(&world, &two).unwrap();
    assert_eq!(lost, ["src/long.txt"]);
    let read = |path: &str| world.read(&work("two"), path);
    assert_eq!(read("src/long.txt").unwrap(), "1\n2\n3\n4\nFIVE\n");
    assert_eq!(read("src/new.rs").unwrap(), "new\n", "its own change");
    assert_eq!(read("src/b.rs").unwrap(), "a person's\n");
    assert_eq!(read("README.md"), None);
    assert_eq!(read("node_modules/x.js").unwrap(), "built\n");
    let state = world.sandboxes().show(&two.at).unwrap().info.state;
    assert_eq!(state, ProposalState::Rejected);
    // A repeated call changes nothing, even if the agent has continued.
    world.write(&work("two"), "src/long.txt", "1\n2\n3\n4\nfive, FIVE\n");
    let lost = hand_back(&world, &two).unwrap();
    assert_eq!(lost, Vec::<String>::new());
    let proposals = [propose(&world, "two")];
    let landing = clean(&world, 1, &proposals);
    assert_eq!(land(&world, &landing, &proposals), LandingResult::Done);
    let long = world.read(PROJECT, "src/long.txt").unwrap();
    assert_eq!(long, "1\n2\n3\n4\nfive, FIVE\n");
    assert_eq!(world.read(PROJECT, "src/b.rs").unwrap(), "a person's\n");
    assert!(world.sandboxes().verify().unwrap().1.findings.is_empty());
}

#[test]
fn queue_1_file_in_place_of_a_directory_is_handed_back() {
    let world = World::new();
    let queued = proposal(
        &world,
        "one",
        &[("src/more/x.rs", "x\n"), ("src/y.rs", "y\n")],
    );
    world.write(PROJECT, "src/more", "a file by now\n");
    let lost = hand_back(&world, &queued).unwrap();
    assert!(lost.contains(&"src/more".to_owned()), "{lost:?}");
    let read = |path: &str| world.read(&work("one"), path);
    assert_eq!(read("src/more").unwrap(), "a file by now\n");
    assert_eq!(read("src/y.rs").unwrap(), "y\n");
}

#[test]
fn queue_1_records_survive_and_damage_is_reported() {
    let world = World::new();
    assert_eq!(world.sandboxes().queue_records().unwrap(), []);
    let held = |task: &str| Record::Held {
        task: task.parse().unwrap(),
        why: "later".to_owned(),
    };
    world.sandboxes().record_queue(&[held("a")]).unwrap();
    let more = [held("b"), held("c")];
    world.sandboxes().record_queue(&more).unwrap();
    let records = [held("a"), held("b"), held("c")];
    let disk = world.disk().after_crash(Crash::LoseUnsynced);
    let world = World(SimulatedDiskFiles(disk));
    assert_eq!(world.sandboxes().queue_records().unwrap(), records);
    let queue = "/state/sandboxes/merge-queue";
    let text = world.read(queue, "queue.jsonl").unwrap();
    world.write(queue, "queue.jsonl", &text.replace("\"b\"", "\"x\""));
    let error = world.sandboxes().queue_records().unwrap_err();
    assert!(error.to_string().contains("queue.jsonl"), "{error}");
    let findings = world.sandboxes().verify().unwrap().1.findings;
    let [finding] = findings.as_slice() else {
        panic!("{findings:?}");
    };
    assert!(finding.path.ends_with("queue.jsonl"), "{finding:?}");
}

#[test]
fn queue_1_landing_is_found_again_wherever_the_machine_stops() {
    let (base, proposals) = two_tasks();
    let landing = clean(&base, 1, &proposals);
    let before = base.tree(PROJECT);
    let whole = base.copy();
    assert_eq!(land(&whole, &landing, &proposals), LandingResult::Done);
    let after = whole.tree(PROJECT);
    let mut outcomes = [0, 0];
    for call in 1.. {
        let world = base.copy();
        world.disk().crash_at(world.disk().calls() + call);
        let id = workspace();
        let mut sandboxes = world.sandboxes();
        let result = sandboxes.land_queued(&on_project(&id), &landing, &proposals, GIT);
        let is_whole = !world.disk().is_down();
        for crash in [Crash::LoseUnsynced, Crash::ProcessOnly, Crash::Subset(call)] {
            let found = World(SimulatedDiskFiles(world.disk().after_crash(crash)));
            let is_done = find(&found, &landing) == LandingResult::Done;
            let expected = if is_done { &after } else { &before };
            assert_eq!(found.tree(PROJECT), *expected, "call {call}, {crash:?}");
            outcomes[usize::from(is_done)] += 1;
            // One that did not happen is tried again, in another attempt.
            let landing = match is_done {
                true => landing.clone(),
                false => clean(&found, 2, &proposals),
            };
            assert_eq!(land(&found, &landing, &proposals), LandingResult::Done);
            assert_eq!(found.tree(PROJECT), after);
        }
        if is_whole {
            assert_eq!(result.unwrap(), LandingResult::Done);
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
}

#[test]
fn queue_1_handed_back_sandbox_is_whole_wherever_the_machine_stops() {
    let (base, [_, two]) = two_tasks();
    base.write(PROJECT, "src/long.txt", "1\n2\n3\n4\nFIVE\n");
    base.remove(PROJECT, "README.md");
    let whole = base.copy();
    hand_back(&whole, &two).unwrap();
    let expected = [whole.tree(&work("two")), input(&whole)];
    for call in 1.. {
        let world = base.copy();
        world.disk().crash_at(world.disk().calls() + call);
        let result = hand_back(&world, &two);
        let is_whole = !world.disk().is_down();
        for crash in [Crash::LoseUnsynced, Crash::ProcessOnly, Crash::Subset(call)] {
            let found = World(SimulatedDiskFiles(world.disk().after_crash(crash)));
            assert!(found.sandboxes().recover_all().is_empty(), "{call}");
            hand_back(&found, &two).unwrap();
            let trees = [found.tree(&work("two")), input(&found)];
            assert_eq!(trees, expected, "call {call}, {crash:?}");
            let findings = found.sandboxes().verify().unwrap().1.findings;
            assert!(findings.is_empty(), "call {call}: {findings:?}");
        }
        if is_whole {
            result.unwrap();
            break;
        }
    }
}

fn input(world: &World) -> goondan_trees::Manifest {
    let path = Path::new(&work("two")).with_file_name("input");
    world.tree(path.to_str().unwrap())
}
