//! Asks the user to accept the permissions that packages request, before anything is stored (`PKG-3`).

use std::collections::BTreeMap;

use goondan_config::package_of;
use goondan_packages::{LOCK_FILE, Lock, PackageName, Store};
use goondan_protocol::permissions::Permissions;

use super::super::confirm::confirm;
use super::fetch::Fetcher;
use super::plan::{Folder, ProjectPackages, lines};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Asks the user, unless they consented with a flag.
pub(super) struct Consent {
    before: BTreeMap<PackageName, Permissions>,
    is_given: bool,
    command: String,
}

impl Consent {
    /// Creates the prompt from the permissions already granted; `folders` are the folders used so far. `command` is
    /// the command line without the consent flag.
    pub(super) fn new(
        plan: &ProjectPackages,
        folders: &BTreeMap<PackageName, Folder>,
        is_given: bool,
        command: &str,
    ) -> Self {
        let locked = plan.lock.packages();
        let locked = locked.map(|(name, it)| (name.clone(), it.granted.clone()));
        let of_folders = folders.iter();
        let of_folders = of_folders.map(|(name, it)| (name.clone(), it.permissions.clone()));
        Self {
            before: locked.chain(of_folders).collect(),
            is_given,
            command: format!("{command} --grant"),
        }
    }

    /// Grants the requested permissions of the chosen packages if they are not new or the user agrees. Every package
    /// is in the store or was checked.
    pub(super) fn grant(
        &self,
        lock: &Lock,
        folders: &BTreeMap<PackageName, Folder>,
        is_frozen: bool,
        fetcher: &Fetcher<'_>,
        context: &Context,
    ) -> Result<Lock, Failure> {
        let store = Store::of(&context.state_root);
        let (mut packages, mut new) = (BTreeMap::new(), Vec::new());
        let nothing = Permissions::default();
        let mut compare = |name: &PackageName, version: String, asked: &Permissions| {
            let before = self.before.get(name).unwrap_or(&nothing);
            let beyond = asked.beyond(before);
            if !beyond.is_empty() {
                let title = format!("{name} {version}");
                new.push((title, beyond, before.beyond(asked)));
            }
        };
        for (name, locked) in lock.packages() {
            let asked = match fetcher.asked_by(name, locked) {
                Some(asked) => asked.clone(),
                None => asked_in(&store.tree(&locked.tree), name)?,
            };
            compare(name, locked.version.to_string(), &asked);
            let mut locked = locked.clone();
            // A frozen lockfile is not changed. Either way it grants no more than is requested.
            if !is_frozen {
                locked.granted = asked;
            }
            packages.insert(name.clone(), locked);
        }
        for (name, folder) in folders {
            compare(name, folder.version.to_string(), &folder.permissions);
        }
        self.agree(&new, is_frozen, context)?;
        Ok(Lock::new(packages))
    }

    fn agree(
        &self,
        new: &[(String, Permissions, Permissions)],
        is_frozen: bool,
        context: &Context,
    ) -> Result<(), Failure> {
        let Some((first, beyond, _)) = new.first() else {
            return Ok(());
        };
        if is_frozen {
            return Err(Failure::new(
                Exit::Conflict,
                format!("`{first}` requests permissions that {LOCK_FILE} does not grant: {beyond}"),
                format!(
                    "run `{}` and commit {LOCK_FILE}",
                    context.command("package install")
                ),
            ));
        }
        if self.is_given {
            return Ok(());
        }
        let output = context.output;
        output.note("packages request new permissions:");
        for (title, beyond, gone) in new {
            output.note(format!("  {title}"));
            let signs = [("+", beyond), ("-", gone)].into_iter();
            for line in signs.flat_map(|(sign, it)| lines(sign, it)) {
                output.note(line);
            }
        }
        let more = match new.len() - 1 {
            0 => String::new(),
            more => format!(", and the permissions of {more} more"),
        };
        confirm(
            context,
            &format!("Grant `{first}` {beyond}{more}?"),
            &self.command,
        )
    }
}

/// Permissions requested by a package in the store.
fn asked_in(dir: &std::path::Path, name: &PackageName) -> Result<Permissions, Failure> {
    let package = package_of(dir).map_err(|problems| {
        Failure::new(
            Exit::Damaged,
            format!("cannot read the stored package `{name}`: {problems}"),
            format!("remove {} and install again", dir.display()),
        )
    })?;
    Ok(package.map(|it| it.permissions).unwrap_or_default())
}
