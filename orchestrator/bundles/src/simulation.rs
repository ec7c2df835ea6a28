//! A seeded world in which an agent proposes random garbage, crashes happen at any disk call, and a
//! user edits the project. Checks after each step: a working revision, one active revision, no lost
//! user edits, no duplicate proposals.
//!
//! Long form: `GOONDAN_SIMULATION_RUNS=5000 cargo test -p goondan-bundles simulation`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use fastrand::Rng;
use goondan_config::ChangesetPolicy;
use goondan_durable::disk::{Crash, Disk, Folder, SimulatedDisk, read_all};
use goondan_protocol::bundle::{
    BundleAsk, BundleAskResult, BundleStatus, ChangesetState, StatusPhase, StatusResult,
};
use goondan_protocol::ids::{AgentName, ChangesetId, RevisionId};
use goondan_protocol::time::Timestamp;
use goondan_trees::FileAccess;

use crate::bundle::{Bundle, ConfigPreflight, StartupConfig, Surroundings};
use crate::error::BundleError;
use crate::limits::{CURSOR_BYTES_MAX, PROBATION_FAILURES_MAX, PROBATION_MS};
use crate::machine::{CanaryOutcome, State};
use crate::store::Store;
use crate::tree::{Tree, overlay_digest};

const INSTANCE: &str = "/instances/main";
const PROMPT: &str = "prompts/a.md";

/// Number of runs of one test, unless `GOONDAN_SIMULATION_RUNS` is set.
const RUNS: u64 = 60;
const STEPS: usize = 60;

fn project(prompt: &str, note: &str) -> Tree {
    let yaml = format!(
        "kind: Agent\nmetadata: {{name: a}}\nspec: {{prompt: {{systemRef: {PROMPT}}}, tools: [], modelConfig: {{modelRef: {note}}}}}\n"
    );
    Tree::from([
        ("goondan.yaml".to_owned(), Some(yaml)),
        (PROMPT.to_owned(), Some(prompt.to_owned())),
    ])
}

/// Loads every configuration that is not marked as unloadable.
struct MarkerPreflight;

impl ConfigPreflight for MarkerPreflight {
    type Loaded = Tree;

    fn load(&self, files: &Tree) -> Result<Tree, String> {
        let is_broken = |text: &String| text.contains("unloadable");
        match files.values().flatten().any(is_broken) {
            true => Err("it says so".to_owned()),
            false => Ok(files.clone()),
        }
    }

    fn start(&self, _before: &Tree, loaded: &Tree) -> Result<(), String> {
        let does_not_start = |text: &String| text.contains("unstartable");
        match loaded.values().flatten().any(does_not_start) {
            true => Err("its module does not start".to_owned()),
            false => Ok(()),
        }
    }
}

/// The files of a simulated machine.
#[derive(Debug)]
struct SimulatedFiles(SimulatedDisk);

impl FileAccess for SimulatedFiles {
    fn disk(&self) -> &dyn Disk {
        &self.0
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(self.0.folder(path))
    }
}

struct World {
    disk: SimulatedDisk,
    rng: Rng,
    seed: u64,
    now_ms: i64,
    /// The project as edited by the user.
    project: Tree,
    calls: u64,
    /// Past tool calls, for repetition.
    asked: Vec<(ChangesetId, BundleAsk)>,
    /// Acknowledged states of commits, by changeset.
    promised: BTreeMap<ChangesetId, ChangesetState>,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new();
        for dir in ["/instances", INSTANCE] {
            disk.create_dir(Path::new(dir)).unwrap();
            disk.sync_dir(Path::new(dir).parent().unwrap()).unwrap();
        }
        Self {
            disk,
            rng: Rng::with_seed(seed),
            seed,
            now_ms: 1_700_000_000_000,
            project: project("one", "Model/m"),
            calls: 0,
            asked: Vec::new(),
            promised: BTreeMap::new(),
        }
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut Bundle<'_, MarkerPreflight>) -> Result<T, BundleError>,
    ) -> Result<T, BundleError> {
        let agent: AgentName = "a".parse().unwrap();
        let files = SimulatedFiles(self.disk.clone());
        let mut bundle = Bundle::new(Surroundings {
            files: &files,
            instance: Path::new(INSTANCE),
            agent: &agent,
            project: Some(self.project.clone()),
            policy: Some(ChangesetPolicy::default()),
            gate: &MarkerPreflight,
            at: Timestamp::from_unix_millis(self.now_ms),
        });
        act(&mut bundle)
    }

    fn arm(&self) -> Result<StartupConfig<Tree>, BundleError> {
        self.with(|bundle| {
            let armed = bundle.arm()?;
            Ok(armed)
        })
    }

    fn status(&self) -> Result<BundleStatus, BundleError> {
        self.with(|bundle| {
            let status = bundle.status()?;
            Ok(status)
        })
    }

    /// Runs an operation during which the machine may stop and restart. `None` if it stopped.
    fn risky<T>(
        &mut self,
        act: impl FnOnce(&mut Bundle<'_, MarkerPreflight>) -> Result<T, BundleError>,
    ) -> Option<Result<T, BundleError>> {
        let stops = self.rng.u8(..3) == 0;
        if stops {
            let call = self.disk.calls() + self.rng.u64(1..60);
            self.disk.crash_at(call);
        }
        let result = self.with(act);
        let is_down = self.disk.is_down();
        if stops {
            let crash = match self.rng.u8(..3) {
                0 => Crash::LoseUnsynced,
                1 => Crash::KeepUnsynced,
                _ => Crash::Subset(self.rng.u64(..)),
            };
            self.disk = self.disk.after_crash(crash);
        }
        (!is_down).then_some(result)
    }

    fn content(&mut self) -> String {
        let words = [
            "two",
            "three",
            "four",
            "unloadable",
            "unstartable",
            "{{",
            "one",
        ];
        let number = self.rng.usize(..words.len());
        words[number].to_owned()
    }

    fn garbage(&mut self) -> (ChangesetId, BundleAsk) {
        self.calls += 1;
        let call: ChangesetId = format!("t.{}-q0", self.calls).parse().unwrap();
        let paths = [
            PROMPT,
            "goondan.yaml",
            "resources/x.yaml",
            "../escape",
            ".env",
            "a/b/c",
        ];
        let path = paths[self.rng.usize(..paths.len())].to_owned();
        let ask = match self.rng.u8(..10) {
            0..=2 => BundleAsk::Open { revision: None },
            3..=5 => BundleAsk::Write {
                changeset_id: None,
                path: if self.rng.bool() {
                    PROMPT.to_owned()
                } else {
                    path
                },
                content: (self.rng.u8(..8) > 0).then(|| self.content()),
            },
            6..=8 => BundleAsk::Commit {
                changeset_id: None,
                message: "m".to_owned(),
            },
            _ => BundleAsk::Revert {
                reason: "r".to_owned(),
            },
        };
        (call, ask)
    }

    fn ask(&mut self) {
        // A repeated turn repeats its calls.
        let is_again = !self.asked.is_empty() && self.rng.u8(..4) == 0;
        let (call, ask) = match self.asked.last().filter(|_| is_again) {
            Some(asked) => asked.clone(),
            None => self.garbage(),
        };
        self.asked.push((call.clone(), ask.clone()));
        let reply = self.risky(|bundle| bundle.ask(&ask, &call));
        if let Some(Ok(BundleAskResult {
            changeset: Some(info),
            ..
        })) = reply
            && info.state != ChangesetState::Open
        {
            self.promised.insert(info.changeset_id, info.state);
        }
    }

    fn edit(&mut self) {
        let prompt = format!("a person's {}", self.rng.u8(..3));
        let note = format!("Model/m{}", self.rng.u8(..3));
        let before = self.project[PROMPT].clone().unwrap();
        let prompt = if self.rng.bool() { prompt } else { before };
        self.project = project(&prompt, &note);
    }

    fn decide(&mut self) {
        let Ok(status) = self.status() else {
            return;
        };
        let waiting = status.changesets.iter();
        let waiting = waiting.filter(|it| it.state == ChangesetState::Waiting);
        let ids: Vec<ChangesetId> = waiting.map(|it| it.changeset_id.clone()).collect();
        if let Some(id) = ids.first() {
            if self.rng.bool() {
                drop(self.risky(|bundle| bundle.approve(id, "")));
            } else {
                drop(self.risky(|bundle| bundle.reject(id, "no")));
            }
        } else if self.rng.u8(..4) == 0 {
            let pinned = self.rng.bool();
            drop(self.risky(|bundle| bundle.pin(pinned)));
        }
    }

    fn step(&mut self) {
        self.now_ms += i64::from(self.rng.u32(..120_000));
        match self.rng.u8(..12) {
            0..=5 => self.ask(),
            6 => self.edit(),
            7 => self.decide(),
            8 | 9 => drop(self.risky(|bundle| bundle.arm().map(drop))),
            _ => {
                let outcome = match self.rng.u8(..4) {
                    0 | 1 => CanaryOutcome::Completed,
                    2 => CanaryOutcome::Failed("crash".to_owned()),
                    _ => CanaryOutcome::Neutral,
                };
                drop(self.risky(|bundle| bundle.note(&outcome)));
            }
        }
    }

    /// Checks the invariants, which must hold after any crash.
    fn check(&mut self) {
        let seed = self.seed;
        // The next process starts with a loadable configuration.
        let armed = self.arm();
        let armed = armed.unwrap_or_else(|error| panic!("seed {seed}: nothing works: {error}"));
        let files = SimulatedFiles(self.disk.clone());
        let store = Store::new(&files, Path::new(INSTANCE));
        let Some(state) = store.load().unwrap() else {
            return;
        };
        let base = store.tree(&state.base).unwrap();
        assert_eq!(
            base, self.project,
            "seed {seed}: the project differs from the user's edits"
        );
        let active = armed.loaded.unwrap_or_else(|| base.clone());
        assert_eq!(state.head, state.active, "seed {seed}: two are active");
        assert_eq!(active, store.tree(&state.active).unwrap(), "seed {seed}");
        let digest = overlay_digest(&base, &active);
        assert!(
            active == base || state.is_quarantined(&digest).is_none(),
            "seed {seed}: refused content is active"
        );
        if let Some(probation) = &state.probation {
            assert!(probation.failures < PROBATION_FAILURES_MAX, "seed {seed}");
        }
        for path in [".env", "../escape", "a/b/c", "resources/x.yaml"] {
            assert!(!active.contains_key(path), "seed {seed}: {path} is active");
        }
        // The cursor has only the records of its last write: it does not grow, and nothing is
        // logged again.
        let cursor = Path::new(INSTANCE).join("swarm-bundle/cursor.yaml");
        let mut cursor = self.disk.open_read(&cursor).unwrap();
        let written = read_all(cursor.as_mut(), CURSOR_BYTES_MAX).unwrap();
        let written: State = serde_json::from_slice(&written).unwrap();
        let carried = written.unlogged.statuses.len();
        assert!(carried <= 8, "seed {seed}: {carried} records are carried");
        self.check_logs(&state);
    }

    /// Every record and every requested operation exists exactly once.
    fn check_logs(&self, state: &State) {
        let seed = self.seed;
        let logs = self.with(|bundle| bundle.logs()).unwrap();
        let mut seqs: Vec<u64> = logs.changesets.iter().map(|it| it.seq).collect();
        seqs.extend(logs.statuses.iter().map(|it| it.seq));
        let unique: BTreeSet<u64> = seqs.iter().copied().collect();
        assert_eq!(unique.len(), seqs.len(), "seed {seed}: a duplicate record");
        assert_eq!(
            unique.last().copied().unwrap_or(0),
            state.seq,
            "seed {seed}: records are lost"
        );
        let made: Vec<&ChangesetId> = logs.changesets.iter().map(|it| &it.changeset_id).collect();
        let once: BTreeSet<&ChangesetId> = made.iter().copied().collect();
        assert_eq!(
            once.len(),
            made.len(),
            "seed {seed}: a changeset was made twice"
        );
        let committed = logs
            .statuses
            .iter()
            .filter(|it| (it.phase, it.result) == (StatusPhase::Commit, StatusResult::Ok));
        let committed: Vec<_> = committed.map(|it| it.changeset_id.clone()).collect();
        let once: BTreeSet<_> = committed.iter().cloned().collect();
        assert_eq!(
            once.len(),
            committed.len(),
            "seed {seed}: one was committed twice"
        );
        for (id, promised) in &self.promised {
            let Some(info) = state.changeset(id) else {
                continue;
            };
            // Only a user changes an acknowledged state: a waiting changeset gets decided.
            let is_so = info.state == *promised || *promised == ChangesetState::Waiting;
            assert!(
                is_so,
                "seed {seed}: {id} is {:?}, was {promised:?}",
                info.state
            );
        }
    }
}

#[test]
fn bundle_7_garbage_crashes_and_edits_leave_a_working_revision() {
    let runs = std::env::var("GOONDAN_SIMULATION_RUNS");
    let runs = runs.ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let mut active = BTreeSet::new();
    for seed in 0..runs {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            if world.rng.u8(..4) == 0 {
                world.check();
            }
        }
        world.check();
        let files = SimulatedFiles(world.disk.clone());
        let store = Store::new(&files, Path::new(INSTANCE));
        if let Some(state) = store.load().unwrap() {
            active.insert((state.active != state.base, state.quarantined.is_empty()));
        }
    }
    // All kinds of revisions occurred; otherwise the test proves nothing.
    assert!(active.len() >= 3, "{active:?}");
}

/// An agent's change of prompt `two`.
fn propose(world: &World, number: u32, content: &str) -> BundleAskResult {
    let call = |part: &str| format!("t.{number}-{part}").parse::<ChangesetId>().unwrap();
    let ask = |ask: BundleAsk, part| world.with(|bundle| bundle.ask(&ask, &call(part))).unwrap();
    ask(BundleAsk::Open { revision: None }, "o");
    ask(
        BundleAsk::Write {
            changeset_id: None,
            path: PROMPT.to_owned(),
            content: Some(content.to_owned()),
        },
        "w",
    );
    ask(
        BundleAsk::Commit {
            changeset_id: None,
            message: "m".to_owned(),
        },
        "c",
    )
}

fn active(world: &World) -> RevisionId {
    world.status().unwrap().active
}

#[test]
fn bundle_7_crash_at_any_call_leaves_old_or_new_revision() {
    let mut call = 1;
    loop {
        let mut world = World::new(0);
        world.arm().unwrap();
        propose(&world, 1, "two");
        world.arm().unwrap();
        let (before, from) = (active(&world), world.disk.calls());
        world.disk.crash_at(from + call);
        let changed = (|| {
            let call: ChangesetId = "t.2-o".parse().unwrap();
            world.with(|bundle| bundle.ask(&BundleAsk::Open { revision: None }, &call))?;
            let write = BundleAsk::Write {
                changeset_id: None,
                path: PROMPT.to_owned(),
                content: Some("three".to_owned()),
            };
            world.with(|bundle| bundle.ask(&write, &call))?;
            let commit = BundleAsk::Commit {
                changeset_id: None,
                message: "m".to_owned(),
            };
            world.with(|bundle| bundle.ask(&commit, &call))?;
            world.arm()
        })();
        if !world.disk.is_down() {
            changed.unwrap();
            assert!(call > 20, "{call} calls are too few to be true");
            break;
        }
        world.disk = world.disk.after_crash(Crash::LoseUnsynced);
        world.check();
        let after = active(&world);
        let files = SimulatedFiles(world.disk.clone());
        let store = Store::new(&files, Path::new(INSTANCE));
        let text = store.tree(&after).unwrap()[PROMPT].clone().unwrap();
        assert!(after == before || text == "three", "call {call}: {text}");
        call += 1;
    }
}

#[test]
fn bundle_7_probation_promotes_and_two_failures_roll_back() {
    let mut world = World::new(0);
    propose(&world, 1, "two");
    world.arm().unwrap();
    let first = active(&world);
    world.now_ms += i64::try_from(PROBATION_MS).unwrap();
    world
        .with(|bundle| bundle.note(&CanaryOutcome::Completed))
        .unwrap();
    let promoted = world.status().unwrap();
    assert_eq!(
        (promoted.promoted, promoted.probation),
        (first.clone(), None)
    );
    propose(&world, 2, "three");
    world.arm().unwrap();
    let failed = CanaryOutcome::Failed("crash".to_owned());
    world.with(|bundle| bundle.note(&failed)).unwrap();
    assert_ne!(active(&world), first);
    // A rate limit is not a failure, but a lost process is.
    world
        .with(|bundle| bundle.note(&CanaryOutcome::Neutral))
        .unwrap();
    world.arm().unwrap();
    assert_ne!(active(&world), first);
    let armed = world.arm().unwrap();
    assert_eq!(active(&world), first);
    assert!(armed.notice.unwrap().contains("was rolled back"));
    let again = propose(&world, 3, "three").changeset.unwrap();
    assert_eq!(again.state, ChangesetState::Rejected, "{}", again.detail);
}

fn blob_of(world: &World, text: &str) -> std::path::PathBuf {
    let name = crate::tree::digest_of(text.as_bytes());
    let blobs = Path::new(INSTANCE)
        .join(crate::store::BUNDLE_DIR)
        .join("store/blobs");
    let path = blobs.join(name);
    assert!(world.disk.stat(&path).unwrap().is_some(), "{text}");
    path
}

#[test]
fn bundle_7_damaged_store_activates_best_remaining_and_heals() {
    let mut world = World::new(0);
    propose(&world, 1, "two");
    world.arm().unwrap();
    world.now_ms += i64::try_from(PROBATION_MS).unwrap();
    world
        .with(|bundle| bundle.note(&CanaryOutcome::Completed))
        .unwrap();
    let promoted = active(&world);
    propose(&world, 2, "three");
    world.arm().unwrap();
    // The stored project itself is restored.
    world.disk.remove_file(&blob_of(&world, "one")).unwrap();
    world.arm().unwrap();
    assert_ne!(active(&world), promoted);
    world.disk.remove_file(&blob_of(&world, "three")).unwrap();
    let problem = world.status().unwrap().problem.unwrap();
    assert!(problem.contains("failed to use the files"), "{problem}");
    let armed = world.arm().unwrap();
    assert_eq!(active(&world), promoted);
    assert_eq!(armed.loaded.unwrap()[PROMPT].as_deref(), Some("two"));
    // Damage does not quarantine content.
    assert!(world.status().unwrap().quarantined.is_empty());
    world.disk.remove_file(&blob_of(&world, "two")).unwrap();
    world.arm().unwrap();
    let status = world.status().unwrap();
    assert_eq!(status.active, status.base);
    let again = propose(&world, 3, "two").changeset.unwrap();
    assert_eq!(again.state, ChangesetState::Committed, "{}", again.detail);
    world.arm().unwrap();
    assert_eq!(active(&world), promoted);
    // The former project, after another edit.
    world.disk.remove_file(&blob_of(&world, "one")).unwrap();
    world.project = project("a person's", "Model/m");
    world.arm().unwrap();
    let status = world.status().unwrap();
    assert_eq!(status.active, status.base);
    assert!(status.problem.unwrap().contains("does not load"));
    assert_eq!(world.arm().unwrap().loaded.unwrap(), world.project);
}

#[test]
fn bundle_7_notice_to_agent_moves_next_step_to_another_process() {
    let world = World::new(0);
    let with_tool = project("one", "Model/m").remove("goondan.yaml").flatten();
    let with_tool = with_tool
        .unwrap()
        .replace("tools: []", "tools: [unstartable]");
    let call: ChangesetId = "t.1-o".parse().unwrap();
    for ask in [
        BundleAsk::Open { revision: None },
        BundleAsk::Write {
            changeset_id: None,
            path: "goondan.yaml".to_owned(),
            content: Some(with_tool),
        },
        BundleAsk::Commit {
            changeset_id: None,
            message: "m".to_owned(),
        },
    ] {
        world.with(|bundle| bundle.ask(&ask, &call)).unwrap();
    }
    // A waiting changeset starts no modules; an approved one does.
    let waiting = world.status().unwrap().changesets[0].clone();
    assert_eq!(waiting.state, ChangesetState::Waiting, "{}", waiting.detail);
    let mut standing = None;
    let approved = world.with(|bundle| {
        let approved = bundle.approve(&call, "");
        standing = bundle.take_standing();
        approved
    });
    let approved = approved.unwrap();
    assert_eq!(approved.state, ChangesetState::Rejected);
    assert_eq!(approved.detail, "gate: its module does not start");
    assert!(standing.take().unwrap().is_pending);
    let mut armed = None;
    world
        .with(|bundle| {
            armed = bundle.arm()?.notice;
            standing = bundle.take_standing();
            Ok(())
        })
        .unwrap();
    assert!(armed.unwrap().contains("its module does not start"));
    assert!(!standing.unwrap().is_pending);
}
