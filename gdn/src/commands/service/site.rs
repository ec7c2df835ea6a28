//! Location and owner of a service's file on this machine, and the calls to its manager.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Group, Uid, User};

use super::manager::{ProgramOutput, Programs, ServiceKind, State, UNIT};
use super::unit::{self, UnitPaths};
use crate::client::owner_pid;
use crate::commands::rewrite::rewrite;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::installation::lasting;
use crate::output::text;
use crate::programs::{ORCHESTRATOR, place_of};

/// Directory of system units.
const SYSTEM_DIR: &str = "/etc/systemd/system";

/// Directory where systemd records users whose managers run without a login.
const LINGER_DIR: &str = "/var/lib/systemd/linger";

/// User that a system service runs as.
#[derive(Debug)]
struct ServiceUser {
    user: String,
    group: String,
    uid: u32,
    gid: u32,
}

/// A service of one kind, installed or not.
#[derive(Debug)]
pub(super) struct ServiceSite {
    pub(super) kind: ServiceKind,
    pub(super) uid: u32,
    pub(super) is_root: bool,
    pub(super) file: PathBuf,
    pub(super) state_root: PathBuf,
    home: PathBuf,
    owner: Option<ServiceUser>,
    /// Writable directories in addition to the state root; none to keep those in the file.
    writable: Option<Vec<PathBuf>>,
}

impl ServiceSite {
    /// Determines the user and the paths.
    pub(super) fn find(
        kind: ServiceKind,
        run_as: Option<&str>,
        context: &Context,
    ) -> Result<Self, Failure> {
        let uid = Uid::effective();
        let (home, owner) = match kind {
            ServiceKind::User | ServiceKind::Agent => {
                (std::env::home_dir().filter(|home| home.is_absolute()), None)
            }
            ServiceKind::System => owner(run_as)?,
        };
        let home = home.ok_or_else(|| no_user("no home directory"))?;
        let file = match kind {
            ServiceKind::System => Path::new(SYSTEM_DIR).join(UNIT),
            ServiceKind::User => user_unit_of(
                &home,
                std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from),
            ),
            ServiceKind::Agent => home.join("Library/LaunchAgents/ai.goondan.orchestrator.plist"),
        };
        let state_root = match kind {
            ServiceKind::System if !context.is_state_root_named => home.join(".goondan"),
            ServiceKind::System | ServiceKind::User | ServiceKind::Agent => {
                context.state_root.clone()
            }
        };
        Ok(Self {
            kind,
            uid: uid.as_raw(),
            is_root: uid.is_root(),
            file,
            state_root,
            home,
            owner,
            writable: None,
        })
    }

    /// Sets the writable directories, replacing those in the file.
    pub(super) fn with_writable(self, dirs: Vec<PathBuf>) -> Self {
        Self {
            writable: Some(dirs),
            ..self
        }
    }

    /// Additional writable directories in the file.
    pub(super) fn writable_in(&self, there: Option<&str>) -> Vec<PathBuf> {
        there.map_or_else(Vec::new, |text| unit::writable_of(text, &self.home))
    }

    /// Content that this version would write, based on the existing file.
    pub(super) fn wanted(&self, there: Option<&str>) -> Result<String, Failure> {
        match &self.writable {
            Some(dirs) => self.text(dirs),
            None => self.usual(there),
        }
    }

    /// Content that this version would write without changing the user's choices.
    pub(super) fn usual(&self, there: Option<&str>) -> Result<String, Failure> {
        self.text(&self.writable_in(there))
    }

    fn text(&self, writable: &[PathBuf]) -> Result<String, Failure> {
        let program = place_of(ORCHESTRATOR).ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!("{ORCHESTRATOR} was not found beside gdn or in PATH"),
                "install all four programs of one build in the same directory",
            )
        })?;
        let program = std::path::absolute(lasting(program))?;
        let places = UnitPaths {
            programs: program.parent().unwrap_or(Path::new("/")),
            state_root: &self.state_root,
            home: &self.home,
            writable,
        };
        let text = match (self.kind, &self.owner) {
            (ServiceKind::Agent, _) => unit::agent(&places),
            (ServiceKind::System, Some(owner)) => {
                unit::system_unit(&places, &owner.user, &owner.group)
            }
            (ServiceKind::System, None) => {
                return Err(no_user("the user of the service is unknown"));
            }
            (ServiceKind::User, _) => unit::user_unit(&places),
        };
        text.map_err(|error| {
            let hint = "use a directory without spaces and special characters: `gdn --state-root DIR daemon service install`";
            Failure::of(Exit::Usage, &error, hint)
        })
    }

    /// Creates the state root of a system service if its user cannot: in a directory that belongs to another user.
    /// Everywhere else the service creates it as its user, because that user could replace it with a symbolic link in
    /// between.
    pub(super) fn make_state_root(&self) -> Result<(), Failure> {
        let (Some(owner), Some(parent)) = (&self.owner, self.state_root.parent()) else {
            return Ok(());
        };
        let dir = &self.state_root;
        let make = || -> io::Result<()> {
            if fs::metadata(parent)?.uid() == owner.uid {
                return Ok(());
            }
            match DirBuilder::new().mode(0o700).create(dir) {
                Ok(()) => lchown(dir, Some(owner.uid), Some(owner.gid)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
            }
        };
        make().map_err(|error| {
            let message = format!("cannot create the state directory {}", dir.display());
            let hint = "create its parent directory, or choose another: `gdn --state-root DIR daemon service install`";
            Failure::new(Exit::Internal, message, hint).caused_by(Some(&error))
        })
    }

    /// Current content of the file.
    pub(super) fn there(&self) -> Result<Option<String>, Failure> {
        match fs::read_to_string(&self.file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unusable("read", &error)),
        }
    }

    /// Writes the file atomically.
    pub(super) fn write(&self, before: Option<&str>, text: &str) -> Result<(), Failure> {
        if let Some(dir) = self.file.parent() {
            fs::create_dir_all(dir).map_err(|error| self.unusable("write", &error))?;
        }
        rewrite(&self.file, before.map(str::as_bytes), text.as_bytes()).map_err(|error| {
            error
                .failure("gdn daemon service install")
                .with_hint(self.look())
        })
    }

    /// Deletes the file. A missing file is not an error.
    pub(super) fn delete(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.unusable("remove", &error))
            }
            _ => Ok(()),
        }
    }

    fn unusable(&self, verb: &str, error: &io::Error) -> Failure {
        let message = format!("cannot {verb} {}", self.file.display());
        Failure::new(Exit::Internal, message, self.look()).caused_by(Some(error))
    }

    fn look(&self) -> String {
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        format!("check its permissions: `ls -ld {}`", dir.display())
    }

    /// True if the file's content starts this program.
    pub(super) fn names_program(&self, text: &str, program: &Path) -> bool {
        let home = self.home.to_string_lossy();
        let text = text.replace("%h", &home).replace("$HOME", &home);
        text.contains(&*program.to_string_lossy())
    }

    /// Reads the daemon's process id file.
    pub(super) fn pid_in_file(&self) -> Option<u32> {
        owner_pid(&self.state_root)
    }

    /// True if the user's manager and all its services stop at the last logout.
    pub(super) fn ends_with_login(&self) -> bool {
        let user = User::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        self.kind == ServiceKind::User
            && user.is_some_and(|user| !Path::new(LINGER_DIR).join(user.name).exists())
    }

    /// Hint for a service that does not run.
    pub(super) fn advice(&self) -> String {
        format!("for the reason: `{}`", self.kind.log())
    }

    /// Command that shows how the file differs.
    pub(super) fn differences(&self) -> String {
        let file = self.file.to_string_lossy();
        let quoted = text::shell_quoted(&file).unwrap_or_else(|| file.clone().into_owned());
        let command = self.kind.install_command();
        format!("show the differences: `{command} --print | diff {quoted} -`")
    }
}

fn user_unit_of(home: &Path, config: Option<PathBuf>) -> PathBuf {
    let config = config.filter(|dir| dir.is_absolute());
    let config = config.unwrap_or_else(|| home.join(".config"));
    config.join("systemd/user").join(UNIT)
}

/// Returns the home directory and the names of a system service's user: the given user, otherwise the user in the
/// installed unit, otherwise the user who invoked `sudo`. None if there is no such user; only commands that need no
/// user work then.
fn owner(run_as: Option<&str>) -> Result<(Option<PathBuf>, Option<ServiceUser>), Failure> {
    let there = || fs::read_to_string(Path::new(SYSTEM_DIR).join(UNIT)).ok();
    let of_file = || unit::user_of(&there()?).map(str::to_owned);
    let name = run_as.map(str::to_owned).or_else(of_file);
    let Some(name) = name.or_else(|| std::env::var("SUDO_USER").ok()) else {
        return Ok((std::env::home_dir(), None));
    };
    let user = User::from_name(&name).ok().flatten();
    let user = user.ok_or_else(|| no_user(&format!("user {name:?} does not exist")))?;
    let group = Group::from_gid(user.gid).ok().flatten();
    let group = group.map_or_else(|| user.gid.to_string(), |group| group.name);
    let owner = ServiceUser {
        user: user.name,
        group,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    };
    Ok((Some(user.dir), Some(owner)))
}

fn no_user(problem: &str) -> Failure {
    let hint = "pass a user: `gdn daemon service install --system --run-as USER`";
    Failure::new(Exit::Usage, problem, hint)
}

/// Calls to the service's manager.
pub(super) struct ServiceControl<'a> {
    site: &'a ServiceSite,
    programs: &'a dyn Programs,
}

impl<'a> ServiceControl<'a> {
    pub(super) fn new(site: &'a ServiceSite, programs: &'a dyn Programs) -> Self {
        Self { site, programs }
    }

    /// State of the service as reported by its manager.
    pub(super) fn state(&self) -> Result<State, Failure> {
        let mut state = self.state_of(self.site.kind)?;
        let is_ours = |file: &PathBuf| {
            let real = |path: &Path| path.canonicalize().ok();
            real(file).is_some_and(|file| real(&self.site.file) == Some(file))
        };
        if state.file.as_ref().is_some_and(is_ours) {
            state.file = Some(self.site.file.clone());
        }
        Ok(state)
    }

    /// State of a service of this kind as reported by its manager.
    pub(super) fn state_of(&self, kind: ServiceKind) -> Result<State, Failure> {
        let query = kind.query(self.site.uid);
        let said = self.run(&query)?;
        kind.read(&said).ok_or_else(|| failed(&query, &said))
    }

    /// File of a service of the other kind.
    pub(super) fn other(&self) -> Result<Option<PathBuf>, Failure> {
        match self.site.kind {
            ServiceKind::Agent => Ok(None),
            ServiceKind::User => {
                // A system manager that does not respond starts no services.
                let state = self.state_of(ServiceKind::System).unwrap_or_default();
                Ok(state.file.filter(|_| state.is_known))
            }
            // Another user's manager cannot be queried.
            ServiceKind::System => {
                Ok(Some(user_unit_of(&self.site.home, None)).filter(|it| it.exists()))
            }
        }
    }

    pub(super) fn start(&self, state: &State) -> Result<(), Failure> {
        let site = self.site;
        let commands = site.kind.start(site.uid, &site.file, state);
        for command in commands {
            self.done(&command).map_err(|failure| Failure {
                exit: Exit::StartFailed,
                ..failure.with_hint(site.advice())
            })?;
        }
        Ok(())
    }

    pub(super) fn stop(&self) -> Result<(), Failure> {
        self.done(&self.site.kind.stop(self.site.uid))
    }

    /// Starts the service again, even after it failed.
    pub(super) fn start_again(&self) -> Result<(), Failure> {
        let kind = self.site.kind;
        if let Some(command) = kind.forgive() {
            // Without a failure, the reset fails and changes nothing.
            drop(self.run(&command)?);
        }
        let started = self.done(&kind.start_again(self.site.uid));
        started.map_err(|failure| Failure {
            exit: Exit::StartFailed,
            ..failure.with_hint(self.site.advice())
        })
    }

    /// Stops the service without disabling it.
    pub(super) fn pause(&self) -> Result<(), Failure> {
        self.done(&self.site.kind.pause(self.site.uid))
    }

    /// Notifies the manager that the file was removed.
    pub(super) fn forget(&self) -> Result<(), Failure> {
        self.site
            .kind
            .forget()
            .map_or(Ok(()), |command| self.done(&command))
    }

    fn done(&self, command: &[String]) -> Result<(), Failure> {
        let said = self.run(command)?;
        if said.is_ok {
            return Ok(());
        }
        Err(failed(command, &said))
    }

    fn run(&self, command: &[String]) -> Result<ProgramOutput, Failure> {
        self.programs.run(command).map_err(|error| {
            let program = command.first().map_or("", String::as_str);
            let message = format!("cannot run {program}");
            let hint = "without a service manager, `gdn run` starts the daemon in the background";
            Failure::new(Exit::NotFound, message, hint).caused_by(Some(&error))
        })
    }
}

fn failed(command: &[String], said: &ProgramOutput) -> Failure {
    let line = command.join(" ");
    let words = text::printable(said.stderr.trim());
    let words = if words.is_empty() {
        "no error output".to_owned()
    } else {
        words
    };
    Failure::new(
        Exit::Internal,
        format!("`{line}` failed: {words}"),
        "without a service manager, `gdn run` starts the daemon in the background",
    )
}
