//! `docs/style.md`: pages have few phrases that readers must decode.

use crate::pages::Page;

/// Hits that a page can have per 1,000 words.
const RATE_MAX: usize = 3;

/// Hits that any page can have, however short.
const HITS_MAX_SHORT: usize = 2;

/// Phrases to avoid, in lower case, and replacements.
const PHRASES: [(&[&str], &str); 10] = [
    (
        &["tell", "tells", "telling", "told"],
        "notify, report, print or return",
    ),
    (
        &["whoever", "whatever", "nobody", "somebody", "anybody"],
        "the actor: caller, client, operator or agent",
    ),
    (
        &["of it", "of them", "of these", "of those", "of which"],
        "its, their, whose, or the name of the thing",
    ),
    (
        &["of what", "to what", "for what", "by what"],
        "the name of the thing: message, result or file",
    ),
    (
        &["is to", "are to", "was to", "were to"],
        "must, will or can",
    ),
    (
        &["is said", "are said", "is noted", "are noted", "is meant"],
        "is reported, is documented, or the active voice",
    ),
    (&["stand", "stands"], "is, is stored or is listed"),
    (
        &["is no", "are no", "is none", "are none"],
        "is not a …, or does not exist",
    ),
    (
        &["go on", "goes on", "going on", "went on", "gone on"],
        "continue or resume",
    ),
    (
        &[
            "anew",
            "all the same",
            "any more",
            "at hand",
            "by itself",
            "by themselves",
            "for good",
            "in its place",
        ],
        "again, anyway, no longer, automatically, permanently or instead",
    ),
];

/// Phrases that contain one of the others, and are fine.
const FINE: [&str; 5] = [
    "is no longer",
    "are no longer",
    "is no more",
    "are no more",
    "is no such",
];

/// Words that a line of prose does not begin with, except in questions.
const BEGINNINGS: [&str; 9] = [
    "What", "Who", "Whom", "Whose", "Whether", "Which", "How", "Where", "That",
];

/// A line without inline code.
fn without_code(line: &str) -> String {
    let prose: Vec<&str> = line.split('`').step_by(2).collect();
    prose.join("x")
}

/// A line in lower case, with a space on both sides of each word and each punctuation mark.
fn spaced(line: &str) -> String {
    let mut spaced = String::from(" ");
    for c in line.chars() {
        if c.is_alphanumeric() || matches!(c, '-' | '\'') {
            spaced.extend(c.to_lowercase());
        } else if c.is_whitespace() {
            spaced.push(' ');
        } else {
            spaced.extend([' ', c, ' ']);
        }
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    format!(" {} ", words.join(" "))
}

/// The phrases to avoid in a line without code, each with its replacement.
fn found(line: &str) -> Vec<(&'static str, &'static str)> {
    let mut text = spaced(line);
    for fine in FINE {
        text = text.replace(&format!(" {fine} "), " x ");
    }
    let mut found = Vec::new();
    for (phrases, instead) in PHRASES {
        for phrase in phrases {
            let hits = text.matches(&format!(" {phrase} ")).count();
            found.extend(std::iter::repeat_n((*phrase, instead), hits));
        }
    }
    let first = line.split(|c: char| !c.is_alphanumeric()).next();
    let beginning = BEGINNINGS.into_iter().find(|word| first == Some(word));
    let beginning = beginning.filter(|_| !line.contains('?'));
    found.extend(beginning.map(|word| (word, "a noun or a verb first, and True if for Whether")));
    found
}

/// The number of words of a page, and its phrases to avoid with lines and replacements.
fn read(page: &Page) -> (usize, Vec<String>) {
    let (mut words, mut hits, mut is_fence) = (0, Vec::new(), false);
    for (at, line) in page.text.lines().enumerate() {
        if line.starts_with("```") {
            is_fence = !is_fence;
        } else if !is_fence {
            let line = without_code(line);
            words += line.split_whitespace().count();
            for (phrase, instead) in found(&line) {
                let (path, number) = (&page.path, at + 1);
                hits.push(format!("{path}:{number}: `{phrase}`; write {instead}"));
            }
        }
    }
    (words, hits)
}

#[test]
fn pages_have_few_phrases_that_readers_must_decode() {
    let pages = Page::all().into_iter();
    let mut failures = Vec::new();
    for page in pages.filter(|page| page.path.starts_with("docs/")) {
        let (words, hits) = read(&page);
        let limit = HITS_MAX_SHORT.max(words * RATE_MAX / 1_000);
        if hits.len() > limit {
            failures.push(format!(
                "{}: {} phrases to avoid in {words} words, at most {limit}",
                page.path,
                hits.len()
            ));
            failures.extend(hits);
        }
    }
    assert!(
        failures.is_empty(),
        "rewrite these sentences as docs/style.md describes:\n{}",
        failures.join("\n")
    );
}

#[test]
fn phrases_are_found_as_words_outside_code_and_fences() {
    let page = |text: &str| Page {
        path: "docs/x.md".to_owned(),
        text: text.to_owned(),
    };
    let hits = |text: &str| read(&page(text)).1;
    for fine in [
        "The result is a file.",
        "The file is no longer there.",
        "A retold story of items.",
        "It prints `what nobody is told`.",
        "```text\nNobody is told.\n```",
        "What if it fails?",
        "The rate, of course, it rises.",
    ] {
        assert_eq!(hits(fine), [""; 0], "{fine}");
    }
    for (text, count) in [
        ("Nobody is told.", 2),
        ("It is to be read, and most of it is.", 2),
        ("What is kept.", 1),
        ("| a | There is no file. |", 1),
        ("It goes on, and they go on.", 2),
    ] {
        assert_eq!(hits(text).len(), count, "{text}: {:?}", hits(text));
    }
    assert_eq!(
        hits("One line.\nIt stands here."),
        ["docs/x.md:2: `stands`; write is, is stored or is listed"]
    );
}
