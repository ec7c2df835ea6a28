//! Reads the documents in the files of a project or package.

use std::path::Path;

use goondan_protocol::base_package::BaseContract;

use crate::compat;
use crate::document::Document;
use crate::file_list::{FileFailure, Layout, PROJECT_FILE, RESOURCES_DIR, has_older_name};
use crate::kind::ResourceKind;
use crate::kinds::{self, Context, Resources};
use crate::limits::MAX_YAML_BYTES;
use crate::project_files::ProjectFiles;
use crate::report::{FileId, ProblemReport, SourceLocation};
use crate::skill;
use crate::successor;
use crate::syntax::with_yaml_line_ends;
use crate::tree::{self, YamlNode};

/// Reads the files whose documents form the project.
pub(crate) fn read_trees(
    files: &ProjectFiles,
    report: &mut ProblemReport,
) -> Vec<(FileId, Vec<YamlNode>)> {
    let project = read_tree(files, Path::new(PROJECT_FILE), report);
    let first = project
        .as_ref()
        .and_then(|(_, documents)| documents.first());
    if let Some(problem) = first.and_then(successor::library) {
        // Each further file would be a problem of its own.
        report.add(problem);
        report.set_partial();
        return Vec::new();
    }
    let mut trees: Vec<_> = project.into_iter().collect();
    let layout = match compat::contract_of(&trees) {
        BaseContract::Own => Layout::Own,
        BaseContract::V0_0_3 => Layout::Older,
    };
    let paths = files.resource_files(layout).unwrap_or_else(|failure| {
        let file = report.add_file(Path::new(RESOURCES_DIR), "");
        report.add(failure.at(SourceLocation::start_of(file)));
        report.set_partial();
        Vec::new()
    });
    for path in paths.iter().filter(|path| *path != Path::new(PROJECT_FILE)) {
        let Some((file, mut documents)) = read_tree(files, path, report) else {
            continue;
        };
        // A file that only matches by name may belong to another program.
        if has_older_name(path) && !path.starts_with(RESOURCES_DIR) {
            documents.retain(|document| document.entries().iter().any(|it| it.key == "kind"));
        }
        trees.push((file, documents));
    }
    trees
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
            Some((file, tree::parse(file, &text, report)?))
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
