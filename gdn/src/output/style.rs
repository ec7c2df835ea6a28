//! Colors of `gdn`, by meaning.

use anstyle::{AnsiColor, Style};

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const HINT: Style = AnsiColor::Cyan.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Failures within data.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const TITLE: Style = Style::new().bold();
/// Less important text.
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const PLAIN: Style = Style::new();

/// Highlights a word within a styled line. Without reverse video, because untrusted text could use it to hide.
pub(crate) fn marked(style: Style) -> Style {
    style.bold().underline()
}

/// Styles text, or leaves it plain if colors are off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    on: bool,
}

impl Palette {
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    /// True if colors are on.
    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("{}{text}{}", style.render(), style.render_reset())
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_plain_when_colour_is_off() {
        assert_eq!(Palette::new(false).paint(ERROR, "x"), "x");
        assert_eq!(Palette::new(true).paint(FAINT, "x"), "\u{1b}[2mx\u{1b}[0m");
        assert_eq!(Palette::new(true).paint(PLAIN, "x"), "x");
    }
}
