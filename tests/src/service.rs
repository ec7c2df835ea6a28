//! A daemon that is restarted whenever it exits, as by a service manager.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::binaries::bin;
use crate::daemon::Daemon;
use crate::home::ORCHESTRATOR;
use crate::log::{Log, message};
use crate::network::NetworkMachine;
use crate::node::ClusterNode;
use crate::processes::{self, Signal};
use crate::wait::{POLL, wait_until};

/// Delay before a daemon that exited on its own is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// A daemon, and the results of its runs.
#[derive(Debug)]
pub struct ServiceManager {
    state: Arc<(Mutex<State>, Condvar)>,
    manager: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    is_over: bool,
    pid: Option<u32>,
    log: Option<Arc<Log>>,
    lives: Vec<DaemonRun>,
}

/// One run of the daemon, after its end.
#[derive(Debug, Clone)]
pub struct DaemonRun {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    pub told: String,
    pub log: Arc<Log>,
}

impl ServiceManager {
    /// Starts the daemon of a node on a machine, and waits until it has started.
    #[must_use]
    pub fn started(node: &Arc<ClusterNode>, machine: &NetworkMachine) -> Self {
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let shared = Arc::clone(&state);
        let (node, machine) = (Arc::clone(node), machine.clone());
        let manager = std::thread::spawn(move || manage(&node, &machine, &shared));
        let service = Self {
            state,
            manager: Some(manager),
        };
        service.starts();
        service
    }

    /// Starts it, and waits until it runs.
    pub fn starts(&self) {
        self.change(|state| state.is_wanted = true);
        wait_until("the daemon has started", || self.has_started());
    }

    /// True if it runs and accepts connections.
    #[must_use]
    pub fn has_started(&self) -> bool {
        let state = self.state.0.lock().unwrap();
        let log = state.log.as_ref().filter(|_| state.pid.is_some());
        log.is_some_and(|log| !log.saying("orchestrator started").is_empty())
    }

    /// Kills it without a restart.
    pub fn dies(&self) {
        self.change(|state| state.is_wanted = false);
        self.signal(Signal::SIGKILL);
        wait_until("the daemon has ended", || self.pid().is_none());
    }

    /// Sends it a signal, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            processes::signal(pid, signal);
        }
    }

    fn pid(&self) -> Option<u32> {
        self.state.0.lock().unwrap().pid
    }

    #[must_use]
    pub fn lives(&self) -> Vec<DaemonRun> {
        self.state.0.lock().unwrap().lives.clone()
    }

    /// Matching log lines of all runs, with the number of the run.
    #[must_use]
    pub fn saying(&self, text: &str) -> Vec<(usize, Value)> {
        let state = self.state.0.lock().unwrap();
        let over = state.lives.iter().map(|life| &life.log);
        let logs: Vec<_> = over.chain(&state.log).cloned().collect();
        drop(state);
        let lines = logs.iter().enumerate().flat_map(|(life, log)| {
            let lines = log.lines().into_iter().map(move |line| (life, line));
            lines.filter(|(_, line)| message(line) == text)
        });
        lines.collect()
    }

    /// Stops it gracefully and permanently.
    pub fn ends(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.change(|state| {
            state.is_wanted = false;
            state.is_over = true;
        });
        self.signal(Signal::SIGTERM);
        if let Some(manager) = self.manager.take() {
            manager.join().unwrap();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.0.lock().unwrap());
        self.state.1.notify_all();
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = self.state.0.lock();
            let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
            for life in state.lives.iter().rev().take(2).rev() {
                eprintln!("--- it ended with {:?}: {}", life.code, life.told);
                life.log.show();
            }
            state.log.iter().for_each(|log| log.show());
            if let Some(pid) = state.pid {
                processes::signal(pid, Signal::SIGKILL);
            }
        } else if self.manager.is_some() {
            self.end();
        }
    }
}

fn manage(
    node: &ClusterNode,
    machine: &NetworkMachine,
    (state, changed): &(Mutex<State>, Condvar),
) {
    let [first, rest @ ..] = machine.prefix();
    let program = bin(ORCHESTRATOR);
    let program = program.to_str().unwrap();
    loop {
        let rests = |state: &mut State| !state.is_wanted && !state.is_over;
        let mut wanted = changed.wait_while(state.lock().unwrap(), rests).unwrap();
        if wanted.is_over {
            return;
        }
        // Under the lock, so that a concurrent stop either finds the process or prevents its start.
        let args: Vec<_> = rest.iter().map(String::as_str).chain([program]).collect();
        let command = node.home.command(Path::new(&first), &args);
        let mut daemon = Daemon::starting(&node.home, command);
        let log = Arc::clone(daemon.log());
        wanted.pid = Some(daemon.pid());
        wanted.log = Some(Arc::clone(&log));
        drop(wanted);
        while !daemon.has_ended() {
            std::thread::sleep(POLL);
        }
        let (code, told) = daemon.ends();
        let mut state = state.lock().unwrap();
        state.pid = None;
        state.log = None;
        state.lives.push(DaemonRun { code, told, log });
        drop(state);
        std::thread::sleep(PAUSE);
    }
}
