//! Edits the dependencies in the text of `goondan.yaml`; everything else stays unchanged, byte for byte.

use std::path::Path;

use goondan_config::resources_of;
use serde_json::{Value, json};

use super::flow;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::project::PROJECT_FILE;

/// Adds a requirement, or replaces the existing one.
pub(super) fn with(text: &str, name: &str, version: &str) -> Result<String, Failure> {
    let quoted = |text: &str| json!(text).to_string();
    let item = |indent: &str| {
        format!(
            "{indent}- name: {}\n{indent}  version: {}\n",
            quoted(name),
            quoted(version)
        )
    };
    let in_lines = ManifestLines::of(text).and_then(|lines| match lines.index_of(name) {
        Some(index) => lines.replace(index, &item(lines.indent())),
        None => Some(lines.append(item)),
    });
    let in_flow = || flow::with(text, index_of(text, name), name, version);
    let change = |listed: &mut Vec<Value>| {
        let dependency = json!({"name": name, "version": version});
        match listed.iter_mut().find(|it| it["name"] == name) {
            Some(there) => *there = dependency,
            None => listed.push(dependency),
        }
    };
    let new = checked(text, in_lines, change)
        .or_else(|| checked(text, in_flow(), change))
        .or_else(|| checked(text, in_short_form(text, change), change));
    new.ok_or_else(|| {
        by_hand(&format!(
            "under `dependencies`: `{{name: {}, version: {}}}`",
            quoted(name),
            quoted(version)
        ))
    })
}

/// Removes a requirement.
pub(super) fn without(text: &str, name: &str) -> Result<String, Failure> {
    let in_lines =
        ManifestLines::of(text).and_then(|lines| lines.replace(lines.index_of(name)?, ""));
    let in_flow = || flow::without(text, index_of(text, name)?);
    let change = |listed: &mut Vec<Value>| listed.retain(|it| it["name"] != name);
    checked(text, in_lines, change)
        .or_else(|| checked(text, in_flow(), change))
        .or_else(|| checked(text, in_short_form(text, change), change))
        .ok_or_else(|| by_hand(&format!("`dependencies` without `{name}`")))
}

/// Writes the field `package` of a short document again, with changed dependencies. Comments within the field would be
/// lost, so it must have none.
fn in_short_form(text: &str, change: impl FnOnce(&mut Vec<Value>)) -> Option<String> {
    let mut documents = documents(text)?;
    let mut listed = take_dependencies(&mut documents)?;
    change(&mut listed);
    let package = documents.first().filter(|it| it["kind"] == "Package")?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_field = |line: &&str| line.starts_with("package:");
    let from = lines.iter().position(is_field)?;
    let (_, rest) = lines.split_at_checked(from + 1)?;
    let is_inside = |line: &&&str| indent_of(line) > 0 || line.trim() == "}";
    let to = from + 1 + rest.iter().take_while(is_inside).count();
    let field = lines.get(from..to)?.concat();
    if field.contains('#') {
        return None;
    }
    let mut new = format!("package:\n  name: {}\n", package.pointer("/metadata/name")?);
    let spec = package.get("spec").and_then(Value::as_object);
    for (name, value) in spec.into_iter().flatten() {
        new.push_str(&format!("  {name}: {value}\n"));
    }
    if !listed.is_empty() {
        new.push_str("  dependencies:\n");
    }
    for dependency in &listed {
        new.push_str(&format!("    - {dependency}\n"));
    }
    let (before, after) = (lines.get(..from)?.concat(), lines.get(to..)?.concat());
    Some(format!("{before}{new}{after}"))
}

/// Position of a requirement in the Package.
fn index_of(text: &str, name: &str) -> Option<usize> {
    let documents = documents(text)?;
    let package = documents.first().filter(|it| it["kind"] == "Package")?;
    let listed = package.pointer("/spec/dependencies")?.as_array()?;
    listed.iter().position(|it| it["name"] == name)
}

fn by_hand(what: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("cannot edit {PROJECT_FILE} automatically"),
        format!("write {what} in the `spec` of the Package, then run `gdn package install`"),
    )
}

/// Returns the new text if it parses to exactly the expected documents.
fn checked(
    before: &str,
    after: Option<String>,
    change: impl FnOnce(&mut Vec<Value>),
) -> Option<String> {
    let after = after?;
    let (mut wanted, mut found) = (documents(before)?, documents(&after)?);
    let mut listed = take_dependencies(&mut wanted)?;
    change(&mut listed);
    let is_said = take_dependencies(&mut found)? == listed && found == wanted;
    is_said.then_some(after)
}

/// Removes the dependencies from the Package, and the `spec` if it holds nothing else.
fn take_dependencies(documents: &mut [Value]) -> Option<Vec<Value>> {
    let package = documents.first_mut()?.as_object_mut()?;
    let listed = match package.get_mut("spec") {
        None | Some(Value::Null) => None,
        Some(spec) => spec.as_object_mut()?.remove("dependencies"),
    };
    let is_empty = |spec: &Value| spec.as_object().is_none_or(serde_json::Map::is_empty);
    if package.get("spec").is_some_and(is_empty) {
        package.remove("spec");
    }
    match listed {
        Some(Value::Array(listed)) => Some(listed),
        Some(Value::Null) | None => Some(Vec::new()),
        Some(_) => None,
    }
}

fn documents(text: &str) -> Option<Vec<Value>> {
    resources_of(Path::new(PROJECT_FILE), text).ok()
}

/// Lines of the file, with the position of its dependencies.
struct ManifestLines<'t> {
    lines: Vec<&'t str>,
    /// Index after the Package document.
    end: usize,
    /// Index of the line `spec:`.
    spec: Option<usize>,
    /// Index of the line `dependencies:`.
    list: Option<usize>,
    /// First line of each dependency, and the index after the last one.
    items: Vec<usize>,
    names: Vec<String>,
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// True if a line is a key whose value is in the lines below it.
fn opens(line: &str, key: &str) -> bool {
    let rest = line.trim_start().strip_prefix(key);
    let rest = rest.and_then(|rest| rest.strip_prefix(':'));
    rest.is_some_and(|rest| !is_content(rest))
}

impl<'t> ManifestLines<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let documents = documents(text)?;
        let package = documents.first().filter(|it| it["kind"] == "Package")?;
        let listed = package
            .pointer("/spec/dependencies")
            .and_then(Value::as_array);
        let names = listed.into_iter().flatten();
        let names = names.map(|it| it["name"].as_str().unwrap_or_default().to_owned());
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut found = Self {
            end: lines.len(),
            spec: None,
            list: None,
            items: Vec::new(),
            names: names.collect(),
            lines,
        };
        found.look();
        let is_understood = found.items.len().saturating_sub(1) == found.names.len()
            && found.spec.is_some() == package.get("spec").is_some();
        is_understood.then_some(found)
    }

    fn look(&mut self) {
        let mut has_begun = false;
        let (mut item_indent, mut is_closed) = (None, false);
        for (index, line) in self.lines.clone().into_iter().enumerate() {
            if line.starts_with("---") || line.starts_with("...") {
                if has_begun {
                    self.end = index;
                    break;
                }
                continue;
            }
            if !is_content(line) {
                continue;
            }
            has_begun = true;
            let indent = indent_of(line);
            match (self.spec, self.list) {
                (None, _) if indent == 0 && opens(line, "spec") => self.spec = Some(index),
                (Some(_), None) if indent > 0 && opens(line, "dependencies") => {
                    self.list = Some(index);
                }
                (Some(_), Some(list)) => {
                    let is_item = line.trim_start().starts_with("- ");
                    let least = self.lines.get(list).map_or(0, |line| indent_of(line));
                    let is_over = indent < least || (indent == least && !is_item);
                    if is_closed {
                        continue;
                    }
                    if is_over {
                        self.close(index);
                        is_closed = true;
                    } else if is_item && indent <= *item_indent.get_or_insert(indent) {
                        self.items.push(index);
                    }
                }
                _ => {}
            }
        }
        if self.list.is_some() && !is_closed {
            self.close(self.end);
        }
    }

    /// Ends the list before the comments and empty lines above `next`.
    fn close(&mut self, next: usize) {
        let mut end = next;
        while end > 0
            && self
                .lines
                .get(end - 1)
                .is_some_and(|line| !is_content(line))
        {
            end -= 1;
        }
        self.items.push(end);
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|it| it == name)
    }

    /// Indentation of the dependency items.
    fn indent(&self) -> &'t str {
        let first = self.items.first().filter(|_| self.items.len() > 1);
        let line = first.and_then(|first| self.lines.get(*first));
        line.and_then(|line| line.get(..indent_of(line)))
            .unwrap_or("    ")
    }

    fn joined(&self, from: usize, to: usize) -> String {
        self.lines.get(from..to).unwrap_or_default().concat()
    }

    fn replace(&self, index: usize, item: &str) -> Option<String> {
        let (from, to) = (*self.items.get(index)?, *self.items.get(index + 1)?);
        let is_last = item.is_empty() && self.items.len() == 2;
        // The key of an empty list is removed, too.
        let from = match (self.list, self.spec) {
            (Some(list), Some(spec)) if is_last && self.is_all_of_spec(spec, list, to) => spec,
            (Some(list), _) if is_last => list,
            _ => from,
        };
        let (before, after) = (self.joined(0, from), self.joined(to, self.lines.len()));
        Some(format!("{before}{item}{after}"))
    }

    /// True if the `spec` holds only the dependencies.
    fn is_all_of_spec(&self, spec: usize, list: usize, end: usize) -> bool {
        let has_content = |from: usize, to: usize| {
            let lines = self.lines.get(from..to).unwrap_or_default().iter();
            lines
                .clone()
                .any(|line| is_content(line) && indent_of(line) > 0)
        };
        !has_content(spec + 1, list) && !has_content(end, self.end)
    }

    fn append(&self, item: impl Fn(&str) -> String) -> String {
        let (at, new) = match (self.spec, self.list) {
            (_, Some(_)) => (
                self.items.last().copied().unwrap_or(self.end),
                item(self.indent()),
            ),
            (Some(spec), None) => (spec + 1, format!("  dependencies:\n{}", item("    "))),
            (None, None) => (
                self.end,
                format!("spec:\n  dependencies:\n{}", item("    ")),
            ),
        };
        let mut before = self.joined(0, at);
        if !before.is_empty() && !before.ends_with('\n') {
            before.push('\n');
        }
        format!("{before}{new}{}", self.joined(at, self.lines.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata:\n  name: p\n";

    #[test]
    fn dependency_is_added_and_removed_without_other_changes() {
        for (rest, with_it) in [
            (
                "",
                "spec:\n  dependencies:\n    - name: \"a\"\n      version: \"^1\"\n",
            ),
            (
                "spec:\n  version: 1.0.0 # mine\n---\nkind: Swarm\n",
                "spec:\n  dependencies:\n    - name: \"a\"\n      version: \"^1\"\n  version: 1.0.0 # mine\n---\nkind: Swarm\n",
            ),
            (
                "spec:\n  dependencies: # these\n  - {name: b, version: 1.x}\n  # the end\n  version: 1.0.0\n",
                "spec:\n  dependencies: # these\n  - {name: b, version: 1.x}\n  - name: \"a\"\n    version: \"^1\"\n  # the end\n  version: 1.0.0\n",
            ),
            (
                "spec:\n  dependencies:\n      - name: b\n        version: 1.x",
                "spec:\n  dependencies:\n      - name: b\n        version: 1.x\n      - name: \"a\"\n        version: \"^1\"\n",
            ),
        ] {
            let text = format!("{HEAD}{rest}");
            let changed = with(&text, "a", "^1").unwrap();
            assert_eq!(changed, format!("{HEAD}{with_it}"));
            let other = with(&changed, "a", "^2").unwrap();
            assert_eq!(other, changed.replace("\"^1\"", "\"^2\""));
            let gone = without(&other, "a").unwrap();
            assert_eq!(gone.trim_end(), format!("{HEAD}{rest}").trim_end());
        }
    }

    #[test]
    fn dependency_on_one_line_is_added_and_removed() {
        let item = r#"{name: "a", version: "^1"}"#;
        for (rest, with_it, after) in [
            ("spec: {}\n", "spec: {dependencies: [ITEM]}\n", "spec: {}\n"),
            (
                "spec: {registries: [{url: \"http://h:1/#x, y\"}]} # mine\n---\nkind: Swarm\nspec: {}\n",
                "spec: {registries: [{url: \"http://h:1/#x, y\"}], dependencies: [ITEM]} # mine\n---\nkind: Swarm\nspec: {}\n",
                "",
            ),
            (
                "spec: {\n  version: 1.0.0, # it's, }\n  'dependencies': [ {name: b, version: 1.x} ]\n}\n",
                "spec: {\n  version: 1.0.0, # it's, }\n  'dependencies': [ {name: b, version: 1.x}, ITEM ]\n}\n",
                "",
            ),
            (
                "spec: {dependencies: [], version: 1.0.0}\n",
                "spec: {dependencies: [ITEM], version: 1.0.0}\n",
                "spec: {version: 1.0.0}\n",
            ),
            (
                "spec:\n  dependencies: []\n",
                "spec:\n  dependencies: [ITEM]\n",
                "",
            ),
            (
                "spec:\n  version: 1.0.0\n  dependencies: [{name: b, version: '1.x || ''2'''},]\n",
                "spec:\n  version: 1.0.0\n  dependencies: [{name: b, version: '1.x || ''2'''}, ITEM,]\n",
                "",
            ),
        ] {
            let text = format!("{HEAD}{rest}");
            let changed = with(&text, "a", "^1").unwrap();
            assert_eq!(changed, format!("{HEAD}{}", with_it.replace("ITEM", item)));
            let other = with(&changed, "a", "^2").unwrap();
            assert_eq!(other, changed.replace("\"^1\"", "\"^2\""));
            let gone = without(&other, "a").unwrap();
            let after = if after.is_empty() { rest } else { after };
            assert_eq!(gone, format!("{HEAD}{after}"));
        }
    }

    #[test]
    fn dependency_in_the_short_form_is_added_and_removed() {
        let rest = "\n# the agents\nagents:\n  a: {model: m}\n";
        for package in [
            "package: {name: \"p\", version: 0.1.0}\n",
            "package:\n  name: p\n  version: 0.1.0\n",
            "package: {\n  name: p,\n  version: 0.1.0\n}\n",
        ] {
            let text = format!("# mine\napiVersion: goondan.ai/v1\n{package}{rest}");
            let added = with(&text, "a", "^1").unwrap();
            let fields = "package:\n  name: \"p\"\n  version: \"0.1.0\"\n";
            assert_eq!(
                added,
                format!(
                    "# mine\napiVersion: goondan.ai/v1\n{fields}  dependencies:\n    \
                     - {{\"name\":\"a\",\"version\":\"^1\"}}\n{rest}"
                )
            );
            let other = with(&added, "a", "^2").unwrap();
            assert_eq!(other, added.replace("^1", "^2"));
            assert_eq!(
                without(&other, "a").unwrap(),
                format!("# mine\napiVersion: goondan.ai/v1\n{fields}{rest}")
            );
        }
        let named = "apiVersion: goondan.ai/v1\npackage: p\nagents: {}\n";
        let added = with(named, "a", "^1").unwrap();
        assert!(added.starts_with("apiVersion: goondan.ai/v1\npackage:\n  name: \"p\"\n  dep"));
        // The comment would be lost.
        let commented = "apiVersion: goondan.ai/v1\npackage:\n  name: p # mine\nagents: {}\n";
        assert!(with(commented, "a", "^1").is_err());
    }

    #[test]
    fn unsupported_manifest_layout_is_not_edited() {
        let whole = "{apiVersion: goondan.ai/v1, kind: Package, metadata: {name: p}}\n";
        assert!(with(whole, "a", "^1").is_err());
        let anchored = format!("{HEAD}spec: &x {{version: 1.0.0}}\n");
        assert!(with(&anchored, "a", "^1").is_err());
        assert!(with("kind: Agent\n", "a", "^1").is_err());
        assert!(without(HEAD, "a").is_err());
    }
}
