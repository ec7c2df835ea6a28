//! Aligned tables. Columns are as wide as their widest cell, in terminal columns.
//!
//! If the terminal is too narrow, long names are shortened in the middle, and less important columns move to lines
//! below their row. Nothing is omitted, and output without a terminal is not changed.

use super::style::{self, Palette};
use super::text;

mod cells;
mod narrow;

pub(crate) use cells::{Cell, Column, listed};
use cells::{push_row, total};

/// Available width and colors for a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Canvas {
    pub(crate) palette: Palette,
    /// Width of the terminal; none without a terminal.
    pub(crate) columns: Option<usize>,
}

impl From<Palette> for Canvas {
    fn from(palette: Palette) -> Self {
        Self {
            palette,
            columns: None,
        }
    }
}

/// A table with a header line.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// True if it has names and values instead of a header.
    is_of_fields: bool,
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = impl Into<Column>>) -> Self {
        let columns: Vec<Column> = columns.into_iter().map(Into::into).collect();
        let titles = columns.iter();
        let titles = titles.map(|column| Cell::styled(column.title, style::TITLE));
        Self {
            rows: vec![titles.collect()],
            columns,
            is_of_fields: false,
        }
    }

    /// Creates a table of two columns without a header: names and values.
    pub(crate) fn of_fields() -> Self {
        Self {
            columns: vec![Column::new(""), Column::new("")],
            rows: Vec::new(),
            is_of_fields: true,
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a line to a table created by [`Table::of_fields`].
    pub(crate) fn field(&mut self, name: &str, value: impl Into<Cell>) {
        self.row([Cell::styled(name, style::TITLE), value.into()]);
    }

    /// Renders the table. The last cell of a line is not padded.
    pub(crate) fn render(&self, canvas: impl Into<Canvas>) -> String {
        let canvas = canvas.into();
        let widths = self.widths();
        let total = total(&widths);
        match canvas.columns {
            Some(room) if total > room && self.is_of_fields => {
                narrow::fields(&self.rows, &widths, room, canvas.palette)
            }
            Some(room) if total > room => {
                narrow::rows(&self.columns, &self.rows, &widths, room, canvas.palette)
            }
            _ => {
                let mut out = String::new();
                for row in &self.rows {
                    let cells: Vec<_> = row.iter().zip(widths.iter().copied()).collect();
                    push_row(&mut out, &cells, canvas.palette);
                }
                out
            }
        }
    }

    /// Width of the widest cell in each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = text::width(&cell.text);
                match widths.get_mut(column) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        widths
    }
}

/// Renders at 60, 80 and 120 columns, and checks that no line is wider.
#[cfg(test)]
pub(crate) fn at_three_widths(render: impl Fn(Canvas) -> String) -> String {
    let mut all = String::new();
    for columns in [60, 80, 120] {
        let canvas = Canvas {
            palette: Palette::new(false),
            columns: Some(columns),
        };
        let shown = render(canvas);
        let widest = shown.lines().map(text::width).max();
        assert!(widest <= Some(columns), "at {columns} columns:\n{shown}");
        all.push_str(&format!("== {columns} columns\n{shown}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_display_width() {
        let mut table = Table::new(["KEY", "STATE", "DETAIL"]);
        table.row(["가나".into(), "idle".into(), "x".into()]);
        table.row(["a\nb".into(), "processing".into(), "".into()]);
        assert_eq!(
            table.render(Palette::new(false)),
            "KEY   STATE       DETAIL\n가나  idle        x\na\\nb  processing\n"
        );
    }

    #[test]
    fn colour_does_not_change_the_alignment() {
        let mut table = Table::of_fields();
        table.field("a", Cell::styled("1", style::GOOD));
        table.field("bbb", "2");
        let plain = table.render(Palette::new(false));
        let painted = table.render(Palette::new(true));
        let stripped = anstream::adapter::strip_str(&painted).to_string();
        assert_eq!(plain, "a    1\nbbb  2\n");
        assert_eq!(stripped, plain);
        assert_ne!(painted, plain);
    }
}
