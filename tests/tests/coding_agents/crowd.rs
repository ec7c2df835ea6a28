//! Many tasks at once on one large repository, while programs and the daemon are killed at random
//! (`REPO-3`, `TASK-1`, `AGENT-4`).
//!
//! Each task adds a file of its own. A person approves each proposal as soon as it is in review.
//! In the end each proposal was applied once, nothing else of the project has changed, no process
//! is left, and the tokens of the tasks with one run are those of the provider, if their program
//! reports all of them.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use goondan_tests::home::RunningProgram;
use goondan_tests::model_server::{Conversation, Decision, ModelServer, Reply};
use goondan_tests::processes::{self, Signal};
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::programs::{AgentSetting, KEY_VARIABLE, Program};
use crate::scenes::side_request;
use crate::trials::{GO_ON, asks, create_repository, doubt, status, tokens};

const FILES: usize = 5_000;

const FILES_OF_A_DIRECTORY: usize = 50;

/// Number of processes killed. Then the rest must end without further kills.
const KILLS: u32 = 40;

/// Every one of this many kills hits the daemon, and with it all programs.
const KILLS_OF_THE_DAEMON: u32 = 8;

/// Maximum time between two kills.
const KILL_WITHIN_MS: u64 = 12_000;

/// Pause between two looks at all tasks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Maximum time of the whole.
const LIMIT: Duration = Duration::from_secs(3_600);

fn task_name(number: usize) -> String {
    format!("task-{number}")
}

fn decide(has_tools: bool, scene: &str, it: &Conversation) -> Decision {
    if let Some(side) = side_request(has_tools, it) {
        return side;
    }
    let path = format!("added/{scene}.txt");
    if has_tools && it.results() == 0 {
        let command = format!("mkdir -p added && echo {scene} > {path} && ls -R . | wc -l");
        if let Some(reply) = it.shell_call(&command, false) {
            return Decision {
                reply,
                is_held: false,
            };
        }
    }
    let written = if has_tools {
        String::new()
    } else {
        format!("{path}\n```\n{scene}\n```\n\n")
    };
    Decision {
        reply: Reply::Say(format!(
            "{written}=== PHASE 1 COMPLETE ===\n\nDocuments created:\n- {path}\n"
        )),
        is_held: false,
    }
}

/// The work of many programs, as a person and an unlucky machine see it.
struct Crowd {
    home: Home,
    server: ModelServer,
    daemon: Option<Daemon>,
    random: Random,
    kills: u32,
    next_kill: Instant,
    /// Tasks that are not completed, with their states.
    open: BTreeMap<String, Value>,
    /// Clients that approve a proposal, while the daemon may be killed.
    approving: BTreeMap<String, RunningProgram>,
}

pub(crate) fn run(programs: &[Program], tasks: usize) {
    let program_of: BTreeMap<String, Program> = (0..tasks)
        .map(|number| (task_name(number), programs[number % programs.len()]))
        .collect();
    let names: Vec<String> = program_of.keys().cloned().collect();
    let of_scenes = program_of.clone();
    let server =
        ModelServer::start(move |scene, it| decide(of_scenes[scene].has_tools(), scene, it));
    let home = Home::without_project();
    let mut project =
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: \"@goondan/crowd\"}\nspec: \
                       {version: 0.1.0}\n"
            .to_owned();
    for number in 0..tasks {
        let setting = AgentSetting {
            name: &task_name(number),
            level: "full",
            asks_permission: false,
            has_project: true,
            prints_secret: false,
        };
        let program = programs[number % programs.len()];
        project += &format!("---\n{}", program.agent(setting, &server, &home));
    }
    home.write("project/goondan.yaml", &project);
    home.write("project/.env", &format!("{KEY_VARIABLE}=sk-test-4711\n"));
    for number in 0..FILES {
        let path = format!("project/src/{}/{number}.txt", number / FILES_OF_A_DIRECTORY);
        home.write(&path, &format!("file {number}\n"));
    }
    create_repository(&home.project(), "src");
    let daemon = Daemon::serving(&home);
    for name in &names {
        let new = [
            "task", "new", name, "--id", name, "--agent", name, "--phases", "1",
        ];
        let rest = ["--description", "Add a file with your name.", "--start"];
        home.gdn(&[&new[..], &rest].concat()).exits(0);
    }
    let begun = Instant::now();
    let mut crowd = Crowd {
        home,
        server,
        daemon: Some(daemon),
        random: Random::announced(),
        kills: 0,
        next_kill: begun,
        open: names
            .iter()
            .map(|name| (name.clone(), Value::Null))
            .collect(),
        approving: BTreeMap::new(),
    };
    let mut completed = BTreeMap::new();
    while !crowd.open.is_empty() {
        assert!(begun.elapsed() < LIMIT, "not completed: {:#?}", crowd.open);
        crowd.look(&mut completed);
        thread::sleep(LOOK_EVERY);
    }
    eprintln!(
        "{tasks} tasks, {} kills, {} s",
        crowd.kills,
        begun.elapsed().as_secs()
    );
    crowd.check(&completed, &program_of);
}

impl Crowd {
    /// Reads each task's state, and does what a person would.
    fn look(&mut self, completed: &mut BTreeMap<String, Value>) {
        let names: Vec<String> = self.open.keys().cloned().collect();
        for name in names {
            self.kill_something();
            let ran = self.home.gdn(&["--json", "task", "show", &name]);
            assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
            let shown = ran.json();
            let is_over = matches!(status(&shown), "failed" | "cancelled");
            assert!(!is_over, "{name} is over: {shown:#}");
            self.decide(&name, &shown);
            if status(&shown) == "completed" && shown["run"].is_null() {
                self.open.remove(&name);
                completed.insert(name, shown);
            } else {
                self.open.insert(name, shown["info"].clone());
            }
        }
    }

    fn decide(&mut self, name: &str, shown: &Value) {
        let is_reviewed = shown["review"] == 1 && shown["run"].is_null();
        let files = shown["proposal"]["files"].as_array();
        let is_approving = match self.approving.get_mut(name) {
            Some(client) => !client.has_ended(),
            None => false,
        };
        if is_reviewed && !is_approving && files.is_some_and(|files| !files.is_empty()) {
            let client = self.home.start_gdn(&["task", "approve", name]);
            self.approving.insert(name.to_owned(), client);
        }
        for ask in asks(shown).filter(|ask| ask["kind"] == "permission") {
            let id = ask["id"].as_str().unwrap();
            let answer = ["task", "answer", name, "allow for this task", "--id", id];
            drop(self.home.gdn(&answer));
        }
        if let Some(ask) = doubt(shown) {
            let id = ask["id"].as_str().unwrap();
            drop(self.home.gdn(&["task", "answer", name, GO_ON, "--id", id]));
        }
    }

    /// Kills a process of a program, or the daemon, if the time has come.
    fn kill_something(&mut self) {
        if self.kills == KILLS || Instant::now() < self.next_kill {
            return;
        }
        let wait = self.random.below(KILL_WITHIN_MS);
        self.next_kill = Instant::now() + Duration::from_millis(wait);
        if (self.kills + 1).is_multiple_of(KILLS_OF_THE_DAEMON) {
            self.kills += 1;
            // This checks that no process survives.
            drop(self.daemon.take().unwrap().kill());
            self.daemon = Some(Daemon::start(&self.home));
            return;
        }
        let programs = self.programs();
        if let Some(process) = self.random.choose(&programs) {
            processes::signal(process.pid, Signal::SIGKILL);
            self.kills += 1;
        }
    }

    /// Processes of all programs, without goondan's own.
    fn programs(&self) -> Vec<processes::Process> {
        let mut all = processes::of_home(&self.home.workspace_dir());
        all.retain(|process| !process.program().starts_with("goondan"));
        all
    }

    fn check(
        mut self,
        completed: &BTreeMap<String, Value>,
        program_of: &BTreeMap<String, Program>,
    ) {
        wait_until("no process is left", || self.programs().is_empty());
        for name in completed.keys() {
            let path = self.home.project().join(format!("added/{name}.txt"));
            let added = fs::read_to_string(&path);
            assert_eq!(added.unwrap().trim(), name, "{}", path.display());
        }
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(self.home.project());
        let changed = git.args([
            "status",
            "--porcelain",
            "--untracked-files=all",
            "src",
            "added",
        ]);
        let changed = String::from_utf8(changed.output().unwrap().stdout).unwrap();
        let changes = changed.lines().count();
        assert_eq!(changes, completed.len(), "{changed}");

        let records = self.home.gdn_json(&["audit", "--lines", "10000"]);
        let mut applied: BTreeMap<String, usize> = BTreeMap::new();
        for record in records["records"].as_array().unwrap() {
            let record = &record["record"];
            if record["event"].to_string().contains("proposalApplied") {
                *applied.entry(record.to_string()).or_default() += 1;
            }
        }
        eprintln!("audit: {applied:#?}");
        assert_eq!(applied.values().sum::<usize>(), completed.len());

        let mut whole = 0;
        for (name, shown) in completed {
            let (input, output) = tokens(&self.home, name);
            let tally = self.server.tally(name);
            let text = format!(
                "{name}: {input}/{output} tokens of {tally:?}, {} runs",
                shown["runs"]
            );
            eprintln!("{text}");
            assert!(input <= tally.input && output <= tally.output, "{text}");
            if shown["runs"] == 1 && program_of[name].reports_all_tokens() {
                assert_eq!((input, output), (tally.input, tally.output), "{text}");
                whole += 1;
            }
        }
        eprintln!(
            "the tokens of {whole} of {} tasks are exact",
            completed.len()
        );
        drop(self.daemon.take().unwrap().stop());
    }
}
