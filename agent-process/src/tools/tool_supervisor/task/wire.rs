//! What an agent process and the supervisor of a task's program say to each other: frames of JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What is to be started.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Variables that it has beside those of tools. There are secrets among them.
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Launch");
        shown.field("environment", &self.environment.keys());
        shown.finish_non_exhaustive()
    }
}

/// From the agent process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Start this. The first order, and the only one of its kind.
    Launch(Launch),
    /// Let the program read this.
    Input {
        /// What.
        text: String,
    },
    /// Let the program read no more.
    EndInput {},
    /// Stop all there is; answered by [`Report::Paused`].
    Pause {},
    /// Let it go on.
    Continue {},
    /// Ask all there is to end.
    Terminate {},
    /// Tell how it is; answered by [`Report::Vitals`].
    Look {},
}

/// From the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The program runs.
    Started {
        /// Its process id, as the supervisor sees it.
        pid: i32,
    },
    /// The program could not be started.
    NotStarted {
        /// Why.
        error: String,
    },
    /// All there was is stopped.
    Paused {
        /// How many could not be.
        running: usize,
    },
    /// How it is.
    Vitals {
        /// Processor time of all there is, in ticks of the kernel's clock.
        cpu_ticks: u64,
        /// How many processes there are beside the program.
        children: usize,
    },
    /// The program has ended.
    Exited {
        /// With this code.
        code: Option<i32>,
        /// By this signal.
        signal: Option<i32>,
    },
}
