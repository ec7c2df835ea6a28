//! Types for editors from `gdn config types`, checked by real type checkers, and tools in Python with the module `goondan`.

use std::path::Path;
use std::process::Command;

use goondan_tests::{Daemon, Home, needs, wait_until};

const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
models:
  main:
    provider: scripted
    options:
      rules:
        - when: {error: true}
          say: "error: ${result}"
        - when: {tool: forecast__today}
          say: "${result}"
        - when: {tool: forecast__week-ahead}
          say: "${result}"
        - when: {user: '^week in (?P<city>.+)$'}
          call: [{tool: forecast__week-ahead, args: {city: "${city}"}}]
        - when: {user: '^(?P<city>.+)$'}
          call: [{tool: forecast__today, args: {city: "${city}"}}]
tools:
  forecast:
    entry: tools/forecast.py
    config: {unit: C}
    exports:
      - name: today
        description: How warm it is today.
        parameters: {type: object, properties: {city: {type: string}}, required: [city]}
      - name: week-ahead
        description: How warm it will be.
        parameters: {type: object, properties: {city: {type: string}}, required: [city]}
agents:
  forecaster: {model: main, tools: [forecast]}
policy: {sandbox: {require: off}}
"#;

/// Strictly typed, so that type checkers accept it.
const FORECAST: &str = r#"import asyncio
from typing import Any, Dict

from goondan import Context, ToolError, export, run, tool

DEGREES = {"Seoul": 21}


@tool
def today(input: Dict[str, str], context: Context) -> str:
    context.log(f"asked about {input['city']}")
    print("this is not an answer")
    if input["city"] == "Nowhere":
        raise KeyError("Nowhere")
    if input["city"] not in DEGREES:
        raise ToolError(f"nothing is known of {input['city']}", code="E_NO_CITY")
    return f"{DEGREES[input['city']]} {context.config['unit']}"


@export("week-ahead")
async def week_ahead(input: Dict[str, str], context: Context) -> Any:
    await asyncio.sleep(0)
    return {"city": input["city"], "days": [20, 21]}


run()
"#;

fn home() -> Home {
    let home = Home::new(PROJECT);
    home.write("project/tools/forecast.py", FORECAST);
    home
}

#[test]
fn compat_3_python_functions_answer_calls_without_a_loop() {
    if !needs::program("python3") {
        return;
    }
    let home = home();
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "Seoul"), "21 C");
    assert_eq!(
        home.ask("main", "Atlantis"),
        "error: E_NO_CITY: nothing is known of Atlantis"
    );
    let fault = home.ask("main", "Nowhere");
    assert!(fault.contains("KeyError: 'Nowhere'"), "{fault}");
    assert_eq!(
        home.ask("main", "week in Seoul"),
        r#"{"city":"Seoul","days":[20,21]}"#
    );
    wait_until("its own line is in the log", || {
        !daemon.log().saying("asked about Seoul").is_empty()
    });
    // A file of the project with this name has precedence.
    home.write(
        "project/tools/goondan.py",
        "import json, sys\nContext = ToolError = object\ndef tool(it): return it\ndef export(name): return tool\n\
         def run():\n  for line in sys.stdin:\n    call = json.loads(line)\n    \
         print(json.dumps({'id': call['id'], 'type': 'result', 'output': 'mine'}), flush=True)\n",
    );
    home.gdn(&["restart"]).exits(0);
    assert_eq!(home.ask("main", "Seoul"), "mine");
    drop(daemon);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test plays a package manager in its own directory"
)]
fn compat_3_written_types_satisfy_tsc_and_mypy() {
    let home = home();
    home.write(
        "project/tools/double.ts",
        r#"import type { ToolHandler } from "@goondan/types";

export const handlers: Record<string, ToolHandler> = {
  double: (ctx, input) => `${Number(input.n) * 2} ${ctx.config.unit}`,
};
"#,
    );
    let written = home.gdn_json(&["types"]);
    let files: Vec<&str> = written["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file.as_str().unwrap())
        .collect();
    for file in [
        "node_modules/@goondan/types/index.d.ts",
        "typings/goondan/__init__.pyi",
        "goondan.schema.json",
    ] {
        assert!(files.contains(&file), "{files:?}");
        assert!(home.project().join(file).is_file(), "{file}");
    }
    if needs::program("tsc") {
        let tsc = [
            "--noEmit", "--strict", "--module", "nodenext", "--target", "es2023",
        ];
        let tsc = [&tsc[..], &["--lib", "es2023,dom", "tools/double.ts"]].concat();
        check(&home.project(), "tsc", &tsc);
    }
    if needs::optional_program("mypy") {
        home.write(
            "project/mypy.ini",
            "[mypy]\nmypy_path = typings\nstrict = true\n",
        );
        check(&home.project(), "mypy", &["tools/forecast.py"]);
    }
    // A second time, the files are replaced; those of a package manager with links are not.
    home.gdn(&["types"]).exits(0);
    let scope = home.project().join("node_modules/@goondan");
    std::fs::rename(scope.join("types"), home.path().join("shared")).unwrap();
    std::os::unix::fs::symlink(home.path().join("shared"), scope.join("types")).unwrap();
    home.gdn(&["types"])
        .exits(10)
        .tells(&["node_modules/@goondan/types is a symbolic link"]);
}

/// Runs a type checker, which must find nothing.
#[track_caller]
fn check(project: &Path, program: &str, words: &[&str]) {
    let checked = Command::new(program)
        .args(words)
        .current_dir(project)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{program}: {printed}");
}
