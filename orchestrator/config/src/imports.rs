//! Finds the project files that a module imports, from its text and without running it.
//!
//! In JavaScript and TypeScript these are all quoted strings that start with `./` or `../`, in
//! imports and elsewhere; in Python, the names in `import` and `from`. The search prefers false
//! positives: an extra file causes a restart when it is edited, but a missing one makes an edit go
//! unnoticed. Paths that are only known at run time, such as concatenated paths and aliases of
//! `package.json`, are not found.

use std::path::{Component, Path, PathBuf};

use goondan_protocol::module_file::ModuleKind;

/// Longest quoted path to consider, in bytes.
const MAX_SPECIFIER_BYTES: usize = 1_024;

/// Extensions to try for a path without one, the preferred one first.
const SCRIPT_ENDINGS: &[&str] = &["ts", "mts", "cts", "js", "mjs", "cjs", "json"];

/// Candidate paths of an import, by descending precedence, relative to the Project Root.
pub(crate) type ImportCandidates = Vec<PathBuf>;

/// The files that `file` imports. Python searches the directory from which the program was started:
/// the one of `entry`.
pub(crate) fn named_in(entry: &Path, file: &Path, text: &str) -> Vec<ImportCandidates> {
    let named = match ModuleKind::of(file) {
        ModuleKind::JavaScript | ModuleKind::TypeScript => scripts(file, text),
        ModuleKind::Python => python(entry, file, text),
        ModuleKind::Executable => Vec::new(),
    };
    named
        .into_iter()
        .filter(|places| !places.is_empty())
        .collect()
}

/// Joins a directory and a path lexically; `None` if the result leaves the project.
fn joined(directory: &Path, path: &str) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in directory.join(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

fn scripts(file: &Path, text: &str) -> Vec<ImportCandidates> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let paths = in_quotes(text).filter_map(|path| joined(directory, path));
    paths.map(|path| places_of_script(&path)).collect()
}

/// All quoted strings that are relative paths.
fn in_quotes(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(['"', '\'', '`'])
        .filter_map(|(at, quote)| {
            let rest = text.get(at + quote.len()..)?;
            let is_relative = rest.starts_with("./") || rest.starts_with("../");
            let end = rest.find(quote).filter(|_| is_relative)?;
            // A query or fragment affects how the file is loaded, not which file it is.
            let path = rest.get(..end)?.split(['?', '#']).next()?;
            let is_plain = path.len() <= MAX_SPECIFIER_BYTES && !path.contains(['\n', '\\', '$']);
            is_plain.then_some(path)
        })
}

fn places_of_script(path: &Path) -> ImportCandidates {
    let mut places = vec![path.to_path_buf()];
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending {
        // TypeScript imports use the name of the compiled file.
        Some("js") => places.push(path.with_extension("ts")),
        Some("mjs") => places.push(path.with_extension("mts")),
        Some("cjs") => places.push(path.with_extension("cts")),
        Some(ending) if SCRIPT_ENDINGS.contains(&ending) => {}
        Some(_) | None => {
            let endings = SCRIPT_ENDINGS.iter();
            places.extend(endings.clone().map(|ending| with_ending(path, ending)));
            places.extend(endings.map(|ending| with_ending(&path.join("index"), ending)));
        }
    }
    places
}

/// Appends an extension; an existing one is part of the name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(".");
    text.push(ending);
    PathBuf::from(text)
}

fn python(entry: &Path, file: &Path, text: &str) -> Vec<ImportCandidates> {
    let beside = |file: &Path| file.parent().unwrap_or(Path::new("")).to_path_buf();
    let (start, own) = (beside(entry), beside(file));
    let mut named = Vec::new();
    for line in import_statements(text) {
        if let Some(modules) = line.strip_prefix("import ") {
            let modules = modules.split(',').map(first_word);
            named.extend(modules.flat_map(|module| modules_of(&start, module)));
        } else if let Some((module, names)) = line
            .strip_prefix("from ")
            .and_then(|rest| rest.split_once(" import"))
        {
            let module = module.trim();
            let dots = module.len() - module.trim_start_matches('.').len();
            let name = module.get(dots..).unwrap_or_default();
            let base = match dots {
                0 => Some(start.clone()),
                _ => joined(&own, &"../".repeat(dots - 1)),
            };
            let Some(base) = base else { continue };
            named.extend(modules_of(&base, name));
            // A name may be defined in the module, or be a module within it.
            let within = base.join(name.replace('.', "/"));
            let names = names.split([',', '(', ')']).map(first_word);
            named.extend(names.filter_map(|name| places_of_module(&within, name)));
        }
    }
    named
}

/// Python's import statements, each joined to one line.
fn import_statements(text: &str) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match statements.last_mut().filter(|_| goes_on) {
            Some(begun) => {
                begun.push(' ');
                begun.push_str(line);
            }
            None if line.starts_with("import ") || line.starts_with("from ") => {
                statements.push(line.to_owned());
            }
            None => continue,
        }
        goes_on = statements.last_mut().is_some_and(|begun| {
            if begun.ends_with('\\') {
                begun.pop();
                return true;
            }
            begun.contains('(') && !begun.contains(')')
        });
    }
    statements
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// `a.b.c` is a file; `a` and `a.b` are packages that are loaded on the way.
fn modules_of(base: &Path, dotted: &str) -> Vec<ImportCandidates> {
    let mut base = base.to_path_buf();
    let mut named = Vec::new();
    for name in dotted.split('.') {
        let Some(places) = places_of_module(&base, name) else {
            break;
        };
        named.push(places);
        base.push(name);
    }
    named
}

fn places_of_module(base: &Path, name: &str) -> Option<ImportCandidates> {
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let place = base.join(name);
    is_name.then(|| vec![place.join("__init__.py"), with_ending(&place, "py")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_places(entry: &str, file: &str, text: &str) -> Vec<String> {
        let named = named_in(Path::new(entry), Path::new(file), text);
        named
            .iter()
            .map(|places| places[0].display().to_string())
            .collect()
    }

    #[test]
    fn relative_references_of_a_script_are_found() {
        let text = r#"
            import { a } from "./lib/a.mjs";
            export * from '../shared/b.ts'; import "./c.js?x=1";
            const d = await import(`./d.mjs`); const e = require("./e");
            const f = readFileSync(new URL("../data/f.json", import.meta.url));
            import fs from "node:fs"; import { z } from "zod";
            const g = `./${name}.mjs`; const h = "../../outside.mjs"; const it's = "./broken
        "#;
        let expected = [
            "tools/lib/a.mjs",
            "shared/b.ts",
            "tools/c.js",
            "tools/d.mjs",
            "tools/e",
            "data/f.json",
        ];
        assert_eq!(first_places("tools/x.ts", "tools/x.ts", text), expected);
        assert!(first_places("x", "x", text).is_empty(), "an executable");
    }

    #[test]
    fn path_without_an_extension_matches_several_files() {
        let places = |path: &str| -> Vec<String> {
            let places = places_of_script(Path::new(path));
            places.iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(places("a/b.js"), ["a/b.js", "a/b.ts"]);
        assert_eq!(places("a/b.mts"), ["a/b.mts"]);
        let open = places("a/b.test");
        assert_eq!(open[..2], ["a/b.test", "a/b.test.ts"]);
        assert_eq!(open[8], "a/b.test/index.ts");
    }

    #[test]
    fn python_imports_resolve_from_program_or_package_directory() {
        let text = "import words, json as j  # and more\nfrom deep.down import (one,  # first\n  two as zwei,\n)\n\
                    from .near import \\\n  x\nfrom .. import up\nprint('import nothing')\n";
        let found = first_places("tools/top.py", "tools/deep/in.py", text);
        let expected = [
            "tools/words",
            "tools/json",
            "tools/deep",
            "tools/deep/down",
            "tools/deep/down/one",
            "tools/deep/down/two",
            "tools/deep/near",
            "tools/deep/near/x",
            "tools/up",
        ];
        let expected: Vec<String> = expected.map(|it| format!("{it}/__init__.py")).into();
        assert_eq!(found, expected);
        let both = named_in(Path::new("a.py"), Path::new("a.py"), "import b");
        assert_eq!(both[0], [PathBuf::from("b/__init__.py"), "b.py".into()]);
        assert!(first_places("a.py", "a.py", "from ... import far").is_empty());
    }
}
