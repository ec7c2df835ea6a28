//! Thoughts within the text of a reply (pure).
//!
//! A server without a parser for the template of its model sends the model's thoughts as text,
//! between tags. The template can contain the opening tag itself, so that only the closing one
//! arrives. Tags that a text mentions stay: those in quotes or code, indented ones, opening ones
//! within a line, and closing ones that are words of a sentence.

/// Tags of templates.
const TAGS: &[Tag] = &[
    Tag {
        open: "<think>",
        close: "</think>",
    },
    Tag {
        open: "<thinking>",
        close: "</thinking>",
    },
    Tag {
        open: "<thought>",
        close: "</thought>",
    },
    Tag {
        open: "[THINK]",
        close: "[/THINK]",
    },
    Tag {
        open: "<seed:think>",
        close: "</seed:think>",
    },
    Tag {
        open: "◁think▷",
        close: "◁/think▷",
    },
    Tag {
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
    },
    Tag {
        open: "<|channel>thought",
        close: "<channel|>",
    },
];

/// Closing tags whose opening tag can be a part of the template.
const CLOSE_ALONE: &[&str] = &["</think>", "<|END_THINKING|>"];

/// Start and end of a block of code, at the start of a line.
pub(super) const FENCE: &str = "```";

/// Characters around a tag that a text mentions.
const QUOTES: &[char] = &['`', '"', '\'', '“', '”'];

/// Characters after a closing tag that is a word of a sentence.
const WORD_ENDS: &[char] = &[' ', '.', ',', ';', ':', '?', ')'];

/// White space that is held at the start of a reply, in bytes. A reply with more starts with text.
const SPACE_BYTES_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag {
    open: &'static str,
    close: &'static str,
}

/// A change of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaggedPiece {
    Text(String),
    Thought(String),
    /// A thought begins, after text if the tag is stated: without an end, both are text.
    ThoughtBegins(Option<&'static str>),
    ThoughtEnds,
    /// The text so far was a thought.
    TextWasThought,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// Before the first character of the answer.
    Start {
        after_thought: bool,
    },
    Answer,
    Thought {
        tag: Tag,
        after_answer: bool,
        /// True at the start of a thought, whose white space belongs to the template.
        skips_space: bool,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Start {
            after_thought: false,
        }
    }
}

/// Separates thoughts from text that arrives in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct ThoughtTags {
    place: Place,
    /// Text whose meaning depends on what follows.
    held: String,
    /// The character before `held`.
    previous: Option<char>,
    /// True if a closing tag alone means nothing, because an opening tag came before.
    has_opened: bool,
    /// True if the line has no other characters than white space so far.
    is_line_start: bool,
    is_in_code: bool,
}

/// Result of a comparison with the start of a text that may continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    /// The text ends before the comparison does.
    Undecided,
}

fn matches(text: &str, expected: &str) -> Match {
    if text.starts_with(expected) {
        Match::Yes
    } else if expected.starts_with(text) {
        Match::Undecided
    } else {
        Match::No
    }
}

impl ThoughtTags {
    /// Takes the next text of the reply. A closing tag without an opening one counts unless
    /// `has_thought`, because the server then knows the template.
    pub(super) fn feed(&mut self, text: &str, has_thought: bool) -> Vec<TaggedPiece> {
        self.held.push_str(text);
        self.has_opened |= has_thought;
        let mut pieces = Vec::new();
        while self.step(false, &mut pieces) {}
        pieces
    }

    /// Takes the end of the reply.
    pub(super) fn end(&mut self) -> Vec<TaggedPiece> {
        let mut pieces = Vec::new();
        while self.step(true, &mut pieces) {}
        pieces
    }

    /// Handles the held text up to the next change of place. Returns false if all was handled that
    /// can be.
    fn step(&mut self, is_end: bool, pieces: &mut Vec<TaggedPiece>) -> bool {
        match self.place {
            Place::Start { after_thought } => self.start(after_thought, is_end, pieces),
            Place::Answer => self.answer(is_end, pieces),
            Place::Thought {
                tag, after_answer, ..
            } => self.thought(tag, after_answer, is_end, pieces),
        }
    }

    fn start(&mut self, after_thought: bool, is_end: bool, pieces: &mut Vec<TaggedPiece>) -> bool {
        let text = self.held.trim_start();
        if text.is_empty() {
            // The white space between a thought and the answer belongs to the template.
            if after_thought {
                self.held.clear();
            }
            if !is_end && self.held.len() <= SPACE_BYTES_MAX {
                return false;
            }
            // A reply of only white space keeps it as its text.
            self.begin_answer();
            return true;
        }
        for tag in TAGS {
            match matches(text, tag.open) {
                Match::Yes => {
                    let rest = text.get(tag.open.len()..).unwrap_or_default().to_owned();
                    self.held = rest;
                    self.begin_thought(*tag, None, pieces);
                    return true;
                }
                Match::Undecided if !is_end => return false,
                Match::Undecided | Match::No => {}
            }
        }
        if after_thought {
            self.held = text.to_owned();
        }
        self.begin_answer();
        true
    }

    fn begin_answer(&mut self) {
        self.place = Place::Answer;
        self.previous = None;
        self.is_line_start = true;
    }

    fn begin_thought(
        &mut self,
        tag: Tag,
        after_text: Option<&'static str>,
        pieces: &mut Vec<TaggedPiece>,
    ) {
        self.place = Place::Thought {
            tag,
            after_answer: after_text.is_some(),
            skips_space: after_text.is_none(),
        };
        self.has_opened = true;
        self.previous = None;
        pieces.push(TaggedPiece::ThoughtBegins(after_text));
    }

    fn thought(
        &mut self,
        tag: Tag,
        after_answer: bool,
        is_end: bool,
        pieces: &mut Vec<TaggedPiece>,
    ) -> bool {
        let mut from = 0;
        while let Some(at) = self.held.get(from..).and_then(|held| held.find(tag.close)) {
            let at = from + at;
            let after = at + tag.close.len();
            match self.is_quoted(at, after, is_end) {
                Match::Yes => from = after,
                Match::No => {
                    let rest = self.held.split_off(after);
                    self.held.truncate(at);
                    self.pass_thought(pieces);
                    pieces.push(TaggedPiece::ThoughtEnds);
                    self.held = rest;
                    self.previous = None;
                    self.place = match after_answer {
                        true => Place::Answer,
                        false => Place::Start {
                            after_thought: true,
                        },
                    };
                    return true;
                }
                Match::Undecided => {
                    // The quotation mark itself decides nothing.
                    let rest = self.held.split_off(at);
                    self.pass_thought(pieces);
                    self.held = rest;
                    return false;
                }
            }
        }
        let keeps = match is_end {
            true => 0,
            false => undecided_bytes(self.held.get(from..).unwrap_or_default(), tag.close),
        };
        let rest = self.held.split_off(self.held.len() - keeps);
        self.pass_thought(pieces);
        self.held = rest;
        false
    }

    fn pass_thought(&mut self, pieces: &mut Vec<TaggedPiece>) {
        self.previous = self.held.chars().next_back().or(self.previous);
        let held = std::mem::take(&mut self.held);
        let Place::Thought { skips_space, .. } = &mut self.place else {
            return;
        };
        let text = match skips_space {
            true => held.trim_start(),
            false => &held,
        };
        if !text.is_empty() {
            *skips_space = false;
            pieces.push(TaggedPiece::Thought(text.to_owned()));
        }
    }

    /// Compares the characters around the tag from `at` to `after` with quotation marks.
    fn is_quoted(&self, at: usize, after: usize, is_end: bool) -> Match {
        let before = self.held.get(..at).unwrap_or_default();
        let previous = before.chars().next_back().or(self.previous);
        if !previous.is_some_and(|c| QUOTES.contains(&c)) {
            return Match::No;
        }
        let rest = self.held.get(after..).unwrap_or_default();
        match rest.chars().next() {
            Some(c) if QUOTES.contains(&c) => Match::Yes,
            None if !is_end => Match::Undecided,
            Some(_) | None => Match::No,
        }
    }

    fn answer(&mut self, is_end: bool, pieces: &mut Vec<TaggedPiece>) -> bool {
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        let mut found = Mark::None;
        while let Some(c) = held.get(at..).and_then(|rest| rest.chars().next()) {
            found = self.mark_at(&held, at, is_end);
            if !matches!(found, Mark::None | Mark::Fence) {
                break;
            }
            if matches!(found, Mark::Fence) {
                self.is_in_code = !self.is_in_code;
                self.is_line_start = false;
                at += FENCE.len();
            } else {
                self.is_line_start = c == '\n' || (self.is_line_start && c.is_whitespace());
                at += c.len_utf8();
            }
            let done = held.get(..at).unwrap_or_default();
            self.previous = done.chars().next_back();
        }
        let (text, rest) = held.split_at(at);
        if !text.is_empty() {
            pieces.push(TaggedPiece::Text(text.to_owned()));
        }
        let after = |tag: &str| rest.get(tag.len()..).unwrap_or_default().to_owned();
        match found {
            Mark::None | Mark::Fence => false,
            Mark::Undecided => {
                rest.clone_into(&mut self.held);
                false
            }
            Mark::Opens(tag) => {
                self.held = after(tag.open);
                self.begin_thought(tag, Some(tag.open), pieces);
                true
            }
            Mark::Closes(tag) => {
                self.held = after(tag);
                pieces.push(TaggedPiece::TextWasThought);
                self.has_opened = true;
                self.place = Place::Start {
                    after_thought: true,
                };
                true
            }
        }
    }

    /// The mark at a place of the answer.
    fn mark_at(&mut self, held: &str, at: usize, is_end: bool) -> Mark {
        let text = held.get(at..).unwrap_or_default();
        if self.is_line_start {
            match matches(text, FENCE) {
                Match::Yes => return Mark::Fence,
                Match::Undecided if !is_end => return Mark::Undecided,
                Match::Undecided | Match::No => {}
            }
        }
        if self.is_in_code {
            return Mark::None;
        }
        for tag in TAGS {
            match matches(text, tag.open) {
                Match::Yes if self.previous.is_none_or(|c| c == '\n') => return Mark::Opens(*tag),
                Match::Yes => {
                    self.has_opened = true;
                    return Mark::None;
                }
                Match::Undecided if !is_end => return Mark::Undecided,
                Match::Undecided | Match::No => {}
            }
        }
        if self.has_opened {
            return Mark::None;
        }
        for tag in CLOSE_ALONE {
            match matches(text, tag) {
                Match::Yes => return self.closing_mark(text, tag, is_end),
                Match::Undecided if !is_end => return Mark::Undecided,
                Match::Undecided | Match::No => {}
            }
        }
        Mark::None
    }

    /// The mark at a closing tag, with which `text` begins.
    fn closing_mark(&self, text: &str, tag: &'static str, is_end: bool) -> Mark {
        let next = text.get(tag.len()..).and_then(|rest| rest.chars().next());
        let is_after_quote = self.previous.is_some_and(|c| QUOTES.contains(&c));
        let is_after_word = !self.is_line_start && self.previous == Some(' ');
        match next {
            _ if !is_after_quote && !is_after_word => Mark::Closes(tag),
            None if !is_end => Mark::Undecided,
            None if is_after_word => Mark::None,
            Some(c) if is_after_quote && QUOTES.contains(&c) => Mark::None,
            Some(c) if is_after_word && WORD_ENDS.contains(&c) => Mark::None,
            Some(_) | None => Mark::Closes(tag),
        }
    }
}

/// A place in an answer.
#[derive(Debug, Clone, Copy)]
enum Mark {
    None,
    Fence,
    Opens(Tag),
    /// The text so far was a thought, which this tag ends.
    Closes(&'static str),
    Undecided,
}

/// Length of the end of a text that may be the start of `tag`.
fn undecided_bytes(text: &str, tag: &str) -> usize {
    let ends = (1..tag.len())
        .rev()
        .filter(|end| tag.is_char_boundary(*end));
    let mut ends = ends.filter(|end| tag.get(..*end).is_some_and(|start| text.ends_with(start)));
    ends.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::draft::Draft;
    use super::*;

    /// Thought and answer of a text in pieces of this many characters.
    fn read(text: &str, chars: usize) -> (String, String) {
        let mut draft = Draft::default();
        let all: Vec<char> = text.chars().collect();
        for piece in all.chunks(chars) {
            draft.say_raw(&piece.iter().collect::<String>()).unwrap();
        }
        draft.end_text().unwrap();
        (draft.thought().to_owned(), draft.text().to_owned())
    }

    fn check(text: &str, thought: &str, answer: &str) {
        for chars in [1, 2, 3, 5, 8, 1_000] {
            let expected = (thought.to_owned(), answer.to_owned());
            assert_eq!(read(text, chars), expected, "{chars}: {text}");
        }
    }

    #[test]
    fn prov_1_thoughts_in_tags_are_no_answer() {
        check("<think>\nhm\n</think>\n\nhello", "hm", "hello");
        check("\n<think>hm</think>hello", "hm", "hello");
        check("<think>\n\n</think>\n\nhello", "", "hello");
        check("<think>a < b, </thin</think>c", "a < b, </thin", "c");
        check("<thought>hm</thought>hello", "hm", "hello");
        check("[THINK]hm[/THINK]hello", "hm", "hello");
        check("<thinking> hm </thinking> hello", "hm", "hello");
        check("<|START_THINKING|>hm<|END_THINKING|>hello", "hm", "hello");
        check("<|channel>thought\nhm<channel|>hello", "hm", "hello");
        check("<seed:think>hm</seed:think>hello", "hm", "hello");
        check("◁think▷hm◁/think▷hello", "hm", "hello");
        check("<think>a</think>\n<think>b</think>c", "a\nb", "c");
        check("<think>a</think>b\n<think>c</think>\nd", "a\nc", "b\n\nd");
        check("<think>not over", "not over", "");
        check(
            "<think>use `</think>` here</think>hello",
            "use `</think>` here",
            "hello",
        );
        check(
            "<think>a lone ` in it</think>hello",
            "a lone ` in it",
            "hello",
        );
        check("<think>데이터</think>🦆", "데이터", "🦆");
    }

    #[test]
    fn prov_1_a_closing_tag_alone_ends_a_thought() {
        check("hm\n</think>\n\nhello", "hm", "hello");
        check("hm.</think>hello", "hm.", "hello");
        check("hm.<|END_THINKING|>four", "hm.", "four");
        check("</think>\n\nhello", "", "hello");
        check("\n\nhm\n\nhm\n</think>", "hm\n\nhm", "");
        check("hm</think>hello\n<think>b</think>", "hm\nb", "hello\n");
    }

    #[test]
    fn prov_1_tags_that_an_answer_mentions_stay() {
        for text in [
            "The tag `</think>` ends it.",
            "The tag \"</think>\" ends it.",
            "The tag </think> ends it.",
            "The thought ends with </think>.",
            "The thought ends with </think>",
            "An example:\n\n    <think>\n    hm\n    </think>\n\nThis is it.",
            "Use <think> and </think> as tags.",
            "```\n<think>\nhm\n</think>\n```\nThis is it.",
            "  ```xml\n<think>hm</think>\n```",
            "a < b and b > c",
            "<thin",
            "<thinker>hm</thinker>hello",
            "[INFO] ready",
            "[1, 2]",
            "``",
            "hello <",
            " hello",
            "\n",
            "hello </think",
        ] {
            check(text, "", text);
        }
        // A tag without an end is a part of the answer.
        check("See:\n<think> is a tag", "", "See:\n<think> is a tag");
        check(
            "The </think> is a tag.\n</think>a",
            "The </think> is a tag.",
            "a",
        );
        check("<think>a</think>b </think> c", "a", "b </think> c");
    }

    #[test]
    fn prov_1_white_space_before_a_reply_is_bounded() {
        let mut tags = ThoughtTags::default();
        let space = " ".repeat(SPACE_BYTES_MAX);
        assert!(tags.feed(&space, false).is_empty());
        let text = TaggedPiece::Text(format!("{space}\n"));
        assert_eq!(tags.feed("\n", false), [text]);
        assert_eq!(tags.held, "");
        let mut tags = ThoughtTags::default();
        assert_eq!(tags.feed("<think>hm</think>", false).len(), 3);
        assert!(tags.feed(&space, false).is_empty());
        assert_eq!(tags.held, "");
    }
}
