//! Reads the documents in the files of a project or package.

use std::path::{Path, PathBuf};

use goondan_protocol::base_package::BaseContract;

use crate::compat::{self, ProjectFormat};
use crate::document::Document;
use crate::file_list::{FileFailure, Layout, PROJECT_FILE, RESOURCES_DIR, has_older_name};
use crate::kind::ResourceKind;
use crate::kinds::{self, Context, Resources};
use crate::limits::MAX_YAML_BYTES;
use crate::project_files::ProjectFiles;
use crate::report::{FileId, ProblemReport, SourceLocation};
use crate::short_form;
use crate::skill;
use crate::successor;
use crate::syntax::with_yaml_line_ends;
use crate::tree::{self, YamlNode};

/// Content of files, in reading order.
type Trees = Vec<(FileId, Vec<YamlNode>)>;

/// Reads the files whose documents form a project: those of its format, even if only the files
/// themselves show the format.
pub(crate) fn read_project(files: &ProjectFiles, report: &mut ProblemReport) -> Trees {
    let (mut trees, layout) = read_files(files, report);
    let format = ProjectFormat::of(&trees);
    if layout == Layout::Older || matches!(format, ProjectFormat::Required(_)) {
        return trees;
    }
    let is_older = format.contract() == BaseContract::V0_0_3;
    let mut documents = trees.iter().flat_map(|(_, documents)| documents);
    let has_agent = documents.any(|document| Document::claims(document, ResourceKind::AGENT));
    // A project of the current format has an Agent.
    if !is_older && (has_agent || report.is_partial() || !are_older(files, &trees)) {
        return trees;
    }
    let there = list(files, Layout::Older, report);
    let named = there.iter().filter(|path| has_older_place(path));
    for path in named {
        trees.extend(read_named(files, path, report));
    }
    trees
}

/// Reads the files whose documents form a project or package, in the format that its Package
/// requires.
pub(crate) fn read_trees(files: &ProjectFiles, report: &mut ProblemReport) -> Trees {
    read_files(files, report).0
}

fn read_files(files: &ProjectFiles, report: &mut ProblemReport) -> (Trees, Layout) {
    let project = Path::new(PROJECT_FILE);
    let read = read_tree(files, project, report);
    let first = read.as_ref().and_then(|(_, documents)| documents.first());
    if let Some(problem) = first.and_then(successor::library) {
        // Otherwise, each further file would be reported, too.
        report.add(problem);
        report.set_partial();
        return (Vec::new(), Layout::Own);
    }
    let mut trees: Trees = read.into_iter().collect();
    let layout = match ProjectFormat::of(&trees).contract() {
        BaseContract::Own => Layout::Own,
        BaseContract::V0_0_3 => Layout::Older,
    };
    let paths = list(files, layout, report);
    for path in paths.iter().filter(|path| *path != project) {
        trees.extend(read_named(files, path, report));
    }
    (trees, layout)
}

/// The files of a layout; none if they cannot be listed, which is reported.
fn list(files: &ProjectFiles, layout: Layout, report: &mut ProblemReport) -> Vec<PathBuf> {
    files.resource_files(layout).unwrap_or_else(|failure| {
        let file = report.add_file(Path::new(RESOURCES_DIR), "");
        report.add(failure.at(SourceLocation::start_of(file)));
        report.set_partial();
        Vec::new()
    })
}

/// True if a file is a resource file only because of its name.
fn has_older_place(path: &Path) -> bool {
    has_older_name(path) && !path.starts_with(RESOURCES_DIR)
}

fn read_named(
    files: &ProjectFiles,
    path: &Path,
    report: &mut ProblemReport,
) -> Option<(FileId, Vec<YamlNode>)> {
    let (file, mut documents) = read_tree(files, path, report)?;
    // A file that only matches by name may belong to another program.
    if has_older_place(path) {
        documents.retain(|document| document.entries().iter().any(|it| it.key == "kind"));
    }
    Some((file, documents))
}

/// True if files with older names make this a project of 0.0.3. Problems of the files are ignored,
/// because the files may belong to other programs.
fn are_older(files: &ProjectFiles, trees: &[(FileId, Vec<YamlNode>)]) -> bool {
    let mut unheeded = ProblemReport::default();
    let there = list(files, Layout::Older, &mut unheeded);
    let named = there.iter().filter(|path| has_older_place(path));
    let more = named.filter_map(|path| read_named(files, path, &mut unheeded));
    let all: Trees = trees.iter().cloned().chain(more).collect();
    ProjectFormat::of(&all).contract() == BaseContract::V0_0_3
}

pub(crate) fn read_tree(
    files: &ProjectFiles,
    path: &Path,
    report: &mut ProblemReport,
) -> Option<(FileId, Vec<YamlNode>)> {
    match files.read(path, MAX_YAML_BYTES) {
        Ok(text) => {
            let text = with_yaml_line_ends(&text);
            let file = report.add_file(path, text.as_ref());
            let documents = compat::parse(file, &text, report)?;
            Some((file, short_form::expand(documents, report)))
        }
        Err(FileFailure::NotFound(_))
            if files.may_be_skill() && path == Path::new(PROJECT_FILE) =>
        {
            let Some(text) = skill::project_text(files, report) else {
                report.set_partial();
                if !report.has_errors() {
                    let file = report.add_file(path, "");
                    let missing = FileFailure::NotFound(path.display().to_string());
                    report.add(missing.at(SourceLocation::start_of(file)));
                }
                return None;
            };
            let file = report.add_file(path, text.as_str());
            Some((file, tree::parse(file, &text, report)?))
        }
        Err(failure) => {
            let file = report.add_file(path, "");
            let mut problem = failure.at(SourceLocation::start_of(file));
            if matches!(failure, FileFailure::NotFound(_)) && path == Path::new(PROJECT_FILE) {
                let misnamed = files.misnamed_project_file();
                if misnamed.is_none()
                    && let Some(name) = files.harness_file()
                {
                    report.add(successor::harness(name, SourceLocation::start_of(file)));
                    report.set_partial();
                    return None;
                }
                problem = problem
                    .help("create a project with `gdn init`")
                    .help_if(misnamed.map(|name| format!("rename `{name}` to `{PROJECT_FILE}`")));
            }
            report.add(problem);
            report.set_partial();
            None
        }
    }
}

/// Reads the Package document of a package, and its resources of some kinds.
pub(crate) fn read_shared(
    trees: &[(FileId, Vec<YamlNode>)],
    kinds: &[ResourceKind],
    cx: &mut Context<'_>,
) -> Resources {
    let mut resources = Resources::default();
    for (index, node) in trees.iter().flat_map(|(_, nodes)| nodes).enumerate() {
        let is_package = index == 0 && Document::claims(node, ResourceKind::PACKAGE);
        if !is_package && !kinds.iter().any(|kind| Document::claims(node, *kind)) {
            continue;
        }
        match Document::read(node, kinds::spec_of, &mut cx.report) {
            Some(document) => resources.read(&document, cx),
            None => cx.report.set_partial(),
        }
    }
    resources
}
