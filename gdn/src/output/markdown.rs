//! Renders Markdown from models for a terminal (`STEER-4`).

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::style::{self, Palette};
use super::text;

/// Width of a horizontal rule, in columns.
const RULE_COLUMNS: usize = 24;
/// Gap between the columns of a table.
const TABLE_GAP: &str = "  ";

/// Renders `markdown` for a terminal. Long lines are wrapped by the terminal, so that copied text is unbroken.
pub(crate) fn render(markdown: &str, palette: Palette) -> String {
    let printable = text::printable(markdown);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut painter = Painter {
        palette,
        out: String::new(),
        line: String::new(),
        prefixes: Vec::new(),
        looks: Vec::new(),
        lists: Vec::new(),
        code: None,
        table: None,
        link: None,
        has_gap: true,
    };
    for event in Parser::new_ext(&printable, options) {
        painter.take(event);
    }
    painter.end_line();
    painter.out
}

/// Prefix of lines in a list or quotation.
#[derive(Debug)]
struct Prefix {
    first: Option<String>,
    rest: String,
}

/// A table being collected.
#[derive(Debug, Default)]
struct TableCells {
    rows: Vec<Vec<String>>,
    has_head: bool,
}

struct Painter {
    palette: Palette,
    out: String,
    line: String,
    prefixes: Vec<Prefix>,
    looks: Vec<anstyle::Style>,
    /// Next number of each open list; none for lists without numbers.
    lists: Vec<Option<u64>>,
    code: Option<String>,
    table: Option<TableCells>,
    /// Target of the open link, and the start of its text.
    link: Option<(String, usize)>,
    /// True if no empty line is needed before the next block.
    has_gap: bool,
}

impl Painter {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(said) => match &mut self.code {
                Some(code) => code.push_str(&said),
                None => self.say(&said),
            },
            Event::Code(said) => {
                let said = self.palette.paint(style::HINT, &said);
                self.push(&said);
            }
            Event::InlineHtml(said) | Event::Html(said) => self.say(said.trim_end_matches('\n')),
            Event::SoftBreak | Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.gap();
                let rule = self.palette.paint(style::FAINT, &"─".repeat(RULE_COLUMNS));
                self.push(&rule);
                self.end_block();
            }
            Event::TaskListMarker(is_done) => self.push(if is_done { "☑ " } else { "☐ " }),
            Event::InlineMath(said) | Event::DisplayMath(said) | Event::FootnoteReference(said) => {
                self.say(&said);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.looks.push(match level {
                    HeadingLevel::H1 => style::TITLE.underline(),
                    _ => style::TITLE,
                });
            }
            Tag::BlockQuote(_) => {
                self.gap();
                let rest = self.palette.paint(style::FAINT, "│ ");
                self.prefixes.push(Prefix { first: None, rest });
            }
            Tag::CodeBlock(kind) => {
                self.gap();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    let language = self.palette.paint(style::FAINT, &language);
                    self.push(&language);
                    self.end_line();
                }
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.gap_or_line();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.gap();
                self.table = Some(TableCells::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.looks.push(anstyle::Style::new().italic()),
            Tag::Strong => self.looks.push(style::TITLE),
            Tag::Strikethrough => self.looks.push(anstyle::Style::new().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), self.line.len()));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_block(),
            TagEnd::Heading(_) => {
                self.looks.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.prefixes.pop();
                self.has_gap = false;
            }
            TagEnd::CodeBlock => {
                for line in self.code.take().unwrap_or_default().lines() {
                    let line = self.palette.paint(style::HINT, line);
                    self.push(&format!("  {line}"));
                    self.end_line();
                }
                self.has_gap = false;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.has_gap = !self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                self.prefixes.pop();
            }
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.has_head = true;
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                let row = self.table.as_mut().and_then(|table| table.rows.last_mut());
                if let Some(row) = row {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.looks.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    /// Adds text in the current style.
    fn say(&mut self, said: &str) {
        let look = self
            .looks
            .iter()
            .fold(anstyle::Style::new(), |all, one| all | one.get_effects());
        let mut lines = said.split('\n');
        let first = lines.next().unwrap_or_default();
        let painted = self.palette.paint(look, first);
        self.push(&painted);
        for line in lines {
            self.end_line();
            let painted = self.palette.paint(look, line);
            self.push(&painted);
        }
    }

    fn push(&mut self, said: &str) {
        self.line.push_str(said);
    }

    /// Adds an empty line before the next block, unless it is the first.
    fn gap(&mut self) {
        self.end_line();
        if !std::mem::replace(&mut self.has_gap, true) {
            let prefix: String = self
                .prefixes
                .iter()
                .map(|prefix| prefix.rest.as_str())
                .collect();
            self.out.push_str(prefix.trim_end());
            self.out.push('\n');
        }
    }

    /// Like `gap`, but a nested list follows its line directly.
    fn gap_or_line(&mut self) {
        match self.lists.is_empty() {
            true => self.gap(),
            false => self.end_line(),
        }
    }

    fn item(&mut self) {
        self.end_line();
        self.has_gap = true;
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => "• ".to_owned(),
        };
        let rest = " ".repeat(text::width(&mark));
        let first = Some(mark);
        self.prefixes.push(Prefix { first, rest });
    }

    fn end_block(&mut self) {
        self.end_line();
        self.has_gap = false;
    }

    fn end_line(&mut self) {
        if self.table.is_some() || self.line.is_empty() {
            return;
        }
        for prefix in &mut self.prefixes {
            let first = prefix.first.take();
            self.out.push_str(first.as_deref().unwrap_or(&prefix.rest));
        }
        self.out.push_str(self.line.trim_end());
        self.out.push('\n');
        self.line.clear();
    }

    fn end_link(&mut self) {
        let Some((leads_to, begin)) = self.link.take() else {
            return;
        };
        // A URL that equals the link text is not repeated.
        let is_said = self
            .line
            .get(begin..)
            .is_some_and(|said| said.contains(&leads_to));
        if !is_said {
            let leads_to = self.palette.paint(style::FAINT, &format!(" ({leads_to})"));
            self.push(&leads_to);
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| {
            let cells = table.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        for (number, row) in table.rows.iter().enumerate() {
            let is_head = number == 0 && table.has_head;
            let cells = widths.iter().zip(row).map(|(wide, cell)| {
                let gap = " ".repeat(wide.saturating_sub(width(cell)));
                match is_head {
                    true => format!("{}{gap}", self.palette.paint(style::TITLE, cell)),
                    false => format!("{cell}{gap}"),
                }
            });
            let line = cells.collect::<Vec<_>>().join(TABLE_GAP);
            self.push(&line);
            self.end_line();
        }
        self.has_gap = false;
    }
}

/// Width of a styled text, in columns.
fn width(painted: &str) -> usize {
    text::width(&anstream::adapter::strip_str(painted).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(markdown: &str) -> String {
        render(markdown, Palette::new(false))
    }

    #[test]
    fn steer_4_markdown_is_shown_as_it_is_meant() {
        let shown = plain(
            "# Plan\nBuy **two** copies of `Dune`:\n\n1. ask [the shop](https://shop.example)\n   - cash\n   - \
             card\n2. read\n\n> well\n> said\n\n```sh\nls  -l\n\ncd\n```\n---\nend <b>",
        );
        let expected = "\
Plan

Buy two copies of Dune:

1. ask the shop (https://shop.example)
   • cash
   • card
2. read

│ well
│ said

sh
  ls  -l
  
  cd

────────────────────────

end <b>
";
        let trimmed: Vec<&str> = expected.lines().map(str::trim_end).collect();
        assert_eq!(shown.lines().collect::<Vec<_>>(), trimmed);
    }

    #[test]
    fn steer_4_table_columns_are_aligned() {
        let shown = plain("| book | 권수 |\n|---|---|\n| Dune | 47 |\n| 모모 | 3 |\n");
        assert_eq!(shown, "book  권수\nDune  47\n모모  3\n");
    }

    #[test]
    fn steer_4_text_without_markdown_is_unchanged() {
        for said in ["", "hello\n", "안녕 🦀 2 * 3 * 4 = 24\n", "one\ntwo\n"] {
            assert_eq!(plain(said), said);
        }
    }

    #[test]
    fn steer_4_a_model_steers_no_terminal_with_its_markdown() {
        let shown = render("**a\u{1b}[2Jb** `\u{1b}]0;x\u{7}`", Palette::new(true));
        let codes = shown.matches('\u{1b}').count();
        let ours = shown.matches("\u{1b}[").count();
        assert_eq!(codes, ours, "{shown:?}");
        assert!(!shown.contains("\u{1b}[2J"), "{shown:?}");
    }

    #[test]
    fn steer_4_effects_inside_of_each_other_are_all_shown() {
        let shown = render("**bold *both***", Palette::new(true));
        assert!(shown.contains("\u{1b}[1m\u{1b}[3mboth"), "{shown:?}");
    }
}
