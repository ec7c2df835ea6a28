//! `docs/first-wishes.md`: lines and words of goondan's guides are recounted, and all minutes follow
//! the documented rule.

use crate::pages::Page;

const PAGE: &str = "docs/first-wishes.md";
const NO_WAY: &str = "no documented way";

/// The page with approvals in several places, and the part for chats.
const APPROVALS: (&str, &str) = ("docs/how-to/approve-calls.md", "## In Telegram or Slack");

/// Fences that a person does not type: outputs, other versions of typed configuration, and the
/// script in place of a coding agent.
const NOT_TYPED: [&str; 3] = ["text", "yaml not-run", "bash"];

/// Beginnings of lines that replace a service or a repository, wait, or clean up.
const STAND_INS: [&str; 16] = [
    "cp docs/examples/",
    "python3 ",
    "endpoint: http://127.0.0.1",
    "address=",
    "body=",
    "time=",
    "sum=",
    "curl ",
    "git init",
    "git config",
    "git -C",
    "echo '#",
    "chmod ",
    "until ",
    "gdn daemon shutdown",
    "kill %1",
];

/// `model` and `apiKey`, instead of the options of a scripted model.
const LINES_OF_A_MODEL: usize = 2;

/// The cost of a wish.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Effort {
    lines: usize,
    fields: usize,
}

impl Effort {
    /// Minutes, in whole numbers: a unit is a two-hundredth of a minute.
    fn minutes(self, words: usize) -> usize {
        let units = words + self.lines * 20 + self.fields * 40;
        ((units + 100) / 200).max(1)
    }

    /// Reads `1 line, 2 fields, 3 min`; none for `no documented way`.
    fn read(cell: &str) -> Option<(Self, usize)> {
        if cell == NO_WAY {
            return None;
        }
        let (mut effort, mut minutes) = (Self::default(), None);
        for part in cell.split(", ") {
            let (number, unit) = part.split_once(' ').unwrap_or_else(|| panic!("{cell}"));
            let number: usize = number.parse().unwrap_or_else(|_| panic!("{cell}"));
            match unit {
                "line" | "lines" => effort.lines = number,
                "field" | "fields" => effort.fields = number,
                "min" => minutes = Some(number),
                _ => panic!("unknown unit in `{cell}`"),
            }
        }
        Some((effort, minutes.unwrap_or_else(|| panic!("{cell}"))))
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lines of a fence that a person types for a real model and real services.
fn typed(fence: &str) -> usize {
    let (mut typed, mut end_of_file, mut options) = (0, None, None);
    for line in fence.lines() {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(end) = end_of_file {
            end_of_file = (text != end).then_some(end);
            continue;
        }
        if let Some((_, rest)) = text.split_once("<<'") {
            end_of_file = rest.split('\'').next();
            continue;
        }
        if options.is_some_and(|options| indentation(line) > options) {
            continue;
        }
        options = (text == "options:").then(|| indentation(line));
        if options.is_some() {
            typed += LINES_OF_A_MODEL;
        } else if !STAND_INS.iter().any(|start| text.starts_with(start)) {
            typed += 1;
        }
    }
    typed
}

/// The guide, or the part for the wish.
fn guide(path: &str) -> Page {
    let page = Page::read(path);
    let (approvals, part) = APPROVALS;
    if path != approvals {
        return page;
    }
    let (introduction, _) = page.text.split_once("\n## ").unwrap();
    Page {
        text: format!("{introduction}\n{}", page.section(part).text),
        path: page.path,
    }
}

fn effort(guide: &Page) -> Effort {
    let fences = guide.all_fences().into_iter();
    let fences = fences.filter(|(info, _)| !NOT_TYPED.contains(info));
    Effort {
        lines: fences.map(|(_, fence)| typed(&fence)).sum(),
        fields: 0,
    }
}

/// The wishes: the name, the path of the guide, and the cells of goondan and the other tools.
fn wishes() -> Vec<(String, String, Vec<String>)> {
    let rows = Page::read(PAGE).section("## Result").rows().into_iter();
    let wishes = rows.map(|mut row| {
        let cells = row.split_off(1);
        let link = row.pop().unwrap();
        let (name, target) = link.split_once("](").unwrap();
        let name = name.trim_start_matches('[').to_owned();
        (
            name,
            format!("docs/{}", target.trim_end_matches(')')),
            cells,
        )
    });
    wishes.collect()
}

#[test]
fn lines_and_minutes_of_goondan_match_its_guides() {
    let wishes = wishes();
    assert_eq!(wishes.len(), 11);
    for (name, path, cells) in wishes {
        let guide = guide(&path);
        let counted = effort(&guide);
        let minutes = counted.minutes(guide.prose().split_whitespace().count());
        assert_eq!(
            Effort::read(&cells[0]),
            Some((counted, minutes)),
            "{name}: write `{} lines, {minutes} min`",
            counted.lines
        );
    }
}

#[test]
fn minutes_of_other_tools_follow_from_words_lines_and_fields() {
    let page = Page::read(PAGE);
    let mut sources = page.section("## Sources").rows();
    for (name, _, cells) in wishes() {
        for (tool, cell) in ["OpenClaw", "LangGraph", "n8n"].iter().zip(&cells[1..]) {
            let source = sources
                .iter()
                .position(|row| row[0] == name && row[1] == *tool);
            let source = source.map(|at| sources.remove(at));
            let Some((effort, minutes)) = Effort::read(cell) else {
                assert_eq!(source, None, "{name}, {tool}: no way, but a source");
                continue;
            };
            let source = source.unwrap_or_else(|| panic!("{name}, {tool}: no source"));
            let words = source[3].parse().unwrap();
            assert_eq!(minutes, effort.minutes(words), "{name}, {tool}");
        }
    }
    assert_eq!(sources, Vec::<Vec<String>>::new(), "sources of no cell");
}

#[test]
fn every_stand_in_is_in_a_guide() {
    let guides: Vec<Page> = wishes().iter().map(|(_, path, _)| guide(path)).collect();
    for start in STAND_INS {
        let mut lines = guides.iter().flat_map(|guide| guide.text.lines());
        assert!(
            lines.any(|line| line.trim().starts_with(start)),
            "no guide has a line `{start}`"
        );
    }
}

#[test]
fn stand_ins_comments_and_options_are_not_typed() {
    assert_eq!(typed("# a\n\nmkdir x\ncd x\nkill %1\n"), 2);
    assert_eq!(typed("cat > a <<'END'\none\ntwo\nEND\ngdn run\n"), 1);
    let model = "a:\n  provider: scripted\n  options:\n    rules:\n      - say: b\nc: d\n";
    assert_eq!(typed(model), 3 + LINES_OF_A_MODEL);
}
