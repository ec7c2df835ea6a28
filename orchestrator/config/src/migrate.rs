//! Migrates a project of the format 0.0.3 to the current format (`COMPAT-1`).
//!
//! Only the text of older forms is replaced. Comments, order, quotes and indentation stay, and so
//! do values that the loader adds or ignores without a note. Each result is loaded and must mean
//! the same as the original.
//!
//! * `source`: ranges of values in their text.
//! * `difference`: edits that turn a document into its translation.
//! * `edits`: makes edits in a text.
//! * `yaml`: writes values.

mod difference;
mod edits;
mod source;
pub(crate) mod yaml;

use std::path::{Path, PathBuf};

use goondan_protocol::base_package::{BASE_PACKAGE, BaseContract};
use serde_json::Value as Json;

use crate::compat::{self, Trees};
use crate::diagnostic::Diagnostics;
use crate::document::Document;
use crate::documents::read_project;
use crate::environment::Variables;
use crate::kind::ResourceKind;
use crate::limits::MAX_YAML_BYTES;
use crate::load::ExternalSources;
use crate::place::SourceLocation;
use crate::project_files::ProjectFiles;
use crate::report::{Problem, ProblemReport};
use crate::syntax::with_yaml_line_ends;
use crate::tree::{MappingEntry, YamlNode, YamlValue};
use crate::unquoted_texts::with_quotes;
use crate::{codes, kinds, misplaced_fields};
use difference::{Difference, Extent, Places, spot};

/// A file that changes in the current format. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedFile {
    /// The file, relative to the Project Root.
    pub path: PathBuf,
    pub before: String,
    pub after: String,
}

/// Extents of a change, from the smallest. A larger one is used if the result of a smaller one does
/// not mean the same.
const EXTENTS: [Extent; 4] = [
    Extent::new(false, false, false),
    Extent::new(false, true, false),
    Extent::new(true, true, false),
    Extent::new(true, true, true),
];

/// The files of a project that change in the current format, sorted by path. Environment variables
/// that are set determine the variables of added connections.
pub(crate) fn migrate(
    mut files: ProjectFiles,
    outside: ExternalSources<'_>,
) -> Result<Vec<MigratedFile>, Diagnostics> {
    let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
    let translation = Translation::read(&files, outside, &mut report);
    for document in translation
        .after
        .iter()
        .flat_map(|(_, documents)| documents)
    {
        Document::read(document, kinds::spec_of, &mut report);
    }
    let is_empty = translation.before.iter().all(|(_, it)| it.is_empty());
    if is_empty && !report.has_errors() {
        report.add(translation.without_documents());
    }
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let places = translation.places(&report);
    let pinned = translation.pinned();
    for wanted in std::iter::once(&translation).chain(&pinned) {
        for extent in EXTENTS {
            let Some(mut changed) = wanted.changed_files(&files, extent, &places, &report) else {
                continue;
            };
            if wanted.is_meaning_of(&mut files, outside, &changed) {
                changed.sort_by(|left, right| left.path.cmp(&right.path));
                return Ok(changed);
            }
        }
    }
    report.add(translation.unwritable());
    Err(report.into_diagnostics())
}

/// A project and its translation.
struct Translation {
    before: Trees,
    after: Trees,
    contract: BaseContract,
}

impl Translation {
    fn read(
        files: &ProjectFiles,
        outside: ExternalSources<'_>,
        report: &mut ProblemReport,
    ) -> Self {
        let before = read_project(files, report);
        let variables = Variables::read(outside.env, files, report);
        let (after, contract) = compat::modernize(before.clone(), None, &variables, report);
        Self {
            before,
            after,
            contract,
        }
    }

    fn places(&self, report: &ProblemReport) -> Places {
        let mut places = Places {
            noted: report.older_places().iter().copied().map(spot).collect(),
            ..Places::default()
        };
        for document in self.before.iter().flat_map(|(_, documents)| documents) {
            Places::add_keys(document, &mut places.written_keys);
        }
        for document in self.after.iter().flat_map(|(_, documents)| documents) {
            Places::add_keys(document, &mut places.translated_keys);
        }
        places
    }

    /// The translation with a dependency that requires the older contract, for projects that are
    /// only recognized by their older forms. `None` without a Package, or with the dependency.
    fn pinned(&self) -> Option<Self> {
        if self.contract == BaseContract::Own {
            return None;
        }
        let mut after = self.after.clone();
        let package = after.first_mut()?.1.first_mut()?;
        if !Document::claims(package, ResourceKind::PACKAGE) {
            return None;
        }
        // A place other than that of the value: the field is not a default.
        let key_place = package.entries().first()?.key_place;
        let spec = field_mut(package, "spec")?;
        let place = spec.place;
        let text = |key: &str, value: &str| MappingEntry {
            key: key.to_owned(),
            key_place: place,
            node: YamlNode {
                value: YamlValue::Text(value.to_owned()),
                place,
            },
        };
        let dependency = YamlNode {
            value: YamlValue::Mapping(vec![
                text("name", BASE_PACKAGE),
                text("version", PINNED_VERSIONS),
            ]),
            place,
        };
        if let Some(listed) = field_mut(spec, "dependencies") {
            let YamlValue::List(items) = &mut listed.value else {
                return None;
            };
            let is_base = |item: &YamlNode| {
                let mut fields = item.entries().iter();
                fields.any(|field| {
                    let name = &field.node.value;
                    field.key == "name" && matches!(name, YamlValue::Text(it) if it == BASE_PACKAGE)
                })
            };
            if items.iter().any(is_base) {
                return None;
            }
            items.push(dependency);
        } else if let YamlValue::Mapping(fields) = &mut spec.value {
            fields.push(MappingEntry {
                key: "dependencies".to_owned(),
                key_place,
                node: YamlNode {
                    value: YamlValue::List(vec![dependency]),
                    place,
                },
            });
        } else {
            return None;
        }
        Some(Self {
            before: self.before.clone(),
            after,
            contract: self.contract,
        })
    }

    /// `None` if a document cannot be changed in place to this extent.
    fn changed_files(
        &self,
        files: &ProjectFiles,
        extent: Extent,
        places: &Places,
        report: &ProblemReport,
    ) -> Option<Vec<MigratedFile>> {
        let mut changed = Vec::new();
        for ((file, before), (_, after)) in self.before.iter().zip(&self.after) {
            let path = report.path_of(SourceLocation::start_of(*file)).to_owned();
            let text = files.read(&path, MAX_YAML_BYTES).ok()?;
            let quoted = quoted(&text);
            if meaning(before) == meaning(after) && quoted.is_none() {
                continue;
            }
            let quoted = quoted.as_deref().unwrap_or(&text);
            let revised = revised(quoted, before, after, extent, places)?;
            if revised != text {
                changed.push(MigratedFile {
                    path,
                    before: text,
                    after: revised,
                });
            }
        }
        Some(changed)
    }

    /// True if the changed files mean the same.
    fn is_meaning_of(
        &self,
        files: &mut ProjectFiles,
        outside: ExternalSources<'_>,
        changed: &[MigratedFile],
    ) -> bool {
        for file in changed {
            files.pretend(&file.path, file.after.clone());
        }
        let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
        let found = Self::read(files, outside, &mut report);
        for file in changed {
            files.pretend(&file.path, file.before.clone());
        }
        let all = |trees: &Trees| -> Vec<_> {
            trees
                .iter()
                .map(|(_, documents)| meaning(documents))
                .collect()
        };
        !report.has_errors()
            && found.contract == self.contract
            && all(&found.after) == all(&self.after)
    }

    /// The problem of a project with older forms that cannot be changed in place.
    /// A project without documents has no older forms, and is invalid.
    fn without_documents(&self) -> Problem {
        let help = "restore the documents of the project, or create a project with `gdn init`";
        Problem::new(
            codes::NO_ENTRY_AGENT,
            self.start(),
            "the project has no documents",
        )
        .help(help)
    }

    /// The start of `goondan.yaml`.
    fn start(&self) -> SourceLocation {
        let first = self.before.first().map(|(file, _)| *file);
        SourceLocation::start_of(first.unwrap_or(crate::place::FileId(0)))
    }

    fn unwritable(&self) -> Problem {
        let pairs = self.before.iter().zip(&self.after);
        let documents = pairs.flat_map(|((_, before), (_, after))| before.iter().zip(after));
        let mut changed = documents
            .filter(|(before, after)| before.to_json() != after.to_json())
            .map(|(before, _)| before.place);
        let place = changed.next().unwrap_or_else(|| self.start());
        let help = if self.contract == BaseContract::Own || self.pinned().is_some() {
            "replace anchors and aliases in it by their values and run `gdn config migrate` again; or write \
             the current form by hand: `gdn config show` prints it, docs/compatibility.md explains it"
                .to_owned()
        } else {
            format!(
                "if the project does not require `{BASE_PACKAGE}`, add `{{name: \"{BASE_PACKAGE}\", \
                 version: \"{PINNED_VERSIONS}\"}}` to `dependencies` of its Package, because the \
                 older contract would end with the older forms. Otherwise write the current form by \
                 hand: `gdn config show` prints it, docs/compatibility.md explains it"
            )
        };
        let message = "failed to replace the older forms of this document in place";
        Problem::new(codes::UNSUPPORTED, place, message).help(help)
    }
}

/// Versions of `@goondan/base` with the older contract.
const PINNED_VERSIONS: &str = "^0.0.3";

fn field_mut<'n>(node: &'n mut YamlNode, name: &str) -> Option<&'n mut YamlNode> {
    let YamlValue::Mapping(fields) = &mut node.value else {
        return None;
    };
    let found = fields.iter_mut().find(|field| field.key == name)?;
    Some(&mut found.node)
}

fn meaning(documents: &[YamlNode]) -> Vec<Json> {
    documents.iter().map(YamlNode::to_json).collect()
}

/// The text of a file with these documents; additional documents are appended.
fn revised(
    text: &str,
    before: &[YamlNode],
    after: &[YamlNode],
    extent: Extent,
    places: &Places,
) -> Option<String> {
    let without_aliases = Extent {
        aliases: false,
        ..extent
    };
    let body = readable(text);
    // Some files may hold documents of other programs, which are not read.
    let numbers: Vec<Option<usize>> = parse(&body)?
        .iter()
        .map(|document| {
            let is_it = |read: &YamlNode| read.place.line == document.place.line;
            before.iter().position(is_it)
        })
        .collect();
    let parts = source::documents(&body)?;
    if parts.len() != numbers.len() {
        return None;
    }
    let mut difference = Difference::new(&body, without_aliases, places, true);
    for (part, number) in parts.iter().zip(&numbers) {
        if let Some(number) = *number {
            difference.document(part, before.get(number)?, after.get(number)?)?;
        }
    }
    let mut revised = edits::apply(text, difference.into_edits())?;
    if extent.aliases {
        // The remaining differences are in values that an alias repeats.
        let body = readable(&revised);
        let documents = parse(&body)?;
        let parts = source::documents(&body)?;
        if parts.len() != numbers.len() || documents.len() != numbers.len() {
            return None;
        }
        let mut difference = Difference::new(&body, extent, places, false);
        for ((part, document), number) in parts.iter().zip(&documents).zip(&numbers) {
            if let Some(number) = *number {
                difference.document(part, document, after.get(number)?)?;
            }
        }
        revised = edits::apply(&revised, difference.into_edits())?;
    }
    let line_end = edits::line_end_of(&revised);
    for added in after.iter().skip(before.len()) {
        if !revised.is_empty() && !revised.ends_with(['\n', '\r']) {
            revised.push_str(line_end);
        }
        let document = format!("---\n{}", yaml::document(added));
        revised.push_str(&document.replace('\n', line_end));
    }
    Some(revised)
}

/// The text with quotes around the texts that only the parser of 0.0.3 took without; `None` if there
/// are none.
fn quoted(text: &str) -> Option<String> {
    if source::documents(&readable(text)).is_some() {
        return None;
    }
    let (mark, body) = edits::without_mark(text);
    let (quoted, _lines) = with_quotes(&with_yaml_line_ends(body))?;
    let line_end = edits::line_end_of(body);
    Some(format!("{mark}{}", quoted.replace('\n', line_end)))
}

/// The text as the parser reads it.
fn readable(text: &str) -> String {
    let (_, body) = edits::without_mark(text);
    with_yaml_line_ends(body).into_owned()
}

fn parse(text: &str) -> Option<Vec<YamlNode>> {
    let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
    let file = report.add_file(Path::new(""), text);
    compat::parse(file, text, &mut report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project that is recognized by its older forms only.
    fn recognized(text: &str) -> Translation {
        let before = vec![(crate::place::FileId(0), parse(text).unwrap())];
        Translation {
            after: before.clone(),
            before,
            contract: BaseContract::V0_0_3,
        }
    }

    fn pinned(text: &str) -> Option<String> {
        let translation = recognized(text);
        let wanted = translation.pinned()?;
        let report = ProblemReport::default();
        let places = translation.places(&report);
        let ((_, before), (_, after)) = (wanted.before.first()?, wanted.after.first()?);
        revised(text, before, after, EXTENTS[0], &places)
    }

    #[test]
    fn compat_1_older_contract_is_required_explicitly() {
        let package = "apiVersion: goondan.ai/v1\nkind: Package # ours\nmetadata: {name: desk}\n";
        let dependency = "{name: \"@goondan/base\", version: \"^0.0.3\"}";
        for (spec, expected) in [
            (
                "spec:\n  version: 1.0.0 # first\n",
                format!("spec:\n  version: 1.0.0 # first\n  dependencies: [{dependency}]\n"),
            ),
            (
                "spec:\n  dependencies:\n    - {name: other, version: 1.0.0}",
                format!(
                    "spec:\n  dependencies:\n    - {{name: other, version: 1.0.0}}\n    - {dependency}"
                ),
            ),
            (
                "spec: {dependencies: [{name: other, version: 1.0.0}]}\n",
                format!(
                    "spec: {{dependencies: [{{name: other, version: 1.0.0}}, {dependency}]}}\n"
                ),
            ),
        ] {
            let found = pinned(&format!("{package}{spec}"));
            assert_eq!(found, Some(format!("{package}{expected}")));
        }
        let named = format!("{package}spec: {{dependencies: [{dependency}]}}\n");
        assert_eq!(pinned(&named), None);
        assert_eq!(
            pinned("apiVersion: goondan.ai/v1\nkind: Agent\nspec: {}\n"),
            None
        );
    }
}
