//! Reads a project's documents and sorts them by kind.

use std::path::Path;

use goondan_protocol::control::PermissionDecision;
use goondan_protocol::secret::SecretStore;

use crate::bundle::ProjectConfig;
use crate::bundle::workspace_permissions::{PermissionContext, PermissionRequest};
use crate::codes;
use crate::compat;
use crate::diagnostic::Diagnostics;
use crate::document::Document;
use crate::documents::{read_project, read_tree};
use crate::environment::Variables;
use crate::file_list::PROJECT_FILE;
use crate::inherit;
use crate::kind::ResourceKind;
use crate::kinds::{self, Context, Resources};
use crate::machine::HostMachine;
use crate::misplaced_fields;
use crate::packages;
use crate::project_files::ProjectFiles;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::secrets::Secrets;
use crate::tree::YamlNode;
use crate::{Environment, Package};

/// A project that was read, valid or not.
pub(crate) struct ParsedProject<'e> {
    /// `None` if there are errors.
    pub(crate) bundle: Option<ProjectConfig>,
    pub(crate) report: ProblemReport,
    /// Content of the resource files, in reading order.
    pub(crate) trees: Vec<(FileId, Vec<YamlNode>)>,
    pub(crate) variables: Variables<'e>,
    pub(crate) secrets: Secrets,
    /// Permissions that the project can use.
    pub(crate) permissions: Vec<PermissionRequest>,
}

/// External sources of values for a project.
#[derive(Clone, Copy)]
pub(crate) struct ExternalSources<'e> {
    pub(crate) env: &'e dyn Environment,
    pub(crate) store: &'e dyn SecretStore,
    pub(crate) machine: &'e dyn HostMachine,
    /// Decisions of people about permissions of the workspace.
    pub(crate) decisions: &'e [PermissionDecision],
}

pub(crate) fn read<'e>(files: &ProjectFiles, outside: ExternalSources<'e>) -> ParsedProject<'e> {
    let ExternalSources {
        env,
        store,
        machine,
        decisions,
    } = outside;
    let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
    let mut trees = read_project(files, &mut report);
    let inherited = inherit::resolve(&mut trees, &mut report);
    let variables = Variables::read(env, files, &mut report);
    let (mut trees, contract) = compat::modernize(trees, files.swarm(), &variables, &mut report);
    let templates = inherit::take_templates(&mut trees);
    let mut cx = Context {
        files,
        variables: &variables,
        store,
        machine,
        secrets: Secrets::default(),
        asked_tokens: Vec::new(),
        resource: String::new(),
        contract,
        report,
    };
    check_templates(&templates, &mut cx);
    let mut resources = read_resources(&trees, &mut cx);
    resources.contract = contract;
    packages::add(&mut resources, &mut cx);
    resources.env_files = files.env_files().to_vec();
    resources.swarm_to_run = files.swarm().cloned();
    let Context {
        mut report,
        secrets,
        asked_tokens,
        ..
    } = cx;
    resources.asked_tokens = asked_tokens;
    resources.permissions = PermissionContext {
        decisions: decisions.to_vec(),
        sources: files.project_sources(),
    };
    let mut permissions = Vec::new();
    let into = (&mut report, &mut permissions);
    let bundle = ProjectConfig::of(resources, files.root(), machine, into);
    report.unify(&inherited);
    ParsedProject {
        bundle: bundle.filter(|_| !report.has_errors()),
        report,
        trees,
        variables,
        secrets,
        permissions,
    }
}

/// See [`crate::package_of`].
pub(crate) fn package(
    files: Option<ProjectFiles>,
    mut report: ProblemReport,
) -> Result<Option<Package>, Diagnostics> {
    let package = files
        .and_then(|files| read_tree(&files, Path::new(PROJECT_FILE), &mut report))
        .and_then(|(_, documents)| {
            let first = documents.first()?;
            // Problems of a document of another kind are not reported here.
            if !Document::claims(first, ResourceKind::PACKAGE) {
                return None;
            }
            let document = Document::read(first, kinds::spec_of, &mut report)?;
            let (package, _) = kinds::package::read(&document, &mut report);
            package
        });
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    Ok(package)
}

/// Opens a Project Root, or reports why not.
pub(crate) fn open(root: &Path, report: &mut ProblemReport) -> Option<ProjectFiles> {
    match ProjectFiles::open(root) {
        Ok(files) => Some(files),
        Err(error) => {
            let file = report.add_file(Path::new(PROJECT_FILE), "");
            report.add(
                Problem::new(
                    codes::MISSING_FILE,
                    SourceLocation::start_of(file),
                    format!(
                        "failed to open the Project Root `{}`: {error}",
                        root.display()
                    ),
                )
                .help("pass the directory that contains `goondan.yaml`"),
            );
            None
        }
    }
}

/// Reports the problems of templates, which define nothing themselves.
fn check_templates(templates: &[YamlNode], cx: &mut Context<'_>) {
    for template in templates {
        if let Some(document) = Document::read(template, kinds::spec_of, &mut cx.report) {
            cx.resource = format!("{}/{}", document.kind, document.name.value);
            drop(kinds::agent::read(&document, cx));
        }
    }
}

fn read_resources(trees: &[(FileId, Vec<YamlNode>)], cx: &mut Context<'_>) -> Resources {
    // The project file is read first. If it could not be read, that was already reported.
    let project_file = trees.first().map(|(file, _)| *file);
    let mut resources = Resources {
        start: project_file.map(SourceLocation::start_of),
        ..Resources::default()
    };
    let nodes = trees
        .iter()
        .flat_map(|(file, nodes)| nodes.iter().enumerate().map(move |at| (*file, at)));
    for (file, (index, node)) in nodes {
        let Some(document) = Document::read(node, kinds::spec_of, &mut cx.report) else {
            cx.report.set_partial();
            continue;
        };
        let may_be_package = index == 0 && Some(file) == project_file;
        if document.kind == ResourceKind::PACKAGE && !may_be_package {
            cx.report.add(
                Problem::new(
                    codes::MISPLACED_PACKAGE,
                    document.name.place,
                    format!(
                        "{} must be the first document of `{PROJECT_FILE}`, and the only one of its kind",
                        document.label
                    ),
                )
                .help(format!(
                    "move it to the top of `{PROJECT_FILE}` or remove it"
                )),
            );
            continue;
        }
        resources.read(&document, cx);
    }
    resources
}
