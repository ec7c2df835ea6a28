//! Entry point of the `gdn` binary; all code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    gdn::main()
}
