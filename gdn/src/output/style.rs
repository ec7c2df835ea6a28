//! The few colours `gdn` uses, by what they mean.

use anstyle::{AnsiColor, Style};

/// What went wrong.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What to do next.
pub(crate) const HINT: Style = AnsiColor::Cyan.on_default().bold();
/// What went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What needs a look.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// What failed, within data.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Titles and names.
pub(crate) const TITLE: Style = Style::new().bold();
/// What matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// No style.
pub(crate) const PLAIN: Style = Style::new();

/// The same for a word that stands out of its line. Colours are not swapped: a text that others wrote could hide
/// in that.
pub(crate) fn marked(style: Style) -> Style {
    style.bold().underline()
}

/// Paints text, or leaves it plain where colour is off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    on: bool,
}

impl Palette {
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    /// Whether there are colours.
    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    /// `text` in `style`.
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
