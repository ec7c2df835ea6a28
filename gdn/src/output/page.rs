//! A page about one object: its fields, then titled sections. Empty sections are omitted.

use super::style;
use super::table::{Canvas, Table};

/// A page under construction.
pub(crate) struct PageWriter {
    canvas: Canvas,
    text: String,
}

impl PageWriter {
    /// Creates a page that begins with these fields.
    pub(crate) fn new(fields: &Table, canvas: Canvas) -> Self {
        Self {
            canvas,
            text: fields.render(canvas),
        }
    }

    /// Adds a section.
    pub(crate) fn part(&mut self, title: &str, body: &str) {
        if !body.trim().is_empty() {
            let title = self.canvas.palette.paint(style::TITLE, title);
            self.text
                .push_str(&format!("\n{title}\n{}\n", body.trim_end()));
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::style::Palette;
    use super::*;

    #[test]
    fn empty_page_part_has_no_title() {
        let mut fields = Table::of_fields();
        fields.field("Task", "shop");
        let mut page = PageWriter::new(&fields, Palette::new(false).into());
        page.part("Documents", "\n");
        page.part("History", "  made\n\n");
        assert_eq!(page.into_text(), "Task  shop\n\nHistory\n  made\n");
    }
}
