//! Typical mistakes: each message says what failed and why, and names the next step (`CTL-1`).

use goondan_tests::home::CommandOutput;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home};

/// A command line, its exit code, and parts of its message and of its hint.
type Mistake = (&'static [&'static str], i32, &'static str, &'static str);

/// Without a daemon, in a project.
const WITHOUT_A_DAEMON: &[Mistake] = &[
    (&["ps"], 3, "no daemon runs on ", "`gdn run`"),
    (&["send", "hi"], 3, "no daemon runs on ", "`gdn run`"),
    (&["chat"], 3, "no daemon runs on ", "`gdn run`"),
    (&["stop"], 3, "no daemon runs on ", "`gdn run`"),
    (&["inbox"], 3, "no daemon runs on ", "`gdn run`"),
    (&["task", "list"], 3, "no daemon runs on ", "`gdn run`"),
    (&["daemon", "status"], 3, "no daemon runs on ", "`gdn run`"),
    (&["top"], 2, "`gdn top` needs a terminal", "gdn top --once"),
];

/// Wrong paths, in a project.
const PATHS: &[Mistake] = &[
    (
        &["run", "nowhere"],
        5,
        "cannot open the directory nowhere",
        "--project DIR",
    ),
    (
        &["validate", "nowhere"],
        5,
        "cannot open the directory nowhere",
        "goondan.yaml",
    ),
    (
        &["config", "show", "nowhere"],
        5,
        "cannot open the directory",
        "goondan.yaml",
    ),
    (
        &["--project", "/nowhere", "ps"],
        5,
        "cannot open the directory /nowhere",
        "--project DIR",
    ),
    (
        &["--project", "/", "ps"],
        5,
        "no goondan.yaml in /",
        "`gdn init /`",
    ),
    (
        &["--state-root", "/dev/null", "ps"],
        2,
        "is not a directory",
        "--state-root DIR",
    ),
    (
        &["config", "expand", "nowhere"],
        5,
        "cannot open the directory",
        "goondan.yaml",
    ),
    (
        &["run", "--input-file", "nofile"],
        2,
        "failed to read the message in nofile",
        "--input TEXT",
    ),
    (&["init"], 10, "already exist", "`gdn init --force .`"),
    (
        &["man", "nope"],
        5,
        "unknown command `gdn nope`",
        "`gdn help`",
    ),
];

/// Invalid command lines.
const USAGE: &[Mistake] = &[
    (
        &["sned", "hi"],
        2,
        "unrecognized subcommand 'sned'",
        "`gdn help`",
    ),
    (
        &["shutdwn"],
        2,
        "unrecognized subcommand 'shutdwn'",
        "'daemon shutdown'",
    ),
    (
        &["task", "shwo", "x"],
        2,
        "unrecognized subcommand 'shwo'",
        "`gdn help task`",
    ),
    (
        &["run", "--wacth"],
        2,
        "unexpected argument '--wacth'",
        "`gdn help run`",
    ),
    (
        &["ps", "extra"],
        2,
        "unexpected argument 'extra'",
        "`gdn help ps`",
    ),
    (&["send"], 2, "<TEXT>", "`gdn help send`"),
    (&["task"], 2, "requires a subcommand", "`gdn help task`"),
    (&["task", "new"], 2, "<TITLE>", "`gdn help task new`"),
    (&["secret", "set", "a"], 2, "<KEY>", "`gdn help secret set`"),
    (
        &["init", "-t", "nope", "x"],
        2,
        "possible values: default",
        "`gdn help init`",
    ),
    (
        &["init", "-n", "a b", "x"],
        2,
        "such as my-swarm",
        "`gdn help init`",
    ),
    (
        &["logs", "--level", "loud"],
        2,
        "possible values: error",
        "`gdn help logs`",
    ),
    (
        &["logs", "--since", "yesterday"],
        2,
        "15m, 2h or 7d",
        "`gdn help logs`",
    ),
    (
        &["logs", "--trace", "zz"],
        2,
        "hexadecimal digits",
        "`gdn help logs`",
    ),
    (
        &["logs", "-p", "conector"],
        2,
        "did you mean `connector`?",
        "`gdn help logs`",
    ),
    (
        &["top", "--view", "nope"],
        2,
        "possible values: overview",
        "`gdn help top`",
    ),
    (
        &["--color", "blue", "ps"],
        2,
        "possible values: auto",
        "`gdn help ps`",
    ),
    (
        &["send", "--timeout", "soon", "x"],
        2,
        "expected a whole number",
        "`gdn help send`",
    ),
    (
        &["usage", "--by", "nope"],
        2,
        "possible values: agent",
        "`gdn help usage`",
    ),
    (
        &["usage", "--since", "nope"],
        2,
        "2026-01-31 or 7d",
        "`gdn help usage`",
    ),
    (
        &["--workspace", "a b", "ps"],
        2,
        "allowed are letters",
        "`gdn help ps`",
    ),
    (
        &["permission", "allow", "x"],
        2,
        "`project`, `network` or `packages`",
        "`gdn help workspace permission",
    ),
    (
        &["studio", "--port", "99999"],
        2,
        "99999 is not in",
        "`gdn help studio`",
    ),
    (
        &["completions", "nope"],
        2,
        "possible values: bash",
        "`gdn help completions`",
    ),
    (&["-q", "-v", "ps"], 2, "'--quiet", "`gdn help ps`"),
    (
        &["config", "schema", "Nope"],
        5,
        "unknown kind `Nope`",
        "Agent",
    ),
];

/// Unknown names and refused actions, while the project runs.
const NAMES: &[Mistake] = &[
    (
        &["--workspace", "nope", "ps"],
        5,
        "workspace nope is not registered",
        "workspace list`",
    ),
    (
        &["send", "--agent", "workr", "x"],
        5,
        "agent `workr` does not exist",
        "worker",
    ),
    (
        &["restart", "--agent", "workr"],
        5,
        "no agent `workr`",
        "did you mean `worker`?",
    ),
    (
        &["send", "--image", "nofile", "x"],
        2,
        "`nofile` cannot be read",
        "PNG",
    ),
    (
        &["conversation", "show", "nope"],
        5,
        "conversation `nope` does not exist",
        "conversation",
    ),
    (
        &["instance", "history", "nope"],
        5,
        "conversation `nope` does not exist",
        "conversation",
    ),
    (
        &["conversation", "delete", "nope"],
        2,
        "confirmation required",
        "--yes`",
    ),
    (
        &["conversation", "import", "nofile"],
        5,
        "cannot read nofile",
        "conversation export`",
    ),
    (
        &["event", "retry", "nope"],
        5,
        "no event `nope` is waiting",
        "event list`",
    ),
    (
        &["event", "drop", "nope"],
        5,
        "no event `nope` is waiting",
        "event list`",
    ),
    (
        &["cancel", "nope"],
        5,
        "no event `nope` is waiting",
        "event list`",
    ),
    (
        &["approve", "a-1"],
        5,
        "no tool call waits for approval `a-1`",
        "inbox approvals`",
    ),
    (
        &["inbox", "show", "a-1"],
        5,
        "nothing in the inbox is called `a-1`",
        "gdn inbox --list`",
    ),
    (
        &["question", "show", "q-1"],
        5,
        "question `q-1` is not open",
        "inbox question list`",
    ),
    (
        &["schedule", "remove", "x"],
        5,
        "schedule `x` does not exist",
        "event schedule list`",
    ),
    (
        &["sandbox", "show", "r1", "a"],
        5,
        "does not exist",
        "proposal sandbox list`",
    ),
    (
        &["proposal", "apply", "r1", "a", "--yes"],
        5,
        "does not exist",
        "sandbox list`",
    ),
    (
        &["task", "show", "nope"],
        5,
        "task `nope` does not exist",
        "`gdn task list --all`",
    ),
    (
        &["secret", "allow", "nope"],
        5,
        "secret `nope` does not exist",
        "`gdn secret list`",
    ),
    (
        &["oauth", "show", "nope"],
        5,
        "OAuthApp `nope` does not exist",
        "secret oauth list`",
    ),
    (
        &["node", "move", "nope"],
        2,
        "replication is not configured",
        "config.json",
    ),
    (
        &["restart", "--fresh"],
        2,
        "confirmation required",
        "`gdn restart --fresh --yes`",
    ),
];

/// Checks a mistake: nothing on stdout, and a message with its hint on stderr.
fn check(mistake: &Mistake, ran: &CommandOutput, wrong: &mut Vec<String>) {
    let (args, code, message, hint) = mistake;
    let (told, next) = ran
        .stderr
        .split_once("\nhint: ")
        .unwrap_or((ran.stderr.as_str(), ""));
    let is_right = ran.code == *code
        && told.contains("error: ")
        && told.contains(message)
        && next.contains(hint);
    if !is_right {
        wrong.push(format!("gdn {}\n{ran:#?}", args.join(" ")));
    }
}

fn check_all(home: &Home, mistakes: &[Mistake], wrong: &mut Vec<String>) {
    for mistake in mistakes {
        check(mistake, &home.gdn(mistake.0), wrong);
    }
}

#[test]
fn ctl_1_sixty_mistakes_have_messages_with_the_next_step() {
    let total = [WITHOUT_A_DAEMON, PATHS, USAGE, NAMES].map(<[Mistake]>::len);
    assert!(total.iter().sum::<usize>() >= 60);
    let mut wrong = Vec::new();
    let home = Home::new(LAB);
    check_all(&home, WITHOUT_A_DAEMON, &mut wrong);
    check_all(&home, USAGE, &mut wrong);
    let daemon = Daemon::serving(&home);
    check_all(&home, PATHS, &mut wrong);
    check_all(&home, NAMES, &mut wrong);
    daemon.stop();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
