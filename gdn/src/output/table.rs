//! Aligned tables. Columns are as wide as their widest cell, counted in terminal columns.

use anstyle::Style;

use super::style::{self, Palette};
use super::text;

/// Blanks between two columns.
const GAP: usize = 2;

/// One cell: a text and how it looks.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
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

/// A table with a line of titles.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(titles: impl IntoIterator<Item = &'static str>) -> Self {
        let titles = titles
            .into_iter()
            .map(|title| Cell::styled(title, style::TITLE))
            .collect();
        Self { rows: vec![titles] }
    }

    /// A table of two columns without titles: names and values.
    pub(crate) fn of_fields() -> Self {
        Self { rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// A line of a table [`Table::of_fields`].
    pub(crate) fn field(&mut self, name: &str, value: impl Into<Cell>) {
        self.row([Cell::styled(name, style::TITLE), value.into()]);
    }

    /// The table's lines. The last cell of a line is not padded.
    pub(crate) fn render(&self, palette: Palette) -> String {
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
        let mut out = String::new();
        for row in &self.rows {
            let last = row.iter().rposition(|cell| !cell.text.is_empty());
            for (column, (cell, widest)) in row.iter().zip(&widths).enumerate() {
                out.push_str(&palette.paint(cell.style, &cell.text));
                if Some(column) >= last {
                    break;
                }
                let padding = widest.saturating_sub(text::width(&cell.text)) + GAP;
                out.extend(std::iter::repeat_n(' ', padding));
            }
            out.push('\n');
        }
        out
    }
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
