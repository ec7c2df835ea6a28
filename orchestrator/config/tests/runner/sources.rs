//! Sources of a project: files, environment files, and stored files.

use std::fs;

use goondan_config::{Loader, ProjectSnapshot};

use crate::support::{Project, SMALLEST};

const WITH_PROMPT: &str = "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec: {modelConfig: {modelRef: Model/main}, prompt: {systemRef: prompts/clerk.md}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: shop}
spec: {entryAgent: Agent/clerk, agents: [Agent/clerk, Agent/helper]}
";

const WITH_TOKEN: &str = "\
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: hook}
spec: {builtin: webhook, events: [{name: message}]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec: {connectorRef: Connector/hook, config: {port: 0}, secrets: {hmac: {valueFrom: {env: TOKEN}}}}
";

#[test]
fn sup_8_every_change_that_matters_is_seen_and_nothing_else() {
    let project = Project::with(WITH_PROMPT).file("prompts/clerk.md", "Be kind.");
    let read = || Loader::new(&project).load(&project.root());
    let mut sources = read().sources;
    assert!(read().bundle.is_ok(), "{:?}", read().bundle);
    let root = project.root().canonicalize().unwrap();
    let change = |path: &str, text: Option<&str>| {
        let path = root.join(path);
        match text {
            Some(text) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                crate::support::write(&path, text.as_bytes());
            }
            None => fs::remove_file(path).unwrap(),
        }
    };
    for (path, text, matters) in [
        (
            "goondan.yaml",
            Some(&*format!("# \n{SMALLEST}---\n{WITH_PROMPT}")),
            true,
        ),
        ("prompts/clerk.md", Some("Be short."), true),
        ("prompts/other.md", Some("x"), false),
        ("README.md", Some("x"), false),
        (".env", Some("A=1"), true),
        (".env", Some("A=1"), false),
        (".env.local", Some("A=1"), true),
        (".env.local", None, true),
        ("resources/deep/more.yaml", Some("# nothing"), true),
        ("resources/deep/notes.txt", Some("x"), false),
        ("resources/deep/more.yaml", None, true),
        ("prompts/clerk.md", None, true),
        ("prompts/clerk.md", Some("Back."), true),
    ] {
        change(path, text);
        assert_eq!(sources.is_current(), !matters, "{path} {text:?}");
        assert!(!matters || sources.concerns(&root.join(path)), "{path}");
        let directories = sources.directories();
        let mut above = root.join(path);
        above.pop();
        while !above.is_dir() {
            above.pop();
        }
        assert!(
            !matters || directories.contains(&above),
            "{path} {directories:?}"
        );
        sources = read().sources;
        assert!(sources.is_current(), "{path}");
    }
    assert!(!sources.concerns(&root.join("node_modules/x")));
    assert!(sources.directories().contains(root.parent().unwrap()));
}

#[test]
fn sup_8_deleted_project_is_noticed_when_it_returns() {
    let project = Project::new(SMALLEST);
    let root = project.root().canonicalize().unwrap();
    let aside = root.with_extension("aside");
    crate::support::rename(&root, &aside);
    let gone = Loader::new(&project).load(&root);
    assert!(gone.bundle.is_err() && gone.sources.is_current());
    assert!(gone.sources.concerns(&root));
    assert!(gone.sources.directories().contains(root.parent().unwrap()));
    crate::support::rename(&aside, &root);
    assert!(!gone.sources.is_current());
}

#[test]
fn sup_8_files_behind_links_are_watched_at_their_target() {
    let project = Project::empty()
        .file("versions/1/goondan.yaml", SMALLEST)
        .link("current", "versions/1")
        .link("goondan.yaml", "current/goondan.yaml");
    let root = project.root().canonicalize().unwrap();
    let read = Loader::new(&project).load(&root);
    assert!(read.bundle.is_ok());
    assert!(
        read.sources
            .directories()
            .contains(&root.join("versions/1"))
    );
    // The change happens next to the link, as with a mounted configuration.
    assert!(read.sources.concerns(&root.join("current")));
}

#[test]
fn environment_files_are_read_by_the_stated_precedence() {
    let named = tempfile::tempdir().unwrap();
    let files: Vec<_> = ["first.env", "second.env"]
        .map(|name| named.path().join(name))
        .into();
    let token = |project: &Project, files: &[std::path::PathBuf]| {
        let loaded = Loader::new(project)
            .with_env_files(files)
            .load(&project.root());
        let secrets: Vec<String> = loaded.secrets.values().map(str::to_owned).collect();
        assert_eq!(
            loaded.sources.kept().iter().count(),
            1,
            "no environment file is kept"
        );
        let bundle = loaded.bundle.unwrap();
        let mut connections = bundle.connections.into_values();
        let token = connections.next().unwrap().secrets["hmac"].clone();
        assert_eq!(secrets, [&*token]);
        token
    };
    let mut project = Project::with(WITH_TOKEN).file(".env", "TOKEN=from .env");
    assert_eq!(token(&project, &[]), "from .env");
    project = project.file(".env.local", "TOKEN=from .env.local");
    assert_eq!(token(&project, &[]), "from .env.local");
    crate::support::write(&files[0], b"TOKEN=from the first");
    assert_eq!(token(&project, &files[..1]), "from the first");
    crate::support::write(&files[1], b"TOKEN=from the second");
    assert_eq!(token(&project, &files), "from the second");
    project = project.variable("TOKEN", "from the process");
    assert_eq!(token(&project, &files), "from the process");
}

#[test]
fn an_environment_file_that_was_named_must_be_there() {
    let project = Project::new(SMALLEST);
    let missing = project.root().join("no.env");
    let loader = Loader::new(&project).with_env_files(std::slice::from_ref(&missing));
    let problems = loader.load(&project.root()).bundle.unwrap_err();
    let text = problems.to_string();
    assert!(
        text.contains("no.env") && text.contains("--env-file"),
        "{text}"
    );
}

#[test]
fn kept_sources_load_without_the_project_except_environment() {
    let documents = format!("{WITH_PROMPT}---\n{WITH_TOKEN}");
    let project = Project::with(&documents)
        .file("prompts/clerk.md", "Be kind.")
        .file("resources/more.yaml", "# nothing")
        .file(".env", "TOKEN=hunter2");
    let good = Loader::new(&project).load(&project.root());
    let kept: ProjectSnapshot = good
        .sources
        .kept()
        .iter()
        .map(|(path, text)| (path.to_path_buf(), text.map(str::to_owned)))
        .collect();
    let names: Vec<_> = kept
        .iter()
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(
        names,
        ["goondan.yaml", "prompts/clerk.md", "resources/more.yaml"]
    );
    assert!(!good.secrets.is_any_written_out());
    assert_eq!(format!("{:?}", good.secrets), "Secrets(1)");

    let project = project
        .file("goondan.yaml", "kind: [")
        .file(".env", "what is this\nTOKEN=hunter2");
    fs::remove_file(project.root().join("prompts/clerk.md")).unwrap();
    let loader = Loader::new(&project);
    assert!(loader.load(&project.root()).bundle.is_err());
    let again = loader.load_kept(&project.root(), &kept).bundle.unwrap();
    assert_eq!(again.digest, good.bundle.unwrap().digest);

    fs::remove_file(project.root().join(".env")).unwrap();
    let problems = loader.load_kept(&project.root(), &kept).bundle.unwrap_err();
    assert!(
        problems.to_string().contains("`TOKEN` is not set"),
        "{problems}"
    );
}

#[test]
fn sup_8_an_edited_program_is_another_connector() {
    let documents = WITH_TOKEN
        .replace("builtin: webhook", "entry: connectors/hook.py")
        .replace(
            "config: {port: 0}, secrets: {hmac: {valueFrom: {env: TOKEN}}}",
            "config: {}",
        );
    let project = Project::with(&documents).file("connectors/hook.py", "print()");
    let before = project.load();
    let project = project.file("connectors/hook.py", "print(1)");
    assert_ne!(project.load().connections, before.connections);
    assert_ne!(project.load().digest, before.digest);
}

#[test]
fn sup_8_edited_import_of_a_module_changes_the_module() {
    let documents = WITH_TOKEN
        .replace("builtin: webhook", "entry: connectors/hook.ts")
        .replace(
            "config: {port: 0}, secrets: {hmac: {valueFrom: {env: TOKEN}}}",
            "config: {}",
        );
    let project = Project::with(&documents)
        .file(
            "connectors/hook.ts",
            "import { a } from \"./a.mjs\";\nimport \"../../elsewhere.mjs\";",
        )
        .file(
            "connectors/a.mjs",
            "import b from '../shared/b'; import 'zod';",
        )
        .file("shared/b.ts", "import '../connectors/a.mjs';")
        .link("connectors/linked.mjs", "/dev/null");
    let root = project.root().canonicalize().unwrap();
    let read = || {
        let loaded = Loader::new(&project).load(&root);
        (loaded.bundle.unwrap().connections, loaded.sources)
    };
    let (mut before, mut sources) = read();
    for (path, text) in [
        ("shared/b.ts", "import './c.cjs';"),
        // The file was missing, and its path was recorded.
        ("shared/c.cjs", "require('../connectors/linked.mjs')"),
        ("connectors/hook.ts", "import \"../shared/c.cjs\""),
        ("shared/c.cjs", "1"),
    ] {
        crate::support::write(&root.join(path), text.as_bytes());
        assert!(!sources.is_current(), "{path}");
        assert!(sources.concerns(&root.join(path)), "{path}");
        let (now, sources_now) = read();
        assert_ne!(before, now, "{path}");
        (before, sources) = (now, sources_now);
    }
    crate::support::write(&root.join("connectors/a.mjs"), b"no longer imported");
    assert!(sources.is_current());
}

#[test]
fn sec_1_plain_text_secret_is_detected() {
    let documents = WITH_TOKEN.replace("valueFrom: {env: TOKEN}", "value: hunter2");
    let project = Project::with(&documents);
    let loaded = Loader::new(&project).load(&project.root());
    assert!(loaded.secrets.is_any_written_out());
    assert_eq!(loaded.secrets.values().collect::<Vec<_>>(), ["hunter2"]);
}
