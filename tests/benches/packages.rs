//! `gdn package install` of 20 packages that are already in the store, without a daemon or a
//! registry, compared with reading the same files and starting the program. See
//! `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "a measure prints its result")]

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_tests::home::Home;

const PACKAGES: usize = 20;
const FILES: usize = 25;
const FILE_BYTES: usize = 8 * 1024;
const ROUNDS: usize = 11;
/// Maximum duration of an installation.
const TARGET: Duration = Duration::from_millis(200);

const PROJECT: &str = "apiVersion: goondan.ai/v1
kind: Package
metadata: {name: shop}
spec:
  version: 1.0.0
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: main}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: hello}]}}
";

fn main() -> Result<(), Box<dyn Error>> {
    let home = Home::new(PROJECT);
    let mut add = vec!["package".to_owned(), "add".to_owned()];
    for number in 0..PACKAGES {
        add.push(packed(&home, number)?);
    }
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    home.gdn(&add).exits(0);
    home.gdn(&["shutdown"]).exits(0);
    let install = ["package", "install", "--frozen-lockfile"];
    let (mut ours, mut reading, mut starting) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        home.gdn(&install)
            .exits(0)
            .prints(&["everything is installed"]);
        ours.push(start.elapsed());
        let start = Instant::now();
        read_all(&home)?;
        reading.push(start.elapsed());
        let start = Instant::now();
        home.gdn(&["--version"]).exits(0);
        starting.push(start.elapsed());
    }
    let (median, read, started) = (
        middle(&mut ours),
        middle(&mut reading),
        middle(&mut starting),
    );
    println!(
        "{PACKAGES} packages of {FILES} files of {FILE_BYTES} bytes; {ROUNDS} rounds, medians in ms\n\
         install {:.1}{}; sha256sum of the same files {:.1}; gdn --version {:.1}",
        millis(median),
        if median < TARGET { "" } else { ", too slow" },
        millis(read),
        millis(started),
    );
    Ok(())
}

/// Packs a package, and returns its path relative to the project.
fn packed(home: &Home, number: usize) -> Result<String, Box<dyn Error>> {
    let yaml = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: p{number}}}\nspec: {{version: 1.0.0}}\n"
    );
    home.write(&format!("p{number}/goondan.yaml"), &yaml);
    for file in 0..FILES {
        let text: String = (0..FILE_BYTES / 16)
            .map(|line| format!("{number:03} {file:03} {line:06}\n"))
            .collect();
        home.write(&format!("p{number}/lib/{file}.mjs"), &text);
    }
    let archive = format!("p{number}.tgz");
    let packed = Command::new("tar")
        .args(["-czf", &archive, &format!("p{number}")])
        .current_dir(home.path())
        .status()?;
    assert!(packed.success());
    fs::remove_dir_all(home.path().join(format!("p{number}")))?;
    Ok(format!("../{archive}"))
}

fn read_all(home: &Home) -> Result<(), Box<dyn Error>> {
    let read = Command::new("find")
        .arg(home.state_root().join("packages/.trees"))
        .args(["-type", "f", "-exec", "sha256sum", "{}", "+"])
        .stdout(Stdio::null())
        .status()?;
    assert!(read.success());
    Ok(())
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
