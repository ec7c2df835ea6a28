//! Finds and ends a test's processes.
//!
//! All processes of a test have its `HOME` in their environment; goondan passes it from the daemon
//! to its children and to the commands of their tools. Linux exposes it in `/proc`; on other
//! systems no processes are found, and checks that need them prove nothing.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Its arguments, the program first.
    pub args: Vec<String>,
}

impl Process {
    /// The program's file name.
    #[must_use]
    pub fn program(&self) -> &str {
        let program = self.args.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or_default()
    }
}

/// Every process other than this one whose `HOME` is `home` or, for confined tools, a directory
/// below it. Zombies are excluded.
#[must_use]
pub fn of_home(home: &Path) -> Vec<Process> {
    let marker = [b"HOME=", home.as_os_str().as_bytes()].concat();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| {
            let dir = PathBuf::from(format!("/proc/{pid}"));
            let environment = fs::read(dir.join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            let is_ours = variables.any(|variable| {
                let rest = variable.strip_prefix(&*marker);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            });
            let args = is_ours.then(|| fs::read(dir.join("cmdline")).ok())??;
            let args = args.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
            let args = args
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect();
            Some(Process { pid, args })
        })
        .collect()
}

/// Every process of every user, with its arguments.
#[must_use]
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let args = args.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
        let args = args.map(|arg| String::from_utf8_lossy(arg).into_owned());
        let args = args.collect();
        Some(Process { pid, args })
    })
    .collect()
}

/// Parent of a process, if the process exists.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// The processes of a test that run this program.
#[must_use]
pub fn running(home: &Path, program: &str) -> Vec<Process> {
    let mut found = of_home(home);
    found.retain(|process| process.program() == program);
    found
}

/// Initial environment of a process, one variable per line; empty if it is not readable.
#[must_use]
pub fn environment(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', "\n")
}

/// Every process with these arguments, of every user.
#[must_use]
pub fn with_args(args: &[&str]) -> Vec<u32> {
    let wanted: Vec<u8> = args.iter().flat_map(|arg| arg.bytes().chain([0])).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted))
        .collect()
}

/// Sends a signal. Processes that have already exited are ignored.
pub fn signal(pid: u32, signal: Signal) {
    match kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => panic!("cannot send {signal} to process {pid}: {errno}"),
    }
}

/// True if the process exists and has not exited.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    // The state follows the command's name, which is in parentheses and can contain anything.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Peak memory of a process in bytes; 0 if it is not readable.
#[must_use]
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Name and kernel wait location of each thread of a process, one per line, to find out why it does
/// not exit.
#[must_use]
pub fn threads_of(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return "they cannot be read".to_owned();
    };
    let lines = tasks.flatten().map(|task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{} {}\n", read("comm").trim(), read("wchan"))
    });
    lines.collect()
}
