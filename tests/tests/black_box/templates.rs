//! What `gdn init` makes runs at once, whichever template it was made from (`ROOT-3`).

use goondan_tests::home::Home;

/// Makes a project from a template and starts it.
fn begin(template: &str) -> Home {
    let home = Home::without_project();
    home.gdn(&["init", "--template", template, "--no-git", "."])
        .exits(0);
    home.gdn(&["run"]).exits(0);
    home
}

/// Asks an agent and gives its answer.
#[track_caller]
fn ask(home: &Home, agent: &str, text: &str) -> String {
    home.gdn(&["send", "--agent", agent, text]).exits(0).stdout
}

#[test]
fn root_3_the_default_project_runs_a_tool_and_remembers() {
    let home = begin("default");
    let answer = home.ask("main", "run echo it works");
    assert!(answer.contains("it works"), "{answer}");
    home.ask("main", "my name is Ada");
    assert!(home.ask("main", "who am I?").contains("You are Ada"));
    let answer = home.ask("other", "my name is 에이다.");
    assert!(answer.contains("Nice to meet you, 에이다."), "{answer}");
    assert!(home.ask("other", "who am I?").contains("You are 에이다;"));
}

#[test]
fn root_3_the_agents_of_the_multi_agent_project_each_do_their_part() {
    let home = begin("multi-agent");
    let asked = ask(&home, "desk", "which files are there?");
    assert!(asked.contains("goondan.yaml"), "{asked}");
    let asked = ask(&home, "desk", "run echo asked for by the desk");
    assert!(asked.contains("asked for by the desk"), "{asked}");
    let listed = ask(&home, "librarian", "list files");
    assert!(listed.contains("goondan.yaml"), "{listed}");
    let read = ask(&home, "librarian", "read prompts/desk.md");
    assert!(read.contains("You are the front desk"), "{read}");
    assert!(ask(&home, "operator", "run echo it works").contains("it works"));
}

#[test]
fn root_3_the_tools_of_the_package_project_can_be_tried() {
    let home = begin("package");
    assert!(home.ask("main", "try look").contains("goondan.yaml"));
    assert!(home.ask("main", "try shell").contains("It works."));
}

#[test]
fn root_3_the_minimal_project_answers() {
    let home = begin("minimal");
    assert_eq!(home.ask("main", "my name is Ada"), "Hello, Ada.");
}
