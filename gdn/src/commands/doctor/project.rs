//! Checks the project in the current directory, if there is one.

use goondan_config::{Loader, ProcessEnvironment, ProjectCheck, ProjectConfig, Severity};
use goondan_vault::SecretReader;

use super::check_result::CheckResult;
use crate::context::Context;
use crate::output::text;
use crate::project::identity;

/// Findings about the project, and its configuration if that is valid.
pub(super) fn findings(context: &Context) -> (Vec<CheckResult>, Option<ProjectConfig>) {
    const CHECK: &str = "project";
    let Ok(root) = context.project() else {
        let found = "none here; `gdn init` creates one";
        return (vec![CheckResult::ok(CHECK, found)], None);
    };
    let vault = context.vault();
    let project = identity(&root);
    let secrets = SecretReader::new(&vault, &project);
    let machine = context.machine();
    let loader = Loader::new(&ProcessEnvironment)
        .with_secrets(&secrets)
        .with_machine(&machine);
    let ProjectCheck { bundle, warnings } = loader.check(&root);
    let warnings: Vec<_> = warnings
        .into_iter()
        .filter(|found| found.severity == Severity::Warning)
        .collect();
    let validate = context.command("validate");
    let finding = match &bundle {
        Err(problems) => {
            let errors = text::count(AsRef::<[_]>::as_ref(problems).len(), "error");
            let found = format!("{}: {errors}", root.display());
            CheckResult::bad(CHECK, found, format!("list them: `{validate}`"))
        }
        Ok(_) if !warnings.is_empty() => {
            let count = text::count(warnings.len(), "warning");
            let found = format!("{}: {count}", root.display());
            CheckResult::warn(CHECK, found, format!("list them: `{validate}`"))
        }
        Ok(bundle) => {
            let agents = text::count(bundle.agents.len(), "agent");
            CheckResult::ok(CHECK, format!("{}: valid, {agents}", root.display()))
        }
    };
    (vec![finding], bundle.ok())
}
