//! Trials of the capabilities: each drives a task as a person would, and checks what goondan, the
//! program and the model server say about it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::model_server::{LOOKING, ModelServer, Part};
use goondan_tests::processes::{self, Signal};
use goondan_tests::wait::within;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::programs::{KEY_VARIABLE, Program, codex_home};
use crate::scenes::{self, FILE, READERS, SECRET_NAME, SHORTER, Scene};
use crate::table::{self, Capability, Results};

/// Maximum time of each step of a task. On a busy machine, some programs start for minutes.
const LIMIT: Duration = Duration::from_secs(900);

/// Maximum time until a wrong key is reported to a person.
const WRONG_KEY_LIMIT: Duration = Duration::from_secs(300);

/// Maximum number of requests with a wrong key.
const WRONG_KEY_CALLS: usize = 40;

/// Maximum time until the output of a run is shown.
const LIVE_LIMIT: Duration = Duration::from_secs(30);

/// Pause between two reads of a task's state.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of scenes at a time, unless this variable is set.
const JOBS: usize = 2;
const JOBS_VAR: &str = "GOONDAN_TEST_CODING_AGENTS_JOBS";

/// The value of the requested variable.
const SECRET: &str = "price-4711";

/// Answer to the daemon's question about a lost run.
pub(crate) const GO_ON: &str = "go on";

/// Files of the programs below their home, with their sessions.
const SESSION_PLACES: [&str; 6] = [".claude", ".codex", ".gemini", ".qwen", ".local", ".config"];

/// A program with its project, its model server and its daemon.
struct Bench {
    program: Program,
    home: Home,
    server: ModelServer,
    results: Mutex<Results>,
}

pub(crate) fn run(program: Program, only: &[Scene]) -> Results {
    let server =
        ModelServer::start(move |scene, it| scenes::decide(program.has_tools(), scene, it));
    let home = Home::without_project();
    let mut project = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: \"@goondan/coding-agents\"}\nspec: \
                       {version: 0.1.0}\n"
        .to_owned();
    for scene in Scene::ALL {
        project += &format!("---\n{}", program.agent_of_scene(scene, &server, &home));
    }
    home.write("project/goondan.yaml", &project);
    home.write("project/.env", &format!("{KEY_VARIABLE}=sk-test-4711\n"));
    home.write("project/README.md", "# Prices\n");
    home.write("secret", SECRET);
    if program == Program::Aider {
        // It creates a repository, with a `.gitignore`, where there is none.
        create_repository(&home.project(), "README.md");
    }
    let daemon = Daemon::serving(&home);
    let bench = Bench {
        program,
        home,
        server,
        results: Mutex::default(),
    };
    let together: Vec<Scene> = Scene::ALL
        .into_iter()
        .filter(|scene| *scene != Scene::KillDaemon && (only.is_empty() || only.contains(scene)))
        .collect();
    let next = AtomicUsize::new(0);
    let jobs = std::env::var(JOBS_VAR).map_or(JOBS, |jobs| jobs.parse().unwrap());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(scene) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bench.play(*scene, None);
                }
            });
        }
    });
    if only.is_empty() || only.contains(&Scene::KillDaemon) {
        let daemon = Mutex::new(Some(daemon));
        bench.play(Scene::KillDaemon, Some(&daemon));
        drop(daemon.into_inner().unwrap());
    } else {
        drop(daemon);
    }
    let mut results = bench.results.into_inner().unwrap();
    let starts = [Capability::Off, Capability::Landlock, Capability::Full];
    let levels = starts.iter().map(|level| results.get(level).cloned());
    if let Some(levels) = levels.collect::<Option<Vec<_>>>() {
        results.retain(|capability, _| !starts.contains(capability));
        results.insert(Capability::Start, levels.into_iter().collect());
    }
    results
}

/// Makes a repository of the project, and commits a part of it.
pub(crate) fn create_repository(project: &Path, part: &str) {
    let author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
    for args in [
        &["init", "--quiet"][..],
        &["add", part],
        &["commit", "--quiet", "--message", "Begin"],
    ] {
        let mut git = Command::new("git");
        let ran = git.arg("-C").arg(project).args(author).args(args).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
    }
}

impl Bench {
    /// Plays a scene, and records its results.
    fn play(&self, scene: Scene, daemon: Option<&Mutex<Option<Daemon>>>) {
        let begun = Instant::now();
        let task = Task {
            bench: self,
            scene,
            dir: self.home.workspace_dir().join("tasks").join(scene.name()),
        };
        let played = catch_unwind(AssertUnwindSafe(|| match scene {
            Scene::Off => vec![(Capability::Off, task.start())],
            Scene::Landlock => vec![(Capability::Landlock, task.start())],
            Scene::Full => vec![(Capability::Full, task.start())],
            Scene::Phases => task.phases(),
            Scene::KillProgram => vec![(Capability::KillProgram, task.kill_program())],
            Scene::KillDaemon => vec![(Capability::KillDaemon, task.kill_daemon(daemon.unwrap()))],
            Scene::Pause => vec![(Capability::Pause, task.pause())],
            Scene::Cancel => vec![(Capability::Cancel, task.cancel())],
            Scene::Limit => vec![(Capability::Limit, task.limit())],
            Scene::WrongKey => vec![(Capability::WrongKey, task.wrong_key())],
            Scene::LostSession => vec![(Capability::LostSession, task.lost_session())],
            Scene::Allow => vec![(Capability::Allow, task.permission(true))],
            Scene::Deny => vec![(Capability::Deny, task.permission(false))],
            Scene::Proposal => vec![(Capability::Proposal, task.proposal())],
            Scene::Live => vec![(Capability::Live, task.live())],
        }));
        let took = begun.elapsed().as_secs();
        let program = self.program.name();
        let played = played.unwrap_or_else(|panic| {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.unwrap_or_else(|| "the trial panicked".to_owned());
            vec![(scene.capability(), Err(why))]
        });
        // The scene's program must not disturb others, and its task not the end of the test.
        self.server.open(scene.name());
        let mut is_failed = false;
        for (capability, result) in played {
            match &result {
                Ok(()) => eprintln!("{program}: {capability:?}: yes ({took} s)"),
                Err(why) => {
                    eprintln!("{program}: {capability:?}: NO: {why} ({took} s)");
                    is_failed |= table::known(self.program, capability).is_none();
                }
            }
            self.results.lock().unwrap().insert(capability, result);
        }
        if is_failed {
            self.print(scene);
        }
        drop(self.home.gdn(&["task", "cancel", scene.name(), "--yes"]));
    }

    /// Prints the requests and replies of the program's model, and the end of the task's history.
    fn print(&self, scene: Scene) {
        let shown = |text: &str| text.chars().take(400).collect::<String>();
        for (number, call) in (1..).zip(self.server.calls(scene.name())) {
            let it = &call.conversation;
            let tools: Vec<&String> = it.tools.keys().collect();
            eprintln!("  call {number}, tools {}", shown(&format!("{tools:?}")));
            for (part, text) in it.parts.iter().filter(|(part, _)| *part != Part::System) {
                eprintln!("    {part:?}: {:?}", shown(text));
            }
            eprintln!("    -> {:?}", call.decision);
        }
        let history = self
            .home
            .gdn(&["task", "logs", scene.name(), "--log", "history"]);
        let lines: Vec<&str> = history.stdout.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(25)) {
            eprintln!("    {}", shown(line));
        }
    }
}

struct Task<'b> {
    bench: &'b Bench,
    scene: Scene,
    dir: PathBuf,
}

fn check(is_true: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_true { Ok(()) } else { Err(why()) }
}

pub(crate) fn status(shown: &Value) -> &str {
    shown["info"]["status"].as_str().unwrap_or_default()
}

pub(crate) fn asks(shown: &Value) -> impl Iterator<Item = &Value> {
    shown["asks"].as_array().into_iter().flatten()
}

/// Input and output tokens of a task, as goondan counted them.
pub(crate) fn tokens(home: &Home, task: &str) -> (u64, u64) {
    let counted = home.gdn_json(&["task", "usage", task]);
    let tokens = |name: &str| counted["usage"][name].as_u64().unwrap_or(0);
    let input = tokens("inputTokens") + tokens("cacheReadTokens") + tokens("cacheWriteTokens");
    (input, tokens("outputTokens"))
}

/// Request of the daemon to decide about a run that it cannot continue.
pub(crate) fn doubt(shown: &Value) -> Option<&Value> {
    asks(shown).find(|ask| {
        let options = ask["options"].as_array();
        options.is_some_and(|options| options.contains(&json!(GO_ON)))
    })
}

fn question(shown: &Value) -> Option<&Value> {
    asks(shown).find(|ask| ask["text"] == "Who reads it?")
}

impl Task<'_> {
    fn name(&self) -> &'static str {
        self.scene.name()
    }

    fn gdn(&self, args: &[&str]) -> Result<(), String> {
        let ran = self.bench.home.gdn(&[&["task"], args].concat());
        check(ran.code == 0, || {
            format!("gdn task {args:?}: {} {}", ran.code, ran.stderr.trim())
        })
    }

    fn begin(&self, more: &[&str]) -> Result<(), String> {
        let phases = self.scene.phases().to_string();
        let name = self.name();
        let new = [
            "new", name, "--id", name, "--agent", name, "--phases", &phases,
        ];
        let rest = [
            "--description",
            "Write a greeting into hello.txt.",
            "--start",
        ];
        self.gdn(&[&new[..], more, &rest].concat())
    }

    fn shown(&self) -> Option<Value> {
        let ran = self
            .bench
            .home
            .gdn(&["--json", "task", "show", self.name()]);
        (ran.code == 0).then(|| ran.json())
    }

    /// Waits for a state of the task. Permissions are allowed, except in the scenes about them; a
    /// doubt of the daemon ends the wait, unless a kill may cause it.
    fn until(&self, what: &str, is_done: impl Fn(&Value) -> bool) -> Result<Value, String> {
        self.until_within(LIMIT, what, is_done)
    }

    fn until_within(
        &self,
        limit: Duration,
        what: &str,
        is_done: impl Fn(&Value) -> bool,
    ) -> Result<Value, String> {
        let begun = Instant::now();
        let mut last = Value::Null;
        while begun.elapsed() < limit {
            if let Some(shown) = self.shown() {
                if is_done(&shown) {
                    return Ok(shown);
                }
                last = shown;
                self.decide(&last)?;
                let is_over = matches!(status(&last), "failed" | "cancelled" | "completed");
                if is_over && last["run"].is_null() {
                    break;
                }
            }
            thread::sleep(LOOK_EVERY);
        }
        let asked: Vec<&Value> = asks(&last).map(|ask| &ask["text"]).collect();
        Err(format!(
            "waited in vain: {what}; the task is {}, asks {asked:?}; its last run: {}",
            status(&last),
            last["lastRun"]
        ))
    }

    fn decide(&self, shown: &Value) -> Result<(), String> {
        let is_killed = matches!(self.scene, Scene::KillProgram | Scene::KillDaemon);
        if let Some(ask) = doubt(shown) {
            let text = ask["text"].as_str().unwrap_or_default();
            check(is_killed, || format!("{text} {}", shown["lastRun"]))?;
            let id = ask["id"].as_str().unwrap_or_default();
            // It may have been decided in the meantime.
            drop(self.gdn(&["answer", self.name(), GO_ON, "--id", id]));
        }
        for ask in asks(shown).filter(|ask| ask["kind"] == "permission") {
            let id = ask["id"].as_str().unwrap_or_default();
            if !self.scene.asks_permission() {
                drop(self.gdn(&["answer", self.name(), "allow for this task", "--id", id]));
            }
        }
        Ok(())
    }

    /// Waits until the program can resume its session. `gemini` writes a resumed session into the
    /// file of the minute, and loses the session if it began in that minute.
    fn until_resumable(&self) {
        if self.bench.program == Program::Gemini {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let second = now.unwrap().as_secs() % 60;
            thread::sleep(Duration::from_secs(61 - second));
        }
    }

    fn until_completed(&self) -> Result<Value, String> {
        // A program may write its files after it has reported that the work is complete.
        self.until("it is completed", |shown| {
            status(shown) == "completed" && shown["run"].is_null()
        })
    }

    fn until_review(&self, phase: u64, runs: u64) -> Result<Value, String> {
        self.until("its phase is in review", |shown| {
            shown["review"] == phase
                && shown["runs"].as_u64() >= Some(runs)
                && shown["run"].is_null()
        })
    }

    /// Waits until the model has received the result of the first command, and answers no more.
    fn until_held(&self) -> Result<(), String> {
        self.until("its last request is held", |_| {
            self.bench.server.is_holding(self.name())
        })?;
        Ok(())
    }

    fn file(&self, path: &Path) -> Result<(), String> {
        let found = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
        check(found.trim() == "hello", || {
            format!("{} is {found:?}", path.display())
        })
    }

    fn start(&self) -> Result<(), String> {
        self.begin(&[])?;
        let shown = self.until_completed()?;
        self.file(&self.dir.join(FILE))?;
        check(shown["runs"] == 1, || {
            format!("it took {} runs", shown["runs"])
        })?;
        let calls = self.bench.server.calls(self.name());
        let has_output = calls
            .iter()
            .any(|call| scenes::has_output(&call.conversation));
        check(has_output || !self.bench.program.has_tools(), || {
            format!("the command did not run: {calls:?}")
        })
    }

    /// True if the model's last conversation continues an earlier run: it contains earlier words of
    /// the model, or, in a program without sessions, the whole task.
    fn is_same_session(&self, earlier: &str) -> Result<(), String> {
        let calls = self.bench.server.calls(self.name());
        let with_tools = |call: &&goondan_tests::model_server::Call| {
            !call.conversation.tools.is_empty() || !self.bench.program.has_tools()
        };
        let last = calls.iter().rfind(with_tools).ok_or("no call")?;
        let it = &last.conversation;
        let is_same = if self.bench.program.has_sessions() {
            it.has(Part::Agent, earlier)
        } else {
            it.has(Part::User, "Write a greeting into hello.txt.")
        };
        check(is_same, || {
            format!("the model does not know of its session: {:?}", it.parts)
        })
    }

    fn was_told(&self, text: &str) -> Result<(), String> {
        let calls = self.bench.server.calls(self.name());
        let is_told = calls
            .iter()
            .any(|call| call.conversation.has(Part::User, text));
        check(is_told, || format!("the model was not told {text:?}"))
    }

    fn phases(&self) -> Vec<(Capability, Result<(), String>)> {
        let mut results = Vec::new();
        let mut is_on = Ok(());
        let mut step = |capability: Capability, act: &dyn Fn() -> Result<(), String>| {
            let result = match &is_on {
                Ok(()) => act(),
                Err(earlier) => Err(format!("not reached: {earlier}")),
            };
            if let (Ok(()), Err(why)) = (&is_on, &result) {
                is_on = Err(why.clone());
            }
            results.push((capability, result));
        };
        step(Capability::Question, &|| {
            self.begin(&[])?;
            let shown = self.until("it asks a question", |shown| question(shown).is_some())?;
            self.until_resumable();
            self.gdn(&["answer", self.name(), READERS[0]])?;
            let reviewed = self.until_review(1, 2)?;
            let sessions = [&shown["session"], &reviewed["session"]];
            check(sessions[0] == sessions[1], || {
                format!("another session: {sessions:?}")
            })?;
            self.was_told(READERS[0])?;
            self.is_same_session("Who reads it?")
        });
        step(Capability::Rework, &|| {
            let runs = self.runs();
            self.gdn(&["rework", self.name(), SHORTER])?;
            self.until_review(1, runs + 1)?;
            self.was_told(SHORTER)?;
            self.is_same_session("Who reads it?")
        });
        step(Capability::Approve, &|| {
            self.gdn(&["approve", self.name()])?;
            self.until("its second phase has begun", |shown| {
                shown["info"]["currentPhase"] == 2
            })?;
            Ok(())
        });
        step(Capability::Secret, &|| {
            let is_asked = |shown: &Value| asks(shown).any(|ask| ask["kind"] == "secret");
            self.until("it asks for a secret", is_asked)?;
            self.provide()?;
            self.until("its second phase is in review", |shown| {
                shown["review"] == 2 && shown["run"].is_null()
            })?;
            self.has_secret()
        });
        step(Capability::Phases, &|| {
            self.gdn(&["approve", self.name()])?;
            self.until_completed()?;
            Ok(())
        });
        step(Capability::Usage, &|| self.usage());
        results
    }

    fn runs(&self) -> u64 {
        let shown = self.shown();
        shown.and_then(|it| it["runs"].as_u64()).unwrap_or(0)
    }

    fn provide(&self) -> Result<(), String> {
        let home = &self.bench.home;
        let provide = ["task", "provide", self.name(), SECRET_NAME];
        let mut command = home.command(&bin(GDN), &provide);
        command.stdin(fs::File::open(home.path().join("secret")).unwrap());
        let ran = RunningProgram::start(command).wait();
        check(ran.code == 0, || ran.stderr.clone())
    }

    /// Checks that a command of the program read the secret from its environment.
    fn has_secret(&self) -> Result<(), String> {
        if !self.bench.program.has_tools() {
            let found = fs::read_to_string(self.dir.join("key.txt")).unwrap_or_default();
            return check(found.trim() == SECRET, || format!("key.txt is {found:?}"));
        }
        let calls = self.bench.server.calls(self.name());
        let is_known = |call: &goondan_tests::model_server::Call| {
            call.conversation
                .has(Part::Result, &format!("key: {SECRET}"))
        };
        check(calls.iter().any(is_known), || {
            let last = calls.last().map(|call| &call.conversation.parts);
            format!("the program's command did not get it: {last:?}")
        })
    }

    fn usage(&self) -> Result<(), String> {
        let (input, output) = tokens(&self.bench.home, self.name());
        let tally = self.bench.server.tally(self.name());
        check((input, output) == (tally.input, tally.output), || {
            format!(
                "{input} input and {output} output tokens, but the server counted {} and {} in {} calls",
                tally.input, tally.output, tally.calls
            )
        })
    }

    /// Processes of the program, without goondan's own.
    fn processes(&self) -> Vec<processes::Process> {
        let mut all = processes::of_home(&self.dir);
        all.retain(|process| !process.program().starts_with("goondan"));
        all
    }

    fn until_no_process(&self) -> Result<(), String> {
        let none = || self.processes().is_empty().then_some(());
        within(LIMIT, none).ok_or_else(|| format!("processes are left: {:?}", self.processes()))
    }

    fn kill_program(&self) -> Result<(), String> {
        self.begin(&[])?;
        self.until_held()?;
        self.until_resumable();
        let all = self.processes();
        check(!all.is_empty(), || {
            "no process of the program was found".to_owned()
        })?;
        let is_first = |process: &&processes::Process| {
            let parent = processes::parent(process.pid);
            !all.iter().any(|other| Some(other.pid) == parent)
        };
        for process in all.iter().filter(is_first) {
            processes::signal(process.pid, Signal::SIGKILL);
        }
        self.until("its run has ended", |shown| shown["lastRun"].is_object())?;
        self.bench.server.open(self.name());
        let shown = self.until_completed()?;
        check(shown["runs"].as_u64() == Some(2), || {
            format!("it took {} runs", shown["runs"])
        })?;
        self.file(&self.dir.join(FILE))?;
        self.until_no_process()
    }

    fn kill_daemon(&self, daemon: &Mutex<Option<Daemon>>) -> Result<(), String> {
        self.begin(&[])?;
        self.until_held()?;
        self.until_resumable();
        let running = daemon.lock().unwrap().take();
        // This checks that no process survives.
        drop(running.unwrap().kill());
        self.bench.server.open(self.name());
        *daemon.lock().unwrap() = Some(Daemon::start(&self.bench.home));
        let shown = self.until_completed()?;
        check(shown["runs"].as_u64() == Some(2), || {
            format!("it took {} runs", shown["runs"])
        })?;
        self.file(&self.dir.join(FILE))
    }

    fn pause(&self) -> Result<(), String> {
        self.begin(&[])?;
        self.until_held()?;
        self.gdn(&["pause", self.name()])?;
        self.until("it is paused", |shown| status(shown) == "paused")?;
        self.bench.server.open(self.name());
        self.gdn(&["resume", self.name()])?;
        self.until_completed()?;
        self.file(&self.dir.join(FILE))
    }

    fn cancel(&self) -> Result<(), String> {
        self.begin(&[])?;
        self.until_held()?;
        self.gdn(&["cancel", self.name(), "--yes"])?;
        self.until("it is cancelled", |shown| status(shown) == "cancelled")?;
        self.until_no_process()
    }

    fn limit(&self) -> Result<(), String> {
        self.begin(&["--max-tokens", "1000"])?;
        self.until("it asks a question", |shown| question(shown).is_some())?;
        self.until_resumable();
        self.gdn(&["answer", self.name(), READERS[0]])?;
        let shown = self.until("it is paused", |shown| status(shown) == "paused")?;
        check(shown["info"]["blockedBy"] == "budget", || {
            format!("it is blocked by {}", shown["info"]["blockedBy"])
        })?;
        check(shown["runs"] == 1, || {
            format!("it took {} runs", shown["runs"])
        })?;
        self.gdn(&["budget", self.name(), "--max-tokens", "1000000"])?;
        self.gdn(&["resume", self.name()])?;
        self.until_review(1, 2)?;
        Ok(())
    }

    fn wrong_key(&self) -> Result<(), String> {
        self.begin(&[])?;
        let is_asked = |shown: &Value| doubt(shown).is_some();
        let shown = self.until_within(WRONG_KEY_LIMIT, "a person is asked", is_asked)?;
        let text = doubt(&shown).unwrap()["text"].to_string().to_lowercase();
        check(shown["runs"] == 1, || {
            format!("it took {} runs: {text}", shown["runs"])
        })?;
        let words = ["key", "401", "auth"];
        check(words.iter().any(|word| text.contains(word)), || {
            format!("it does not say why: {text}")
        })?;
        let calls = self.bench.server.calls(self.name()).len();
        check((1..=WRONG_KEY_CALLS).contains(&calls), || {
            format!("{calls} requests with the wrong key")
        })
    }

    fn lost_session(&self) -> Result<(), String> {
        self.begin(&[])?;
        self.until("it asks a question", |shown| {
            question(shown).is_some() && shown["run"].is_null()
        })?;
        // The program's home is the work area.
        let own = SESSION_PLACES.map(|place| self.dir.join(place));
        let codex = fs::read_dir(codex_home(&self.bench.home, self.name()));
        let codex = codex
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path());
        for path in own.into_iter().chain(codex) {
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else if path.is_file() && !path.ends_with("config.toml") {
                fs::remove_file(&path).unwrap();
            }
        }
        self.gdn(&["answer", self.name(), READERS[0]])?;
        self.until_review(1, 2)?;
        let calls = self.bench.server.calls(self.name());
        let is_whole = calls.iter().any(|call| {
            let it = &call.conversation;
            it.has(Part::User, "Answer q-")
                && it.has(Part::User, "Write a greeting into hello.txt.")
        });
        check(is_whole, || {
            "the new session did not get the whole task".to_owned()
        })?;
        let history = fs::read_to_string(self.dir.join(".metadata/history.jsonl")).unwrap();
        let is_lost = history.contains("\"session_lost\"");
        check(is_lost || !self.bench.program.has_sessions(), || {
            "the history does not record the lost session".to_owned()
        })
    }

    fn permission(&self, is_allowed: bool) -> Result<(), String> {
        self.begin(&[])?;
        let file = self.dir.join(FILE);
        let is_asked = |shown: &Value| {
            asks(shown).any(|ask| ask["kind"] == "permission") || status(shown) == "completed"
        };
        let shown = self.until("it asks for a permission", is_asked)?;
        check(status(&shown) != "completed", || {
            "it is completed without a request".to_owned()
        })?;
        check(!file.exists(), || {
            "it had written the file before".to_owned()
        })?;
        let ask = asks(&shown)
            .find(|ask| ask["kind"] == "permission")
            .unwrap();
        check(ask["text"].to_string().contains("sum-"), || {
            format!("the request does not show the command: {}", ask["text"])
        })?;
        let id = ask["id"].as_str().unwrap();
        let answer = if is_allowed {
            "allow"
        } else {
            "refuse: use the other file"
        };
        self.gdn(&["answer", self.name(), answer, "--id", id])?;
        if is_allowed {
            self.until_completed()?;
            return self.file(&file);
        }
        // Some programs end their turn when they are refused; a person decides then.
        self.until("its run has ended", |shown| {
            status(shown) == "completed" || doubt(shown).is_some() || shown["lastRun"].is_object()
        })?;
        check(!file.exists(), || {
            "it has written the file anyway".to_owned()
        })
    }

    fn proposal(&self) -> Result<(), String> {
        self.begin(&[])?;
        let proposed = |runs: u64| {
            self.until("its proposal is in review", |shown| {
                let files = shown["proposal"]["files"].as_array();
                shown["review"] == 1
                    && shown["runs"].as_u64() >= Some(runs)
                    && files.is_some_and(|files| !files.is_empty())
            })
        };
        let shown = proposed(1)?;
        let files = &shown["proposal"]["files"];
        check(files[0]["path"] == FILE && files[1].is_null(), || {
            format!("the proposal has other files: {files}")
        })?;
        let target = self.bench.home.project().join(FILE);
        check(!target.exists(), || {
            "the project has changed already".to_owned()
        })?;
        let runs = shown["runs"].as_u64().unwrap_or(0);
        self.until_resumable();
        self.gdn(&["rework", self.name(), SHORTER])?;
        proposed(runs + 1)?;
        self.gdn(&["approve", self.name()])?;
        self.until_completed()?;
        let found = fs::read_to_string(&target).unwrap_or_default();
        check(found.trim() == "hi", || {
            format!("the project has {found:?}")
        })
    }

    fn live(&self) -> Result<(), String> {
        self.begin(&[])?;
        let log = ["task", "logs", self.name(), "--log", "stdout"];
        self.until_held()?;
        // A program without tools has told nothing of the model's yet, but its own settings.
        let expected = if self.bench.program.has_tools() {
            LOOKING
        } else {
            "Model: "
        };
        let is_told = || {
            let ran = self.bench.home.gdn(&log);
            ran.stdout.contains(expected).then_some(())
        };
        let told = within(LIVE_LIMIT, is_told);
        let stdout = self.bench.home.gdn(&log).stdout;
        check(told.is_some(), || {
            format!("{expected:?} is not in {stdout:?}")
        })?;
        let shown = self.shown().unwrap_or_default();
        check(status(&shown) == "running", || {
            format!("it is {}", status(&shown))
        })?;
        self.bench.server.open(self.name());
        self.until_completed()?;
        Ok(())
    }
}
