//! The tool `file-system` on real files, including refused operations.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use goondan_agent_process::tool_call::ToolOutcome;
use goondan_agent_process::tools::Toolbox;
use goondan_protocol::script::Script;
use serde_json::{Value, json};

use crate::bash::{call, toolbox};
use crate::support::{BINARY, TestProject, put};

fn run(site: &TestProject, export: &str, input: Value) -> ToolOutcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(toolbox(site).run(&call(&format!("file-system__{export}"), input)))
}

fn ok(site: &TestProject, export: &str, input: Value) -> String {
    let outcome = run(site, export, input);
    assert!(!outcome.is_error, "{}", outcome.text);
    outcome.text
}

fn code(site: &TestProject, export: &str, input: Value) -> String {
    let outcome = run(site, export, input);
    assert!(outcome.is_error, "it worked: {}", outcome.text);
    outcome.text.split_once(':').unwrap().0.to_owned()
}

#[test]
fn prov_1_an_edit_finds_text_that_only_looks_the_same() {
    let site = TestProject::new();
    let content = "in\u{a0}current\n“one” two\n";
    ok(&site, "write", json!({"path": "a", "content": content}));
    let edited = ok(
        &site,
        "edit",
        json!({"path": "a", "oldText": "in current\n\"one\"", "newText": "three"}),
    );
    assert!(edited.contains("other spaces"), "{edited}");
    let text = std::fs::read_to_string(site.work.join("a")).unwrap();
    assert_eq!(text, "three two\n");
}

#[test]
fn a_file_is_written_read_edited_and_listed() {
    let site = TestProject::new();
    let path = "notes/ä/a.txt";
    ok(
        &site,
        "write",
        json!({"path": path, "content": "one\ntwo\n"}),
    );
    assert_eq!(ok(&site, "read", json!({"path": path})), "one\ntwo\n");
    let full = site.work.join(path);
    std::fs::set_permissions(&full, std::fs::Permissions::from_mode(0o640)).unwrap();
    ok(
        &site,
        "edit",
        json!({"path": full, "oldText": "two", "newText": "$1\\"}),
    );
    assert_eq!(std::fs::read_to_string(&full).unwrap(), "one\n$1\\\n");
    assert_eq!(full.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    std::fs::create_dir(full.with_file_name("b")).unwrap();
    symlink("a.txt", full.with_file_name("c")).unwrap();
    let listed = ok(&site, "list", json!({"path": "notes/ä"}));
    assert_eq!(listed, "a.txt (8 bytes)\nb/\nc (symbolic link)\n");
    assert_eq!(
        ok(&site, "read", json!({"path": "./notes/ä/c"})),
        "one\n$1\\\n"
    );
    assert_eq!(ok(&site, "list", json!({})), "notes/\n");
}

#[test]
fn an_edit_must_match_exactly_once() {
    let site = TestProject::new();
    put(site.work.join("a"), "x y x");
    let edit = |old: &str| json!({"path": "a", "oldText": old, "newText": "z"});
    assert_eq!(code(&site, "edit", edit("x")), "E_MANY_MATCHES");
    assert_eq!(code(&site, "edit", edit("q")), "E_NO_MATCH");
    assert_eq!(
        std::fs::read_to_string(site.work.join("a")).unwrap(),
        "x y x"
    );
}

#[test]
fn the_project_is_read_and_never_written() {
    let site = TestProject::new();
    put(site.project.join("a"), "hi");
    for path in [
        "$GOONDAN_PROJECT_ROOT/a",
        site.project.join("a").to_str().unwrap(),
    ] {
        assert_eq!(ok(&site, "read", json!({"path": path})), "hi");
        let edit = json!({"path": path, "oldText": "hi", "newText": "no"});
        assert_eq!(code(&site, "edit", edit), "E_PATH_READ_ONLY");
        let write = json!({"path": path, "content": "no"});
        assert_eq!(code(&site, "write", write), "E_PATH_READ_ONLY");
    }
    assert_eq!(
        ok(&site, "list", json!({"path": "$GOONDAN_PROJECT_ROOT"})),
        "a (2 bytes)\n"
    );
    ok(
        &site,
        "write",
        json!({"path": "$GOONDAN_WORK_DIR/b", "content": ""}),
    );
    assert!(site.work.join("b").exists());
    assert_eq!(site.project.read_dir().unwrap().count(), 1);
}

#[test]
fn nothing_outside_is_reached() {
    let site = TestProject::new();
    let outside = site.outside();
    std::fs::create_dir(&outside).unwrap();
    put(outside.join("secret"), "s");
    symlink("../outside", site.work.join("relative")).unwrap();
    symlink(&outside, site.work.join("absolute")).unwrap();
    symlink(outside.join("secret"), site.work.join("file")).unwrap();
    symlink("/proc/self/root", site.work.join("magic")).unwrap();
    symlink("../outside", site.project.join("out")).unwrap();
    let secret = outside.join("secret");
    for path in [
        "../outside/secret",
        "a/../../outside/secret",
        secret.to_str().unwrap(),
        "relative/secret",
        "absolute/secret",
        "file",
        "magic/etc/passwd",
        "/etc/passwd",
        "$GOONDAN_PROJECT_ROOT/out/secret",
        "$GOONDAN_PROJECT_ROOT/../outside/secret",
    ] {
        assert_eq!(
            code(&site, "read", json!({"path": path})),
            "E_PATH_OUTSIDE",
            "{path}"
        );
        let edit = json!({"path": path, "oldText": "s", "newText": "t"});
        assert!(code(&site, "edit", edit).starts_with("E_PATH_"), "{path}");
    }
    for path in [
        "../outside/new",
        "relative/new",
        "absolute/new",
        "relative/new/deeper",
    ] {
        let write = json!({"path": path, "content": "x"});
        assert_eq!(code(&site, "write", write), "E_PATH_OUTSIDE", "{path}");
    }
    assert_eq!(
        code(&site, "list", json!({"path": "relative"})),
        "E_PATH_OUTSIDE"
    );
    // A link at the path of a file is replaced; its target is unchanged.
    ok(&site, "write", json!({"path": "file", "content": "mine"}));
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "s");
    assert_eq!(outside.read_dir().unwrap().count(), 1);
    let left = site
        .work
        .read_dir()
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    let drafts = left.filter(|name| name.to_str().unwrap().starts_with(".goondan-draft"));
    assert_eq!(drafts.count(), 0);
}

#[test]
fn files_that_are_not_text_are_reported_without_blocking() {
    let site = TestProject::new();
    put(site.work.join("binary"), [0xff, 0xfe]);
    nix::unistd::mkfifo(&site.work.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let read = |path: &str| code(&site, "read", json!({"path": path}));
    assert_eq!(read("binary"), "E_NOT_TEXT");
    assert_eq!(read("pipe"), "E_NOT_A_FILE");
    assert_eq!(read("."), "E_NOT_A_FILE");
    assert_eq!(read("none"), "E_FILE_NOT_FOUND");
    assert_eq!(read("binary/x"), "E_NOT_A_DIRECTORY");
    assert_eq!(read("a\0b"), "E_IO");
    let write = |path: &str| code(&site, "write", json!({"path": path, "content": ""}));
    assert_eq!(write("."), "E_NOT_A_FILE");
    std::fs::create_dir(site.work.join("directory")).unwrap();
    assert_eq!(write("directory"), "E_NOT_A_FILE");
}

#[test]
fn long_file_is_read_in_parts() {
    let site = TestProject::new();
    let lines: Vec<_> = (1..=40_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    put(site.work.join("long"), lines.concat());
    let (mut offset, mut whole, mut parts) = (1, String::new(), 0);
    loop {
        parts += 1;
        let text = ok(&site, "read", json!({"path": "long", "offset": offset}));
        assert!(text.len() < 140_000);
        let Some((part, note)) = text.split_once("[the file continues; read it with offset ")
        else {
            whole.push_str(&text);
            break;
        };
        whole.push_str(part);
        offset = note.trim_end_matches("]\n").parse().unwrap();
    }
    assert_eq!(whole, lines.concat());
    assert!(parts > 2, "{parts} parts");
    let two = ok(
        &site,
        "read",
        json!({"path": "long", "offset": 7, "limit": 2}),
    );
    assert!(
        two.starts_with("line 7\nline 8\n[the file continues; read it with offset 9]"),
        "{two}"
    );
    assert_eq!(
        code(&site, "read", json!({"path": "long", "offset": 40_001})),
        "E_PAST_END"
    );

    put(site.work.join("wide"), "ä".repeat(100_000));
    let wide = ok(&site, "read", json!({"path": "wide"}));
    assert!(wide.ends_with("ä\n[line 1 is cut here]\n"));
}

#[test]
fn limits_are_kept() {
    let site = TestProject::new();
    let content = "ä".repeat(600_000);
    assert_eq!(
        code(&site, "write", json!({"path": "a", "content": content})),
        "E_TOO_LARGE"
    );
    let large = std::fs::File::options()
        .create(true)
        .append(true)
        .open(site.work.join("large"));
    large.unwrap().set_len(17 * 1024 * 1024).unwrap();
    assert_eq!(code(&site, "read", json!({"path": "large"})), "E_TOO_LARGE");
    for number in 0..1_005 {
        put(site.work.join(format!("f{number:04}")), "");
    }
    let listed = ok(&site, "list", json!({}));
    assert!(listed.starts_with("f0000 (0 bytes)\n"));
    assert!(listed.ends_with("f0999 (0 bytes)\n[6 more entries are left out]\n"));
}

#[test]
fn edit_requires_the_exact_number_of_matches() {
    let site = TestProject::new();
    put(site.work.join("a"), "x x x");
    let edit = |count: Value| json!({"path": "a", "oldText": "x", "newText": "yy", "count": count});
    assert_eq!(code(&site, "edit", edit(json!(2))), "E_MANY_MATCHES");
    assert_eq!(ok(&site, "edit", edit(json!(3))), "edited a in 3 places");
    assert_eq!(ok(&site, "read", json!({"path": "a"})), "yy yy yy");
    assert_eq!(code(&site, "edit", edit(json!(1))), "E_NO_MATCH");
}

#[test]
fn prov_1_an_edit_keeps_the_line_ends_of_the_file() {
    let site = TestProject::new();
    for (content, old, new, expected) in [
        (
            "1\r\n2\r\n3\r\n",
            "2\n3\n",
            "two\nthree\n",
            "1\r\ntwo\r\nthree\r\n",
        ),
        ("1\r\n2\r\n", "2", "a\nb", "1\r\na\r\nb\r\n"),
        ("1\r\n2\n3\n", "2\n3", "a\nb", "1\r\na\nb\n"),
        ("1\r\n2\r\n3\n", "1\n2", "a\nb", "a\r\nb\r\n3\n"),
        ("1\n2\n", "1\n2", "a\nb", "a\nb\n"),
    ] {
        put(site.work.join("a"), content);
        ok(
            &site,
            "edit",
            json!({"path": "a", "oldText": old, "newText": new}),
        );
        let found = std::fs::read_to_string(site.work.join("a")).unwrap();
        assert_eq!(found, expected, "{content:?}");
    }
}

/// Creates a tree with files that a search must skip.
fn tree(site: &TestProject) {
    for (path, content) in [
        ("src/main.rs", "fn main() {\n    run();\n}\n"),
        ("src/deep/er/lib.rs", "// Run\nfn run() {}\n"),
        ("src/deep/note.md", "run it\n"),
        (".git/config.rs", "run"),
        ("node_modules/x/index.rs", "run"),
        (".hidden/a.rs", "run\n"),
    ] {
        let path = site.work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        put(path, content);
    }
    put(site.work.join("src/binary.rs"), b"run\0run");
    std::fs::create_dir_all(site.outside()).unwrap();
    put(site.outside().join("secret.rs"), "run");
    symlink(site.outside(), site.work.join("src/link")).unwrap();
    symlink(
        site.outside().join("secret.rs"),
        site.work.join("src/secret.rs"),
    )
    .unwrap();
}

#[test]
fn files_are_found_by_their_paths_and_links_are_not_followed() {
    let site = TestProject::new();
    tree(&site);
    let glob = |pattern: &str| ok(&site, "glob", json!({"pattern": pattern}));
    assert_eq!(
        glob("**/*.rs"),
        ".hidden/a.rs\nsrc/binary.rs\nsrc/deep/er/lib.rs\nsrc/main.rs\n"
    );
    assert_eq!(glob("src/*.{rs,md}"), "src/binary.rs\nsrc/main.rs\n");
    assert_eq!(glob("*.rs"), "[no file matches]\n");
    let within = |path: &str| ok(&site, "glob", json!({"pattern": "*", "path": path}));
    assert_eq!(within("./src/deep"), "./src/deep/note.md\n");
    assert_eq!(within(".git"), ".git/config.rs\n");
    put(site.project.join("p.rs"), "");
    assert_eq!(
        within("$GOONDAN_PROJECT_ROOT"),
        "$GOONDAN_PROJECT_ROOT/p.rs\n"
    );
    let refused = |input: Value| code(&site, "glob", input);
    assert_eq!(
        refused(json!({"pattern": "a[", "path": "src"})),
        "E_INVALID_PATTERN"
    );
    assert_eq!(
        refused(json!({"pattern": "*", "path": "src/link"})),
        "E_PATH_OUTSIDE"
    );
    assert_eq!(
        refused(json!({"pattern": "*", "path": "none"})),
        "E_FILE_NOT_FOUND"
    );
}

#[test]
fn lines_are_found_with_their_place() {
    let site = TestProject::new();
    tree(&site);
    let grep = |input: Value| ok(&site, "grep", input);
    assert_eq!(
        grep(json!({"pattern": "run"})),
        ".hidden/a.rs:1: run\nsrc/deep/er/lib.rs:2: fn run() {}\nsrc/deep/note.md:1: run it\n\
         src/main.rs:2:     run();\n"
    );
    assert_eq!(
        grep(
            json!({"pattern": "^.*RUN", "ignoreCase": true, "include": "*.rs", "path": "src/deep"})
        ),
        "src/deep/er/lib.rs:1: // Run\nsrc/deep/er/lib.rs:2: fn run() {}\n"
    );
    assert_eq!(
        grep(json!({"pattern": "main|}", "path": "src/main.rs", "context": 1})),
        "src/main.rs:1: fn main() {\nsrc/main.rs-2-     run();\nsrc/main.rs:3: }\n"
    );
    assert_eq!(grep(json!({"pattern": "none"})), "[no line matches]\n");
    assert_eq!(
        code(
            &site,
            "grep",
            json!({"pattern": "run", "path": "src/binary.rs"})
        ),
        "E_NOT_TEXT"
    );
    assert_eq!(
        code(&site, "grep", json!({"pattern": "("})),
        "E_INVALID_PATTERN"
    );
}

#[test]
fn a_search_is_bounded() {
    let site = TestProject::new();
    let lines: Vec<_> = (1..=1_000)
        .map(|number| format!("hit {number}\n"))
        .collect();
    put(site.work.join("many"), lines.concat());
    let found = ok(&site, "grep", json!({"pattern": "hit"}));
    assert_eq!(found.lines().count(), 201);
    assert!(found.ends_with("a more specific pattern]\n"), "{found}");
    put(site.work.join("wide"), "x".repeat(10_000));
    let wide = ok(&site, "grep", json!({"pattern": "x", "path": "wide"}));
    assert!(wide.len() < 600 && wide.ends_with("x … (cut)\n"), "{wide}");
    for number in 0..1_001 {
        put(site.work.join(format!("f{number:04}")), "");
    }
    let found = ok(&site, "glob", json!({"pattern": "f*"}));
    assert!(found.contains("f0999\n[the search ended early"), "{found}");
}

#[test]
fn sec_2_secret_file_is_unreadable_by_name_link_or_letter_case() {
    let site = TestProject::new();
    std::fs::create_dir_all(site.work.join(".git")).unwrap();
    for path in [".env", ".Env.Local", ".git/config", "server.pem"] {
        put(site.work.join(path), "TOKEN=hunter2\n");
    }
    for link in ["notes.txt", "deep.txt"] {
        let target = if link == "notes.txt" {
            ".env"
        } else {
            "notes.txt"
        };
        symlink(target, site.work.join(link)).unwrap();
    }
    put(site.work.join(".env.example"), "TOKEN=\n");
    for path in [
        ".env",
        "./.env",
        ".Env.Local",
        ".git/config",
        "server.pem",
        "notes.txt",
        "deep.txt",
    ] {
        assert_eq!(code(&site, "read", json!({"path": path})), "E_FILE_SECRET");
    }
    let edit = json!({"path": ".env", "oldText": "hunter2", "newText": "x"});
    assert_eq!(code(&site, "edit", edit), "E_FILE_SECRET");
    assert_eq!(
        ok(&site, "read", json!({"path": ".env.example"})),
        "TOKEN=\n"
    );
    let found = ok(&site, "grep", json!({"pattern": "hunter2"}));
    assert!(!found.contains("TOKEN"), "{found}");
}

#[test]
fn sec_2_configured_file_opens_but_environment_file_never_does() {
    let site = TestProject::new();
    std::fs::create_dir_all(site.project.join("certs")).unwrap();
    put(site.project.join("certs/public.pem"), "a public half\n");
    put(site.project.join("certs/private.pem"), "hunter2\n");
    put(site.project.join("deploy.settings"), "TOKEN=hunter2\n");
    symlink("deploy.settings", site.project.join("by-link")).unwrap();
    std::fs::hard_link(
        site.project.join("deploy.settings"),
        site.work.join("by-hard-link"),
    )
    .unwrap();
    let mut assignment = site.assignment(Script::default());
    assignment.agent.secret_files = vec![site.project.join("deploy.settings")];
    let file_system = &mut assignment.agent.tools[1];
    let exceptions = json!(["./certs/public.pem", "deploy.settings"]);
    file_system
        .config
        .insert("secretFiles".to_owned(), exceptions);
    let toolbox = Toolbox::new(&assignment, BINARY.into()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let run = |export: &str, input: Value| runtime.block_on(toolbox.run(&call(export, input)));
    let read = |path: &str| run("file-system__read", json!({"path": path}));
    let root = "$GOONDAN_PROJECT_ROOT";
    let public = read(&format!("{root}/certs/public.pem"));
    assert_eq!(public, ToolOutcome::ok("a public half\n"));
    for path in [
        format!("{root}/certs/private.pem"),
        format!("{root}/deploy.settings"),
        format!("{root}/by-link"),
        "by-hard-link".to_owned(),
    ] {
        let told = read(&path);
        assert!(told.text.starts_with("E_FILE_SECRET"), "{path}: {told:?}");
    }
    let grep = json!({"pattern": "hunter2", "path": root});
    let found = run("file-system__grep", grep);
    assert!(!found.text.contains("TOKEN"), "{found:?}");
}
