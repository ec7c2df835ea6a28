//! Imports have no cycles: no file of a crate imports from a file that imports from it, directly or
//! indirectly. Imports from parent modules are exempt, because a module is part of its parents.

mod circles;
pub(crate) mod modules;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::pages::repository;
use crate::sources::CRATES;
use circles::circles;
use modules::imports_of;

#[test]
fn no_file_imports_from_one_that_imports_from_it() {
    let mut found = BTreeMap::new();
    for (_, dir) in CRATES {
        let src = repository().join(dir).join("src");
        let imports = imports_of(&src);
        let named = |file: &PathBuf| {
            let file = file.strip_prefix(repository()).unwrap();
            file.display().to_string()
        };
        for circle in circles(&imports) {
            let arrows = circle.iter().flat_map(|from| {
                let within = imports[from].iter().filter(|to| circle.contains(to));
                within.map(move |to| format!("{} -> {}", named(from), named(to)))
            });
            found.insert(named(&circle[0]), arrows.collect::<Vec<_>>());
        }
    }
    assert!(found.is_empty(), "circles: {found:#?}");
}
