//! Rules for files and scopes, enforced by Landlock.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::error::EnforceError;
use crate::layout::DEVICES;

/// Rules under construction. They take effect in [`Self::restrict`].
pub(crate) struct LandlockRules(RulesetCreated);

impl LandlockRules {
    /// Rules that forbid all opening of files, signaling and connecting.
    pub(crate) fn new() -> Result<Self, EnforceError> {
        Ok(Self(created()?))
    }

    /// Allows reading and executing files below the paths.
    pub(crate) fn read<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<(), EnforceError> {
        self.grant(paths, AccessFs::from_read(ABI::V5))
    }

    /// Allows reading, executing and changing files below the paths. Creation of devices is never
    /// allowed.
    pub(crate) fn write<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<(), EnforceError> {
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
        self.grant(paths, AccessFs::from_all(ABI::V5) & !devices)
    }

    /// Allows the devices that most programs need.
    pub(crate) fn devices(&mut self) -> Result<(), EnforceError> {
        let devices = DEVICES.iter().map(Path::new);
        self.write(devices.filter(|path| path.exists()))
    }

    fn grant<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        access: BitFlags<AccessFs>,
    ) -> Result<(), EnforceError> {
        for path in paths {
            let path = path.as_ref();
            let access = if path.is_dir() {
                access
            } else {
                access & AccessFs::from_file(ABI::V5)
            };
            let rule = PathBeneath::new(PathFd::new(path)?, access);
            (&mut self.0).add_rule(rule)?;
        }
        Ok(())
    }

    /// Restricts the calling thread and its descendants; also sets `no_new_privs`.
    pub(crate) fn restrict(self) -> Result<(), EnforceError> {
        let status = self.0.restrict_self()?;
        if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
            Ok(())
        } else {
            Err(EnforceError::Partial)
        }
    }
}

/// Limits signals and abstract sockets to the calling thread and its descendants, without
/// restricting files. Also sets `no_new_privs`.
///
/// Landlock file rules would forbid mounting. In addition, a layer of scopes must not be combined
/// with a layer of file rules above or below it: the kernel then refuses to rename or link between
/// two directories (`EXDEV`), because a scope-only layer cannot grant the right that every layer
/// must grant (`LANDLOCK_ACCESS_FS_REFER`).
pub(crate) fn restrict_scopes() -> Result<(), EnforceError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .restrict_self()?;
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
        Ok(())
    } else {
        Err(EnforceError::Partial)
    }
}

fn created() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .scope(Scope::from_all(ABI::V6))?
        .create()
}
