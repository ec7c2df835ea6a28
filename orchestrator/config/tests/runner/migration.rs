//! Projects of the format 0.0.3 are migrated to the current format (`COMPAT-1`).

use goondan_config::{Loader, MigratedFile};

use crate::older_format::bundle;
use crate::support::{Project, write};

fn migrated(project: &Project) -> Vec<MigratedFile> {
    let files = Loader::new(project).migrate(&project.root());
    files.expect("nothing is wrong with it")
}

fn put(project: &Project, files: &[MigratedFile]) {
    for file in files {
        write(&project.root().join(&file.path), file.after.as_bytes());
    }
}

#[test]
fn compat_1_migrated_file_means_the_same_without_older_forms() {
    let project = bundle();
    let load = || Loader::new(&project).load(&project.root());
    let before = load();
    let files = migrated(&project);
    assert_eq!(files.len(), 1);
    put(&project, &files);
    let after = load();
    let (Ok(was), Ok(is)) = (before.bundle, after.bundle) else {
        panic!("{:?}", load().bundle);
    };
    assert_eq!(was.agents, is.agents);
    assert_eq!(was.connections, is.connections);
    assert_eq!(was.entry_agent, is.entry_agent);
    let older: Vec<_> = after
        .warnings
        .iter()
        .filter(|found| found.code == "N_CONFIG_OLDER_FORM")
        .map(|found| found.message.clone())
        .collect();
    // This note is about its behavior, not its form.
    let told = "`message-compaction` writes summaries with the agent's own model";
    assert_eq!(older, [told]);
    assert_eq!(migrated(&project), []);
}

#[test]
fn compat_1_document_without_older_form_stays_byte_for_byte() {
    let kept = "# The answers.\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: {name: main} # cheap\nspec: {provider: \
                scripted, options: {rules: [{say: Hi}]}}\n";
    let older = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  prompts: {systemPrompt: \
                 Be kind.}\n  modelConfig: {modelRef: {ref: Model/main}}\n";
    let swarm = "apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: s}\nspec: {entryAgent: Agent/clerk}\n";
    let project = Project::new(&format!("{kept}--- # the clerk\n{older}---\n{swarm}"));
    let files = migrated(&project);
    let [file] = files.as_slice() else {
        panic!("{files:?}");
    };
    let expected = format!(
        "{kept}--- # the clerk\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata:\n  name: clerk\nspec:\n  \
         modelConfig:\n    modelRef: Model/main\n  prompt:\n    system: Be kind.\n---\n{swarm}"
    );
    assert_eq!(file.after, expected);
}

#[test]
fn compat_1_a_file_keeps_its_line_ends() {
    let text = "apiVersion: goondan.ai/v1\r\nkind: Agent\r\nmetadata: {name: other}\r\nspec:\r\n  prompts: {systemPrompt: \
                Hi}\r\n  modelConfig: {modelRef: Model/main}\r\n";
    let project = Project::with("").file("resources/other.yaml", text);
    let files = migrated(&project);
    assert_eq!(files[0].before, text);
    let after = &files[0].after;
    assert!(after.contains("prompt:\r\n    system: Hi\r\n"), "{after:?}");
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
}

#[test]
fn compat_1_a_project_of_today_has_nothing_to_migrate() {
    assert_eq!(migrated(&Project::new(crate::support::SMALLEST)), []);
}

#[test]
fn compat_1_bad_older_form_is_reported_and_nothing_is_written() {
    let wrong = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  modelConfig: {modelRef: \
                 Model/main}\n  tools: [{selector: {kind: Tool, matchLabels: {area: none}}}]\n";
    let project = Project::with(wrong);
    let found = Loader::new(&project).migrate(&project.root()).unwrap_err();
    assert!(
        found.to_string().contains("the selector matches no Tool"),
        "{found}"
    );
}
