//! `gdn incident`: recorded turns become tests.
//!
//! Goal: a replay with the same configuration has no differences, each change appears where it is
//! and nowhere else, and no file contains a secret.
//!
//! Method: the examples of the documentation with their scripted models, and the real binaries.
//! `GOONDAN_TEST_INCIDENT_TURNS=200` asks that many questions in each example.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use goondan_tests::projects::LAB;
use goondan_tests::secret_forms::SecretForms;
use goondan_tests::tree::copy_folder;
use goondan_tests::{Daemon, Home, needs};
use serde_json::Value;

use super::secrets::set;

/// Exit code of a replay with differences.
const DIVERGED: i32 = 21;

/// A home whose project is a copy of an example.
fn example(name: &str) -> Home {
    let home = Home::without_project();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    copy_folder(&examples.join(name), &home.project());
    home
}

fn turns() -> usize {
    let turns = std::env::var("GOONDAN_TEST_INCIDENT_TURNS");
    turns.map_or(8, |turns| turns.parse().unwrap())
}

/// Sends a question and returns the id of its trace.
fn trace_of(home: &Home, key: &str, question: &str) -> String {
    let ran = home.gdn(&["send", "--json", "--instance", key, question]);
    assert!(ran.code == 0 || ran.code == 7, "{ran:?}");
    let sent: Value = serde_json::from_str(&ran.stdout).unwrap();
    sent["traceId"].as_str().unwrap().to_owned()
}

fn incident_dir(home: &Home) -> PathBuf {
    let dir = home.path().join("incidents");
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Exports a trace and returns the file.
fn export(home: &Home, trace: &str, name: &str) -> PathBuf {
    let file = incident_dir(home).join(format!("{name}.json"));
    let path = file.to_str().unwrap().to_owned();
    home.gdn(&["incident", "export", trace, "-o", &path])
        .exits(0);
    file
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Records the questions again and again, and replays all without the daemon.
fn replays_without_difference(name: &str, questions: &[&str], is_exact: bool) {
    let home = example(name);
    let daemon = Daemon::serving(&home);
    for turn in 0..turns() {
        let question = questions[turn % questions.len()];
        let key = if turn % 2 == 0 { "even" } else { "odd" };
        let trace = trace_of(&home, key, question);
        let file = export(&home, &trace, &format!("{turn:04}"));
        if !is_exact {
            continue;
        }
        // The engine created every recorded message again.
        let incident = read(&file);
        for turn in incident["turns"].as_array().unwrap() {
            assert!(turn["played"]["unlike"].is_null(), "{question}: {turn}");
            assert_ne!(
                turn["played"]["end"]["kind"], "incomplete",
                "{question}: {turn}"
            );
            assert_ne!(
                turn["played"]["end"]["kind"], "unplayable",
                "{question}: {turn}"
            );
        }
    }
    daemon.stop();
    let dir = incident_dir(&home);
    let tested = home.gdn_json(&["incident", "test", dir.to_str().unwrap()]);
    assert_eq!(tested["same"], turns(), "{tested}");
    assert_eq!(tested["differing"], 0, "{tested}");
}

#[test]
fn turns_of_the_bookshop_replay_as_recorded() {
    let questions = [
        "remember my name is Ada",
        "How many copies of Dune were sold, and what did they earn?",
        "what is my name",
        "echo done",
    ];
    replays_without_difference("bookshop", &questions, true);
}

#[test]
fn turns_of_several_agents_replay_as_recorded() {
    let questions = [
        "report on bees",
        "report on stones",
        "who is there",
        "hello",
        "report on rivers",
    ];
    replays_without_difference("newsroom", &questions, true);
}

#[test]
fn turns_with_sandboxes_and_bundles_replay() {
    replays_without_difference("copy-desk", &["correct bees and rivers", "hello"], false);
    let questions = ["hello", "how are you set up"];
    replays_without_difference("self-improving", &questions, false);
}

#[test]
fn turns_with_modules_replay() {
    if !needs::javascript() || !needs::program("python3") {
        return;
    }
    let questions = [
        "What do 3 copies at 12.50 cost?",
        "Count the words of: to be or not to be",
    ];
    replays_without_difference("tools", &questions, false);
    let questions = ["Who stays in room 12?", "Delete the list"];
    replays_without_difference("extensions", &questions, false);
}

/// A changed text of the newsroom's project, and the first difference: agent, step and part.
type Defect = (
    &'static str,
    &'static str,
    (&'static str, u64, &'static str),
);

const DEFECTS: [Defect; 9] = [
    (
        "Answer with facts only.",
        "Answer in verse.",
        ("researcher", 1, "prompt"),
    ),
    (
        "Ask the researcher for facts",
        "Ask for facts",
        ("editor", 1, "prompt"),
    ),
    ("What we know about", "Notes on", ("writer", 1, "reply")),
    (
        "facts about ${topic}\"",
        "all about ${topic}\"",
        ("editor", 1, "reply"),
    ),
    (
        "say: \"${result}\"\n      - when: {user: '^who is there$', step: 1}",
        "say: \"Here: ${result}\"\n      - when: {user: '^who is there$', step: 1}",
        ("editor", 3, "reply"),
    ),
    (
        "  tools:\n    - {kind: Tool, name: file-system, package: \"@goondan/base\"}\n",
        "",
        ("researcher", 1, "tools"),
    ),
    (
        "entryAgent: Agent/editor",
        "entryAgent: Agent/editor\n  policy: {maxStepsPerTurn: 1}",
        ("editor", 1, "end"),
    ),
    (
        "modelConfig: {modelRef: Model/writer}",
        "modelConfig: {modelRef: Model/researcher}",
        ("writer", 1, "model"),
    ),
    (
        "kind: Agent\nmetadata:\n  name: writer",
        "kind: Agent\nmetadata:\n  name: author",
        ("writer", 1, "agent"),
    ),
];

fn first(replayed: &Value) -> (String, u64, String) {
    let first = &replayed["first"];
    let text = |name: &str| first[name].as_str().unwrap_or_default().to_owned();
    let step = first["step"].as_u64().unwrap_or_default();
    (text("agentName"), step, text("part"))
}

/// Replays a file and returns the object that the program prints.
fn replay(home: &Home, file: &Path, more: &[&str], code: i32) -> Value {
    let path = file.to_str().unwrap();
    let args = [&["incident", "replay", path, "--json"][..], more].concat();
    let ran = home.gdn(&args).exits(code);
    serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap()
}

#[test]
fn seeded_defects_are_found_at_their_first_step() {
    let home = example("newsroom");
    let daemon = Daemon::serving(&home);
    let trace = trace_of(&home, "main", "report on bees");
    let file = export(&home, &trace, "bees");
    daemon.stop();
    let incident = read(&file);
    assert_eq!(incident["turns"].as_array().unwrap().len(), 3);
    let same = replay(&home, &file, &[], 0);
    assert_eq!(
        (&same["same"], &same["first"]),
        (&Value::from(true), &Value::Null)
    );
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    for (at, (old, new, expected)) in DEFECTS.iter().enumerate() {
        assert!(yaml.contains(old), "{old}");
        let overlay = home.path().join(format!("overlay-{at}"));
        home.write(
            &format!("overlay-{at}/goondan.yaml"),
            &yaml.replacen(old, new, 1),
        );
        let against = ["--against", overlay.to_str().unwrap()];
        let replayed = replay(&home, &file, &against, DIVERGED);
        let (agent, step, part) = *expected;
        let wanted = (agent.to_owned(), step, part.to_owned());
        assert_eq!(first(&replayed), wanted, "defect {at}: {replayed}");
        // A changed prompt changes nothing else.
        let count = replayed["divergences"].as_array().unwrap().len();
        assert!(part != "prompt" || count == 1, "defect {at}: {replayed}");
    }
    // Changes of the recording itself are found as well.
    let text = fs::read_to_string(&file).unwrap();
    for (at, (old, new, expected)) in [
        (
            "One bee visits",
            "One bee avoids",
            ("researcher", 2, "message"),
        ),
        (
            "/facts/bees.txt",
            "/facts/wasps.txt",
            ("researcher", 1, "arguments"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(text.contains(old), "{old}");
        let changed = home.path().join(format!("changed-{at}.json"));
        home.write(&format!("changed-{at}.json"), &text.replace(old, new));
        let replayed = replay(&home, &changed, &[], DIVERGED);
        let found = replayed["divergences"].as_array().unwrap().iter();
        let (agent, step, part) = expected;
        let is_there =
            |it: &Value| it["agentName"] == agent && it["step"] == step && it["part"] == part;
        assert!(found.clone().any(is_there), "{replayed}");
    }
}

#[test]
fn a_branch_is_compared_and_the_report_is_for_ci() {
    if !needs::program("git") {
        return;
    }
    let home = example("newsroom");
    let daemon = Daemon::serving(&home);
    let trace = trace_of(&home, "main", "report on rivers");
    export(&home, &trace, "rivers");
    daemon.stop();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let mut command = home.command("git".as_ref(), &[&identity[..], args].concat());
        command.current_dir(home.project());
        goondan_tests::home::RunningProgram::start(command)
            .wait()
            .exits(0);
    };
    git(&["init", "--quiet", "."]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "first"]);
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write(
        "project/goondan.yaml",
        &yaml.replace("facts only", "short facts"),
    );
    git(&["commit", "--quiet", "--all", "--message", "second"]);
    git(&["tag", "short"]);
    home.write("project/goondan.yaml", &yaml);
    let dir = incident_dir(&home);
    let dir = dir.to_str().unwrap();
    home.gdn(&["incident", "test", dir]).exits(0);
    let junit = home.path().join("report.xml");
    let options = ["--against", "short", "--junit", junit.to_str().unwrap()];
    home.gdn(&[&["incident", "test", dir][..], &options].concat())
        .exits(DIVERGED)
        .prints(&["rivers.json", "differs", "agent researcher, step 1, prompt"]);
    let report = fs::read_to_string(junit).unwrap();
    assert!(report.contains("failures=\"1\""), "{report}");
    home.gdn(&["incident", "test", dir, "--against", "no-such-branch"])
        .exits(5);
    home.write(
        "incidents/other.json",
        "{\"format\": \"goondan.incident/9\"}",
    );
    home.gdn(&["incident", "test", dir])
        .exits(15)
        .prints(&["other.json", "unreadable"]);
}

/// Limit for the replay of a thousand steps.
const REPLAY_MAX: Duration = Duration::from_secs(2);
/// Attempts within the limit. One must succeed, because other tests use the processors too.
const REPLAY_TRIES: usize = 10;

#[test]
fn a_thousand_steps_replay_in_two_seconds() {
    let home = example("newsroom");
    let daemon = Daemon::serving(&home);
    let trace = trace_of(&home, "main", "report on bees");
    let file = export(&home, &trace, "0000");
    daemon.stop();
    let steps: usize = read(&file)["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["played"]["steps"].as_array().unwrap().len())
        .sum();
    let copies = 1_000_usize.div_ceil(steps);
    for copy in 1..copies {
        let to = incident_dir(&home).join(format!("{copy:04}.json"));
        fs::copy(&file, to).unwrap();
    }
    let dir = incident_dir(&home);
    let mut fastest = Duration::MAX;
    for _ in 0..REPLAY_TRIES {
        let since = Instant::now();
        let tested = home.gdn_json(&["incident", "test", dir.to_str().unwrap()]);
        assert_eq!(tested["same"], copies);
        fastest = fastest.min(since.elapsed());
        if fastest <= REPLAY_MAX {
            break;
        }
    }
    assert!(fastest <= REPLAY_MAX, "{fastest:?}");
}

#[test]
fn sec_2_no_incident_contains_a_secret_in_any_encoding() {
    const SECRET: &str = "p\"ss w\u{f6}rd/+?1";
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    set(&home, "key", "value", SECRET, &[]).exits(0);
    let forms = SecretForms::of(SECRET);
    for (at, (name, form)) in forms.forms.iter().enumerate() {
        let trace = trace_of(&home, "main", &format!("echo it is {form} as {name}"));
        let file = export(&home, &trace, &format!("{at:02}"));
        let bytes = fs::read(&file).unwrap();
        assert_eq!(forms.found_in(&bytes), None, "{name}");
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("[masked]"), "{name}: {text}");
    }
    // A replay masks nothing in addition, and has no differences.
    let dir = incident_dir(&home);
    home.gdn(&["incident", "test", dir.to_str().unwrap()])
        .exits(0);
    // Ids are not masked, so the check refuses the file.
    let id = "id-with-hunter2-and-more";
    set(&home, "other", "value", "hunter2-and-more", &[]).exits(0);
    home.gdn(&["send", "--event-id", id, "echo hello"]).exits(0);
    let file = dir.join("refused.json");
    let path = file.to_str().unwrap();
    let refused = home
        .gdn(&["incident", "export", id, "-o", path])
        .exits(10)
        .tells(&[
            "secret `other` entry `value`",
            "as plain text",
            "/turns/0/eventId",
        ]);
    assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    assert!(!file.exists());
}

#[test]
fn wrong_commands_have_a_clear_error() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    home.gdn(&["incident", "export", "--json"])
        .exits(2)
        .tells(&["-o FILE"]);
    let to_stdout = home.gdn(&["incident", "export"]).exits(0);
    let incident: Value = serde_json::from_str(&to_stdout.stdout).unwrap();
    assert_eq!(incident["format"], "goondan.incident/1");
    home.write("taken.json", "{}");
    let taken = home.path().join("taken.json");
    let taken = taken.to_str().unwrap();
    home.gdn(&["incident", "export", "-o", taken])
        .exits(10)
        .tells(&["--force"]);
    home.gdn(&["incident", "replay", taken])
        .exits(15)
        .tells(&["it is not an incident"]);
    home.gdn(&["incident", "export", "-o", taken, "--force"])
        .exits(0);
    home.gdn(&["incident", "replay", taken])
        .exits(0)
        .prints(&["Replayed with"]);
    daemon.stop();
    home.gdn(&["incident", "export"]).exits(3);
    home.gdn(&["incident", "replay", "no-such-file"]).exits(5);
    let empty = home.notes();
    home.gdn(&["incident", "test", empty.to_str().unwrap()])
        .exits(5);
}
