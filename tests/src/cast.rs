//! Terminal recordings for the documentation: the contents of a [`Screen`], step by step.
//!
//! A test shows something on a screen and keeps each step. The result is two files: an asciicast
//! ([version 2](https://docs.asciinema.org/manual/asciicast/v2/)) for players, and an animated
//! picture ([`svg`]) for pages. They are written to the folder in [`FOLDER_VAR`]; without it they
//! are created and checked anyway.
//!
//! The duration of a step is set by the test instead of measured, and dates and times are replaced,
//! so that two recordings differ as little as possible.

pub mod paint;
pub mod svg;

use std::env;
use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::binaries::bin_dir;
use crate::screen::Screen;
use crate::{Home, wait_until};
use paint::StyledLine;

/// Variable with the folder for recordings.
pub const FOLDER_VAR: &str = "GOONDAN_TEST_CASTS";

/// Maximum size of a picture in bytes.
pub const SVG_BYTES_MAX: usize = 100_000;

/// Home directory in recordings. As long as a temporary directory of a test, so that columns stay.
const SHOWN_HOME: &str = "/srv/gdn-person";

/// Typing time of a word.
const WORD_MS: u64 = 160;

/// A step: the terminal's contents, and their duration.
#[derive(Debug)]
struct CastFrame {
    painted: String,
    lasts_ms: u64,
}

#[derive(Debug)]
pub struct Cast {
    name: &'static str,
    title: &'static str,
    screen: Screen,
    size: (u16, u16),
    steps: Vec<CastFrame>,
    /// The home of this run as in paths and in ids of workspaces, and its replacements.
    replaced: [(String, String); 2],
    /// Strings that recordings must not contain: the paths of this run.
    private: Vec<String>,
}

impl Cast {
    /// Begins a recording on a screen of this size, with a shell in the project directory and `gdn`
    /// in its path.
    #[must_use]
    pub fn begin(
        home: &Home,
        (name, title): (&'static str, &'static str),
        size: (u16, u16),
    ) -> Self {
        let gdn = bin_dir().join("gdn");
        let screen = Screen::start(&home.command(&gdn, &[]), size.0, size.1);
        let (at, gdn) = (home.path().display(), gdn.display());
        screen.types(&format!("gdn() {{ HOME='{at}' '{gdn}' \"$@\"; }}; clear"));
        screen.wait_for("gdn()");
        screen.press(&["Enter"]);
        screen.wait_until_gone("gdn()");
        screen.wait_for_prompt();
        let private = vec![at.to_string(), bin_dir().display().to_string()];
        let in_ids = |path: &str| path.trim_start_matches('/').replace('/', "_");
        let replaced = [
            (at.to_string(), SHOWN_HOME.to_owned()),
            (in_ids(&at.to_string()), in_ids(SHOWN_HOME)),
        ];
        Self {
            name,
            title,
            screen,
            size,
            steps: Vec::new(),
            replaced,
            private,
        }
    }

    #[must_use]
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Contents of the screen, without anything that differs from run to run.
    fn seen(&self) -> String {
        let mut seen = seen(&self.screen.painted());
        for (from, to) in &self.replaced {
            seen = seen.replace(from, to);
        }
        seen
    }

    /// Keeps the screen as a step of this duration in milliseconds.
    pub fn keep(&mut self, lasts_ms: u64) {
        let painted = self.seen();
        match self.steps.last_mut() {
            Some(last) if last.painted == painted => last.lasts_ms += lasts_ms,
            _ => self.steps.push(CastFrame { painted, lasts_ms }),
        }
    }

    /// Keeps each change of the screen as a step of this duration in milliseconds, until the text
    /// appears.
    pub fn follow(&mut self, until: &str, lasts_ms: u64) {
        wait_until(&format!("{until:?} is on the screen"), || {
            let is_shown = self.screen.shown().contains(until);
            let painted = self.seen();
            if self.steps.last().is_none_or(|last| last.painted != painted) {
                self.keep(lasts_ms);
            }
            is_shown
        });
    }

    /// Types a text, one step per word, and presses Enter.
    pub fn type_in(&mut self, text: &str) {
        for word in text.split_inclusive(' ') {
            self.screen.types(word);
            let word = word.trim_end();
            wait_until(&format!("{word:?} is before the cursor"), || {
                self.screen.shown().trim_end().ends_with(word)
            });
            self.keep(WORD_MS);
        }
        self.keep(400);
        self.screen.press(&["Enter"]);
    }

    /// Presses a key, waits for the result, and keeps it.
    pub fn press(&mut self, key: &str, until: &str, lasts_ms: u64) {
        self.screen.press(&[key]);
        self.screen.wait_for(until);
        self.keep(lasts_ms);
    }

    /// Creates the files, and writes them if requested.
    pub fn finish(self) {
        let cast = self.cast();
        let frames: Vec<(Vec<StyledLine>, u64)> = self.frames();
        let svg = svg::picture(self.title, self.size, &frames);
        for text in [&cast, &svg] {
            for private in &self.private {
                assert!(!text.contains(private), "{}: {private}", self.name);
            }
        }
        assert!(svg.len() <= SVG_BYTES_MAX, "{} bytes", svg.len());
        if let Some(folder) = env::var_os(FOLDER_VAR) {
            let file =
                |ending: &str| PathBuf::from(&folder).join(format!("{}.{ending}", self.name));
            fs::write(file("cast"), cast).unwrap();
            fs::write(file("svg"), svg).unwrap();
        }
    }

    fn frames(&self) -> Vec<(Vec<StyledLine>, u64)> {
        let steps = self.steps.iter();
        steps
            .map(|step| (paint::lines(&step.painted), step.lasts_ms))
            .collect()
    }

    /// Creates an asciicast: a header, and each step as a redrawn screen.
    fn cast(&self) -> String {
        let (width, height) = self.size;
        let head = json!({"version": 2, "width": width, "height": height, "title": self.title});
        let mut lines = vec![head.to_string()];
        let mut at_ms = 0;
        for step in &self.steps {
            let screen = step.painted.replace('\n', "\r\n");
            lines.push(event(at_ms, &format!("\u{1b}[0m\u{1b}[H\u{1b}[2J{screen}")));
            at_ms += step.lasts_ms;
        }
        lines.push(event(at_ms, ""));
        lines.join("\n") + "\n"
    }
}

/// One event of an asciicast; its time is in seconds.
fn event(at_ms: u64, text: &str) -> String {
    let seconds = format!("{}.{:03}", at_ms / 1000, at_ms % 1000);
    format!("[{seconds},\"o\",{}]", json!(text))
}

/// Removes dates, times and spinner frames from a screen.
fn seen(painted: &str) -> String {
    let turns = |letter: char| matches!(letter, '\u{2800}'..='\u{28ff}');
    without_the_day(painted.trim_end_matches('\n')).replace(turns, "\u{2826}")
}

/// Replaces every date by the first of 2026, and every hour by noon.
fn without_the_day(text: &str) -> String {
    let mut dated = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (kept, length) = match () {
            () if fits(rest, "0000-00-00") => ("2026-01-01", 10),
            () if fits(rest, "00:00:00") => ("12:00", 5),
            () => ("", next.len_utf8()),
        };
        let (taken, behind) = rest.split_at(length);
        dated.push_str(if kept.is_empty() { taken } else { kept });
        rest = behind;
    }
    dated
}

/// True if a text begins with this pattern, in which `0` is any digit.
fn fits(text: &str, form: &str) -> bool {
    let mut chars = text.chars();
    form.chars().all(|wanted| match chars.next() {
        Some(found) if wanted == '0' => found.is_ascii_digit(),
        found => found == Some(wanted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_date_and_time_of_day_are_replaced() {
        let told = without_the_day("at 2031-11-26 21:29:42.950, 3:04 é 1:2:3");
        assert_eq!(told, "at 2026-01-01 12:00:42.950, 3:04 é 1:2:3");
    }

    #[test]
    fn an_event_has_its_time_in_seconds_and_its_text_in_json() {
        assert_eq!(
            event(1_050, "a\u{1b}\"\r\n"),
            r#"[1.050,"o","a\u001b\"\r\n"]"#
        );
    }
}
