//! The `goondan-connector-process` binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    goondan_connector_process::run()
}
