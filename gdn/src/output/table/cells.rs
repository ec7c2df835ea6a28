//! Columns, cells and lines of a table.

use anstyle::Style;

use super::super::style::{self, Palette};
use super::super::text;

/// Number of spaces between two columns.
pub(super) const GAP: usize = 2;

/// A cell: a text and its style.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Cell {
    /// Creates a cell in `style`. Control characters are escaped.
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

/// A column: its header, and its behavior in a narrow table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(super) title: &'static str,
    /// Label before its value on a line below the row.
    pub(super) label: &'static str,
    /// True if its values may be shortened in the middle.
    pub(super) is_cut: bool,
    /// In a narrow table, columns with a higher rank move below their rows first; a column of rank 0 stays.
    pub(super) rank: u8,
}

impl Column {
    /// Creates a column that is never shortened or moved.
    pub(crate) const fn new(title: &'static str) -> Self {
        Self {
            title,
            label: "",
            is_cut: false,
            rank: 0,
        }
    }

    /// Allows values to be shortened in the middle, for names, keys and paths.
    pub(crate) const fn cut(self) -> Self {
        Self {
            is_cut: true,
            ..self
        }
    }

    /// Allows the column to move below its row as `label value`; a higher rank moves earlier.
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

/// Lists names in one cell, or `none`.
pub(crate) fn listed(names: &[String]) -> Cell {
    if names.is_empty() {
        Cell::styled("none", style::FAINT)
    } else {
        names.join(", ").into()
    }
}

/// Width of a line, in columns.
pub(super) fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Adds a line. The last non-empty cell is not padded.
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
