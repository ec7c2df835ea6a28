//! The Markdown pages of the repository, and parsing helpers for the tests.

use std::path::{Path, PathBuf};

const DIRS: &[&str] = &[
    "docs",
    "docs/connectors",
    "docs/how-to",
    "docs/operations",
    "docs/tutorials",
    "systemd",
];

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

pub(crate) struct Page {
    /// Its path in the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(repository().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        Self {
            path: path.to_owned(),
            text,
        }
    }

    /// Every page there is.
    pub(crate) fn all() -> Vec<Self> {
        let mut paths = vec!["README.md".to_owned()];
        for dir in DIRS {
            for entry in std::fs::read_dir(repository().join(dir)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".md") {
                    paths.push(format!("{dir}/{name}"));
                }
            }
        }
        paths.sort();
        assert!(paths.len() > 10, "{paths:?}");
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The text without fences.
    pub(crate) fn prose(&self) -> String {
        let is_prose = |at: usize| at.is_multiple_of(2);
        let parts = self.text.split("\n```").enumerate();
        let prose: Vec<&str> = parts
            .filter(|(at, _)| is_prose(*at))
            .map(|(_, part)| part)
            .collect();
        prose.join("\n")
    }

    /// All fences in order: their info strings and contents.
    pub(crate) fn all_fences(&self) -> Vec<(&str, String)> {
        let parts = self.text.split("\n```").enumerate();
        parts
            .filter(|(at, _)| !at.is_multiple_of(2))
            .filter_map(|(_, part)| part.split_once('\n'))
            .map(|(info, content)| (info, format!("{content}\n")))
            .collect()
    }

    /// Fences with this language, in order, excluding `text` and similar ones.
    pub(crate) fn fences(&self, language: &str) -> Vec<String> {
        let fences = self.all_fences().into_iter();
        fences
            .filter(|(info, _)| *info == language)
            .map(|(_, content)| content)
            .collect()
    }

    /// The part under a heading, up to the next heading of its level or above.
    pub(crate) fn section(&self, heading: &str) -> Self {
        let level = heading.chars().take_while(|c| *c == '#').count();
        let (_, rest) = self
            .text
            .split_once(&format!("\n{heading}\n"))
            .unwrap_or_else(|| panic!("{} has no heading {heading}", self.path));
        let ends = |line: &str| {
            let marks = line.chars().take_while(|c| *c == '#').count();
            (1..=level).contains(&marks) && line.chars().nth(marks) == Some(' ')
        };
        let mut in_fence = false;
        let lines = rest.lines().take_while(|line| {
            in_fence ^= line.starts_with("```");
            in_fence || !ends(line)
        });
        let text = lines.map(|line| format!("{line}\n")).collect();
        Self {
            path: self.path.clone(),
            text: format!("\n{}", String::as_str(&text)),
        }
    }

    /// Rows of every table, cell by cell, without headers and rulers.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for line in self.text.lines().filter(|line| line.starts_with('|')) {
            let cells = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned());
            let cells: Vec<String> = cells.collect();
            if cells
                .iter()
                .all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-'))
            {
                // The line before a ruler was a header.
                rows.pop();
            } else {
                rows.push(cells);
            }
        }
        rows
    }
}

pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
