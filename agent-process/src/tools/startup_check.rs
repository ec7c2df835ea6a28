//! Starts the modules of tools once to verify that they start. A configuration must pass this
//! before it takes effect (`BUNDLE-7`).
//!
//! The daemon starts this binary with the flag
//! [`START_MODULES`](goondan_protocol::ipc::START_MODULES) and writes an agent's assignment to its
//! standard input. The binary prints the list of problems as JSON. The modules are confined as they
//! are when the agent calls them, and no handler is called.

use std::path::{Path, PathBuf};
use std::time::Duration;

use goondan_clock::timeout;
use goondan_log::TEXT_BYTES_MAX;
use goondan_protocol::definition::{AgentAssignment, ToolDefinition, ToolSource};
use goondan_protocol::module_file::ModuleKind;
use goondan_protocol::process_limits::ProcessLimits;

use super::host::process::{HostProcessEvent, Process, happening};
use super::host::wire::{ModuleHostMessage, ModuleHostRequest, read_message};
use super::host::{JAVASCRIPT_HOST, MAX_LINE_BYTES};
use super::places::ToolRoots;
use super::setup::places_of;

/// Id of the single request that a host gets.
const REQUEST: u64 = 1;

/// Time limits of the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartupTimeouts {
    /// For loading a module in JavaScript or TypeScript.
    load: Duration,
    /// For other programs, which must not exit within this time.
    stay: Duration,
}

impl StartupTimeouts {
    /// Parses the time limits from the binary's arguments; `None` if they are not numbers.
    pub(crate) fn read(load: &std::ffi::OsStr, stay: &std::ffi::OsStr) -> Option<Self> {
        let wait = |word: &std::ffi::OsStr| {
            let millis = word.to_str()?.parse().ok()?;
            Some(Duration::from_millis(millis))
        };
        Some(Self {
            load: wait(load)?,
            stay: wait(stay)?,
        })
    }
}

/// Starts every module among an agent's tools, one after another, and returns descriptions of the
/// problems.
pub(crate) async fn start_modules(
    assignment: &AgentAssignment,
    supervisor: PathBuf,
    waits: StartupTimeouts,
) -> Vec<String> {
    let places = match places_of(assignment, supervisor) {
        Ok(places) => places,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = Vec::new();
    for tool in &assignment.agent.tools {
        if let ToolSource::Module { entry, limits, .. } = &tool.source
            && let Err(problem) = start(&places, tool, (entry, *limits), waits).await
        {
            problems.push(format!(
                "tool `{}`: module `{}` {problem}",
                tool.name,
                entry.display()
            ));
        }
    }
    problems
}

async fn start(
    places: &ToolRoots,
    tool: &ToolDefinition,
    (entry, limits): (&Path, ProcessLimits),
    waits: StartupTimeouts,
) -> Result<(), String> {
    let module = places.surroundings.project_root.join(entry);
    let surroundings = places.surroundings_of(&module);
    let runtimes = &places.runtimes;
    let program = runtimes
        .host_of(JAVASCRIPT_HOST, entry, &module, limits)
        .await;
    let program = program.map_err(|fault| format!("cannot be run: {}", fault.message))?;
    let mut process = Process::start(surroundings, &program)
        .map_err(|error| format!("could not be started: {error}"))?;
    let answers = matches!(
        ModuleKind::of(&module),
        ModuleKind::JavaScript | ModuleKind::TypeScript
    );
    if answers {
        let exports = tool.exports.iter().map(|export| export.name.as_str());
        process.say(&ModuleHostRequest::Load {
            id: REQUEST,
            module: &module,
            exports: exports.collect(),
        });
    }
    let wait = if answers { waits.load } else { waits.stay };
    let mut process = Some(process);
    let said = timeout(wait, hear(&mut process, answers)).await;
    if let Some(process) = process {
        process.end().await;
    }
    match said {
        Ok(said) => said,
        // Other programs get no request; they wait for calls.
        Err(_) if !answers => Ok(()),
        Err(_) => Err(format!("was not loaded within {} ms", wait.as_millis())),
    }
}

/// Waits until the host reports that the module is loaded, reports a failure, or ends. Other output
/// is ignored here; when the agent runs the module, it goes to the log.
async fn hear(process: &mut Option<Process>, answers: bool) -> Result<(), String> {
    loop {
        match happening(process).await {
            HostProcessEvent::Wrote => {}
            HostProcessEvent::Stdout(chunk) => {
                let Some(process) = process.as_mut() else {
                    continue;
                };
                for line in process.out_lines.take(&chunk, MAX_LINE_BYTES) {
                    match read_message(&line.bytes) {
                        Ok(ModuleHostMessage::Result { id: REQUEST, .. }) if answers => {
                            return Ok(());
                        }
                        Ok(ModuleHostMessage::Error {
                            id: REQUEST,
                            thrown,
                        }) if answers => {
                            return Err(format!("does not load: {}", thrown.message));
                        }
                        _ => {}
                    }
                }
            }
            HostProcessEvent::Stderr(chunk) => {
                let Some(process) = process.as_mut() else {
                    continue;
                };
                for line in process.err_lines.take(&chunk, TEXT_BYTES_MAX) {
                    process.hear_last_words(&line.text());
                }
            }
            HostProcessEvent::Ended(how) => {
                let words = process.take().map(Process::last_words).unwrap_or_default();
                return Err(if words.is_empty() {
                    format!("exited at startup ({how})")
                } else {
                    format!("exited at startup ({how}); its last output:\n{words}")
                });
            }
        }
    }
}
