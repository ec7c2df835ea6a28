//! `goondan-studio`: the page in the browser.

use std::process::ExitCode;

fn main() -> ExitCode {
    goondan_studio::main()
}
