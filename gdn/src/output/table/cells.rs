//! What a table is made of: columns, cells, and the lines they are in.

use anstyle::Style;

use super::super::style::{self, Palette};
use super::super::text;

/// Blanks between two columns.
pub(super) const GAP: usize = 2;

/// One cell: a text and how it looks.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Cell {
    /// A cell in `style`. Control characters are made visible.
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: text::one_line(text.as_ref()),
            style,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, style::PLAIN)
    }
}

/// A column: its title, and what becomes of it where there is little room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(super) title: &'static str,
    /// What stands before its value on a line below the row.
    pub(super) label: &'static str,
    /// Whether its values may be cut in the middle.
    pub(super) is_cut: bool,
    /// Where there is no room, columns of higher rank move below their rows first; one of rank 0 stays.
    pub(super) rank: u8,
}

impl Column {
    /// A column that is always whole and in its place.
    pub(crate) const fn new(title: &'static str) -> Self {
        Self {
            title,
            label: "",
            is_cut: false,
            rank: 0,
        }
    }

    /// The same, with values that may be cut in the middle: names, keys, paths.
    pub(crate) const fn cut(self) -> Self {
        Self {
            is_cut: true,
            ..self
        }
    }

    /// The same, which moves below its row as `label value`; the higher its rank, the sooner.
    pub(crate) const fn below(self, rank: u8, label: &'static str) -> Self {
        Self {
            label,
            rank,
            ..self
        }
    }
}

impl From<&'static str> for Column {
    fn from(title: &'static str) -> Self {
        Self::new(title)
    }
}

/// Names in one cell, or that there are none.
pub(crate) fn listed(names: &[String]) -> Cell {
    if names.is_empty() {
        Cell::styled("none", style::FAINT)
    } else {
        names.join(", ").into()
    }
}

/// How many terminal columns a line takes.
pub(super) fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Adds a line. The last cell that is not empty is not padded.
pub(super) fn push_row(out: &mut String, cells: &[(&Cell, usize)], palette: Palette) {
    let last = cells.iter().rposition(|(cell, _)| !cell.text.is_empty());
    for (column, (cell, widest)) in cells.iter().enumerate() {
        out.push_str(&palette.paint(cell.style, &cell.text));
        if Some(column) >= last {
            break;
        }
        let padding = widest.saturating_sub(text::width(&cell.text)) + GAP;
        out.extend(std::iter::repeat_n(' ', padding));
    }
    out.push('\n');
}
