//! Commands in hints and help texts: each exists, with its options (`CTL-1`).

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};

const FILLED_IN: &str = "x";

/// Sources with user-facing text.
const SOURCES: [&str; 5] = [
    "gdn/src",
    "orchestrator",
    "protocol",
    "agent-process/src",
    "connector-process",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if !["tests", "benches", "examples", "node_modules", "target"].contains(&name.as_str())
            {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Text of a source file without comments, with each string literal on one line.
fn text_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut out = String::new();
    for line in code.lines() {
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(line) => out.push_str(line),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// Commands in a text: between backticks, and in literals that are formatted into commands.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("`gdn ") {
        let end = behind.find(['`', '\n']).unwrap_or(behind.len());
        found.extend(behind.get(..end).map(str::to_owned));
        rest = behind;
    }
    for call in ["command(\"", "command(&format!(\""] {
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(call) {
            let is_shown = before.ends_with("context.") || before.ends_with("daemon_");
            let end = behind.find('"').unwrap_or(behind.len());
            if is_shown {
                found.extend(behind.get(..end).map(str::to_owned));
            }
            rest = behind;
        }
    }
    found
}

/// Words of a command up to shell syntax; none if the command itself is a placeholder.
fn words(command: &str) -> Option<Vec<String>> {
    let mut filled = String::new();
    let mut depth = 0;
    for c in command.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                filled.push_str(FILLED_IN);
            }
            _ if depth > 0 => {}
            c => filled.push(c),
        }
    }
    let filled = filled.replace("\\\"", "'");
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for c in filled.chars().chain([' ']) {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted && !word.is_empty() => words.push(std::mem::take(&mut word)),
            ' ' if !is_quoted => {}
            c => word.push(c),
        }
    }
    let end = words
        .iter()
        .position(|word| ["<", "|", "&&", ">", "…", "..."].contains(&word.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    let first = words.first()?;
    (!first.starts_with(FILLED_IN) || first.len() > 2).then_some(words)
}

/// Former commands that a text names.
fn former_commands(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split("gdn ").skip(1);
    let first = behind.filter_map(|behind| behind.split(|c: char| !c.is_ascii_lowercase()).next());
    first.filter(|word| gdn::spellings::MOVED.iter().any(|(old, _)| old == word))
}

#[test]
fn compat_4_no_text_names_a_former_command() {
    assert_eq!(former_commands("`gdn approve a-1`").count(), 1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for dir in SOURCES.into_iter().chain(["gdn/studio/src"]) {
        sources(&root.join(dir), &mut files);
    }
    let mut wrong = Vec::new();
    for file in files {
        if file.ends_with("gdn/src/spellings.rs") {
            continue;
        }
        // Literals on one line, and comments, which are the help of options.
        let raw = fs::read_to_string(&file).unwrap();
        for text in [text_of(&file), raw] {
            let found =
                former_commands(&text).map(|word| format!("{}: gdn {word}", file.display()));
            wrong.extend(found);
        }
    }
    for page in fs::read_dir(root.join("docs")).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        // The reference has a table of former commands; the list of clauses is generated.
        let lines = text.lines().filter(|line| !line.starts_with("| "));
        for word in lines.flat_map(former_commands) {
            wrong.push(format!("{}: gdn {word}", page.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn ctl_1_hints_name_no_command_or_option_that_is_not_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for dir in SOURCES {
        sources(&root.join(dir), &mut files);
    }
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in files {
        for command in commands(&text_of(&file)) {
            let Some(words) = words(&command) else {
                continue;
            };
            count += 1;
            let line = ["gdn".to_owned()].into_iter().chain(words);
            let Err(error) = gdn::command().try_get_matches_from(line) else {
                continue;
            };
            // A placeholder for a command is unknown by design.
            let unknown = error.get(ContextKind::InvalidSubcommand);
            if matches!(unknown, Some(ContextValue::String(name)) if name == FILLED_IN) {
                continue;
            }
            if matches!(
                error.kind(),
                ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
            ) {
                let name = file.strip_prefix(&root).unwrap().display().to_string();
                wrong.push(format!("{name}: gdn {command}"));
            }
        }
    }
    assert!(count > 200, "only {count} commands were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
