//! Packages whose resources a project refers to (`PKG-2`).

use std::path::Path;

use goondan_config::{AnyMachine, HostMachine};
use goondan_protocol::definition::ToolSource;
use goondan_protocol::sandbox::{Network, SandboxPath, SandboxPolicy};

use crate::support::{Project, SMALLEST};

/// A project that requires `words` as a neighboring folder and refers to `reference`.
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
fn pkg_2_package_tool_runs_in_its_folder_readable_in_sandbox() {
    let project = with_words(project(REFERENCE));
    let bundle = project.loader().load(&project.root()).bundle.unwrap();
    // Resources that matter only when the package runs as a project are not loaded.
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
fn pkg_2_missing_package_resource_is_reported() {
    for (reference, says) in [
        (
            "{kind: Tool, name: wrods, package: '@acme/words'}",
            "E_CONFIG_UNKNOWN_REFERENCE package `@acme/words` has no Tool `wrods`; it has `words`",
        ),
        (
            "{kind: Tool, name: words, package: '@acme/wrods'}",
            "E_CONFIG_UNKNOWN_REFERENCE the project does not require the package `@acme/wrods`",
        ),
        (
            "Tool/words",
            "E_CONFIG_UNKNOWN_REFERENCE Tool `words` does not exist",
        ),
    ] {
        assert_eq!(problems(&with_words(project(reference))), [says]);
    }
    let missing = problems(&project(REFERENCE));
    assert!(missing[0].starts_with("E_CONFIG_MISSING_FILE failed to open package `@acme/words`"));
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
fn pkg_3_package_modules_get_requested_rights_their_agent_has() {
    let package = |name: &str, permissions: &str| {
        format!(
            "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: {name}}}\nspec: {{permissions: {permissions}}}\n---\n\
             apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: {name}}}\n\
             spec: {{entry: say.mjs, exports: [{{name: say, description: S., parameters: {{type: object}}}}]}}\n---\n\
             apiVersion: goondan.ai/v1\nkind: Extension\nmetadata: {{name: {name}}}\nspec: {{entry: say.mjs}}\n"
        )
    };
    let uses = |sandbox: &str| {
        let requires = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: shop}\n\
                        spec: {dependencies: [{name: a, version: 'file:a'}, {name: b, version: 'file:b'}]}\n---\n";
        let refer =
            |kind: &str, name: &str| format!("{{kind: {kind}, name: {name}, package: {name}}}");
        let agent = SMALLEST.replace(
            "modelRef: Model/main}}",
            &format!(
                "modelRef: Model/main}}, tools: [{}, {}], extensions: [{}, {}], sandbox: {{{sandbox}}}}}",
                refer("Tool", "a"),
                refer("Tool", "b"),
                refer("Extension", "a"),
                refer("Extension", "b"),
            ),
        );
        let project = Project::new(&format!("{requires}{agent}"))
            .file(
                "a/goondan.yaml",
                package("a", "{hosts: [x.org, z.org], read: [/srv/data/a, /opt], write: [/srv/out], secrets: [k, l]}"),
            )
            .file("b/goondan.yaml", package("b", "{hosts: ['*.x.org', x.org], secrets: [l]}"))
            .file("a/say.mjs", "")
            .file("b/say.mjs", "");
        let checked = project.loader().check(&project.root());
        let agent = checked.bundle.unwrap().agents.into_values().next().unwrap();
        let root = project.root().canonicalize().unwrap();
        (agent, checked.warnings, root)
    };
    let paths = |paths: &[SandboxPath]| -> Vec<std::path::PathBuf> {
        paths.iter().map(|it| it.as_path().to_owned()).collect()
    };
    let allowed = |policy: &SandboxPolicy| policy.network.clone();
    let hosts =
        |listed: &[&str]| Network::Allow(listed.iter().map(|it| it.parse().unwrap()).collect());

    let (agent, warnings, root) =
        uses("read: [/srv/data], write: [/srv/out/x], network: {allow: ['x.org:443', 'y.x.org']}");
    let of = |name: &str| {
        let mut all = agent.package_sandboxes.iter();
        all.find(|it| it.packages == [name]).unwrap()
    };
    let (a, b) = (of("a"), of("b"));
    assert_eq!(
        paths(&a.sandbox.read),
        [
            Path::new("/srv/data/a"),
            Path::new("/srv/out/x"),
            &root.join("a")
        ]
    );
    assert_eq!(paths(&a.sandbox.write), [Path::new("/srv/out/x")]);
    assert_eq!(allowed(&a.sandbox), hosts(&["x.org:443"]));
    assert_eq!(paths(&b.sandbox.read), [root.join("b")]);
    assert_eq!(allowed(&b.sandbox), hosts(&["x.org:443", "y.x.org"]));
    assert!(b.sandbox.write.is_empty());
    // Extensions share a process and therefore its permissions.
    let both = agent.extension_sandbox.as_ref().unwrap();
    assert_eq!(both.packages, ["a", "b"]);
    assert_eq!(allowed(&both.sandbox), hosts(&["x.org:443"]));
    assert_eq!(paths(&both.sandbox.read), [root.join("a"), root.join("b")]);
    assert_eq!(both.secrets, ["l".to_owned()].into());
    assert!(
        warnings
            .iter()
            .any(|it| it.message.contains("package `a` needs z.org"))
    );

    let (agent, ..) = uses("network: any");
    assert_eq!(
        allowed(&agent.package_sandboxes[0].sandbox),
        hosts(&["x.org", "z.org"])
    );
    let (agent, ..) = uses("network: none");
    assert!(
        agent
            .module_sandboxes()
            .all(|it| it.sandbox.network == Network::None)
    );
}

#[test]
fn pkg_3_package_missing_from_the_lockfile_is_not_loaded() {
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
    assert!(problems(&requires("^1"))[0].contains("`goondan.lock` does not exist"));
    for (locked, says) in [
        (
            lock("2.0.0"),
            "`goondan.lock` has `words` 2.0.0 from `file:w.tgz`, but `^1` is required",
        ),
        (
            "{\"lockfileVersion\":1,\"packages\":{}}".to_owned(),
            "package `words` is not in `goondan.lock`",
        ),
        ("<<<<<<< HEAD".to_owned(), "failed to read `goondan.lock`"),
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
