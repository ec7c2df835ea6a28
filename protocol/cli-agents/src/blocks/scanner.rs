//! Finds protocol blocks in an agent's text, regardless of chunk boundaries (`PROTO-1`).

use super::echo::Echo;
use super::fences::Fences;
use super::fields::item_of;
use super::read::{Tag, begins_documents, completion_of, document_of, progress_of};
use super::{Block, BlockRefusal, CustomTaskComplete, PhaseComplete, Problem, Progress};
use crate::limits::{BLOCK_BYTES_MAX, DOCUMENTS_MAX, TEXT_LINE_BYTES_MAX};
use crate::lines::{OutputLine, OutputLineSplitter, text_of};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanItem {
    Block(Block),
    Refused(BlockRefusal),
    Progress(Progress),
}

/// Finds protocol blocks in a text that arrives in chunks of any size. Buffers at most one line,
/// one block and the prompt.
#[derive(Debug)]
pub struct Scanner {
    lines: OutputLineSplitter,
    blocks: BlockFinder,
}

impl Scanner {
    /// Creates a scanner for the output of an agent that received this prompt.
    #[must_use]
    pub fn new(prompt: &str) -> Self {
        Self {
            lines: OutputLineSplitter::new(TEXT_LINE_BYTES_MAX),
            blocks: BlockFinder {
                echo: Echo::new(prompt),
                fences: Fences::default(),
                open: PartialItem::Nothing,
                found: Vec::new(),
            },
        }
    }

    /// Processes the next chunk of the text.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<ScanItem> {
        let Self { lines, blocks } = self;
        lines.push(bytes, |line| blocks.raw_line(&line));
        std::mem::take(&mut blocks.found)
    }

    /// Ends the text: open items are closed, and later input is a new text.
    pub fn end(&mut self) -> Vec<ScanItem> {
        let Self { lines, blocks } = self;
        lines.end(|line| blocks.raw_line(&line));
        blocks.end();
        std::mem::take(&mut blocks.found)
    }
}

#[derive(Debug)]
struct BlockFinder {
    echo: Echo,
    fences: Fences,
    open: PartialItem,
    found: Vec<ScanItem>,
}

/// Item that is being read.
#[derive(Debug)]
enum PartialItem {
    Nothing,
    Block {
        tag: Tag,
        text: String,
        is_too_long: bool,
    },
    Completion(PartialCompletion),
}

/// A completion that may be followed by its document list.
#[derive(Debug)]
struct PartialCompletion {
    phase: Option<u32>,
    documents: Vec<String>,
    /// The first problem in the list.
    problem: Option<Problem>,
    is_listing: bool,
}

impl BlockFinder {
    fn raw_line(&mut self, line: &OutputLine<'_>) {
        let text = match line {
            OutputLine::Whole(line) => text_of(line),
            // No tag is that long, so the beginning of the line suffices.
            OutputLine::Cut(line, _) => {
                if let PartialItem::Block { is_too_long, .. } = &mut self.open {
                    *is_too_long = true;
                }
                text_of(line)
            }
        };
        for own in self.echo.line(text) {
            self.line(&own);
        }
    }

    fn line(&mut self, line: &str) {
        if self.fences.line(line) {
            if let PartialItem::Completion(_) = self.open {
                self.close();
            }
            self.hold(line);
            return;
        }
        if let Some(tag) = Tag::opened_by(line) {
            self.close();
            let text = String::new();
            let is_too_long = false;
            self.open = PartialItem::Block {
                tag,
                text,
                is_too_long,
            };
            return;
        }
        match &mut self.open {
            PartialItem::Block { tag, .. } if Tag::closed_by(line) == Some(*tag) => {
                self.finish_block();
            }
            // A completion is never part of a block that was left open.
            PartialItem::Block { .. } if completion_of(line).is_some() => {
                self.close();
                self.plain_line(line);
            }
            PartialItem::Block { .. } => self.hold(line),
            PartialItem::Completion(completion) => {
                if !completion.takes(line) {
                    self.close();
                    self.plain_line(line);
                }
            }
            PartialItem::Nothing => self.plain_line(line),
        }
    }

    /// Processes a line outside of blocks.
    fn plain_line(&mut self, line: &str) {
        if let Some(phase) = completion_of(line) {
            self.open = PartialItem::Completion(PartialCompletion {
                phase,
                documents: Vec::new(),
                problem: None,
                is_listing: false,
            });
        } else if let Some(progress) = progress_of(line) {
            self.found.push(ScanItem::Progress(progress));
        }
    }

    /// Adds a line to the open block, if any.
    fn hold(&mut self, line: &str) {
        if let PartialItem::Block {
            tag,
            text,
            is_too_long,
        } = &mut self.open
        {
            // Its two tags with their newlines, and the newline of the line.
            let tags = 2 * tag.name().len() + "[]\n[/]\n".len();
            if text.len() + line.len() + 1 + tags > BLOCK_BYTES_MAX {
                *is_too_long = true;
            }
            if *is_too_long {
                text.clear();
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
    }

    /// Handles the closing tag.
    fn finish_block(&mut self) {
        let open = std::mem::replace(&mut self.open, PartialItem::Nothing);
        let PartialItem::Block {
            tag,
            text,
            is_too_long,
        } = open
        else {
            return;
        };
        let read = if is_too_long {
            Err(Problem::TooLong)
        } else {
            tag.read(&text)
        };
        let protocol = tag.name();
        self.found.push(match read {
            Ok(block) => ScanItem::Block(block),
            Err(problem) => ScanItem::Refused(BlockRefusal { protocol, problem }),
        });
    }

    /// Closes the open item, whether it is complete or not.
    fn close(&mut self) {
        match std::mem::replace(&mut self.open, PartialItem::Nothing) {
            PartialItem::Nothing => {}
            PartialItem::Block {
                tag, is_too_long, ..
            } => {
                let protocol = tag.name();
                let problem = if is_too_long {
                    Problem::TooLong
                } else {
                    Problem::Unterminated
                };
                self.found
                    .push(ScanItem::Refused(BlockRefusal { protocol, problem }));
            }
            PartialItem::Completion(completion) => completion.finish(&mut self.found),
        }
    }

    fn end(&mut self) {
        for own in self.echo.end() {
            self.line(&own);
        }
        self.close();
        self.fences.reset();
    }
}

impl PartialCompletion {
    /// Returns true if a line belongs to the completion.
    fn takes(&mut self, line: &str) -> bool {
        if line.trim().is_empty() {
            return true;
        }
        if !self.is_listing {
            self.is_listing = begins_documents(line);
            return self.is_listing;
        }
        let Some(item) = item_of(line) else {
            return false;
        };
        match document_of(item) {
            Ok(document) if self.documents.len() < DOCUMENTS_MAX => self.documents.push(document),
            Ok(_) => {
                let (field, max) = ("documents", DOCUMENTS_MAX);
                self.problem.get_or_insert(Problem::TooMany { field, max });
            }
            Err(problem) => {
                self.problem.get_or_insert(problem);
            }
        }
        true
    }

    /// An invalid list does not invalidate the completion: the work is done.
    fn finish(self, found: &mut Vec<ScanItem>) {
        let documents = self.documents;
        let (protocol, block) = match self.phase {
            Some(phase) => {
                let complete = PhaseComplete { phase, documents };
                ("PHASE_COMPLETE", Block::PhaseComplete(complete))
            }
            None => {
                let complete = CustomTaskComplete { documents };
                ("CUSTOM_TASK_COMPLETE", Block::CustomTaskComplete(complete))
            }
        };
        if let Some(problem) = self.problem {
            found.push(ScanItem::Refused(BlockRefusal { protocol, problem }));
        }
        found.push(ScanItem::Block(block));
    }
}
