//! The core's state machines are layered: lower layers do not depend on higher ones.

use std::path::Path;

use crate::imports::modules::imports_of;
use crate::pages::repository;

/// The rooms of the core, from below.
const ROOMS: &[&str] = &["fleet", "tasks", "calls", "requests"];

fn room_of(src: &Path, file: &Path) -> Option<usize> {
    let within = file.strip_prefix(src).ok()?.with_extension("");
    let first = within.components().next()?;
    ROOMS.iter().position(|room| first.as_os_str() == *room)
}

#[test]
fn no_machine_of_the_core_imports_from_one_above_it() {
    let src = repository().join("orchestrator/core/src");
    let mut upwards = Vec::new();
    let mut seen = [0; 4];
    for (from, imported) in imports_of(&src) {
        let Some(room) = room_of(&src, &from) else {
            continue;
        };
        seen[room] += 1;
        for to in imported {
            if room_of(&src, &to).is_some_and(|other| other > room) {
                upwards.push(format!("{} -> {}", from.display(), to.display()));
            }
        }
    }
    assert_eq!(upwards, Vec::<String>::new());
    assert!(seen.iter().all(|files| *files > 5), "{ROOMS:?}: {seen:?}");
}
