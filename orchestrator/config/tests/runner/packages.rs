//! Packages whose resources a project refers to (`PKG-2`).

use std::path::Path;

use goondan_config::{AnyMachine, Machine};
use goondan_protocol::definition::ToolSource;
use goondan_protocol::sandbox::SandboxPath;

use crate::support::{Project, SMALLEST};

/// A project that requires `words` as a folder beside it, and refers to `reference`.
fn project(reference: &str) -> Project {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: shop}\n\
                   spec: {dependencies: [{name: '@acme/words', version: 'file:words'}]}\n---\n";
    let agent = SMALLEST.replace(
        "modelRef: Model/main}}",
        &format!("modelRef: Model/main}}, tools: [{reference}]}}"),
    );
    Project::new(&format!("{package}{agent}"))
}

const WORDS: &str = "apiVersion: goondan.ai/v1
kind: Package
metadata: {name: '@acme/words'}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: words}
spec: {entry: say.mjs, exports: [{name: say, description: Says., parameters: {type: object}}]}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: tester}
spec: {modelConfig: {modelRef: Model/of-the-package}}
";

fn with_words(project: Project) -> Project {
    project
        .file("words/goondan.yaml", WORDS)
        .file("words/say.mjs", "")
}

fn problems(project: &Project) -> Vec<String> {
    let Err(found) = project.loader().load(&project.root()).bundle else {
        return Vec::new();
    };
    let found = found.as_slice().iter();
    found
        .map(|it| format!("{} {}", it.code, it.message))
        .collect()
}

const REFERENCE: &str = "{kind: Tool, name: words, package: '@acme/words'}";

#[test]
fn pkg_2_a_tool_of_a_package_runs_from_its_folder_which_its_sandbox_may_read() {
    let project = with_words(project(REFERENCE));
    let bundle = project.loader().load(&project.root()).bundle.unwrap();
    // What is for whoever runs the package as a project is not taken.
    assert_eq!(bundle.agents.len(), 1);
    let agent = bundle.agents.values().next().unwrap();
    let folder = project.root().join("words").canonicalize().unwrap();
    let ToolSource::Module { entry, .. } = &agent.tools[0].source else {
        panic!("{:?}", agent.tools);
    };
    assert_eq!(*entry, folder.join("say.mjs"));
    let read = agent.sandbox.read.iter().map(SandboxPath::as_path);
    assert_eq!(read.collect::<Vec<&Path>>(), [folder.as_path()]);
}

#[test]
fn pkg_2_what_a_package_does_not_have_is_told() {
    for (reference, says) in [
        (
            "{kind: Tool, name: wrods, package: '@acme/words'}",
            "E_CONFIG_UNKNOWN_REFERENCE package `@acme/words` has no Tool `wrods`; it has `words`",
        ),
        (
            "{kind: Tool, name: words, package: '@acme/wrods'}",
            "E_CONFIG_UNKNOWN_REFERENCE package `@acme/wrods` is none that the project requires",
        ),
        (
            "Tool/words",
            "E_CONFIG_UNKNOWN_REFERENCE there is no Tool `words`",
        ),
    ] {
        assert_eq!(problems(&with_words(project(reference))), [says]);
    }
    let missing = problems(&project(REFERENCE));
    assert!(missing[0].starts_with("E_CONFIG_MISSING_FILE package `@acme/words` cannot be opened"));
    let other = with_words(project(REFERENCE));
    let other = other.file(
        "words/goondan.yaml",
        WORDS.replace("@acme/words", "@acme/other"),
    );
    assert!(problems(&other)[0].contains("is the package `@acme/other`, not `@acme/words`"));
    let broken = with_words(project(REFERENCE));
    let broken = broken.file("words/goondan.yaml", WORDS.replace("say.mjs", "../say.mjs"));
    assert!(problems(&broken)[0].starts_with("E_CONFIG_PATH_OUTSIDE"));
}

#[test]
fn pkg_3_what_is_not_locked_is_not_installed() {
    let requires = |version: &str| {
        let package = format!(
            "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: shop}}\n\
             spec: {{dependencies: [{{name: words, version: '{version}'}}]}}\n---\n"
        );
        Project::new(&format!("{package}{SMALLEST}"))
    };
    let lock = |version: &str| {
        format!(
            "{{\"lockfileVersion\":1,\"packages\":{{\"words\":{{\"version\":\"{version}\",\"resolved\":\"file:w.tgz\",\
             \"tree\":\"sha256-{}\"}}}}}}",
            "0".repeat(64)
        )
    };
    assert!(problems(&requires("^1"))[0].contains("there is no `goondan.lock`"));
    for (locked, says) in [
        (
            lock("2.0.0"),
            "`goondan.lock` has `words` 2.0.0 from `file:w.tgz`, and `^1` is required",
        ),
        (
            "{\"lockfileVersion\":1,\"packages\":{}}".to_owned(),
            "package `words` is not in `goondan.lock`",
        ),
        ("<<<<<<< HEAD".to_owned(), "`goondan.lock` cannot be used"),
    ] {
        let found = problems(&requires("^1").file("goondan.lock", locked));
        assert!(found[0].contains(says), "{found:?}");
    }
    assert_eq!(AnyMachine.state_root(), None);
    for (version, code) in [
        ("latest!", "E_CONFIG_INVALID_VALUE"),
        ("git+ext::x", "E_CONFIG_INVALID_VALUE"),
    ] {
        assert!(problems(&requires(version))[0].starts_with(code));
    }
}
