//! Rules for files and scopes, held by Landlock.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::error::EnforceError;
use crate::layout::DEVICES;

/// Rules that are being made. Nothing is restricted before [`Self::restrict`].
pub(crate) struct Files(RulesetCreated);

impl Files {
    /// Rules under which nothing can be opened, signaled or connected to.
    pub(crate) fn new() -> Result<Self, EnforceError> {
        Ok(Self(created()?))
    }

    /// Lets files below the paths be read and executed.
    pub(crate) fn read<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<(), EnforceError> {
        self.grant(paths, AccessFs::from_read(ABI::V5))
    }

    /// Lets files below the paths be read, executed and changed. Nobody is granted the making of devices.
    pub(crate) fn write<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<(), EnforceError> {
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
        self.grant(paths, AccessFs::from_all(ABI::V5) & !devices)
    }

    /// Lets the devices be used that hardly a program does without.
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

    /// Restricts the calling thread and all that it starts; also sets `no_new_privs`.
    pub(crate) fn restrict(self) -> Result<(), EnforceError> {
        let status = self.0.restrict_self()?;
        if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
            Ok(())
        } else {
            Err(EnforceError::Partial)
        }
    }
}

/// Keeps signals and abstract sockets within the calling thread and all that it starts, and files as they are. Also
/// sets `no_new_privs`.
///
/// A process whose files are held cannot mount. And a layer of scopes alone must stay apart from one of files, above or
/// below: with both, the kernel refuses to rename or link from one directory to another (`EXDEV`), since such a
/// layer cannot grant that right (`LANDLOCK_ACCESS_FS_REFER`), which every layer has to.
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
