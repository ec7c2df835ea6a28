//! `gdn config import`.

use std::fs;

use crate::home::Home;

#[test]
fn compat_1_import_writes_a_project_and_lists_the_rest() {
    let home = Home::new();
    let library = home.path().join("library");
    fs::create_dir_all(&library).unwrap();
    let text = "agents:\n  main: {model: fast, systemMessage: {file: main.md}, tools: [bash]}\nroutes:\n  - {from: \
                main, to: main}\n";
    fs::write(library.join("goondan.yaml"), text).unwrap();
    fs::write(library.join("main.md"), "Be kind.\n").unwrap();
    let file = library.join("goondan.yaml").display().to_string();
    let made = home.path().join("made").display().to_string();
    let ran = home.gdn(&["import", &file, &made]).exits(0);
    let route = ":4: the route from `main` to `main` was left out";
    assert!(ran.stdout.contains(route), "{ran:?}");
    home.gdn(&["validate", &made]).exits(0);
    let written = fs::read_to_string(format!("{made}/goondan.yaml")).unwrap();
    assert!(written.contains("Be kind."), "{written}");

    // An existing project stays, and only projects of the library are converted.
    home.gdn(&["import", &file, &made])
        .exits(10)
        .tells(&["exists already"]);
    let other = home.path().join("other").display().to_string();
    home.gdn(&["import", &format!("{made}/goondan.yaml"), &other])
        .exits(6)
        .tells(&["not a project file of the goondan library"]);
    assert!(!fs::exists(&other).unwrap());
    home.gdn(&["import", "nowhere.yaml", &other]).exits(5);
}
