//! Goal: one damaged sandbox or proposal is reported and does not hide others, and every changed
//! byte is detected.

use goondan_durable::{FindingKind, Severity};
use goondan_protocol::control::{PrepareSandbox, ProposalState, SandboxRef};

use crate::world::{World, at, prepare};
use crate::{ProposalError, Sandboxes};

const SANDBOX: &str = "/state/sandboxes/r1/coder";

/// One sandbox with a proposal, and another worker's sandbox.
fn two() -> World {
    let world = World::with_proposal();
    let request = PrepareSandbox {
        at: other(),
        ..prepare(&["src"])
    };
    world.sandboxes().prepare(&request).unwrap();
    world
}

fn other() -> SandboxRef {
    SandboxRef {
        agent_id: "other".parse().unwrap(),
        ..at()
    }
}

fn kept(world: &World) -> String {
    let digest = world.sandboxes().show(&at()).unwrap().info.digest;
    format!("kept/{digest}")
}

/// Path within the sandbox and kind of each finding.
fn found(sandboxes: &Sandboxes<'_>) -> Vec<(String, FindingKind)> {
    let (count, found) = sandboxes.verify().unwrap();
    assert_eq!(count, 2);
    let told = found.findings.iter().map(|finding| {
        assert!(!finding.advice.is_empty());
        let path = finding.path.to_str().unwrap().to_owned();
        (path, finding.kind)
    });
    told.collect()
}

#[test]
fn damaged_sandbox_is_reported_and_hides_no_other() {
    for (path, is_kept) in [("sandbox.json", false), ("proposal.json", true)] {
        let world = two();
        let path = if is_kept {
            format!("{}/{path}", kept(&world))
        } else {
            path.to_owned()
        };
        world.write(SANDBOX, &path, "{\"version\":\"1\"");
        let proposals = world.handed_in();
        let [info] = proposals.as_slice() else {
            panic!("{proposals:?}");
        };
        assert_eq!((&info.at, info.state), (&at(), ProposalState::Open));
        assert!(info.problem.as_deref().unwrap().contains("damaged"));
        let listed = world.listed();
        let problems: Vec<_> = listed
            .iter()
            .map(|info| (info.at.clone(), info.problem.is_some()))
            .collect();
        assert_eq!(problems, [(at(), !is_kept), (other(), false)]);
        // The other sandboxes keep working.
        world.sandboxes().show_sandbox(&other()).unwrap();
        assert_eq!(world.sandboxes().recover_all().len(), usize::from(!is_kept));
        assert_eq!(found(&world.sandboxes()).len(), 1);
    }
}

#[test]
fn damaged_sandbox_is_force_removed_and_recreated() {
    let world = two();
    world.write(SANDBOX, "sandbox.json", "");
    let refused = world.sandboxes().remove(&at(), false).unwrap_err();
    assert!(
        matches!(refused, ProposalError::Damaged { .. }),
        "{refused}"
    );
    world.sandboxes().remove(&at(), true).unwrap();
    assert_eq!(world.listed().len(), 1);
    world.prepared(&["src"]).unwrap();
    assert_eq!(found(&world.sandboxes()), []);
}

#[test]
fn verification_finds_every_altered_file() {
    let sound = two();
    assert_eq!(found(&sound.sandboxes()), []);
    let kept = kept(&sound);
    for (path, expected) in [
        ("input/src/a.rs".to_owned(), FindingKind::ReplacedFile),
        ("input/src/more.rs".to_owned(), FindingKind::UnknownFile),
        (
            format!("{kept}/after/src/new.rs"),
            FindingKind::ReplacedFile,
        ),
        (format!("{kept}/changes.patch"), FindingKind::ReplacedFile),
        (format!("{kept}/details.json"), FindingKind::UnreadableFile),
        (format!("{kept}/proposal.json"), FindingKind::UnreadableFile),
    ] {
        let world = sound.copy();
        let folder = world.disk().folder(SANDBOX.as_ref());
        for above in ["input", "input/src"] {
            folder.set_dir_mode(above.as_ref(), 0o700).unwrap();
        }
        world.write(SANDBOX, &path, "not what was there");
        let findings = found(&world.sandboxes());
        let [(at, kind)] = findings.as_slice() else {
            panic!("{path}: {findings:?}");
        };
        assert_eq!(*kind, expected, "{path}");
        let damaged = format!("{SANDBOX}/{path}");
        let record = format!("{SANDBOX}/{kept}/proposal.json");
        assert!(
            *at == damaged || (path.ends_with("details.json") && *at == record),
            "{at}"
        );
        let (_, verified) = world.sandboxes().verify().unwrap();
        assert_eq!(verified.worst(), Some(Severity::Error));
    }
    // Changes to the worker's own files are no damage.
    sound.write(SANDBOX, "work/src/a.rs", "another try\n");
    sound.write(SANDBOX, "proposal/summary.md", "another try\n");
    assert_eq!(found(&sound.sandboxes()), []);
    sound.remove(SANDBOX, &format!("{kept}/changes.patch"));
    assert_eq!(found(&sound.sandboxes()).len(), 1);
    sound.write("/state/sandboxes/r1", "events.jsonl", "no record\n");
    let log = "/state/sandboxes/r1/events.jsonl";
    assert!(
        found(&sound.sandboxes())
            .iter()
            .any(|(path, _)| path == log)
    );
}
