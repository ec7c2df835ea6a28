//! Application logic of `gdn top`: handles keys and updates, without terminal, daemon or clock.

use goondan_protocol::control::{WatchUpdate, WorkspaceChange};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_APPROVAL_INPUT_BYTES;
use goondan_protocol::time::Timestamp;

use super::board::Board;
use super::input::{
    Act, FeedQuery, KeyPress, LogSource, PageSubject, PendingDecision, Size, TopEffect, TopInput,
};
use super::reload::Reload;
use super::rows::{self, Row};
use super::view::View;
use crate::output::text;

/// Minimum interval between queries of the project's state, in milliseconds.
const FACTS_EVERY_MS: u64 = 250;
/// Minimum interval between usage queries, in milliseconds.
const USAGE_EVERY_MS: u64 = 2_000;
/// Minimum interval between queries of the open page, in milliseconds.
const PAGE_EVERY_MS: u64 = 500;
/// Maximum length of a filter, in characters.
const FILTER_CHARS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPage {
    pub(super) about: PageSubject,
    /// Content; none until it has arrived.
    text: Option<String>,
    /// Content wrapped to the screen; none until it has arrived.
    pub(super) lines: Option<Vec<String>>,
    /// Scroll position, in lines from the end.
    pub(super) up: usize,
}

impl TextPage {
    fn new(about: PageSubject) -> Self {
        Self {
            about,
            text: None,
            lines: None,
            up: 0,
        }
    }

    fn fold(&mut self, columns: u16) {
        self.lines = self.text.as_ref().map(|said| {
            let lines = said.lines();
            lines
                .flat_map(|line| text::folded(line, columns.into()))
                .collect()
        });
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Look,
    /// The filter is being edited.
    Filter,
    Confirm(Act),
    /// An argument of a tool call is being edited, as `NAME=VALUE`.
    Edit {
        pending: Box<PendingDecision>,
        written: String,
        /// Reason why the last change does not fit.
        problem: Option<String>,
    },
    Help,
}

/// State of the connection to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Connecting,
    Up,
    Lost,
}

#[derive(Debug, Clone, Default)]
struct RowSelection {
    id: Option<String>,
    place: usize,
}

/// State of `gdn top`, without the terminal.
#[derive(Debug)]
pub(super) struct App {
    pub(super) board: Board,
    pub(super) view: View,
    pub(super) mode: Mode,
    pub(super) link: ConnectionState,
    pub(super) page: Option<TextPage>,
    pub(super) filter: String,
    pub(super) logs_of: LogSource,
    /// Result of the last action.
    pub(super) notice: Option<Result<String, String>>,
    pub(super) is_read_only: bool,
    size: Size,
    rows: Vec<Row>,
    /// Inputs that the current rows were built from.
    rows_of: Option<(View, String, u64)>,
    chosen: [RowSelection; View::ALL.len()],
    /// Scroll position of each text view, in lines from the end.
    up: [usize; View::ALL.len()],
    facts: Reload,
    usage: Reload,
    pages: Reload,
}

impl App {
    pub(super) fn new(view: View, is_read_only: bool, size: Size) -> Self {
        Self {
            board: Board::default(),
            view,
            mode: Mode::Look,
            link: ConnectionState::Connecting,
            page: None,
            filter: String::new(),
            logs_of: LogSource::Project,
            notice: None,
            is_read_only,
            size,
            rows: Vec::new(),
            rows_of: None,
            chosen: Default::default(),
            up: [0; View::ALL.len()],
            facts: Reload::every(FACTS_EVERY_MS),
            usage: Reload::every(USAGE_EVERY_MS),
            pages: Reload::every(PAGE_EVERY_MS),
        }
    }

    /// Handles an input and returns the effects to carry out.
    pub(super) fn handle(&mut self, input: TopInput, now: Timestamp) -> Vec<TopEffect> {
        let mut effects = match input {
            TopInput::Key(key) => self.key(key, now),
            other => self.on_input(other, now),
        };
        if self.link == ConnectionState::Up {
            let due = [
                self.facts.due(now).then_some(FeedQuery::Facts),
                self.usage.due(now).then_some(FeedQuery::Usage),
                self.page.as_ref().and_then(|page| {
                    let is_due = self.pages.due(now);
                    is_due.then(|| FeedQuery::Page(page.about.clone(), self.size.columns))
                }),
            ];
            effects.extend(due.into_iter().flatten().map(TopEffect::Load));
        }
        self.make_rows();
        effects
    }

    fn on_input(&mut self, input: TopInput, now: Timestamp) -> Vec<TopEffect> {
        match input {
            TopInput::Resized(size) => {
                self.size = size;
                if let Some(page) = &mut self.page {
                    page.fold(size.columns);
                    self.pages.wanted();
                }
            }
            TopInput::Told(change) => return self.changed(*change),
            TopInput::Lost => self.link = ConnectionState::Lost,
            TopInput::Stopped => {
                self.link = ConnectionState::Lost;
                self.notice = Some(Err("The project is stopped.".to_owned()));
            }
            TopInput::Facts(facts) => {
                self.facts.came(now);
                self.board.take_facts(*facts);
            }
            TopInput::Conversations(page) => self.board.take_page(*page),
            TopInput::Usage(usage) => {
                self.usage.came(now);
                self.board.take_usage(*usage);
            }
            TopInput::Page(about, text) => {
                self.pages.came(now);
                if let Some(page) = self.page.as_mut().filter(|page| page.about == about) {
                    page.text = Some(text);
                    page.fold(self.size.columns);
                }
            }
            TopInput::LogBegins => self.board.clear_logs(),
            TopInput::LogLine(line) => self.board.take_log_line(line),
            TopInput::Approval(Some(pending)) if self.mode == Mode::Look => {
                self.mode = Mode::Confirm(Act::Decide(pending));
            }
            // The user is doing something else by now.
            TopInput::Approval(Some(_)) => {}
            TopInput::Approval(None) => {
                let none = "No tool call of this conversation waits for approval.";
                self.notice = Some(Err(none.to_owned()));
            }
            TopInput::Failed(wanted, why) => {
                match wanted {
                    FeedQuery::Facts => self.facts.came(now),
                    FeedQuery::Usage => self.usage.came(now),
                    FeedQuery::Page(..) => self.pages.came(now),
                    FeedQuery::Conversations | FeedQuery::Approval(..) | FeedQuery::Logs(_) => {}
                }
                self.notice = Some(Err(why));
            }
            TopInput::Acted(result) => self.notice = Some(result),
            TopInput::Tick | TopInput::Key(_) => {}
        }
        Vec::new()
    }

    /// Handles an update from the daemon.
    fn changed(&mut self, change: WorkspaceChange) -> Vec<TopEffect> {
        let effects = match &change.told {
            // The rest of the snapshot follows in further updates.
            told if told.has_more() => Vec::new(),
            // A snapshot follows a connection to a new daemon, or missed updates.
            WatchUpdate::Snapshot(_) => {
                self.facts = Reload::every(FACTS_EVERY_MS);
                self.usage = Reload::every(USAGE_EVERY_MS);
                self.pages = Reload::every(PAGE_EVERY_MS);
                self.usage.wanted();
                self.pages.wanted();
                vec![TopEffect::Load(FeedQuery::Conversations)]
            }
            WatchUpdate::Event(event) => {
                self.facts.wanted();
                let page = self.page.as_ref().map(|page| page.about.key());
                if page.is_some() && event.instance_key() == page {
                    self.pages.wanted();
                }
                if matches!(event, LifecycleEvent::TurnCommitted { .. }) {
                    self.usage.wanted();
                }
                Vec::new()
            }
        };
        self.link = ConnectionState::Up;
        self.board.take_change(change);
        effects
    }

    fn key(&mut self, key: KeyPress, now: Timestamp) -> Vec<TopEffect> {
        if key == KeyPress::Interrupt {
            return vec![TopEffect::Quit];
        }
        match self.mode.clone() {
            Mode::Look => self.look(key, now),
            Mode::Filter => {
                self.write_filter(key);
                Vec::new()
            }
            Mode::Edit {
                pending, written, ..
            } => {
                self.mode = edited(pending, written, key);
                Vec::new()
            }
            Mode::Confirm(Act::Decide(pending))
                if pending.is_approved
                    && !pending.is_always
                    && matches!(key, KeyPress::Char('e' | 'A')) =>
            {
                self.mode = match key {
                    KeyPress::Char('e') => Mode::Edit {
                        pending,
                        written: String::new(),
                        problem: None,
                    },
                    // A standing approval covers the arguments that the agent chose.
                    _ if pending.changed.is_some() => Mode::Confirm(Act::Decide(pending)),
                    _ => Mode::Confirm(Act::Decide(Box::new(PendingDecision {
                        is_always: true,
                        ..*pending
                    }))),
                };
                Vec::new()
            }
            Mode::Confirm(act) => {
                self.mode = Mode::Look;
                let is_meant = matches!(key, KeyPress::Char('y' | 'Y'));
                let act = is_meant.then_some(TopEffect::Act(act));
                act.into_iter().collect()
            }
            Mode::Help => {
                self.mode = Mode::Look;
                Vec::new()
            }
        }
    }

    fn look(&mut self, key: KeyPress, now: Timestamp) -> Vec<TopEffect> {
        self.notice = None;
        let screenful = self.size.body_rows();
        match key {
            KeyPress::Char('q') => return vec![TopEffect::Quit],
            KeyPress::Char('?') => self.mode = Mode::Help,
            KeyPress::Char('/') => {
                self.page = None;
                self.mode = Mode::Filter;
            }
            KeyPress::Escape if self.page.is_some() => self.page = None,
            KeyPress::Escape => return self.back(),
            KeyPress::NextView => self.go(self.view.moved(1)),
            KeyPress::PreviousView => self.go(self.view.moved(View::ALL.len() - 1)),
            KeyPress::Char(digit) if digit.is_ascii_digit() => {
                if let Some(view) = View::of_key(digit) {
                    self.go(view);
                }
            }
            KeyPress::Up | KeyPress::Char('k') => self.step(|place| place.saturating_sub(1)),
            KeyPress::Down | KeyPress::Char('j') => self.step(|place| place.saturating_add(1)),
            KeyPress::PageUp => self.step(|place| place.saturating_sub(screenful)),
            KeyPress::PageDown => self.step(|place| place.saturating_add(screenful)),
            KeyPress::Home | KeyPress::Char('g') => self.step(|_| 0),
            KeyPress::End | KeyPress::Char('G') => self.step(|_| usize::MAX),
            KeyPress::Enter => return self.open(PageSubject::Transcript, now),
            KeyPress::Char('t') => return self.open(PageSubject::Trace, now),
            KeyPress::Char('l') => return self.look_at_logs(),
            KeyPress::Char('c') => self.ask(Act::Cancel),
            KeyPress::Char('r') => self.ask(Act::Restart),
            KeyPress::Char('a') => return self.look_up_approval(true),
            KeyPress::Char('d') => return self.look_up_approval(false),
            KeyPress::Char(_) | KeyPress::Backspace | KeyPress::Interrupt => {}
        }
        Vec::new()
    }

    fn write_filter(&mut self, key: KeyPress) {
        match key {
            KeyPress::Char(char) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(char);
            }
            KeyPress::Backspace => {
                self.filter.pop();
            }
            KeyPress::Enter => self.mode = Mode::Look,
            KeyPress::Escape => {
                self.filter.clear();
                self.mode = Mode::Look;
            }
            _ => {}
        }
    }

    /// Resets the filter; in the log view, also returns to the project's log.
    fn back(&mut self) -> Vec<TopEffect> {
        self.filter.clear();
        match self.view {
            View::Logs => self.follow(LogSource::Project),
            _ => Vec::new(),
        }
    }

    fn go(&mut self, view: View) {
        self.page = None;
        self.view = view;
    }

    /// Moves the selection or scrolls the text. Positions beyond the end are clamped.
    fn step(&mut self, place: impl Fn(usize) -> usize) {
        if let Some(page) = &mut self.page {
            let last = page.lines.as_ref().map_or(0, Vec::len);
            page.up = moved_up(page.up, last, place);
            return;
        }
        let at = self.view.place();
        if !self.view.has_rows() {
            let last = match self.view {
                View::Events => self.board.happened().len(),
                View::Logs => self.board.logs().len(),
                _ => 0,
            };
            if let Some(up) = self.up.get_mut(at) {
                *up = moved_up(*up, last, place);
            }
            return;
        }
        let Some(last) = self.rows.len().checked_sub(1) else {
            return;
        };
        if let Some(chosen) = self.chosen.get_mut(at) {
            chosen.place = place(chosen.place).min(last);
            chosen.id = self.rows.get(chosen.place).map(|row| row.id.clone());
        }
    }

    fn open(
        &mut self,
        about: impl FnOnce(InstanceKey) -> PageSubject,
        now: Timestamp,
    ) -> Vec<TopEffect> {
        let Some(key) = self.meant_key() else {
            return Vec::new();
        };
        let about = about(key);
        self.page = Some(TextPage::new(about.clone()));
        self.pages = Reload::every(PAGE_EVERY_MS);
        self.pages.asked(now);
        vec![TopEffect::Load(FeedQuery::Page(about, self.size.columns))]
    }

    fn look_at_logs(&mut self) -> Vec<TopEffect> {
        let of = self
            .meant_key()
            .map_or(LogSource::Project, LogSource::Conversation);
        self.go(View::Logs);
        self.follow(of)
    }

    fn follow(&mut self, of: LogSource) -> Vec<TopEffect> {
        if of == self.logs_of {
            return Vec::new();
        }
        self.board.clear_logs();
        self.logs_of = of.clone();
        vec![TopEffect::Load(FeedQuery::Logs(of))]
    }

    fn ask(&mut self, act: impl FnOnce(InstanceKey) -> Act) {
        if self.is_read_only {
            self.notice = Some(Err("Changes are disabled by --read-only.".to_owned()));
            return;
        }
        if let Some(key) = self.meant_key() {
            self.mode = Mode::Confirm(act(key));
        }
    }

    /// Requests the pending call of the selected conversation, which the user sees before the decision.
    fn look_up_approval(&mut self, is_approved: bool) -> Vec<TopEffect> {
        if self.is_read_only {
            self.notice = Some(Err("Changes are disabled by --read-only.".to_owned()));
            return Vec::new();
        }
        let wanted = self.meant_key();
        let wanted = wanted.map(|key| FeedQuery::Approval(key, is_approved));
        wanted.into_iter().map(TopEffect::Load).collect()
    }

    /// Conversation that a key applies to: that of the page, or of the selected row.
    fn meant_key(&self) -> Option<InstanceKey> {
        if let Some(page) = &self.page {
            return Some(page.about.key().clone());
        }
        let row = self.rows.get(self.chosen_place()?)?;
        row.key.clone()
    }

    /// Index of the selected row.
    pub(super) fn chosen_place(&self) -> Option<usize> {
        let last = self.rows.len().checked_sub(1)?;
        let chosen = self.chosen.get(self.view.place())?;
        Some(chosen.place.min(last))
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Scroll position of the current text view, in lines from the end.
    pub(super) fn up(&self) -> usize {
        self.up.get(self.view.place()).copied().unwrap_or_default()
    }

    /// Filter text in lowercase.
    pub(super) fn wanted(&self) -> String {
        self.filter.to_lowercase()
    }

    /// Rebuilds the rows if something changed; the selection follows its row.
    fn make_rows(&mut self) {
        let of = (self.view, self.filter.clone(), self.board.version());
        if self.rows_of.as_ref() == Some(&of) {
            return;
        }
        self.rows_of = Some(of);
        self.rows = rows::of(&self.board, self.view, &self.wanted());
        let Some(chosen) = self.chosen.get_mut(self.view.place()) else {
            return;
        };
        if let Some(id) = &chosen.id
            && let Some(place) = self.rows.iter().position(|row| row.id == *id)
        {
            chosen.place = place;
        }
    }
}

/// Handles a key while an argument is being edited.
fn edited(pending: Box<PendingDecision>, mut written: String, key: KeyPress) -> Mode {
    let mut problem = None;
    match key {
        KeyPress::Char(char) if written.len() < MAX_APPROVAL_INPUT_BYTES => written.push(char),
        KeyPress::Backspace => {
            written.pop();
        }
        KeyPress::Escape => return Mode::Confirm(Act::Decide(pending)),
        KeyPress::Enter if written.is_empty() => return Mode::Confirm(Act::Decide(pending)),
        KeyPress::Enter => match pending.set(&written) {
            Ok(changed) => return Mode::Confirm(Act::Decide(Box::new(changed))),
            Err(why) => problem = Some(why),
        },
        _ => {}
    }
    Mode::Edit {
        pending,
        written,
        problem,
    }
}

/// Applies a move that counts from the beginning to a position that counts from the end.
fn moved_up(up: usize, last: usize, place: impl Fn(usize) -> usize) -> usize {
    let from_begin = last.saturating_sub(up);
    last - place(from_begin).min(last)
}
