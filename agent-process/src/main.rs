//! The `goondan-agent-process` binary: one agent instance, started by the orchestrator.

fn main() -> std::process::ExitCode {
    goondan_agent_process::main_impl()
}
