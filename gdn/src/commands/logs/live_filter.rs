//! The filter that a person types while the log is followed. Pure: it takes keys and lines, and returns the text to show.

use std::collections::VecDeque;

use goondan_protocol::control::LogLevel;
use serde::Deserialize;

/// Latest lines that a changed filter is applied to.
const REMEMBERED_LINES: usize = 2_000;
/// Maximum number of lines that are shown again.
const SHOWN_AGAIN_MAX: usize = 50;
/// Longest text of a filter, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// A key that means something to the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
}

/// Effect of a key on the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// The text being typed.
    Typed(String),
    /// Typing has ended: lines replace the typed text, under a title if the filter has changed.
    Shown {
        title: Option<String>,
        lines: Vec<String>,
    },
}

/// A line of the log.
#[derive(Debug)]
struct SeenLine {
    level: Option<LogLevel>,
    /// As it is shown, with colors.
    painted: String,
    /// Without colors, in lowercase.
    plain: String,
}

/// Field of a line that the level keys filter by.
#[derive(Deserialize)]
struct LevelField {
    #[serde(default)]
    level: Option<LogLevel>,
}

#[derive(Debug, Default)]
pub(super) struct LiveFilter {
    /// Text that a line must contain, in any case.
    text: String,
    /// Lowest level.
    level: Option<LogLevel>,
    /// Text being typed. Lines that arrive in the meantime are held back, because they would tear it apart.
    typed: Option<String>,
    /// Latest lines, whether or not they were shown.
    seen: VecDeque<SeenLine>,
    /// Number of lines at the end of `seen` that were held back.
    held: usize,
}

impl LiveFilter {
    /// Takes a new line: as JSON, as it is shown, and without colors. Returns it if it is shown now.
    pub(super) fn take(&mut self, json: &str, painted: String, plain: &str) -> Option<String> {
        let fields = serde_json::from_str::<LevelField>(json);
        let line = SeenLine {
            level: fields.ok().and_then(|fields| fields.level),
            painted,
            plain: plain.to_lowercase(),
        };
        let shown = if self.typed.is_some() {
            self.held += 1;
            None
        } else {
            self.fits(&line).then(|| line.painted.clone())
        };
        if self.seen.len() == REMEMBERED_LINES {
            self.seen.pop_front();
        }
        self.seen.push_back(line);
        shown
    }

    pub(super) fn press(&mut self, key: Key) -> Change {
        let Some(mut typed) = self.typed.take() else {
            return self.press_command(key);
        };
        match key {
            Key::Char(char) if typed.chars().count() < TEXT_CHARS_MAX => typed.push(char),
            Key::Char(_) => {}
            Key::Backspace if typed.is_empty() => return self.end_typing(),
            Key::Backspace => {
                typed.pop();
            }
            Key::Enter if typed.to_lowercase() == self.text => return self.end_typing(),
            Key::Enter => {
                self.text = typed.to_lowercase();
                return self.changed();
            }
            Key::Escape if self.is_wide() => return self.end_typing(),
            Key::Escape => return self.widen(),
        }
        self.typed = Some(typed.clone());
        Change::Typed(typed)
    }

    fn press_command(&mut self, key: Key) -> Change {
        let level = match key {
            Key::Char('/') => {
                self.typed = Some(String::new());
                return Change::Typed(String::new());
            }
            Key::Escape if !self.is_wide() => return self.widen(),
            Key::Char('1') => LogLevel::Error,
            Key::Char('2') => LogLevel::Warn,
            Key::Char('3') => LogLevel::Info,
            Key::Char('4') => LogLevel::Debug,
            Key::Char('5') => LogLevel::Trace,
            Key::Char(_) | Key::Enter | Key::Escape | Key::Backspace => return Change::Nothing,
        };
        if self.level == Some(level) {
            return Change::Nothing;
        }
        self.level = Some(level);
        self.changed()
    }

    /// True if every line fits.
    fn is_wide(&self) -> bool {
        self.text.is_empty() && self.level.is_none()
    }

    fn fits(&self, line: &SeenLine) -> bool {
        line.plain.contains(&self.text) && self.level.is_none_or(|level| line.level >= Some(level))
    }

    fn widen(&mut self) -> Change {
        self.text.clear();
        self.level = None;
        self.changed()
    }

    /// The filter is another: the latest lines that fit are shown again.
    fn changed(&mut self) -> Change {
        self.held = 0;
        let fitting = self.seen.iter().rev().filter(|line| self.fits(line));
        let latest = fitting.take(SHOWN_AGAIN_MAX);
        let mut lines: Vec<String> = latest.map(|line| line.painted.clone()).collect();
        lines.reverse();
        Change::Shown {
            title: Some(self.title()),
            lines,
        }
    }

    /// The filter stays: the lines that were held back follow.
    fn end_typing(&mut self) -> Change {
        let held = std::mem::take(&mut self.held).min(self.seen.len());
        let lines = self.seen.iter().skip(self.seen.len() - held);
        let lines = lines.filter(|line| self.fits(line));
        Change::Shown {
            title: None,
            lines: lines.map(|line| line.painted.clone()).collect(),
        }
    }

    fn title(&self) -> String {
        let level = self.level.map(|level| match level {
            LogLevel::Error => "of level error".to_owned(),
            LogLevel::Warn => "of level warn and higher".to_owned(),
            LogLevel::Info => "of level info and higher".to_owned(),
            LogLevel::Debug => "of level debug and higher".to_owned(),
            LogLevel::Trace => "of every level".to_owned(),
        });
        let text = Some(&self.text).filter(|text| !text.is_empty());
        let text = text.map(|text| format!("with “{text}”"));
        let parts: Vec<String> = level.into_iter().chain(text).collect();
        match parts.is_empty() {
            true => "All lines:".to_owned(),
            false => format!("Lines {}; Esc shows all:", parts.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(of: &mut LiveFilter, level: &str, text: &str) -> bool {
        let json = format!(r#"{{"level":"{level}","message":"{text}"}}"#);
        let painted = format!("<{text}>");
        of.take(&json, painted, text).is_some()
    }

    fn press(of: &mut LiveFilter, keys: &str) -> Change {
        let mut change = Change::Nothing;
        for key in keys.chars() {
            change = of.press(match key {
                '\n' => Key::Enter,
                '\u{1b}' => Key::Escape,
                '\u{7f}' => Key::Backspace,
                char => Key::Char(char),
            });
        }
        change
    }

    fn lines(change: Change) -> Vec<String> {
        match change {
            Change::Shown { lines, .. } => lines,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn obs_2_typed_text_selects_earlier_and_later_lines_in_any_case() {
        let mut log = LiveFilter::default();
        assert!(take(&mut log, "info", "Turn began") && take(&mut log, "info", "other"));
        assert_eq!(press(&mut log, "/tur"), Change::Typed("tur".to_owned()));
        assert_eq!(press(&mut log, "\u{7f}"), Change::Typed("tu".to_owned()));
        assert!(!take(&mut log, "info", "turn over"), "it waits for Enter");
        assert_eq!(
            lines(press(&mut log, "\n")),
            ["<Turn began>", "<turn over>"]
        );
        assert!(take(&mut log, "warn", "a TURN") && !take(&mut log, "warn", "another"));
        let all = lines(press(&mut log, "\u{1b}"));
        assert_eq!(all.len(), 5);
        assert_eq!(press(&mut log, "\u{1b}"), Change::Nothing);
        assert!(take(&mut log, "info", "other"));
    }

    #[test]
    fn obs_2_level_keys_hide_lower_levels() {
        let mut log = LiveFilter::default();
        for level in ["error", "warn", "info", "debug", "trace"] {
            assert!(take(&mut log, level, level));
        }
        assert_eq!(lines(press(&mut log, "2")), ["<error>", "<warn>"]);
        assert!(!take(&mut log, "info", "x") && take(&mut log, "error", "x"));
        assert_eq!(press(&mut log, "2"), Change::Nothing);
        assert_eq!(lines(press(&mut log, "5")).len(), 7);
    }

    #[test]
    fn obs_2_lines_are_held_back_while_text_is_typed_and_none_is_lost() {
        let mut log = LiveFilter::default();
        assert!(take(&mut log, "info", "first"));
        press(&mut log, "/x");
        assert!(!take(&mut log, "info", "second"));
        let back = press(&mut log, "\u{7f}\u{7f}");
        assert_eq!(lines(back), ["<second>"]);
        assert!(take(&mut log, "info", "third"));
        press(&mut log, "/");
        for _ in 0..REMEMBERED_LINES * 2 {
            take(&mut log, "info", "many");
        }
        assert_eq!(lines(press(&mut log, "\u{1b}")).len(), REMEMBERED_LINES);
    }
}
