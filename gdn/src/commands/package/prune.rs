//! `gdn package prune`: removes unused packages from the store.

use goondan_protocol::control::PrunePackages;

use super::super::attach::attach_or_start;
use super::plan::ProjectPackages;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Asks the daemon to remove unused packages. Packages locked by the current project are kept, even if it has never
/// run.
pub(super) async fn prune(
    min_age_days: u32,
    is_dry_run: bool,
    context: &Context,
) -> Result<(), Failure> {
    let mut keep = Vec::new();
    if let Ok(root) = context.project() {
        let plan = ProjectPackages::read(root)?;
        let locked = plan.lock.packages();
        keep.extend(locked.map(|(_, it)| it.tree.to_string()));
    }
    let request = PrunePackages {
        keep,
        min_age_days,
        dry_run: is_dry_run,
    };
    let mut client = attach_or_start(context, false).await?.0;
    let pruned = client.change(request).await?;
    let output = context.output;
    output.object(
        schemas::PACKAGE_PRUNE,
        &serde_json::json!({"pruned": pruned.pruned, "kept": pruned.kept, "dryRun": is_dry_run}),
    )?;
    let mut lines: Vec<String> = Vec::new();
    for it in &pruned.pruned {
        let name = if it.names.is_empty() {
            it.tree.clone()
        } else {
            text::one_line(&it.names.join(", "))
        };
        lines.push(format!("- {name} ({})", text::bytes(it.bytes)));
    }
    let count = text::count(pruned.pruned.len() as u64, "package");
    let kept = pruned.kept;
    lines.push(if is_dry_run {
        format!("{count} would be removed, {kept} kept")
    } else {
        format!("{count} removed, {kept} kept")
    });
    output.data(lines.join("\n"))
}
