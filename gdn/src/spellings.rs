//! Older spellings of commands, which keep working and are in no help: those of goondan 0.0.3, and top-level commands
//! that are now below a noun.
//!
//! The command line is rewritten before it is parsed, so that only one spelling has to be defined, completed and
//! documented. Texts name the current spelling only.

use std::ffi::{OsStr, OsString};

/// Commands that moved: their former first word, and the words that replace it.
pub const MOVED: &[(&str, &str)] = &[
    ("approvals", "inbox approvals"),
    ("approve", "inbox approve"),
    ("audit", "daemon audit"),
    ("backup", "daemon backup"),
    ("bundle", "conversation bundle"),
    ("calls", "inbox calls"),
    ("cancel", "conversation cancel"),
    ("completion", "completions"),
    ("deny", "inbox deny"),
    ("forget", "workspace forget"),
    ("gc", "daemon gc"),
    ("import", "config import"),
    ("instance", "conversation"),
    ("metrics", "daemon metrics"),
    ("migrate", "config migrate"),
    ("node", "daemon node"),
    ("oauth", "secret oauth"),
    ("permission", "workspace permission"),
    ("question", "inbox question"),
    ("reload", "config reload"),
    ("rewind", "conversation rewind"),
    ("sandbox", "proposal sandbox"),
    ("schedule", "event schedule"),
    ("schema", "config schema"),
    ("service", "daemon service"),
    ("settle", "inbox settle"),
    ("shutdown", "daemon shutdown"),
    ("status", "daemon status"),
    ("trace", "event trace"),
    ("types", "config types"),
    ("upgrade", "daemon upgrade"),
    ("verify", "daemon verify"),
    ("watch", "workspace watch"),
];

/// Global options whose value is the next word.
pub(crate) const VALUE_OPTIONS: [&str; 7] = [
    "--remote",
    "--state-root",
    "--project",
    "--workspace",
    "--color",
    "--config",
    "-c",
];

/// Option before a command about a certain workspace.
const WORKSPACE: &str = "--workspace ";

/// The words that replace the first word of a command; none if it did not move.
fn replacement(word: &str) -> Option<&'static str> {
    let found = MOVED.iter().find(|(old, _)| *old == word);
    found.map(|(_, new)| *new)
}

/// The command line in its current spelling. Its first word is the program.
#[must_use]
pub fn current(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(word) = args.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            out.push(word);
            break;
        }
        if VALUE_OPTIONS.contains(&text) {
            out.push(word);
            out.extend(args.next());
            continue;
        }
        if text.starts_with('-') || text == "help" {
            out.push(word);
            continue;
        }
        let is_instance = text == "instance";
        match replacement(text) {
            Some(words) => out.extend(words.split(' ').map(OsString::from)),
            None => out.push(word),
        }
        let rest: Vec<OsString> = args.by_ref().collect();
        // In 0.0.3, `gdn instance` alone showed the list.
        if is_instance && rest.iter().all(|word| is_plain_flag(word)) {
            out.push("list".into());
        }
        out.extend(rest);
    }
    out.extend(args);
    out
}

/// True for an option other than help.
fn is_plain_flag(word: &OsStr) -> bool {
    let text = word.to_str().unwrap_or_default();
    text.starts_with('-') && !["-h", "--help"].contains(&text)
}

/// A command without `gdn`, such as `approve a-1`, in its current spelling.
pub(crate) fn command(command: &str) -> String {
    if let Some(named) = command.strip_prefix(WORKSPACE)
        && let Some((id, rest)) = named.split_once(' ')
    {
        return format!("{WORKSPACE}{id} {}", self::command(rest));
    }
    let (first, rest) = match command.split_once(' ') {
        Some((first, rest)) => (first, Some(rest)),
        None => (command, None),
    };
    match (replacement(first), rest) {
        (None, _) => command.to_owned(),
        (Some(words), None) => words.to_owned(),
        (Some(words), Some(rest)) => format!("{words} {rest}"),
    }
}

/// The first word except global options: the command. `args` start after the program.
pub(crate) fn first(args: impl IntoIterator<Item = String>) -> Option<String> {
    let mut args = args.into_iter();
    while let Some(word) = args.next() {
        if VALUE_OPTIONS.contains(&word.as_str()) {
            args.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// Older spellings that a mistyped command could mean.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    MOVED.iter().map(|(old, _)| *old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        let words = current(words);
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn compat_4_older_commands_are_rewritten_and_nothing_else_is() {
        for (old, new) in [
            ("gdn approve a-1", "gdn inbox approve a-1"),
            ("gdn --json -q status", "gdn --json -q daemon status"),
            (
                "gdn --project approve approve a-1",
                "gdn --project approve inbox approve a-1",
            ),
            (
                "gdn --workspace=w instance list",
                "gdn --workspace=w conversation list",
            ),
            ("gdn instance", "gdn conversation list"),
            ("gdn instance --all", "gdn conversation list --all"),
            ("gdn instance --help", "gdn conversation --help"),
            ("gdn help rewind", "gdn help conversation rewind"),
            ("gdn send approve", "gdn send approve"),
            ("gdn -- approve", "gdn -- approve"),
            ("gdn", "gdn"),
        ] {
            assert_eq!(rewritten(old), new, "{old}");
        }
    }

    #[test]
    fn commands_are_named_in_their_current_spelling() {
        assert_eq!(command("approve a-1"), "inbox approve a-1");
        assert_eq!(command("shutdown"), "daemon shutdown");
        assert_eq!(
            command("--workspace w event list"),
            "--workspace w event list"
        );
        assert_eq!(
            command("--workspace w approve a-1"),
            "--workspace w inbox approve a-1"
        );
        assert_eq!(command("send \"Hello\""), "send \"Hello\"");
    }

    #[test]
    fn every_older_command_is_now_another_one() {
        for (old, new) in MOVED {
            let mut below = crate::command();
            assert!(below.find_subcommand(old).is_none(), "{old} is still there");
            for word in new.split(' ') {
                let found = below.find_subcommand(word);
                below = found.unwrap_or_else(|| panic!("no `gdn {new}`")).clone();
            }
        }
    }
}
