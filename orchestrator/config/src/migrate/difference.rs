//! Edits that turn the text of a document into the text of a translated document.
//!
//! Both documents are compared value by value, and only the text of differing values is replaced.
//! Values that cannot be changed in place are replaced as a whole, by those around them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::edits::Edit;
use super::source::{Part, Shape};
use super::yaml;
use crate::place::SourceLocation;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// A place that can be compared: file, line, column.
pub(super) type Spot = (usize, usize, usize);

pub(super) fn spot(place: SourceLocation) -> Spot {
    (place.file.0, place.line, place.column)
}

/// Kinds of differences to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Fields with a former default, which the loader adds anyway.
    pub(super) additions: bool,
    /// Unused fields, which the loader removes anyway.
    pub(super) removals: bool,
    /// Values in place of their aliases.
    pub(super) aliases: bool,
}

impl Extent {
    pub(super) const fn new(additions: bool, removals: bool, aliases: bool) -> Self {
        Self {
            additions,
            removals,
            aliases,
        }
    }
}

/// Facts about all documents of a project.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Keys that are written in the files.
    pub(super) written_keys: BTreeSet<Spot>,
    /// Keys of the translation.
    pub(super) translated_keys: BTreeSet<Spot>,
    /// Older forms that were reported.
    pub(super) noted: BTreeSet<Spot>,
}

impl Places {
    /// Adds the keys of a document to a set.
    pub(super) fn add_keys(node: &YamlNode, keys: &mut BTreeSet<Spot>) {
        match &node.value {
            YamlValue::List(items) => items.iter().for_each(|item| Self::add_keys(item, keys)),
            YamlValue::Mapping(entries) => {
                for entry in entries {
                    // The place of an added field is that of its value.
                    if spot(entry.key_place) != spot(entry.node.place) {
                        keys.insert(spot(entry.key_place));
                    }
                    Self::add_keys(&entry.node, keys);
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {}
        }
    }

    /// True if a field of the translation, or one within it, is written elsewhere in the files.
    fn is_moved(&self, entry: &MappingEntry) -> bool {
        let (key, value) = (spot(entry.key_place), spot(entry.node.place));
        (key != value && self.written_keys.contains(&key)) || self.holds_moved(&entry.node)
    }

    fn holds_moved(&self, node: &YamlNode) -> bool {
        match &node.value {
            YamlValue::List(items) => items.iter().any(|item| self.holds_moved(item)),
            YamlValue::Mapping(entries) => entries.iter().any(|entry| self.is_moved(entry)),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {
                false
            }
        }
    }

    /// True if a written value must be removed, because it was reported or partly moved.
    fn must_go(&self, node: &YamlNode) -> bool {
        self.noted.contains(&spot(node.place))
            || match &node.value {
                YamlValue::List(items) => items.iter().any(|item| self.must_go(item)),
                YamlValue::Mapping(entries) => entries.iter().any(|it| self.must_go_entry(it)),
                YamlValue::Null
                | YamlValue::Bool(_)
                | YamlValue::Number(_)
                | YamlValue::Text(_) => false,
            }
    }

    fn must_go_entry(&self, entry: &MappingEntry) -> bool {
        let key = spot(entry.key_place);
        self.noted.contains(&key)
            || self.translated_keys.contains(&key)
            || self.must_go(&entry.node)
    }
}

/// Surroundings of a value.
#[derive(Debug, Clone, Copy)]
enum Around {
    Document,
    /// A list or mapping in brackets or braces.
    Flow,
    Item,
    Field {
        key_end: usize,
        indent: usize,
    },
}

/// Collects the edits of a file.
pub(super) struct Difference<'t> {
    text: &'t str,
    extent: Extent,
    places: &'t Places,
    /// False if the places of the translated document are those of an earlier text.
    has_places: bool,
    /// Texts of values that can be used again, with their meaning.
    written: BTreeMap<Spot, (&'t str, Json)>,
    edits: Vec<Edit>,
}

/// Result of a comparison; `None` if the value cannot be changed in place.
type InPlace = Option<()>;

fn is_same(left: &YamlNode, right: &YamlNode) -> bool {
    left.to_json() == right.to_json()
}

impl<'t> Difference<'t> {
    pub(super) fn new(text: &'t str, extent: Extent, places: &'t Places, has_places: bool) -> Self {
        Self {
            text,
            extent,
            places,
            has_places,
            written: BTreeMap::new(),
            edits: Vec::new(),
        }
    }

    pub(super) fn into_edits(self) -> Vec<Edit> {
        // If the line after a kept comment loses its beginning, the comment moves before that.
        let places = self.edits.iter().map(|edit| {
            let at = edit.range.start;
            let is_comment = edit.range.is_empty() && edit.text.trim_start().starts_with('#');
            let mut ranges = self.edits.iter().map(|other| &other.range);
            let removed = ranges.find(|range| range.start < at && at < range.end)?;
            is_comment.then(|| self.line_start(removed.start))
        });
        let places: Vec<Option<usize>> = places.collect();
        let mut edits = self.edits;
        for (edit, place) in edits.iter_mut().zip(places) {
            if let Some(place) = place {
                edit.range = place..place;
            }
        }
        edits
    }

    /// Adds the edits of a document. `None` if it can only be written as a whole.
    pub(super) fn document(&mut self, part: &Part, before: &YamlNode, after: &YamlNode) -> InPlace {
        if is_same(before, after) {
            return Some(());
        }
        if self.has_places {
            self.add_written(part, before);
        }
        self.node(part, before, after, Around::Document)
    }

    fn add_written(&mut self, part: &Part, node: &YamlNode) {
        match &part.shape {
            Shape::Mapping(parts) => {
                let parts = parts.iter().filter(|(key, _)| !self.is_merge(key));
                let pairs: Vec<_> = parts.zip(node.entries()).collect();
                for ((_, part), entry) in pairs {
                    self.add_written(part, &entry.node);
                }
            }
            Shape::List(parts) => {
                if let YamlValue::List(items) = &node.value {
                    for (part, item) in parts.iter().zip(items) {
                        self.add_written(part, item);
                    }
                }
            }
            Shape::Scalar => {
                let text = part.text(self.text);
                // Other texts could mean something else in another place.
                if text.starts_with(['"', '\'']) && !text.contains('\n') {
                    let written = (text, node.to_json());
                    self.written.insert(spot(node.place), written);
                }
            }
            Shape::Empty | Shape::Alias => {}
        }
    }

    fn is_merge(&self, key: &Part) -> bool {
        ["<<", "\"<<\"", "'<<'"].contains(&key.text(self.text))
    }

    fn node(
        &mut self,
        part: &Part,
        before: &YamlNode,
        after: &YamlNode,
        around: Around,
    ) -> InPlace {
        if is_same(before, after) {
            return Some(());
        }
        if matches!(part.shape, Shape::Alias) {
            return match self.extent.aliases {
                true => self.replace(part, after, around),
                false => Some(()),
            };
        }
        if !self.extent.additions {
            if is_qualified(before, after) {
                return Some(());
            }
            if let Some(reference) = self.only_wrapped(before, after) {
                return self.node(part, before, reference, around);
            }
        }
        let mark = self.edits.len();
        let values = (&part.shape, &before.value, &after.value);
        let changed = if let (
            Shape::Mapping(parts),
            YamlValue::Mapping(was),
            YamlValue::Mapping(is),
        ) = values
        {
            self.mapping(part, parts, was, is)
        } else if let (Shape::List(parts), YamlValue::List(was), YamlValue::List(is)) = values {
            self.list(part, parts, was, is)
        } else {
            None
        };
        if changed.is_none() {
            self.edits.truncate(mark);
            return self.replace(part, after, around);
        }
        changed
    }

    /// The reference in `{ref: …, config: …}` if only defaults were added to it.
    fn only_wrapped<'n>(&self, before: &YamlNode, after: &'n YamlNode) -> Option<&'n YamlNode> {
        let has_ref = |node: &YamlNode| node.entries().iter().any(|entry| entry.key == "ref");
        let is_default = |entry: &MappingEntry| entry.key == "ref" || !self.places.is_moved(entry);
        let is_wrapped = !has_ref(before) && after.entries().iter().all(is_default);
        let reference = after.entries().iter().find(|entry| entry.key == "ref")?;
        is_wrapped.then_some(&reference.node)
    }

    fn mapping(
        &mut self,
        part: &Part,
        parts: &[(Part, Part)],
        before: &[MappingEntry],
        after: &[MappingEntry],
    ) -> InPlace {
        let parts: Vec<&(Part, Part)> = parts
            .iter()
            .filter(|(key, _)| !self.is_merge(key))
            .collect();
        let (written, merged) = before.split_at_checked(parts.len())?;
        let named = |key: &str| after.iter().position(|entry| entry.key == key);
        let is_merge_changed = |entry: &MappingEntry| {
            let found = after.iter().find(|it| it.key == entry.key);
            let is_needed = self.extent.aliases || self.places.must_go_entry(entry);
            is_needed && !found.is_some_and(|it| is_same(&it.node, &entry.node))
        };
        if merged.iter().any(is_merge_changed) {
            return None;
        }
        // The entry of the translation for each written one.
        let renamed = |was: &MappingEntry| {
            after.iter().position(|is| {
                self.has_places
                    && spot(is.key_place) == spot(was.key_place)
                    && spot(is.key_place) != spot(is.node.place)
                    && before.iter().all(|other| other.key != is.key)
            })
        };
        let successors: Vec<Option<usize>> = written
            .iter()
            .map(|was| named(&was.key).or_else(|| renamed(was)))
            .collect();
        let removed: Vec<bool> = written
            .iter()
            .zip(&successors)
            .map(|(was, successor)| {
                let is_unused = self.extent.removals || self.places.must_go_entry(was);
                successor.is_none() && is_unused
            })
            .collect();
        let added: Vec<usize> = (0..after.len())
            .filter(|index| {
                let is_new = |entry: &MappingEntry| {
                    merged.iter().all(|it| it.key != entry.key)
                        && (self.extent.additions || self.places.is_moved(entry))
                };
                !successors.contains(&Some(*index)) && after.get(*index).is_some_and(is_new)
            })
            .collect();
        if removed.iter().all(|removed| *removed) && !(removed.is_empty() && added.is_empty()) {
            return None;
        }
        let indent = self.column(parts.first().map_or(part.start, |(key, _)| key.start));
        for (index, ((key, value), was)) in parts.iter().zip(written).enumerate() {
            let Some(is) = successors.get(index).copied().flatten() else {
                continue;
            };
            let is = after.get(is)?;
            if is.key != was.key {
                let quote = key
                    .text(self.text)
                    .chars()
                    .next()
                    .filter(|c| "\"'".contains(*c));
                let text = match quote {
                    Some(quote) => format!("{quote}{}{quote}", is.key),
                    None => yaml::text(&is.key),
                };
                self.edit(key.start, key.end, text);
            }
            let around = match part.is_flow {
                true => Around::Flow,
                false => Around::Field {
                    key_end: key.end,
                    indent,
                },
            };
            self.node(value, &was.node, &is.node, around)?;
        }
        let spans: Vec<(usize, usize)> = parts
            .iter()
            .map(|(key, value)| (key.start, value.end))
            .collect();
        self.remove(&spans, &removed, part.is_flow)?;
        let texts = added.into_iter().filter_map(|index| {
            let entry = after.get(index)?;
            // Follows the nearest written entry before it.
            let written = |index| successors.iter().position(|it| *it == Some(index));
            let previous = (0..index).rev().find_map(written);
            let text = match part.is_flow {
                true => yaml::flow_entry(entry),
                false => yaml::entry(entry, indent),
            };
            Some((previous, text))
        });
        let texts: Vec<_> = texts.collect();
        self.insert(&spans, &removed, texts, part.is_flow, indent)
    }

    fn list(
        &mut self,
        part: &Part,
        parts: &[Part],
        before: &[YamlNode],
        after: &[YamlNode],
    ) -> InPlace {
        if parts.len() != before.len() || parts.is_empty() || after.is_empty() {
            return None;
        }
        let pairs = self.pairs(before, after);
        let mut removed = vec![false; parts.len()];
        // Items to insert after a written one.
        let mut texts: Vec<(Option<usize>, String)> = Vec::new();
        let span = |item: &Part| match part.is_flow {
            true => Some((item.start, item.end)),
            false => Some((self.item_start(item)?, item.end)),
        };
        let spans = parts.iter().map(span).collect::<Option<Vec<_>>>()?;
        let indent = self.column(spans.first()?.0);
        let around = match part.is_flow {
            true => Around::Flow,
            false => Around::Item,
        };
        let mut next = 0;
        let mut new: Vec<&YamlNode> = Vec::new();
        let ends = std::iter::once((None, Some(before.len())));
        let steps = after.iter().zip(pairs).map(|(is, pair)| (Some(is), pair));
        for (is, pair) in steps.chain(ends) {
            let Some(found) = pair else {
                new.extend(is);
                continue;
            };
            // The written items up to `found` are replaced by the new ones.
            let is_replaced = !new.is_empty();
            let mut new = std::mem::take(&mut new).into_iter();
            for index in next..found {
                match new.next() {
                    Some(is) => self.replace(parts.get(index)?, is, around)?,
                    None => {
                        let was = before.get(index)?;
                        let is_unused =
                            is_replaced || self.extent.removals || self.places.must_go(was);
                        *removed.get_mut(index)? = is_unused;
                    }
                }
            }
            texts.extend(new.map(|is| {
                let text = match part.is_flow {
                    true => yaml::flow(is),
                    false => format!("- {}", yaml::item(is, indent + 2)),
                };
                (found.checked_sub(1), text)
            }));
            if let Some(is) = is {
                self.node(parts.get(found)?, before.get(found)?, is, around)?;
            }
            next = found + 1;
        }
        if removed.iter().all(|removed| *removed) {
            return None;
        }
        self.remove(&spans, &removed, part.is_flow)?;
        self.insert(&spans, &removed, texts, part.is_flow, indent)
    }

    /// The written item for each translated one, in ascending order.
    fn pairs(&self, before: &[YamlNode], after: &[YamlNode]) -> Vec<Option<usize>> {
        if !self.has_places && before.len() == after.len() {
            return (0..after.len()).map(Some).collect();
        }
        let mut next = 0;
        let mut pair = |is: &YamlNode| {
            let is_it = |was: &YamlNode| {
                (self.has_places && spot(was.place) == spot(is.place)) || is_same(was, is)
            };
            let found = before.iter().skip(next).position(is_it)? + next;
            next = found + 1;
            Some(found)
        };
        after.iter().map(&mut pair).collect()
    }

    /// Removes entries or items. Comments between them stay.
    fn remove(&mut self, spans: &[(usize, usize)], removed: &[bool], is_flow: bool) -> InPlace {
        let kept = |index: &usize| removed.get(*index) == Some(&false);
        let mut index = 0;
        while index < spans.len() {
            if kept(&index) {
                index += 1;
                continue;
            }
            let (start, end) = *spans.get(index)?;
            let next_kept = (index..spans.len()).find(kept);
            let line = self.line_start(start);
            let is_whole_line = !is_flow && self.is_blank(line, start);
            if is_whole_line {
                self.remove_lines(line, end);
                index += 1;
            } else if let Some(next_kept) = next_kept {
                // `- ` stays before the next entry.
                self.edit(start, spans.get(next_kept)?.0, String::new());
                index = next_kept;
            } else if is_flow {
                let previous = spans.get(index.checked_sub(1)?)?.1;
                self.edit(previous, spans.last()?.1, String::new());
                index = spans.len();
            } else {
                return None;
            }
        }
        Some(())
    }

    fn remove_lines(&mut self, line: usize, end: usize) {
        let end = self.line_end(end);
        // Includes the line end before it, because texts are inserted at the end of the last line.
        match line.checked_sub(1) {
            Some(before) => self.edit(before, end, String::new()),
            None => self.edit(line, (end + 1).min(self.text.len()), String::new()),
        }
    }

    /// Inserts entries or items, each after a written one, or before all others.
    fn insert(
        &mut self,
        spans: &[(usize, usize)],
        removed: &[bool],
        texts: Vec<(Option<usize>, String)>,
        is_flow: bool,
        indent: usize,
    ) -> InPlace {
        for (previous, text) in texts {
            let is_kept = |index: &usize| removed.get(*index) == Some(&false);
            let previous = previous.and_then(|last| (0..=last).rev().find(is_kept));
            match previous {
                Some(previous) => {
                    let end = spans.get(previous)?.1;
                    let (at, text) = match is_flow {
                        true => (end, format!(", {text}")),
                        false => (self.line_end(end), format!("\n{}{text}", yaml::pad(indent))),
                    };
                    self.edit(at, at, text);
                }
                None => {
                    let first = (0..spans.len()).find(is_kept)?;
                    let at = spans.get(first)?.0;
                    let text = match is_flow {
                        true => format!("{text}, "),
                        false => format!("{text}\n{}", yaml::pad(indent)),
                    };
                    self.edit(at, at, text);
                }
            }
        }
        Some(())
    }

    /// Replaces a value as a whole.
    fn replace(&mut self, part: &Part, after: &YamlNode, around: Around) -> InPlace {
        let column = self.column(part.start);
        let flow = match self.written.get(&spot(after.place)) {
            Some((text, json)) if *json == after.to_json() => (*text).to_owned(),
            Some(_) | None => yaml::flow(after),
        };
        match around {
            Around::Document => return None,
            Around::Flow => {
                let space = match part.shape {
                    Shape::Empty => " ",
                    Shape::Scalar | Shape::Alias | Shape::Mapping(_) | Shape::List(_) => "",
                };
                self.edit(part.start, part.end, format!("{space}{flow}"));
            }
            Around::Item => {
                if matches!(part.shape, Shape::Empty) {
                    return None;
                }
                self.keep_comments(part, part.start);
                let text = match &after.value {
                    YamlValue::List(_) | YamlValue::Mapping(_) => yaml::item(after, column),
                    YamlValue::Null
                    | YamlValue::Bool(_)
                    | YamlValue::Number(_)
                    | YamlValue::Text(_) => flow,
                };
                self.edit(part.start, part.end, text);
            }
            Around::Field { key_end, indent } => {
                self.keep_comments(part, key_end);
                let between = self.text.get(key_end..part.start).unwrap_or_default();
                let is_inline = !between.contains('\n');
                let after_colon = key_end + between.trim_end().len();
                let text = match &after.value {
                    YamlValue::List(_) | YamlValue::Mapping(_) => {
                        yaml::value(after, indent, self.column(key_end).saturating_sub(indent))
                    }
                    YamlValue::Text(text) if text.contains('\n') => yaml::value(after, indent, 0),
                    YamlValue::Null
                    | YamlValue::Bool(_)
                    | YamlValue::Number(_)
                    | YamlValue::Text(_) => format!(" {flow}"),
                };
                if matches!(part.shape, Shape::Empty) {
                    self.edit(part.start, part.end, text);
                } else if is_inline && let Some(text) = text.strip_prefix(' ') {
                    self.edit(part.start, part.end, text.to_owned());
                } else if is_inline || between.trim() == ":" {
                    self.edit(after_colon, part.end, text);
                } else {
                    // A comment, anchor or tag between them stays.
                    self.edit(part.start, part.end, yaml::item(after, column));
                }
            }
        }
        Some(())
    }

    /// Writes the comments within a replaced value before the line of a place.
    fn keep_comments(&mut self, part: &Part, at: usize) {
        let line = self.line_start(at);
        let rest = self.text.get(line..).unwrap_or_default();
        let indent = rest.len() - rest.trim_start_matches(' ').len();
        let mut text = String::new();
        for comment in part.comments(self.text) {
            text.push_str(&yaml::pad(indent));
            text.push_str(comment);
            text.push('\n');
        }
        if !text.is_empty() {
            self.edit(line, line, text);
        }
    }

    fn edit(&mut self, start: usize, end: usize, text: String) {
        self.edits.push(Edit {
            range: start..end,
            text,
        });
    }

    /// The dash of an item in a list without brackets. `None` if another list begins in its line.
    fn item_start(&self, part: &Part) -> Option<usize> {
        let line = self.line_start(part.start);
        let before = self.text.get(line..part.start)?;
        let dash = line + before.len() - before.trim_start().len();
        let has_one = before.trim_start().starts_with('-') && before.matches("- ").count() == 1;
        has_one.then_some(dash)
    }

    fn line_start(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.rfind('\n').map_or(0, |end| end + 1)
    }

    /// The end of the line, without the line end.
    fn line_end(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        at + rest.find('\n').unwrap_or(rest.len())
    }

    fn is_blank(&self, from: usize, to: usize) -> bool {
        let text = self.text.get(from..to).unwrap_or_default();
        text.trim().is_empty()
    }

    /// Characters before a place in its line.
    fn column(&self, at: usize) -> usize {
        let line = self.text.get(self.line_start(at)..at);
        line.unwrap_or_default().chars().count()
    }
}

/// True if a translated reference is a written `Kind/name`, with its package.
fn is_qualified(before: &YamlNode, after: &YamlNode) -> bool {
    let YamlValue::Text(text) = &before.value else {
        return false;
    };
    let field = |name: &str| {
        let found = after.entries().iter().find(|entry| entry.key == name)?;
        if let YamlValue::Text(text) = &found.node.value {
            Some(text.as_str())
        } else {
            None
        }
    };
    let is_part = |entry: &MappingEntry| ["kind", "name", "package"].contains(&entry.key.as_str());
    after.entries().iter().all(is_part)
        && text
            .split_once('/')
            .is_some_and(|(kind, name)| field("kind") == Some(kind) && field("name") == Some(name))
}
