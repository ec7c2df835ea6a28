//! Directories of a task's program, and its access rights (`BOX-3`).
//!
//! Without a source, it works in the work area, which is also its home. With a source, it works in
//! its copy of the project: files that programs leave in their home (settings, sessions, caches)
//! must not be part of a proposal, so the home is in the work area then, excluded from checkpoints.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use goondan_confinement::{ProgramContext, ProgramRights};
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::task::{SANDBOX_INPUT, SANDBOX_PROPOSAL, TaskAssignment, TaskRunKind};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::tools::rooted_files::Root;
use crate::tools::work_area::keep_directories;

/// Directory for temporary files in the work area, used if programs may not write to the system's
/// own. Excluded from checkpoints.
const TEMPORARY_DIRECTORY: &str = ".cache/tmp";

/// The home of a program that works in a copy of the project, within the work area.
const HOME_DIRECTORY: &str = ".cache/home";

/// Program that gets settings in its home: when it resumes a session, `gemini` also creates an empty
/// file for it. At its next start, it takes that for a damaged session and removes all files of the
/// session, unless it keeps sessions forever.
const GEMINI: &str = "gemini";
const GEMINI_DIRECTORY: &str = ".gemini";
const GEMINI_SETTINGS_FILE: &str = "settings.json";
const GEMINI_SETTINGS: &str = "{\"general\": {\"sessionRetention\": {\"enabled\": false}}}\n";

#[derive(Debug)]
pub(super) struct RunDirectories<'a> {
    assignment: &'a TaskAssignment,
    /// The copy of the project, if the task has a source.
    copy: Option<PathBuf>,
    home: PathBuf,
    temporary: PathBuf,
}

impl<'a> RunDirectories<'a> {
    pub(super) fn of(assignment: &'a TaskAssignment) -> Self {
        let work_area = &assignment.work_area;
        let home = match &assignment.sandbox {
            Some(_) => work_area.join(HOME_DIRECTORY),
            None => work_area.clone(),
        };
        Self {
            copy: assignment.copy_of_project(),
            home,
            temporary: work_area.join(TEMPORARY_DIRECTORY),
            assignment,
        }
    }

    pub(super) fn work(&self) -> &Path {
        working_directory(ProcessPurpose::Task {
            work_area: &self.assignment.work_area,
            copy: self.copy.as_deref(),
        })
    }

    /// Directory for temporary files, and for the pipes of goondan's tools.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Creates missing directories, and settings, for a program.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub(super) fn make(&self) -> std::io::Result<()> {
        let level = self.assignment.agent.sandbox.require;
        let is_needed = self.assignment.sandbox.is_some() && level != Level::Off;
        let root = match Root::open(&self.assignment.work_area) {
            Ok(root) => root,
            Err(error) if is_needed => return Err(error),
            Err(_) => return Ok(()),
        };
        let made = root.make_directory(Path::new(TEMPORARY_DIRECTORY));
        if is_needed {
            made?;
            root.make_directory(Path::new(HOME_DIRECTORY))?;
        }
        // Otherwise, a later step that needs the directory reports its absence.
        if level != Level::Off
            && let Err(error) = self.write_settings(&root)
        {
            tracing::warn!(error = %error, "failed to write the program's settings");
        }
        Ok(())
    }

    /// Writes the settings of a program that would lose its session without them, unless it has
    /// settings already.
    fn write_settings(&self, root: &Root) -> std::io::Result<()> {
        let program = self.assignment.agent.command.first().map(Path::new);
        if program.and_then(Path::file_name) != Some(OsStr::new(GEMINI)) {
            return Ok(());
        }
        let home = self.home.strip_prefix(&self.assignment.work_area);
        let directory = home.unwrap_or(Path::new("")).join(GEMINI_DIRECTORY);
        root.make_directory(&directory)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        match root.open_beneath(&directory.join(GEMINI_SETTINGS_FILE), flags, mode) {
            Ok(file) => File::from(file).write_all(GEMINI_SETTINGS.as_bytes()),
            Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn allowed(&self) -> ProgramRights {
        let assignment = self.assignment;
        let ground = ProgramContext {
            project: &assignment.project_root,
            work_dir: Some(&self.home),
            temporary: Some(&self.temporary),
            egress: assignment.egress_socket.as_deref(),
        };
        let mut allowed = ProgramRights::of(&assignment.agent.sandbox, &ground);
        let Some(sandbox) = &assignment.sandbox else {
            keep_directories(&mut allowed, &assignment.work_area);
            return allowed;
        };
        if assignment.agent.sandbox.require == Level::Off {
            return allowed;
        }
        let path = |path: PathBuf| SandboxPath::try_from(path).ok();
        let policy = &mut allowed.policy;
        policy.read.extend(path(sandbox.join(SANDBOX_INPUT)));
        policy.write.extend(self.copy.clone().and_then(path));
        let proposal = path(sandbox.join(SANDBOX_PROPOSAL));
        // The verify command must not change the proposal.
        match assignment.kind {
            TaskRunKind::Verify => policy.read.extend(proposal),
            TaskRunKind::Agent | TaskRunKind::Setup => policy.write.extend(proposal),
        }
        policy.write.extend(path(self.temporary.clone()));
        allowed
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the program's own settings")]

    use goondan_protocol::task::{AgentFormat, PromptChannel};

    use super::super::launch::tests::assignment;
    use super::*;

    #[test]
    fn agent_3_gemini_keeps_its_sessions_unless_it_has_settings() {
        let dir = tempfile::tempdir().unwrap();
        let mut it = assignment(AgentFormat::Acp, PromptChannel::Stdin);
        it.work_area = dir.path().to_owned();
        it.agent.sandbox.require = Level::Full;
        let settings = dir.path().join(".gemini/settings.json");
        RunDirectories::of(&it).make().unwrap();
        assert!(!settings.exists(), "another program");
        it.agent.command = vec!["/opt/gemini".to_owned(), "--acp".to_owned()];
        RunDirectories::of(&it).make().unwrap();
        assert_eq!(std::fs::read_to_string(&settings).unwrap(), GEMINI_SETTINGS);
        std::fs::write(&settings, "{}").unwrap();
        RunDirectories::of(&it).make().unwrap();
        assert_eq!(std::fs::read_to_string(&settings).unwrap(), "{}");
    }
}
