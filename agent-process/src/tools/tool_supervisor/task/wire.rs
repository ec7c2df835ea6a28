//! Messages between an agent process and the supervisor of a task's program: frames of JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The program to start.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Variables in addition to those of tools. They contain secrets.
    pub(crate) environment: BTreeMap<String, String>,
    /// Directory for the pipes of goondan's tools, if the program is given them.
    pub(crate) tools: Option<PathBuf>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Launch");
        shown.field("tools", &self.tools);
        shown.field("environment", &self.environment.keys());
        shown.finish_non_exhaustive()
    }
}

/// A message from the agent process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Starts the program. The first order, sent once.
    Launch(Launch),
    /// Sends input to the program.
    Input {
        text: String,
    },
    EndInput {},
    CallAnswer {
        call: u64,
        /// The line that answers it.
        answer: String,
    },
    /// Stops every process; answered by [`Report::Paused`].
    Pause {},
    Continue {},
    /// Requests every process to end.
    Terminate {},
    /// Requests measurements; answered by [`Report::Vitals`].
    Look {},
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum SupervisorReport {
    Started {
        /// Its process id, as the supervisor sees it.
        pid: i32,
    },
    /// The program could not be started.
    NotStarted { error: String },
    /// The program cannot reach goondan's tools.
    NoTools { error: String },
    /// A call of one of goondan's tools, answered by [`Order::CallAnswer`].
    Call {
        call: u64,
        /// The line that the server of the tools has sent.
        request: String,
    },
    Paused {
        /// Number of processes that could not be stopped.
        running: usize,
    },
    Vitals {
        /// Processor time of all processes, in ticks of the kernel's clock.
        cpu_ticks: u64,
        /// Bytes that all processes have written, to files and pipes.
        written_bytes: u64,
    },
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
}
