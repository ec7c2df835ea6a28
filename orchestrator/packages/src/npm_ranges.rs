//! Rewrites npm version ranges that `nodejs-semver` parses differently than npm.

/// Operators before a version in a comparison.
const OPERATORS: [char; 5] = ['^', '~', '<', '>', '='];

/// Every version except pre-releases.
const ANY: &str = "*";

/// Rewrites a range such that the library parses it like npm does; `None` if npm rejects it.
pub(crate) fn as_known(range: &str) -> Option<String> {
    let alternatives = range.split("||").map(alternative);
    let alternatives: Option<Vec<String>> = alternatives.collect();
    Some(alternatives?.join(" || "))
}

fn alternative(text: &str) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    let mut operator = String::new();
    for word in text.split_whitespace() {
        if word.chars().all(|c| OPERATORS.contains(&c)) {
            operator.push_str(word);
            continue;
        }
        words.push(std::mem::take(&mut operator) + word);
    }
    if !operator.is_empty() {
        return None;
    }
    if let [from, dash, to] = words.as_slice()
        && dash == "-"
        && is_open(to)
    {
        return Some(match is_open(from) {
            true => ANY.to_owned(),
            false => format!(">={from}"),
        });
    }
    let known = words.iter().map(|word| comparison(word));
    Some(known.collect::<Option<Vec<_>>>()?.join(" "))
}

fn comparison(word: &str) -> Option<String> {
    let version = word.trim_start_matches(OPERATORS);
    let operator = word.get(..word.len() - version.len()).unwrap_or_default();
    let is_bound = matches!(operator, "<" | ">");
    if is_open(version) && !is_bound && !operator.is_empty() {
        return Some(ANY.to_owned());
    }
    let numbers = version.trim_start_matches('v').split(['-', '+']).next();
    let has_zeros = |number: &str| number.len() > 1 && number.starts_with('0');
    let is_odd = numbers.unwrap_or_default().split('.').any(has_zeros);
    (!is_odd).then(|| word.to_owned())
}

/// True if a version is a wildcard: `x`, `*`, `x.x`.
fn is_open(version: &str) -> bool {
    let major = version.split('.').next();
    matches!(major, Some("x" | "X" | "*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_npm_range_syntax_is_normalized_for_the_library() {
        for (written, known) in [
            ("^x", Some("*")),
            ("~> X.x || ^ 1.2", Some("* || ^1.2")),
            (">=*", Some("*")),
            ("1.0.0 - x", Some(">=1.0.0")),
            ("* - x", Some("*")),
            ("1.2 - 2", Some("1.2 - 2")),
            ("<\t2.0.0", Some("<2.0.0")),
            ("~> 3.2.1", Some("~>3.2.1")),
            ("v1.0.0-01.beta", Some("v1.0.0-01.beta")),
            ("0.1.0", Some("0.1.0")),
            ("", Some("")),
            ("||", Some(" || ")),
            ("01.2.3", None),
            ("^1.02", None),
            ("1.2.3 >", None),
        ] {
            assert_eq!(as_known(written).as_deref(), known, "{written:?}");
        }
    }
}
