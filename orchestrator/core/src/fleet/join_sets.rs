//! Sets of waiting events that an agent gets as one input (`IPC-3`): pure functions of a queue and the
//! time.
//!
//! The parts of a join with the same key in a conversation form a set, under the terms of its first
//! part. A set ends when each part has arrived, when its time is over, when it is full, or when a
//! person releases it. A further event of a part that has arrived is added to the set.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::event_header::{HeaderTemplate, below};
use goondan_protocol::event_join::{EventJoin, JoinPart, JoinTimeout};
use goondan_protocol::ids::EventId;
use goondan_protocol::images::{IMAGES, MAX_IMAGES, MAX_IMAGES_BYTES};
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::limits::{JOIN_SET_BYTES_MAX, JOIN_SET_EVENTS_MAX};

/// Header of the input of a set.
const WHOLE_HEADER: &str = "Join {name}[ of \"{key}\"] · {state}";

/// Line above the text of a part.
const PART_HEADER: &str = "Part {part} · event {event}";

/// Cause of the end of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinEnd {
    Complete,
    TimedOut,
    /// The next part would exceed a limit.
    Full,
    /// A person released it.
    Released,
}

impl JoinEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::TimedOut => "timed out",
            Self::Full => "full",
            Self::Released => "released by a person",
        }
    }
}

/// Waiting parts that belong together, in the order of their arrival.
#[derive(Debug)]
pub(super) struct JoinSet<'q> {
    /// The terms of its first part.
    terms: &'q JoinPart,
    events: Vec<(&'q AgentEvent, &'q JoinPart)>,
    size: SetSize,
    end: Option<JoinEnd>,
}

/// Size of a set, or of an event.
#[derive(Debug, Clone, Copy, Default)]
struct SetSize {
    events: usize,
    bytes: usize,
    images: usize,
    image_bytes: usize,
}

impl SetSize {
    fn of(event: &AgentEvent) -> Self {
        let texts = event.input.iter().chain(&event.header);
        let images = images_of(event);
        let image_texts = images
            .iter()
            .filter_map(|image| image.get("image")?.as_str());
        Self {
            events: 1,
            bytes: texts.map(String::len).sum(),
            images: images.len(),
            image_bytes: image_texts.map(str::len).sum(),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            bytes: self.bytes + other.bytes,
            images: self.images + other.images,
            image_bytes: self.image_bytes + other.image_bytes,
        }
    }

    fn is_allowed(self) -> bool {
        self.events <= JOIN_SET_EVENTS_MAX
            && self.bytes <= JOIN_SET_BYTES_MAX
            && self.images <= MAX_IMAGES
            && self.image_bytes <= MAX_IMAGES_BYTES
    }
}

/// Images of an event, which were validated when it was accepted.
fn images_of(event: &AgentEvent) -> &[Value] {
    let images = event.metadata.get(IMAGES).and_then(Value::as_array);
    images.map_or(&[], Vec::as_slice)
}

/// A set that has ended.
#[derive(Debug)]
pub(crate) struct EndedSet {
    pub(super) end: JoinEnd,
    /// The last part, with the texts of all.
    pub(super) whole: Box<AgentEvent>,
    /// The other parts.
    pub(super) parts: Vec<EventId>,
    pub(super) name: String,
    /// True if its parts end without a turn.
    pub(super) is_dropped: bool,
}

impl EndedSet {
    /// Its events, in the order of their arrival.
    pub(super) fn events(&self) -> impl Iterator<Item = &EventId> {
        self.parts.iter().chain([&self.whole.id])
    }
}

/// Returns the sets of the waiting parts among these events.
pub(super) fn sets_of<'q>(
    events: impl Iterator<Item = &'q AgentEvent>,
    now: Timestamp,
) -> Vec<JoinSet<'q>> {
    let mut sets: Vec<JoinSet<'q>> = Vec::new();
    let mut open: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
    for event in events {
        let Some(part) = event.waits_as() else {
            continue;
        };
        let size = SetSize::of(event);
        let key = (part.name.as_str(), part.key.as_deref());
        let place = open.get(&key).copied().filter(|place| {
            let set = sets.get_mut(*place);
            set.is_some_and(|set| {
                let has_room = set.size.with(size).is_allowed();
                if !has_room {
                    set.end = Some(JoinEnd::Full);
                }
                has_room
            })
        });
        let place = place.unwrap_or_else(|| {
            sets.push(JoinSet {
                terms: part,
                events: Vec::new(),
                size: SetSize::default(),
                end: None,
            });
            let place = sets.len() - 1;
            open.insert(key, place);
            place
        });
        if let Some(set) = sets.get_mut(place) {
            set.size = set.size.with(size);
            set.events.push((event, part));
            if set.missing().next().is_none() {
                set.end = Some(JoinEnd::Complete);
                open.remove(&key);
            }
        }
    }
    for set in &mut sets {
        if set.end.is_none() && set.until() <= now {
            set.end = Some(JoinEnd::TimedOut);
        }
    }
    sets
}

impl<'q> JoinSet<'q> {
    pub(super) fn end(&self) -> Option<JoinEnd> {
        self.end
    }

    /// Time at which it ends.
    pub(super) fn until(&self) -> Timestamp {
        self.terms.until
    }

    pub(super) fn has(&self, id: &EventId) -> bool {
        self.events.iter().any(|(event, _)| event.id == *id)
    }

    /// Names of the parts that have not arrived.
    fn missing(&self) -> impl Iterator<Item = &'q str> {
        let all = self.terms.all.iter().map(String::as_str);
        all.filter(|name| self.events.iter().all(|(_, part)| part.part != *name))
    }

    /// Names the missing parts and the time limit, for people.
    pub(super) fn description(&self) -> String {
        let JoinPart {
            name, on_timeout, ..
        } = self.terms;
        let missing: Vec<String> = self.missing().map(|name| format!("`{name}`")).collect();
        let of = self.terms.key.as_ref();
        let of = of.map_or_else(String::new, |key| format!(" of `{key}`"));
        format!(
            "join `{name}`{of} waits for {} until {}, then: {}",
            missing.join(", "),
            self.until(),
            on_timeout.as_str()
        )
    }

    /// The set, if it has ended.
    pub(super) fn to_ended(&self) -> Option<EndedSet> {
        self.ended_by(self.end?)
    }

    /// The set as it ends for this reason.
    pub(super) fn ended_by(&self, end: JoinEnd) -> Option<EndedSet> {
        let ((last, _), others) = self.events.split_last()?;
        let parts: Vec<EventId> = others.iter().map(|(event, _)| event.id.clone()).collect();
        let name = self.terms.name.clone();
        let mut whole = AgentEvent::clone(last);
        whole.header = Some(self.header(end));
        whole.input = Some(self.text());
        // No one speaks for the others.
        if others.iter().any(|(event, _)| event.auth != last.auth) {
            whole.auth = None;
        }
        let images = self.events.iter().flat_map(|(event, _)| images_of(event));
        let images: Vec<Value> = images.cloned().collect();
        if !images.is_empty() {
            whole.metadata.insert(IMAGES.to_owned(), images.into());
        }
        whole.join = Some(EventJoin::Whole {
            name: name.clone(),
            parts: parts.clone(),
        });
        Some(EndedSet {
            end,
            whole: Box::new(whole),
            parts,
            name,
            is_dropped: end == JoinEnd::TimedOut && self.terms.on_timeout == JoinTimeout::Drop,
        })
    }

    fn header(&self, end: JoinEnd) -> String {
        let missing: Vec<&str> = self.missing().collect();
        let mut state = end.as_str().to_owned();
        if !missing.is_empty() {
            state = format!("{state}, without {}", missing.join(", "));
        }
        let mut values = JsonObject::new();
        values.insert("name".to_owned(), self.terms.name.clone().into());
        values.insert("state".to_owned(), state.into());
        if let Some(key) = &self.terms.key {
            values.insert("key".to_owned(), key.clone().into());
        }
        rendered(WHOLE_HEADER, &values)
    }

    /// The texts of all parts, each below a line with its name. No line of a text can be one: see
    /// [`below`].
    fn text(&self) -> String {
        let sections = self.events.iter().map(|(event, part)| {
            let mut values = JsonObject::new();
            values.insert("part".to_owned(), part.part.clone().into());
            values.insert("event".to_owned(), event.id.as_str().into());
            let text = event.input.as_deref().unwrap_or_default();
            let text = match &event.header {
                Some(header) => below(header, text),
                None => text.to_owned(),
            };
            below(&rendered(PART_HEADER, &values), &text)
        });
        let sections: Vec<String> = sections.collect();
        sections.join("\n\n")
    }
}

fn rendered(template: &str, values: &JsonObject) -> String {
    let template = HeaderTemplate::parse(template);
    template.map_or_else(
        |error| format!("[Join: {error}]"),
        |template| template.render("", "", values),
    )
}

#[cfg(test)]
#[path = "join_sets_tests.rs"]
pub(super) mod tests;
