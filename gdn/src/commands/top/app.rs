//! Application logic of `gdn top`: handles keys and updates, without terminal, daemon or clock.

use goondan_protocol::control::{WatchUpdate, WorkspaceChange};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_APPROVAL_INPUT_BYTES;
use goondan_protocol::time::Timestamp;

use super::board::Board;
use super::input::{
    Act, FeedQuery, ItemDecision, KeyPress, LogSource, PageSubject, Size, TopEffect, TopInput,
};
use super::reload::Reload;
use super::rows::{self, Row};
use super::view::{Scope, View};
use crate::commands::inbox::decisions::{self, Choice, EnteredText, Key};
use crate::commands::inbox::details::Subject;
use crate::commands::inbox::{Entry, EntryStep, Inbox, InboxItem};
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
    /// The subject of an item, for its decision; none until it has arrived.
    subject: Option<Box<Subject>>,
    /// True while a decision about the item is carried out.
    is_deciding: bool,
}

impl TextPage {
    fn new(about: PageSubject) -> Self {
        Self {
            about,
            text: None,
            lines: None,
            up: 0,
            subject: None,
            is_deciding: false,
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

    fn item(&self) -> Option<&InboxItem> {
        match &self.about {
            PageSubject::Item(item) => Some(item),
            PageSubject::Transcript(_) | PageSubject::Trace(_) => None,
        }
    }

    /// Keys that decide the item, as in `gdn inbox`.
    pub(super) fn keys(&self) -> &'static [Key] {
        match (self.item(), &self.subject) {
            (Some(item), Some(subject)) if !self.is_deciding => decisions::keys(item, subject),
            _ => &[],
        }
    }
}

/// A decision whose text is being entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemEntry {
    choice: Choice,
    pub(super) entry: Entry,
    pub(super) written: String,
    /// Reason why the last line does not fit.
    pub(super) problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Look,
    /// The filter is being edited.
    Filter,
    Confirm(Act),
    /// The text of a decision about the open item is being entered.
    Enter(Box<ItemEntry>),
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
    pub(super) scope: Scope,
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
    chosen: [RowSelection; View::COUNT],
    /// Scroll position of each text view, in lines from the end.
    up: [usize; View::COUNT],
    facts: Reload,
    usage: Reload,
    pages: Reload,
}

impl App {
    pub(super) fn new(scope: Scope, view: View, is_read_only: bool, size: Size) -> Self {
        Self {
            scope,
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
            up: [0; View::COUNT],
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
                    let is_due = page.about.key().is_some() && self.pages.due(now);
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
            TopInput::Connected => {
                self.link = ConnectionState::Up;
                self.facts = Reload::every(FACTS_EVERY_MS);
                self.facts.wanted();
            }
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
            TopInput::Inbox(inbox) => self.take_inbox(*inbox),
            TopInput::Item(item, text, subject) => {
                let room = self.size.body_rows();
                let page = self.page.as_mut().filter(|page| page.item() == Some(&item));
                if let Some(page) = page {
                    page.text = Some(text);
                    page.subject = Some(subject);
                    page.fold(self.size.columns);
                    let lines = page.lines.as_ref().map_or(0, Vec::len);
                    page.up = lines.saturating_sub(room);
                }
            }
            TopInput::Decided(item, result) => {
                let page = self.page.as_mut().filter(|page| page.item() == Some(&item));
                match (page, &result) {
                    (Some(page), Err(_)) if !self.board.is_decided(&item) => {
                        page.is_deciding = false;
                    }
                    (Some(_), _) => self.page = None,
                    (None, _) => {}
                }
                self.notice = Some(result);
            }
            TopInput::LogBegins => self.board.clear_logs(),
            TopInput::LogLine(line) => self.board.take_log_line(line),
            TopInput::Failed(wanted, why) => {
                match wanted {
                    FeedQuery::Facts => self.facts.came(now),
                    FeedQuery::Usage => self.usage.came(now),
                    FeedQuery::Page(..) => self.pages.came(now),
                    FeedQuery::Conversations | FeedQuery::Logs(_) => {}
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
                let page = self.page.as_ref().and_then(|page| page.about.key());
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
            Mode::Enter(entry) => self.enter(*entry, key),
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
        if let Some(effects) = self.item_key(key) {
            return effects;
        }
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
            KeyPress::NextView => self.go(self.scope.moved(self.view, 1)),
            KeyPress::PreviousView => {
                let before = self.scope.views().len() - 1;
                self.go(self.scope.moved(self.view, before));
            }
            KeyPress::Char(digit) if digit.is_ascii_digit() => {
                if let Some(view) = self.scope.view_of_key(digit) {
                    self.go(view);
                }
            }
            KeyPress::Up | KeyPress::Char('k') => self.step(|place| place.saturating_sub(1)),
            KeyPress::Down | KeyPress::Char('j') => self.step(|place| place.saturating_add(1)),
            KeyPress::PageUp => self.step(|place| place.saturating_sub(screenful)),
            KeyPress::PageDown => self.step(|place| place.saturating_add(screenful)),
            KeyPress::Home | KeyPress::Char('g') => self.step(|_| 0),
            KeyPress::End | KeyPress::Char('G') => self.step(|_| usize::MAX),
            KeyPress::Char('y' | 'n' | 'e' | 'a') | KeyPress::Enter
                if self.page.is_none() && self.view == View::Inbox =>
            {
                return self.open_chosen_item();
            }
            KeyPress::Enter => return self.open(PageSubject::Transcript, now),
            KeyPress::Char('t') => return self.open(PageSubject::Trace, now),
            KeyPress::Char('l') => return self.look_at_logs(),
            KeyPress::Char('c') => self.ask(Act::Cancel),
            KeyPress::Char('r') => self.ask(Act::Restart),
            KeyPress::Char('a') => return self.open_item_of_conversation(),
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
        let at = self.view.index();
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

    fn take_inbox(&mut self, inbox: Inbox) {
        self.board.take_inbox(inbox);
        let Some(page) = self.page.as_ref().filter(|page| !page.is_deciding) else {
            return;
        };
        let Some(item) = page.item().filter(|item| self.board.is_decided(item)) else {
            return;
        };
        self.notice = Some(Err(format!("{} no longer needs you.", item.id)));
        self.page = None;
        if matches!(self.mode, Mode::Enter(_)) {
            self.mode = Mode::Look;
        }
    }

    fn open_item(&mut self, item: InboxItem) -> Vec<TopEffect> {
        let about = PageSubject::Item(Box::new(item));
        self.page = Some(TextPage::new(about.clone()));
        vec![TopEffect::Load(FeedQuery::Page(about, self.size.columns))]
    }

    fn open_chosen_item(&mut self) -> Vec<TopEffect> {
        let row = self.chosen_place().and_then(|place| self.rows.get(place));
        let item = row.and_then(|row| row.item.as_deref()).cloned();
        item.map_or_else(Vec::new, |item| self.open_item(item))
    }

    /// Opens the oldest item of the selected conversation.
    fn open_item_of_conversation(&mut self) -> Vec<TopEffect> {
        let Some(key) = self.meant_key() else {
            return Vec::new();
        };
        let mut items = self.board.inbox().into_iter().flat_map(|it| &it.items);
        let item = items.find(|item| item.conversation.as_ref() == Some(&key));
        match item.cloned() {
            Some(item) => self.open_item(item),
            None => {
                self.notice = Some(Err(format!("Nothing of {key} needs a person.")));
                Vec::new()
            }
        }
    }

    /// Handles a key of the open item; none if the key has the same meaning on every page.
    fn item_key(&mut self, key: KeyPress) -> Option<Vec<TopEffect>> {
        let page = self.page.as_ref()?;
        let item = page.item()?;
        let KeyPress::Char(char) = key else {
            return matches!(key, KeyPress::Enter).then(Vec::new);
        };
        let char = char.to_ascii_lowercase();
        let Some((_, choice, _)) = page.keys().iter().find(|(it, ..)| *it == char) else {
            return match char {
                's' => Some(self.open_next_item()),
                // Keys of other items.
                'y' | 'n' | 'e' | 'a' => Some(Vec::new()),
                _ => None,
            };
        };
        if self.is_read_only {
            self.notice = Some(Err("Changes are disabled by --read-only.".to_owned()));
            return Some(Vec::new());
        }
        let subject = page.subject.as_deref()?;
        let step = Entry::begin(item, subject, *choice);
        Some(self.follow_entry(*choice, step))
    }

    /// Opens the item after the open one.
    fn open_next_item(&mut self) -> Vec<TopEffect> {
        let open = self.page.take();
        let open = open.as_ref().and_then(TextPage::item);
        if self.view != View::Inbox {
            return Vec::new();
        }
        let is_open = |row: &Row| row.item.as_deref() == open;
        let place = self.rows.iter().position(is_open);
        let next = place.map_or(0, |place| place + 1);
        if next >= self.rows.len() {
            return Vec::new();
        }
        self.step(|_| next);
        self.open_chosen_item()
    }

    /// Asks for the next line of a decision, or carries it out.
    fn follow_entry(&mut self, choice: Choice, step: EntryStep) -> Vec<TopEffect> {
        self.mode = Mode::Look;
        match step {
            EntryStep::Ask(entry, problem) => {
                self.mode = Mode::Enter(Box::new(ItemEntry {
                    choice,
                    entry,
                    written: String::new(),
                    problem,
                }));
                Vec::new()
            }
            EntryStep::Done(entered) => self.decide(choice, entered),
            EntryStep::Canceled(reason) => {
                self.notice = reason.map(|reason| Err(reason.to_owned()));
                Vec::new()
            }
        }
    }

    fn decide(&mut self, choice: Choice, entered: EnteredText) -> Vec<TopEffect> {
        let Some(page) = &mut self.page else {
            return Vec::new();
        };
        let (PageSubject::Item(item), Some(subject)) = (&page.about, &page.subject) else {
            return Vec::new();
        };
        let decision = ItemDecision {
            item: (**item).clone(),
            subject: (**subject).clone(),
            choice,
            entered,
        };
        page.is_deciding = true;
        vec![TopEffect::Act(Act::Decide(Box::new(decision)))]
    }

    /// Handles a key while the text of a decision is being entered.
    fn enter(&mut self, mut at: ItemEntry, key: KeyPress) -> Vec<TopEffect> {
        match key {
            KeyPress::Char(char) if at.written.len() < MAX_APPROVAL_INPUT_BYTES => {
                at.written.push(char);
            }
            KeyPress::Backspace => {
                at.written.pop();
            }
            KeyPress::Escape => {
                self.mode = Mode::Look;
                return Vec::new();
            }
            KeyPress::Enter => {
                let step = at.entry.take(at.written.trim());
                return self.follow_entry(at.choice, step);
            }
            _ => {}
        }
        self.mode = Mode::Enter(Box::new(at));
        Vec::new()
    }

    /// Conversation that a key applies to: that of the page, or of the selected row.
    fn meant_key(&self) -> Option<InstanceKey> {
        if let Some(page) = &self.page {
            let of_item = page.item().filter(|_| self.scope == Scope::Project);
            let of_item = of_item.and_then(|item| item.conversation.as_ref());
            return page.about.key().or(of_item).cloned();
        }
        let row = self.rows.get(self.chosen_place()?)?;
        row.key.clone()
    }

    /// Index of the selected row.
    pub(super) fn chosen_place(&self) -> Option<usize> {
        let last = self.rows.len().checked_sub(1)?;
        let chosen = self.chosen.get(self.view.index())?;
        Some(chosen.place.min(last))
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Scroll position of the current text view, in lines from the end.
    pub(super) fn up(&self) -> usize {
        self.up.get(self.view.index()).copied().unwrap_or_default()
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
        self.rows = rows::of(&self.board, self.scope, self.view, &self.wanted());
        let Some(chosen) = self.chosen.get_mut(self.view.index()) else {
            return;
        };
        if let Some(id) = &chosen.id
            && let Some(place) = self.rows.iter().position(|row| row.id == *id)
        {
            chosen.place = place;
        }
    }
}

/// Applies a move that counts from the beginning to a position that counts from the end.
fn moved_up(up: usize, last: usize, place: impl Fn(usize) -> usize) -> usize {
    let from_begin = last.saturating_sub(up);
    last - place(from_begin).min(last)
}
