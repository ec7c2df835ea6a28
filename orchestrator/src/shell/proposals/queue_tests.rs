//! Goal: on a branch, each proposal of the merge queue becomes one commit of its agent, and the tree of the
//! last one is the proved one. A pull request has exactly the proved files, is never placed over a commit
//! that the queue did not make, and is found again after a kill (`QUEUE-1`).
//!
//! Method: real files, and the installed git on a bare repository.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use goondan_merge_queue::{Landing, LandingResult, Proposal, Rebase, Revision, Target};
use goondan_proposals::{
    EarlierProposal, QueueGit, QueuePlace, QueuedChanges, QueuedProposal, RealFiles,
    RepositoryClone, Sandboxes,
};
use goondan_protocol::control::{CreateProposal, PrepareSandbox, SandboxRef};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::RepositorySource;
use goondan_protocol::time::Timestamp;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::git::Git;

const GIT: QueueGit<'static> = QueueGit {
    patches: &Git,
    repositories: &Git,
    branches: &Git,
};

/// Git accepts no date of the first years after 1970.
const MADE_AT_MS: i64 = 1_767_225_600_000;

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// A bare repository, and tasks that change its branch `main`.
struct Bench {
    dir: TempDir,
    source: RepositorySource,
    id: WorkspaceId,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["project", "state", "first"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let shop = dir.path().join("shop.git");
        let bench = Self {
            source: RepositorySource {
                repository: shop.to_str().unwrap().to_owned(),
                reference: Some("main".to_owned()),
            },
            dir,
            id: "w".parse().unwrap(),
        };
        fs::write(bench.dir.path().join("first/text.txt"), TEXT).unwrap();
        bench.run("first", &["init", "-q", "-b", "main"]);
        bench.run("first", &["add", "."]);
        bench.run("first", &["commit", "-qm", "First"]);
        bench.run(".", &["clone", "-q", "--bare", "first", "shop.git"]);
        bench
    }

    fn run(&self, at: &str, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
        git.current_dir(self.dir.path().join(at));
        let ran = git.args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    fn git(&self, args: &[&str]) -> String {
        self.run("shop.git", args)
    }

    fn sandboxes(&self) -> Sandboxes<'static> {
        let (state, project) = (
            self.dir.path().join("state"),
            self.dir.path().join("project"),
        );
        Sandboxes::new(
            &RealFiles,
            state,
            project,
            Timestamp::from_unix_millis(MADE_AT_MS),
        )
    }

    fn place(&self) -> QueuePlace<'_> {
        QueuePlace {
            workspace_id: &self.id,
            exclude: &[],
            repository: Some(self.clone_of()),
        }
    }

    fn clone_of(&self) -> RepositoryClone<'_> {
        RepositoryClone {
            source: &self.source,
            credentials: None,
        }
    }

    /// The proposal of a task whose agent, which has the same name, writes these files.
    fn proposal(&self, task: &str, files: &[(&str, &str)]) -> QueuedProposal {
        let at = SandboxRef {
            run_id: task.parse().unwrap(),
            agent_id: task.parse().unwrap(),
        };
        let prepare = PrepareSandbox {
            workspace_id: self.id.clone(),
            at: at.clone(),
            files: Vec::new(),
            allow: Vec::new(),
            exclude: Vec::new(),
            may_create: Vec::new(),
        };
        let made_at = Timestamp::from_unix_millis(0);
        let mut sandboxes = self.sandboxes();
        let source = self.clone_of();
        sandboxes
            .prepare_for_task(&prepare, made_at, Some(&source), &Git)
            .unwrap();
        let work: PathBuf = self.dir.path().join(format!("state/{task}/{task}/work"));
        for (path, content) in files {
            fs::write(work.join(path), content).unwrap();
        }
        let create = CreateProposal {
            workspace_id: self.id.clone(),
            at: at.clone(),
            notes: String::new(),
            summary: None,
            test_log: None,
        };
        let made = sandboxes.create(&create, &Git).unwrap();
        QueuedProposal {
            task: task.parse().unwrap(),
            title: format!("Do {task}"),
            at,
            digest: made.info.digest,
        }
    }

    fn rebase(&self, attempt: u64, changed: QueuedChanges<'_>) -> Rebase {
        let mut sandboxes = self.sandboxes();
        sandboxes
            .rebase_queued(&self.place(), attempt, changed, GIT)
            .unwrap()
    }

    /// Rebases a proposal for a pull request, without conflicts.
    fn for_pull_request(
        &self,
        attempt: u64,
        earlier: &[EarlierProposal],
        proposal: &QueuedProposal,
    ) -> Landing {
        let changed = QueuedChanges {
            earlier,
            proposals: std::slice::from_ref(proposal),
            is_pull_request: true,
        };
        let target = Target::PullRequest {
            repository: self.source.repository.clone(),
            branch: "main".to_owned(),
        };
        let rebase = self.rebase(attempt, changed);
        landing(attempt, std::slice::from_ref(proposal), &target, rebase)
    }

    fn land(&self, landing: &Landing, proposals: &[QueuedProposal]) -> LandingResult {
        let mut sandboxes = self.sandboxes();
        sandboxes
            .land_queued(&self.place(), landing, proposals, GIT)
            .unwrap()
    }

    fn find(&self, landing: &Landing) -> LandingResult {
        let mut sandboxes = self.sandboxes();
        sandboxes.find_landing(&self.place(), landing, GIT).unwrap()
    }

    fn files_of(&self, commit: &str) -> String {
        self.git(&["show", "--format=", "--name-only", commit])
    }
}

fn landing(attempt: u64, proposals: &[QueuedProposal], target: &Target, rebase: Rebase) -> Landing {
    let Rebase::Clean { base, result } = rebase else {
        panic!("{rebase:?}");
    };
    let proposals = proposals.iter().map(|queued| Proposal {
        task: queued.task.clone(),
        digest: queued.digest.clone(),
        priority: 0,
        target: target.clone(),
    });
    Landing {
        attempt,
        proposals: proposals.collect(),
        base,
        result,
        replaces: Vec::new(),
    }
}

/// An open pull request with this proposal.
fn opened(proposal: &QueuedProposal, number: u32) -> EarlierProposal {
    EarlierProposal {
        proposal: proposal.clone(),
        url: format!("https://git.example/pull/{number}"),
    }
}

fn summary_of(landing: LandingResult) -> String {
    match landing {
        LandingResult::Pushed { summary } => summary,
        other => panic!("{other:?}"),
    }
}

#[test]
fn queue_1_each_proposal_becomes_a_commit_of_its_agent() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bench = Bench::new();
    let proposals = [
        bench.proposal(
            "ann",
            &[("text.txt", &TEXT.replace('1', "one")), ("a.txt", "a\n")],
        ),
        // Its change is on the branch already when it lands.
        bench.proposal("bob", &[("a.txt", "a\n")]),
        bench.proposal("cid", &[("text.txt", &TEXT.replace('9', "nine"))]),
    ];
    let changed = QueuedChanges {
        earlier: &[],
        proposals: &proposals,
        is_pull_request: false,
    };
    let target = Target::Branch {
        repository: bench.source.repository.clone(),
        branch: "main".to_owned(),
    };
    let landing = landing(1, &proposals, &target, bench.rebase(1, changed));
    let first = bench.git(&["rev-parse", "main"]);
    assert_eq!(landing.base, Revision::new(first.as_str()));
    assert_eq!(bench.find(&landing), LandingResult::TargetMoved);
    assert_eq!(bench.land(&landing, &proposals), LandingResult::Done);
    // A kill before the record: it is found, and landing again changes nothing.
    assert_eq!(bench.find(&landing), LandingResult::Done);
    assert_eq!(bench.land(&landing, &proposals), LandingResult::Done);
    assert_eq!(bench.git(&["rev-parse", "main"]), landing.result.as_str());
    let log = bench.git(&[
        "log",
        "--format=%an %s %(trailers:key=Goondan-Task,valueonly,separator=)",
        "main",
    ]);
    assert_eq!(log, "cid Do cid cid\nann Do ann ann\nAda First");
    assert_eq!(bench.files_of("main"), "text.txt");
    assert_eq!(bench.files_of("main^"), "a.txt\ntext.txt");
    let text = TEXT.replace('1', "one").replace('9', "nine");
    assert_eq!(bench.git(&["show", "main:text.txt"]), text.trim());
    // A commit with other files is not landed as the proved one.
    let other = Landing {
        result: Revision::new(bench.git(&["rev-parse", "main^"])),
        ..landing
    };
    let mut sandboxes = bench.sandboxes();
    let refused = sandboxes.land_queued(&bench.place(), &other, &proposals, GIT);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("not the one that was proved"), "{refused}");
}

#[test]
fn queue_1_pull_request_has_exactly_the_proved_files() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bench = Bench::new();
    let main = bench.git(&["rev-parse", "main"]);
    let ann = bench.proposal("ann", &[("text.txt", &TEXT.replace('1', "one"))]);
    let bob = bench.proposal("bob", &[("text.txt", &TEXT.replace('9', "nine"))]);
    let first = bench.for_pull_request(1, &[], &ann);
    let proposals = [ann.clone()];
    assert_eq!(bench.find(&first), LandingResult::TargetMoved);
    let summary = summary_of(bench.land(&first, &proposals));
    assert!(
        summary.contains(&format!("commit {main} with this change.")),
        "{summary}"
    );
    // A kill before the pull request is recorded: the branch is found, and pushing again changes nothing.
    assert_eq!(summary_of(bench.find(&first)), summary);
    assert_eq!(summary_of(bench.land(&first, &proposals)), summary);
    assert_eq!(
        bench.git(&["rev-parse", "goondan/ann"]),
        first.result.as_str()
    );
    assert_eq!(bench.git(&["rev-parse", "goondan/ann^"]), main);
    assert_eq!(bench.git(&["rev-parse", "main"]), main, "nothing is merged");
    // The next one is proved with the open one, and builds on its commit.
    let second = bench.for_pull_request(2, &[opened(&ann, 1)], &bob);
    let summary = summary_of(bench.land(&second, std::slice::from_ref(&bob)));
    assert!(summary.contains("https://git.example/pull/1"), "{summary}");
    assert_eq!(
        bench.git(&["rev-parse", "goondan/bob^"]),
        first.result.as_str()
    );
    let both = TEXT.replace('1', "one").replace('9', "nine");
    assert_eq!(bench.git(&["show", "goondan/bob:text.txt"]), both.trim());
    // The service squashes the first one. Its change is not made again.
    let tree = bench.git(&["rev-parse", "goondan/ann^{tree}"]);
    let squashed = bench.git(&["commit-tree", &tree, "-p", "main", "-m", "Squashed"]);
    bench.git(&["update-ref", "refs/heads/main", &squashed]);
    let third = bench.for_pull_request(3, &[opened(&ann, 1)], &bob);
    assert_eq!(
        bench.git(&["rev-parse", &format!("{}^", third.result)]),
        squashed
    );
    assert_eq!(
        bench.git(&["show", &format!("{}:text.txt", third.result)]),
        both.trim()
    );
    // The queue moves its own commit, but none of a person.
    let third = Landing {
        replaces: vec![second.result.clone()],
        ..third
    };
    summary_of(bench.land(&third, std::slice::from_ref(&bob)));
    assert_eq!(
        bench.git(&["rev-parse", "goondan/bob"]),
        third.result.as_str()
    );
    bench.git(&["update-ref", "refs/heads/goondan/bob", &squashed]);
    assert_eq!(bench.find(&third), LandingResult::TargetMoved);
    let failed = bench.land(&third, &[bob]);
    let LandingResult::Failed { why } = failed else {
        panic!("{failed:?}");
    };
    assert!(
        why.contains("`goondan/bob` has a commit that the merge queue did not make"),
        "{why}"
    );
    assert_eq!(bench.git(&["rev-parse", "goondan/bob"]), squashed);
}

#[test]
fn queue_1_pull_request_is_not_opened_if_the_branch_moved_since_the_proof() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bench = Bench::new();
    let ann = bench.proposal("ann", &[("a.txt", "a\n")]);
    let landing = bench.for_pull_request(1, &[], &ann);
    let moved = bench.git(&["commit-tree", "main^{tree}", "-p", "main", "-m", "Other"]);
    bench.git(&["update-ref", "refs/heads/main", &moved]);
    let proposals = [ann];
    assert_eq!(bench.land(&landing, &proposals), LandingResult::TargetMoved);
    assert_eq!(bench.git(&["branch", "--list", "goondan/*"]), "");
}

#[test]
fn queue_1_merged_pull_request_is_found_although_its_branch_is_deleted() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bench = Bench::new();
    let ann = bench.proposal("ann", &[("a.txt", "a\n")]);
    let landing = bench.for_pull_request(1, &[], &ann);
    summary_of(bench.land(&landing, &[ann]));
    // A kill before the record; meanwhile a person merges it.
    bench.git(&["update-ref", "refs/heads/main", landing.result.as_str()]);
    bench.git(&["update-ref", "-d", "refs/heads/goondan/ann"]);
    summary_of(bench.find(&landing));
}

#[test]
fn queue_1_conflict_with_an_open_pull_request_is_not_the_agents() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bench = Bench::new();
    let ann = bench.proposal("ann", &[("text.txt", &TEXT.replace('5', "five"))]);
    let bob = bench.proposal("bob", &[("text.txt", &TEXT.replace('5', "V"))]);
    let proposals = [bob.clone()];
    let earlier = [opened(&ann, 1)];
    let changed = QueuedChanges {
        earlier: &earlier,
        proposals: &proposals,
        is_pull_request: true,
    };
    let found = bench.rebase(1, changed);
    let Rebase::Blocked { why } = found else {
        panic!("{found:?}");
    };
    assert!(
        why.contains("https://git.example/pull/1") && why.contains("text.txt"),
        "{why}"
    );
    // Once it is merged, the conflict is one with the branch. An open pull request that conflicts with the
    // branch is left out.
    let tree = bench.for_pull_request(2, &[], &ann).result;
    bench.git(&["update-ref", "refs/heads/main", tree.as_str()]);
    let found = bench.rebase(3, changed);
    let Rebase::Conflict { task, text, .. } = found else {
        panic!("{found:?}");
    };
    assert!(
        task.as_str() == "bob" && text.contains("text.txt"),
        "{text}"
    );
    let cid = bench.proposal("cid", &[("c.txt", "c\n")]);
    let landing = bench.for_pull_request(4, &[opened(&bob, 2)], &cid);
    let summary = summary_of(bench.land(&landing, &[cid]));
    assert!(!summary.contains("https://git.example/pull/2"), "{summary}");
}
