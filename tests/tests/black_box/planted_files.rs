//! Goal: a module host executes no file that an agent or a package can write (`SEC-3`, `SEC-1`).
//!
//! Method: every file that a runtime loads automatically from its working directory and from `HOME`
//! is planted in the work directory of a conversation before the hosts of its tool and its
//! extension start. A control run shows that the runtime executes each file when started next to
//! it, so that a misspelled row cannot pass.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::{Daemon, Home, needs};
use serde_json::Value;

/// Evidence of a planted file that was executed.
const MARK: &str = "planted-ran";

/// A planted JavaScript program.
const MARK_JS: &str =
    "require('fs').writeFileSync((process.env.GOONDAN_WORK_DIR ?? '.') + '/planted-ran', '');\n";

/// The same in Python.
const MARK_PY: &str =
    "import os\nopen(os.environ.get('GOONDAN_WORK_DIR', '.') + '/planted-ran', 'w').close()\n";

/// A package that a module imports but that is not installed.
const IMPORTS: &str = "try { await import('planted'); } catch {}\n\
    const { createRequire } = await import('node:module');\n\
    for (const from of [import.meta.url, 'file:///']) { try { createRequire(from)('planted'); } catch {} }\n";

/// A file in a work directory, and its content.
type PlantedFile = (&'static str, &'static str);

/// Files that a runtime loads automatically, and the action of a program that triggers the load.
struct Row {
    name: &'static str,
    files: &'static [PlantedFile],
    control: &'static str,
}

const fn row(name: &'static str, files: &'static [PlantedFile], control: &'static str) -> Row {
    Row {
        name,
        files,
        control,
    }
}

/// A runtime, its arguments to evaluate a text, and the files that it loads.
struct Case {
    runtime: &'static str,
    evaluates: &'static [&'static str],
    rows: &'static [Row],
}

const NOTHING: &str = "0;";

const PACKAGE: &[PlantedFile] = &[("node_modules/planted/index.js", MARK_JS)];

const CASES: [Case; 4] = [
    Case {
        runtime: "bun",
        evaluates: &["-e"],
        rows: &[
            row(
                "bunfig.toml",
                &[
                    ("bunfig.toml", "preload = ['./planted.js']\n"),
                    ("planted.js", MARK_JS),
                ],
                NOTHING,
            ),
            row(".env", &[(".env", "PLANTED=1\n")], ENVIRONMENT),
            row(".env.local", &[(".env.local", "PLANTED=1\n")], ENVIRONMENT),
            row(
                ".env.development",
                &[(".env.development", "PLANTED=1\n")],
                ENVIRONMENT,
            ),
            row(
                "tsconfig.json",
                &[
                    (
                        "tsconfig.json",
                        r#"{"compilerOptions": {"paths": {"planted": ["./planted.js"]}}}"#,
                    ),
                    ("planted.js", MARK_JS),
                ],
                IMPORTS,
            ),
            row("node_modules", PACKAGE, IMPORTS),
        ],
    },
    Case {
        runtime: "node",
        evaluates: &["--input-type=module", "-e"],
        rows: &[
            row("node_modules", PACKAGE, IMPORTS),
            row(
                "~/.node_modules",
                &[(".node_modules/planted/index.js", MARK_JS)],
                IMPORTS,
            ),
            row(
                "~/.node_libraries",
                &[(".node_libraries/planted/index.js", MARK_JS)],
                IMPORTS,
            ),
        ],
    },
    Case {
        runtime: "deno",
        evaluates: &["eval"],
        rows: &[
            row(
                "deno.json",
                &[
                    ("deno.json", r#"{"imports": {"planted": "./planted.cjs"}}"#),
                    ("planted.cjs", MARK_JS),
                ],
                IMPORTS,
            ),
            row(
                "deno.jsonc",
                &[
                    ("deno.jsonc", r#"{"imports": {"planted": "./planted.cjs"}}"#),
                    ("planted.cjs", MARK_JS),
                ],
                IMPORTS,
            ),
            row(
                "package.json",
                &[
                    ("package.json", r#"{"dependencies": {"planted": "*"}}"#),
                    (
                        "node_modules/planted/package.json",
                        r#"{"name": "planted", "version": "1.0.0"}"#,
                    ),
                    ("node_modules/planted/index.js", MARK_JS),
                ],
                IMPORTS,
            ),
        ],
    },
    Case {
        runtime: "python3",
        evaluates: &["-c"],
        rows: &[
            row("a module beside it", &[("json.py", MARK_PY)], "import json"),
            row(
                "usercustomize.py",
                &[("USER_SITE/usercustomize.py", MARK_PY)],
                "0",
            ),
            row(
                "a .pth file",
                &[
                    ("USER_SITE/planted.pth", "import planted_path\n"),
                    ("USER_SITE/planted_path.py", MARK_PY),
                ],
                "0",
            ),
            row(
                "a package of the user's",
                &[("USER_SITE/planted.py", MARK_PY)],
                "import planted",
            ),
        ],
    },
];

/// Leaves the mark if a variable is set that only a planted file sets.
const ENVIRONMENT: &str =
    "if (process.env.PLANTED) require('fs').writeFileSync('planted-ran', '');\n";

/// Three agents, one at each level.
const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - {when: {user: '^look$', step: 1}, call: [{tool: lab__look, args: {}}]}
      - {when: {tool: lab__look}, say: "${result}"}
      - {say: "null"}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: lab}
spec:
  entry: tools/lab.ENDING
  exports: [{name: look, description: Looks around., parameters: {type: object}, idempotent: true}]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: all}
spec: {entryAgent: Agent/free, agents: [AGENTS]}
"#;

const AGENT: &str = "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: NAME}\nspec:\n  \
    modelConfig: {modelRef: Model/main}\n  tools: [Tool/lab]\n  sandbox: {require: LEVEL}\n";

/// A tool that performs the actions of the controls, and returns its location.
const LAB_JS: &str = "export const handlers = { async look({ workDir }) {\n\
    if (process.env.PLANTED) (await import('node:fs')).writeFileSync(`${workDir}/planted-ran`, '');\nIMPORTS\
    const hasHome = (await import('node:fs')).existsSync(process.env.HOME);\n\
    return JSON.stringify({ work: workDir, cwd: process.cwd(), home: process.env.HOME, hasHome });\n} };\n";

const GUARD_JS: &str = "import { writeFileSync } from 'node:fs';\n\
    export async function register() {\n\
    if (process.env.PLANTED) writeFileSync(`${process.env.GOONDAN_WORK_DIR}/planted-ran`, '');\nIMPORTS}\n";

const LAB_PY: &str = "import json, os, sys\n\
    try:\n    import planted\nexcept ImportError:\n    pass\n\
    import beside\n\
    for line in sys.stdin:\n    \
        call = json.loads(line)\n    \
        if call['type'] != 'call': continue\n    \
        said = json.dumps({'work': call['context']['workDir'], 'cwd': os.getcwd(), 'home': os.environ.get('HOME'),
                           'beside': beside.word, 'hasHome': os.path.isdir(os.environ.get('HOME'))})\n    \
        print(json.dumps({'type': 'result', 'id': call['id'], 'output': said}), flush=True)\n";

const GUARD: &str = "---\napiVersion: goondan.ai/v1\nkind: Extension\nmetadata: {name: guard}\nspec: {entry: extensions/guard.mjs}\n";

/// Finds a program, ignoring shims of version managers.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut directories = std::env::split_paths(&path).filter(|dir| !dir.ends_with("shims"));
    directories.find_map(|dir| Some(dir.join(program)).filter(|file| file.is_file()))
}

/// Directory of Python's user packages, below `HOME`.
fn user_site(python: &Path) -> String {
    let script = "import sys; print('.local/lib/python%d.%d/site-packages' % sys.version_info[:2])";
    let ran = Command::new(python).args(["-I", "-c", script]).output();
    String::from_utf8(ran.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}

fn plant(dir: &Path, files: &[PlantedFile], user_site: &str) {
    for (name, text) in files {
        let path = dir.join(name.replace("USER_SITE", user_site));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// True if the runtime loads the files of a row when started next to them.
fn counts(case: &Case, row: &Row, program: &Path, user_site: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), row.files, user_site);
    let ran = Command::new(program)
        .args(case.evaluates)
        .arg(row.control)
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir.path())
        .output()
        .unwrap();
    let is_there = dir.path().join(MARK).exists();
    if !is_there {
        let stderr = String::from_utf8_lossy(&ran.stderr);
        eprintln!("{}: {} does not count: {stderr}", case.runtime, row.name);
    }
    is_there
}

fn home(case: &Case, program: &Path, levels: &[&str]) -> Home {
    let is_python = case.runtime == "python3";
    let names: Vec<String> = levels.iter().map(|level| name_of(level)).collect();
    let listed: Vec<String> = names.iter().map(|name| format!("Agent/{name}")).collect();
    let mut yaml = PROJECT.replace("AGENTS", &listed.join(", "));
    yaml = yaml.replace("ENDING", if is_python { "py" } else { "mjs" });
    for (name, level) in names.iter().zip(levels) {
        yaml += &AGENT.replace("NAME", name).replace("LEVEL", level);
        if !is_python {
            yaml += "  extensions: [Extension/guard]\n";
        }
    }
    if !is_python {
        yaml += GUARD;
    }
    let home = Home::new(&yaml);
    home.write("project/tools/lab.py", LAB_PY);
    home.write("project/tools/beside.py", "word = 'beside'\n");
    home.write("project/tools/lab.mjs", &LAB_JS.replace("IMPORTS", IMPORTS));
    home.write(
        "project/extensions/guard.mjs",
        &GUARD_JS.replace("IMPORTS", IMPORTS),
    );
    fs::create_dir(home.path().join("bin")).unwrap();
    symlink(program, home.path().join("bin").join(case.runtime)).unwrap();
    // If installed by npm, deno needs node, which is therefore added to the path.
    if case.runtime == "deno"
        && let Some(node) = find("node")
    {
        symlink(node, home.path().join("bin/node")).unwrap();
    }
    home
}

fn name_of(level: &str) -> String {
    match level {
        "off" => "free".to_owned(),
        level => format!("at-{level}"),
    }
}

/// Checks a runtime's behavior with all files planted for it.
fn check(case: &Case) {
    let Some(program) = find(case.runtime) else {
        assert!(!needs::optional_program(case.runtime));
        return;
    };
    let levels: Vec<&str> = ["full", "landlock"]
        .into_iter()
        .filter(|level| needs::sandbox(level))
        .chain(["off"])
        .collect();
    let home = home(case, &program, &levels);
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.env("PATH", home.path().join("bin"));
    let _daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    let site = if case.runtime == "python3" {
        user_site(&program)
    } else {
        String::new()
    };
    for row in case.rows {
        if !counts(case, row, &program, &site) {
            needs::note_left_out(&format!("{} takes up no {}", case.runtime, row.name));
            continue;
        }
        for level in &levels {
            let place = format!("{} at `{level}`: {}", case.runtime, row.name);
            let agent = name_of(level);
            let key: String = place.chars().filter(char::is_ascii_alphanumeric).collect();
            let ask = |text: &str| {
                let send = ["send", "--agent", &agent, "--instance", &key, text];
                let output = home.gdn(&send).exits(0).stdout;
                serde_json::from_str::<Value>(output.trim()).unwrap()
            };
            let work = PathBuf::from(ask("look")["work"].as_str().unwrap());
            assert!(work.starts_with(home.state_root()), "{place}: {work:?}");
            plant(&work, row.files, &site);
            // Its hosts start again.
            let instance = match *level {
                "off" => key.clone(),
                _ => format!("{agent}:{key}"),
            };
            let pid = || home.ps_agent(&instance).unwrap()["pid"].clone();
            let before = pid();
            home.gdn(&["instance", "restart", &instance]).exits(0);
            let reply = ask("look");
            assert_ne!(pid(), before, "{place}");
            assert!(!work.join(MARK).exists(), "{place} ran");
            assert_eq!(reply["cwd"], "/", "{place}");
            if *level != "off" {
                let own = Path::new(reply["home"].as_str().unwrap());
                assert!(!own.starts_with(home.path()), "{place}: {reply}");
            }
            if *level == "full" {
                assert_eq!(reply["hasHome"], true, "{place}");
            }
            if case.runtime == "python3" {
                assert_eq!(reply["beside"], "beside", "{place}");
            }
        }
    }
}

#[test]
fn sec_3_bun_runs_nothing_planted_in_the_work_directory() {
    check(&CASES[0]);
}

#[test]
fn sec_3_node_runs_nothing_planted_in_the_work_directory() {
    check(&CASES[1]);
}

#[test]
fn sec_3_deno_runs_nothing_planted_in_the_work_directory() {
    check(&CASES[2]);
}

#[test]
fn sec_3_python_runs_nothing_planted_in_the_work_directory() {
    check(&CASES[3]);
}
