//! Contents of a terminal with colors: lines of runs with the same style.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// One of the 16 terminal colors; none is the default.
    pub color: Option<u8>,
    pub is_bold: bool,
    pub is_dim: bool,
    /// Background and text colors are swapped.
    pub is_reverse: bool,
}

/// Text of one style, and the column at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledRun {
    /// From 0.
    pub column: usize,
    /// Trimmed, unless it is reversed.
    pub text: String,
    pub style: Style,
}

/// The runs of one line, from the left.
pub type StyledLine = Vec<StyledRun>;

/// Parses the output of `tmux capture-pane -e`. A style continues past the end of a line.
///
/// # Panics
///
/// If a character is two columns wide, because columns would be miscounted.
#[must_use]
pub fn lines(painted: &str) -> Vec<StyledLine> {
    let mut style = Style::default();
    painted.lines().map(|line| runs(line, &mut style)).collect()
}

fn runs(line: &str, style: &mut Style) -> StyledLine {
    let mut runs = StyledLine::new();
    let mut column = 0;
    for (number, part) in line.split("\u{1b}[").enumerate() {
        let text = match number {
            0 => part,
            _ => {
                let (codes, text) = part.split_once('m').unwrap();
                *style = changed(*style, codes);
                text
            }
        };
        let width = text.chars().inspect(|letter| check_width(*letter)).count();
        let (shown, indent) = if style.is_reverse {
            (text, 0)
        } else {
            let shown = text.trim_start();
            (shown.trim_end(), width - shown.chars().count())
        };
        if !shown.is_empty() {
            runs.push(StyledRun {
                column: column + indent,
                text: shown.to_owned(),
                style: *style,
            });
        }
        column += width;
    }
    runs
}

fn check_width(letter: char) {
    let is_wide =
        matches!(letter, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{d7ff}' | '\u{1f000}'..);
    assert!(!is_wide, "{letter} is as wide as two letters");
}

/// Returns a style after the codes of one escape sequence (`SGR`).
fn changed(mut style: Style, codes: &str) -> Style {
    let mut codes = codes.split(';').map(|code| code.parse().unwrap_or(0));
    while let Some(code) = codes.next() {
        match code {
            0 => style = Style::default(),
            1 => style.is_bold = true,
            2 => style.is_dim = true,
            7 => style.is_reverse = true,
            22 => (style.is_bold, style.is_dim) = (false, false),
            27 => style.is_reverse = false,
            30..=37 => style.color = Some(code - 30),
            38 => {
                // `5;N`: one of 256. `gdn` does not use those above 15.
                let _kind = codes.next();
                style.color = codes.next().filter(|color| *color < 16);
            }
            39 => style.color = None,
            90..=97 => style.color = Some(code - 90 + 8),
            _ => {}
        }
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(column: usize, text: &str, style: Style) -> StyledRun {
        let text = text.to_owned();
        StyledRun {
            column,
            text,
            style,
        }
    }

    #[test]
    fn runs_have_columns_and_styles_that_continue_over_lines() {
        let painted =
            "a \u{1b}[1;32m ✓ x \u{1b}[2m\n  dim\u{1b}[0m \u{1b}[7m rev \u{1b}[0;38;5;2mg\n\n";
        let bold = Style {
            color: Some(2),
            is_bold: true,
            ..Style::default()
        };
        let dim = Style {
            is_dim: true,
            ..bold
        };
        let reverse = Style {
            is_reverse: true,
            ..Style::default()
        };
        let green = Style {
            color: Some(2),
            ..Style::default()
        };
        let first = vec![run(0, "a", Style::default()), run(3, "✓ x", bold)];
        let second = vec![
            run(2, "dim", dim),
            run(6, " rev ", reverse),
            run(11, "g", green),
        ];
        assert_eq!(lines(painted), [first, second, Vec::new()]);
    }
}
