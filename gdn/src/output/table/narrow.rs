//! Layout of tables that are wider than the terminal.

use super::super::style::{self, Palette};
use super::super::text;
use super::cells::{Cell, Column, GAP, push_row, total};

/// Length to which names are shortened before another column moves below its row, in columns.
const CUT_FIRST: usize = 20;

/// Minimum length of a shortened name, in columns.
const CUT_MIN: usize = 8;

/// Indentation of lines below a row.
const INDENT: usize = 4;

/// Minimum width of a wrapped value, in columns.
const WRAP_MIN: usize = 20;

/// Values that are omitted below a row.
const NOTHING: [&str; 3] = ["", "-", "0"];

/// Renders a table with a header, within `room` columns if possible. `widths` are those of the widest cells.
pub(super) fn rows(
    columns: &[Column],
    rows: &[Vec<Cell>],
    widths: &[usize],
    room: usize,
    palette: Palette,
) -> String {
    let (kept, cut) = arrangement(columns, widths, room);
    let is_kept = |column: usize| kept.contains(&column);
    let width_of = |column: usize| {
        let natural = widths.get(column).copied().unwrap_or(0);
        let is_cut = columns.get(column).is_some_and(|column| column.is_cut);
        if is_cut { natural.min(cut) } else { natural }
    };
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<(Cell, usize)> = row
            .iter()
            .enumerate()
            .filter(|(column, _)| is_kept(*column))
            .map(|(column, cell)| (shortened(cell, width_of(column)), width_of(column)))
            .collect();
        let shown: Vec<(&Cell, usize)> = cells.iter().map(|(cell, width)| (cell, *width)).collect();
        push_row(&mut out, &shown, palette);
        if number > 0 {
            let moved = row.iter().zip(columns).enumerate();
            let moved = moved.filter(|(column, _)| !is_kept(*column));
            push_below(&mut out, moved.map(|(_, cell)| cell), room, palette);
        }
    }
    out
}

/// Renders a table of names and values, with long values wrapped. They are not shortened, because users copy paths
/// from them.
pub(super) fn fields(
    rows: &[Vec<Cell>],
    widths: &[usize],
    room: usize,
    palette: Palette,
) -> String {
    let indent = widths.first().copied().unwrap_or(0) + GAP;
    let room = room.saturating_sub(indent).max(WRAP_MIN);
    let mut out = String::new();
    for row in rows {
        let [name, value] = row.as_slice() else {
            continue;
        };
        let lines = text::wrapped(&value.text, room, room);
        for (number, line) in lines.iter().enumerate() {
            let name = if number == 0 {
                name.clone()
            } else {
                Cell::from("")
            };
            let line = Cell::styled(line, value.style);
            push_row(&mut out, &[(&name, indent - GAP), (&line, 0)], palette);
        }
    }
    out
}

/// Chooses the columns that stay in their rows, and the maximum length of names in them.
fn arrangement(columns: &[Column], widths: &[usize], room: usize) -> (Vec<usize>, usize) {
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    loop {
        if let Some(cut) = longest_cut(columns, widths, &kept, room, CUT_FIRST) {
            return (kept, cut);
        }
        let rank_of = |column: &usize| columns.get(*column).map_or(0, |column| column.rank);
        let Some(highest) = kept.iter().map(rank_of).max().filter(|rank| *rank > 0) else {
            break;
        };
        kept.retain(|column| rank_of(column) < highest);
    }
    let cut = longest_cut(columns, widths, &kept, room, CUT_MIN);
    (kept, cut.unwrap_or(CUT_MIN))
}

/// Maximum length of names for which the columns fit; none if it is less than `least`.
fn longest_cut(
    columns: &[Column],
    widths: &[usize],
    kept: &[usize],
    room: usize,
    least: usize,
) -> Option<usize> {
    let taken = |cut: usize| {
        let width = |column: &usize| {
            let natural = widths.get(*column).copied().unwrap_or(0);
            let is_cut = columns.get(*column).is_some_and(|column| column.is_cut);
            if is_cut { natural.min(cut) } else { natural }
        };
        let widths: Vec<usize> = kept.iter().map(width).collect();
        total(&widths)
    };
    (least..=room.max(least))
        .rev()
        .find(|cut| taken(*cut) <= room)
}

fn shortened(cell: &Cell, width: usize) -> Cell {
    Cell {
        text: cut_in_the_middle(&cell.text, width),
        style: cell.style,
    }
}

/// Replaces the middle of a text with `…`.
fn cut_in_the_middle(text: &str, columns: usize) -> String {
    if text::width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (head, tail) = (room.div_ceil(2), room / 2);
    let begin = text::taken_while(text.chars(), head);
    let end = text::taken_while(text.chars().rev(), tail);
    let end: String = end.chars().rev().collect();
    format!("{begin}…{end}")
}

/// Adds the columns that moved below a row: as many `label value` pairs on a line as fit.
fn push_below<'c>(
    out: &mut String,
    moved: impl Iterator<Item = (&'c Cell, &'c Column)>,
    room: usize,
    palette: Palette,
) {
    let room = room.saturating_sub(INDENT).max(WRAP_MIN);
    let indent = " ".repeat(INDENT);
    let mut used = 0;
    for (cell, column) in moved {
        if NOTHING.contains(&cell.text.as_str()) {
            continue;
        }
        let label = match column.label {
            "" => String::new(),
            label => format!("{label} "),
        };
        let label_width = text::width(&label);
        let wanted = label_width + text::width(&cell.text);
        if used > 0 && used + GAP + wanted > room {
            out.push('\n');
            used = 0;
        }
        out.push_str(if used == 0 { &indent } else { "  " });
        used += if used == 0 { 0 } else { GAP };
        out.push_str(&palette.paint(style::FAINT, &label));
        let first = room.saturating_sub(used + label_width).max(1);
        let lines = text::wrapped(&cell.text, first, room);
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                out.push('\n');
                out.push_str(&indent);
            }
            out.push_str(&palette.paint(cell.style, line));
        }
        used = match lines.as_slice() {
            [_] | [] => used + wanted,
            [.., last] => text::width(last),
        };
    }
    if used > 0 {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::{Canvas, Table};

    #[test]
    fn a_text_is_cut_in_the_middle_by_columns() {
        assert_eq!(cut_in_the_middle("short", 8), "short");
        assert_eq!(cut_in_the_middle("abcdefghij", 8), "abcd…hij");
        assert_eq!(cut_in_the_middle("가나다라마바사", 8), "가나…사");
    }

    fn wide() -> Table {
        let mut table = Table::new([
            Column::new("KEY").cut(),
            Column::new("STATE"),
            Column::new("PID").below(1, "pid"),
            Column::new("DETAIL").below(2, ""),
        ]);
        let key = "k".repeat(1_024);
        table.row([
            Cell::from(key),
            "idle".into(),
            "42".into(),
            "what it does, in so many words".into(),
        ]);
        table.row(["a".into(), "processing".into(), "-".into(), "".into()]);
        table
    }

    #[test]
    fn columns_without_room_move_below_the_row_and_keys_are_cut() {
        let at = |columns| {
            let palette = Palette::new(false);
            let columns = Some(columns);
            wide().render(Canvas { palette, columns })
        };
        assert_eq!(
            at(40),
            "KEY                      STATE       PID\n\
             kkkkkkkkkkk…kkkkkkkkkkk  idle        42\n    \
             what it does, in so many words\n\
             a                        processing  -\n"
        );
        assert_eq!(
            at(24),
            "KEY           STATE\n\
             kkkkkk…kkkkk  idle\n    \
             pid 42\n    \
             what it does, in so\n    \
             many words\n\
             a             processing\n"
        );
        for columns in 24..200 {
            let table = at(columns);
            let widest = table.lines().map(text::width).max();
            assert!(widest <= Some(columns), "{columns}:\n{table}");
        }
    }

    #[test]
    fn without_a_terminal_a_key_is_whole() {
        let text = wide().render(Palette::new(false));
        assert!(text.contains(&"k".repeat(1_024)));
    }
}
