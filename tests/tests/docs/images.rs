//! Pictures in `docs/images/`: every file is used by a page, every picture in a page exists, and
//! all are small enough for slow connections.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::pages::{Page, repository};

const IMAGES: &str = "docs/images";
/// A page that [`Page::all`] does not include.
const KOREAN: &str = "docs/ko/README.md";
/// Maximum bytes of a picture, by file extension.
const BYTES_MAX: &[(&str, usize)] = &[("png", 120_000), ("svg", 100_000), ("cast", 200_000)];
/// Allowed width and height of a screenshot in pixels.
const SIDE_PIXELS: std::ops::RangeInclusive<u32> = 320..=1600;

/// Images in pages, by `![text](target)`: the page, the text and the file in the repository.
fn shown() -> Vec<(String, String, String)> {
    let mut pages = Page::all();
    pages.push(Page::read(KOREAN));
    let mut shown = Vec::new();
    for page in pages {
        let folder = repository().join(&page.path).parent().unwrap().to_owned();
        for rest in page.prose().split("![").skip(1) {
            let (text, rest) = rest.split_once("](").unwrap();
            let (target, _) = rest.split_once(')').unwrap();
            let file = folder.join(target).canonicalize();
            let file = file.unwrap_or_else(|error| panic!("{}: {target}: {error}", page.path));
            let file = file.strip_prefix(repository()).unwrap();
            let file = file.to_str().unwrap().to_owned();
            shown.push((page.path.clone(), text.to_owned(), file));
        }
    }
    shown
}

fn kept() -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join(IMAGES)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("{IMAGES}/{name}")).collect()
}

#[test]
fn every_picture_is_used_and_has_an_alternative_text() {
    let shown = shown();
    for (page, text, file) in &shown {
        assert!(file.starts_with(IMAGES), "{page} shows {file}");
        assert!(text.split(' ').count() > 2, "{page}: {file} says {text:?}");
    }
    let mut used: BTreeSet<String> = shown.into_iter().map(|(_, _, file)| file).collect();
    // Pages link to the recordings, which browsers cannot play.
    let all: String = Page::all().into_iter().map(|page| page.text).collect();
    let casts = kept().into_iter().filter(|file| file.ends_with(".cast"));
    used.extend(casts.filter(|file| all.contains(file.trim_start_matches("docs/"))));
    assert_eq!(kept(), used);
}

#[test]
fn pictures_are_small_and_screenshots_are_pictures() {
    for file in kept() {
        let bytes = fs::read(repository().join(&file)).unwrap();
        let ending = file.rsplit('.').next().unwrap();
        let most = BYTES_MAX.iter().find(|(known, _)| *known == ending);
        let (_, most) = most.unwrap_or_else(|| panic!("{file} is none that is known"));
        assert!(bytes.len() <= *most, "{file} has {} bytes", bytes.len());
        if ending == "png" {
            assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{file}");
            for at in [16, 20] {
                let side = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
                assert!(SIDE_PIXELS.contains(&side), "{file} is {side} pixels");
            }
        }
    }
}

/// Strings that would reveal the machine of a recording.
const PRIVATE: &[&str] = &["/home/", "/root/", "/Users/", "/target/", "@localhost"];

#[test]
fn recordings_are_playable_and_reveal_no_machine() {
    let mut casts = 0;
    for file in kept().iter().filter(|file| !file.ends_with(".png")) {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        for private in PRIVATE {
            assert!(!text.contains(private), "{file}: {private}");
        }
        if file.ends_with(".svg") {
            assert!(
                text.contains("<title>") && !text.contains("<script"),
                "{file}"
            );
            continue;
        }
        casts += 1;
        assert!(kept().contains(&file.replace(".cast", ".svg")), "{file}");
        let mut lines = text.lines();
        let head: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(head["version"], 2, "{file}");
        let mut before = 0.0;
        for line in lines {
            let (at, kind, _): (f64, String, String) = serde_json::from_str(line).unwrap();
            assert!(kind == "o" && at >= before, "{file}: {line}");
            before = at;
        }
    }
    assert!(casts > 2, "only {casts} recordings");
}
