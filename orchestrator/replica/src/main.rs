//! The `goondan-replica` binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    goondan_replica::run()
}
