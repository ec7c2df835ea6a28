//! Goal: whichever process is killed at any time, each answer and approval takes effect exactly once, no
//! process survives its task, and no task is lost or runs twice (`TASK-1`, `TASK-7`, `TASK-8`).
//!
//! Method: an agent of each format works on its own task, all four concurrently. The daemon is
//! killed before and after each transition: when a task waits, when a person's input is
//! acknowledged, and while the agent is held after it has received its prompt, written its block,
//! or reported its result. The agents' diaries are in the work areas, next to the history that
//! goondan wrote.
//!
//! `GOONDAN_TEST_TASK_KILL_ROUNDS=200` adds that many kills at random times, without waiting for
//! the effects of a person's input.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use goondan_tests::cli_agents::{
    self, Format, KEY, Manner, PROGRAM, Point, QUESTION, READERS, agent_name, diary, work_area,
};
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::random::Random;
use goondan_tests::wait::within;
use goondan_tests::{CommandOutput, Daemon, Home, PATIENCE, binaries, wait_for, wait_until};
use serde_json::Value;

/// Random kills, unless `GOONDAN_TEST_TASK_KILL_ROUNDS` is set.
const ROUNDS: u32 = 4;

/// Maximum time before a random kill of the daemon: a run starts, works and ends within it.
const KILL_WITHIN_MS: u64 = 600;

/// Answer to the daemon's question about a lost run.
const GO_ON: &str = "go on";

/// The answer to a request for a permission.
const ALLOW: &str = "allow";

/// Time of the daemon's kill after people's inputs.
#[derive(Debug, Clone, Copy)]
enum KillMoment {
    /// When all inputs are acknowledged.
    Acknowledged,
    /// When every working agent is held here.
    Held(Point),
    /// After a time, regardless of acknowledgments.
    After(u64),
    /// Not at all; people only give inputs that let runs continue.
    Undisturbed,
    /// Not at all.
    Never,
}

/// Input of a person to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PersonAction {
    Start,
    Answer(String, String),
    Provide(String),
    Rework,
    Approve(u64),
}

impl PersonAction {
    /// True if it is about a run rather than about the work.
    fn lets_go_on(&self) -> bool {
        matches!(self, Self::Answer(_, text) if text == ALLOW || text == GO_ON)
    }
}

/// Tasks of each format, which outlive the daemon.
struct TaskCrew {
    home: Home,
    daemon: Option<Daemon>,
    /// Tasks by their ids, with the acknowledged inputs.
    said: BTreeMap<String, Vec<PersonAction>>,
    key: PathBuf,
}

/// Listed tasks by their ids; none while the daemon has not loaded them yet.
fn listed(home: &Home) -> Option<BTreeMap<String, Value>> {
    let ran = home.gdn(&["--json", "task", "list", "--all"]);
    let tasks = (ran.code == 0).then(|| ran.json())?["tasks"].take();
    let tasks = tasks.as_array()?.iter();
    Some(
        tasks
            .map(|task| (task["taskId"].as_str().unwrap().to_owned(), task.clone()))
            .collect(),
    )
}

fn is_over(task: &Value) -> bool {
    matches!(
        task["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

fn history(home: &Home, task: &str) -> Vec<Value> {
    let text = fs::read_to_string(work_area(home, task).join(".metadata/history.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The data of the events of this name.
fn events<'h>(history: &'h [Value], name: &str) -> Vec<&'h Value> {
    let of_name = history.iter().filter(|line| line["event"] == name);
    of_name.map(|line| &line["data"]).collect()
}

fn count(lines: &[String], wanted: &str) -> usize {
    lines.iter().filter(|line| *line == wanted).count()
}

/// True if the decided permission is obsolete: its run was lost with the daemon, and the task shows
/// its old state until the loss is durable.
fn is_moot(word: &PersonAction, ran: &CommandOutput) -> bool {
    matches!(word, PersonAction::Answer(_, text) if text == ALLOW) && ran.code == 10
}

impl TaskCrew {
    fn new() -> Self {
        let home = cli_agents::home(&[Manner::Honest]);
        home.write("key", "sk-4711");
        let key = home.path().join("key");
        let daemon = Some(Daemon::serving(&home));
        Self {
            home,
            daemon,
            said: BTreeMap::new(),
            key,
        }
    }

    /// A new task for an agent of each format.
    fn hire(&mut self) {
        let number = self.said.len() / Format::ALL.len();
        for format in Format::ALL {
            let (title, agent) = (
                format!("{}-{number}", format.as_str()),
                agent_name(*format, Manner::Honest),
            );
            let new = [
                "task",
                "new",
                &title,
                "--id",
                &title,
                "--agent",
                &agent,
                "--description",
                "Build a shop.",
                "--phases",
                "2",
            ];
            self.home.gdn(&new).exits(0);
            self.said.insert(title, Vec::new());
        }
    }

    fn kill(&mut self) {
        drop(self.daemon.take().unwrap().kill());
        let left = self.home.running(PROGRAM);
        assert!(left.is_empty(), "agents outlive their daemon: {left:#?}");
        self.daemon = Some(Daemon::start(&self.home));
    }

    /// Waits until every task waits for a person or has ended, and returns the waiting ones.
    fn settle(&self) -> Vec<String> {
        wait_for("every task waits for a person, or is over", || {
            let tasks = listed(&self.home).filter(|tasks| tasks.len() == self.said.len())?;
            let rests = |task: &Value| {
                let status = task["status"].as_str().unwrap();
                is_over(task) || status == "idle" || status.starts_with("waiting_")
            };
            let all_rest = tasks.values().all(rests);
            let waits = |(id, task): (String, Value)| (!is_over(&task)).then_some(id);
            all_rest.then(|| tasks.into_iter().filter_map(waits).collect())
        })
    }

    /// Returns the input that a task waits for; none if a killed run has not been noticed yet.
    fn word_for(&self, task: &str) -> Option<PersonAction> {
        let ran = self.home.gdn(&["--json", "task", "show", task]);
        let shown = (ran.code == 0).then(|| ran.json())?;
        if shown["info"]["status"] == "idle" {
            return Some(PersonAction::Start);
        }
        if let Some(ask) = shown["asks"].as_array().unwrap().first() {
            let id = ask["id"].as_str().unwrap().to_owned();
            return Some(match ask["kind"].as_str().unwrap() {
                "permission" => PersonAction::Answer(id, ALLOW.to_owned()),
                "question" if ask["text"] == QUESTION => {
                    PersonAction::Answer(id, READERS[0].to_owned())
                }
                "question" => PersonAction::Answer(id, GO_ON.to_owned()),
                _ => PersonAction::Provide(id),
            });
        }
        let phase = shown["review"].as_u64()?;
        let was_reworked = !events(&history(&self.home, task), "review_reworked").is_empty();
        Some(if was_reworked {
            PersonAction::Approve(phase)
        } else {
            PersonAction::Rework
        })
    }

    fn say(&self, task: &str, word: &PersonAction) -> RunningProgram {
        let phase;
        let args: &[&str] = match word {
            PersonAction::Start => &["start", task],
            PersonAction::Answer(id, text) => &["answer", task, text, "--id", id],
            PersonAction::Provide(_) => &["provide", task, KEY],
            PersonAction::Rework => &["rework", task, "Better."],
            PersonAction::Approve(number) => {
                phase = number.to_string();
                &["approve", task, "--phase", &phase]
            }
        };
        let mut command = self
            .home
            .command(&binaries::bin(GDN), &[&["task"], args].concat());
        if let PersonAction::Provide(_) = word {
            command.stdin(fs::File::open(&self.key).unwrap());
        }
        RunningProgram::start(command)
    }

    /// Gives every task the input it waits for, and kills the daemon.
    fn round(&mut self, moment: KillMoment) {
        let waiting = self.settle();
        let words: Vec<(String, PersonAction)> = waiting
            .iter()
            .filter_map(|task| Some((task.clone(), self.word_for(task)?)))
            .filter(|(_, word)| !matches!(moment, KillMoment::Undisturbed) || word.lets_go_on())
            .collect();
        let held = self.hold(moment, &words);
        let talking: Vec<RunningProgram> = words
            .iter()
            .map(|(task, word)| self.say(task, word))
            .collect();
        if let KillMoment::After(ms) = moment {
            thread::sleep(Duration::from_millis(ms));
            self.kill();
        }
        for ((task, word), running) in words.into_iter().zip(talking) {
            let ran = running.wait();
            let is_acknowledged = ran.code == 0;
            assert!(
                is_acknowledged || matches!(moment, KillMoment::After(_)) || is_moot(&word, &ran),
                "{word:?}: {ran:#?} {:#?}",
                history(&self.home, &task)
            );
            if is_acknowledged {
                self.said.get_mut(&task).unwrap().push(word);
            }
        }
        match moment {
            KillMoment::After(_) | KillMoment::Undisturbed | KillMoment::Never => return,
            KillMoment::Acknowledged => {}
            KillMoment::Held(point) => self.wait_held(point, &held),
        }
        self.kill();
        for (task, _) in held {
            let file = format!(
                "hold-{}",
                if let KillMoment::Held(point) = moment {
                    point.as_str()
                } else {
                    ""
                }
            );
            fs::remove_file(work_area(&self.home, &task).join(file)).unwrap();
        }
    }

    /// Holds the agents that will work at a point; returns the tasks, and how often each was held
    /// there.
    fn hold(&self, moment: KillMoment, words: &[(String, PersonAction)]) -> Vec<(String, usize)> {
        let KillMoment::Held(point) = moment else {
            return Vec::new();
        };
        let mut held = Vec::new();
        for (task, word) in words {
            // No run follows the last review, and no new run follows a permission.
            let is_last = matches!(word, PersonAction::Approve(2))
                || matches!(word, PersonAction::Answer(_, text) if text == ALLOW);
            if !is_last {
                let area = work_area(&self.home, task);
                let file = area.join(format!("hold-{}", point.as_str()));
                self.home.write(file.to_str().unwrap(), "");
                held.push((task.clone(), self.times_held(task, point)));
            }
        }
        held
    }

    fn times_held(&self, task: &str, point: Point) -> usize {
        count(
            &diary(&work_area(&self.home, task)),
            &format!("held {}", point.as_str()),
        )
    }

    /// Waits until the agents are held, or wait for a permission before that point. There may be a
    /// question about a lost run first. If agents have reported their results, the reports are
    /// durable, too.
    fn wait_held(&mut self, point: Point, held: &[(String, usize)]) {
        for (task, before) in held {
            let what = format!("the agent of {task} is held at `{}`", point.as_str());
            let is_there = within(PATIENCE, || {
                let is_there = match self.word_for(task) {
                    Some(PersonAction::Answer(id, text)) if text == GO_ON => {
                        let word = PersonAction::Answer(id, text);
                        drop(self.say(task, &word).wait().exits(0));
                        self.said.get_mut(task).unwrap().push(word);
                        false
                    }
                    Some(PersonAction::Answer(_, text)) if text == ALLOW => true,
                    word => {
                        let is_held = self.times_held(task, point) > *before;
                        is_held && (word.is_some() || point != Point::Ended)
                    }
                };
                is_there.then_some(())
            });
            let tells = || {
                (
                    diary(&work_area(&self.home, task)),
                    history(&self.home, task),
                )
            };
            assert!(is_there.is_some(), "waited in vain: {what}; {:#?}", tells());
        }
    }

    fn is_done(&self) -> bool {
        listed(&self.home)
            .is_some_and(|tasks| tasks.len() == self.said.len() && tasks.values().all(is_over))
    }

    /// Waits until no agent runs, and that is in the history.
    fn wait_for_the_last_run(&self) {
        wait_until("no agent is left", || {
            let has_ended = |task: &String| {
                let history = history(&self.home, task);
                events(&history, "run_requested").len() == events(&history, "run_ended").len()
            };
            self.home.running(PROGRAM).is_empty() && self.said.keys().all(has_ended)
        });
    }

    /// Checks that every task is completed, and all inputs took effect once.
    fn check(&self) {
        self.wait_for_the_last_run();
        for (task, said) in &self.said {
            let (history, diary) = (
                history(&self.home, task),
                diary(&work_area(&self.home, task)),
            );
            let show = || format!("{task}: {said:?}\n{diary:#?}\n{history:#?}");
            for (event, times) in [
                ("task_created", 1),
                ("task_completed", 1),
                ("review_reworked", 1),
            ] {
                assert_eq!(
                    events(&history, event).len(),
                    times,
                    "{event} of {}",
                    show()
                );
            }
            let approved: Vec<u64> = events(&history, "review_approved")
                .iter()
                .map(|data| data["phase"].as_u64().unwrap())
                .collect();
            assert_eq!(approved, [1, 2], "{}", show());
            check_runs(&history, &diary, 1, &show);
            check_words(said, &history, &diary, &show);
        }
    }
}

/// Checks that no run starts twice or concurrently with another.
fn check_runs(history: &[Value], diary: &[String], deployed: usize, show: &dyn Fn() -> String) {
    assert_eq!(count(diary, "overlap"), 0, "two runs at a time: {}", show());
    let requested = events(history, "run_requested").len();
    assert!(
        count(diary, "begun") <= requested,
        "a run began twice: {}",
        show()
    );
    assert_eq!(count(diary, "deployed"), deployed, "{}", show());
}

/// Checks that acknowledged inputs are in the history once, and that an agent received them.
fn check_words(
    said: &[PersonAction],
    history: &[Value],
    diary: &[String],
    show: &dyn Fn() -> String,
) {
    // A run that was lost before it showed progress on its prompt is followed by one with the same
    // prompt.
    let untaken = events(history, "run_requested").len() - events(history, "prompt_taken").len();
    // Without a session, every run receives the whole task, with all answers.
    let requested = events(history, "run_requested");
    let whole = requested
        .iter()
        .skip(1)
        .filter(|data| data["session"].is_null());
    let repeated = untaken + whole.count();
    let is_heard = |what: &str| {
        let times = count(diary, &format!("heard {what}"));
        assert!(
            (1..=1 + repeated).contains(&times),
            "{what} was heard {times} times: {}",
            show()
        );
    };
    let answers = |id: &str| -> Vec<&Value> {
        events(history, "question_answered")
            .into_iter()
            .filter(|data| data["id"] == id)
            .collect()
    };
    for word in said {
        match word {
            PersonAction::Start | PersonAction::Approve(2..) => {}
            PersonAction::Answer(id, text) => {
                let answers = answers(id);
                assert_eq!(answers.len(), 1, "{id} of {}", show());
                assert_eq!(answers[0]["answer"]["person"], **text, "{id} of {}", show());
                if text == READERS[0] {
                    is_heard(&format!("{id} {text}"));
                }
            }
            PersonAction::Provide(id) => {
                let provided = events(history, "dependency_provided");
                assert_eq!(
                    provided.iter().filter(|data| data["id"] == **id).count(),
                    1,
                    "{}",
                    show()
                );
                is_heard(&format!("{id} provided"));
            }
            PersonAction::Rework => is_heard("reworked 1"),
            PersonAction::Approve(phase) => is_heard(&format!("approved {phase}")),
        }
    }
    for asked in events(history, "question_asked") {
        let id = asked["id"].as_str().unwrap();
        assert_eq!(answers(id).len(), 1, "{id} of {}", show());
    }
}

#[test]
fn task_1_daemon_killed_at_each_transition_loses_nothing() {
    let mut crew = TaskCrew::new();
    crew.hire();
    // Every task advances in each cycle: in the last two rounds, permissions are not withdrawn by a
    // kill.
    let moments = [
        (KillMoment::Held(Point::Started), true),
        (KillMoment::Held(Point::Told), false),
        (KillMoment::Acknowledged, false),
        (KillMoment::Held(Point::Ended), true),
        (KillMoment::Undisturbed, false),
        (KillMoment::Undisturbed, false),
    ];
    for (moment, is_killed_before) in moments.into_iter().cycle() {
        crew.settle();
        if crew.is_done() {
            break;
        }
        if is_killed_before {
            crew.kill();
        }
        crew.round(moment);
    }
    crew.check();
}

#[test]
fn task_1_daemon_killed_at_any_time_loses_nothing_in_any_format() {
    let rounds =
        std::env::var("GOONDAN_TEST_TASK_KILL_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    let mut random = Random::announced();
    let mut crew = TaskCrew::new();
    for _ in 0..rounds {
        if crew.is_done() {
            crew.hire();
        }
        crew.round(KillMoment::After(random.below(KILL_WITHIN_MS)));
    }
    while !crew.is_done() {
        crew.round(KillMoment::Never);
    }
    crew.check();
}

/// Actions on a held run, and the resulting status of its task.
const HELD_ACTS: [(&str, &str); 3] = [
    ("pause", "paused"),
    ("resume", "running"),
    ("cancel", "cancelled"),
];

#[test]
fn task_8_daemon_killed_after_pause_resume_or_cancel_obeys_it() {
    let mut crew = TaskCrew::new();
    crew.hire();
    let tasks: Vec<String> = crew.said.keys().cloned().collect();
    for task in &tasks {
        let file = work_area(&crew.home, task).join("hold-started");
        crew.home.write(file.to_str().unwrap(), "");
        crew.home.gdn(&["task", "start", task]).exits(0);
    }
    for (act, status) in HELD_ACTS {
        let is_wanted = act != "resume";
        wait_until("every agent works, or none", || {
            // There may be a question about a lost run.
            for task in tasks.iter().filter(|_| act == "cancel") {
                if let Some(PersonAction::Answer(id, text)) = crew.word_for(task) {
                    let answer = ["task", "answer", task, &text, "--id", &id];
                    crew.home.gdn(&answer).exits(0);
                }
            }
            let working = crew.home.running(PROGRAM).len();
            working == if is_wanted { tasks.len() } else { 0 }
        });
        for task in &tasks {
            let yes = (act == "cancel").then_some("--yes");
            let args: Vec<&str> = ["task", act, task].into_iter().chain(yes).collect();
            crew.home.gdn(&args).exits(0);
        }
        crew.kill();
        wait_until(&format!("every task is {status}"), || {
            let stands = |task: &Value| {
                let doubts = status == "running" && task["status"] == "waiting_question";
                task["status"] == status || doubts
            };
            listed(&crew.home)
                .is_some_and(|listed| listed.len() == tasks.len() && listed.values().all(stands))
        });
    }
    wait_until("no agent is left", || crew.home.running(PROGRAM).is_empty());
    for task in &tasks {
        let (history, diary) = (
            history(&crew.home, task),
            diary(&work_area(&crew.home, task)),
        );
        let show = || format!("{task}: {diary:#?}\n{history:#?}");
        check_runs(&history, &diary, 0, &show);
        for event in ["task_paused", "task_resumed", "task_cancelled"] {
            assert_eq!(events(&history, event).len(), 1, "{event} of {}", show());
        }
    }
}
