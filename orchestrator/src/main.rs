//! `goondan-orchestrator`: the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    goondan_orchestrator::main()
}
