//! `gdn man`: manual pages generated from the commands' help (`REL-2`).

use std::fs::{OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::names;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::spellings;

/// Print a manual page, or write all pages
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn man | man -l -                     the page gdn(1)
  gdn man task new | man -l -            the page gdn-task-new(1)
  gdn man --out ~/.local/share/man/man1  all pages, where man finds them")]
pub(crate) struct ManArgs {
    /// Command of the page [default: gdn itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Footer of each page.
const MANUAL: &str = "goondan";

/// Heading of the examples in a command's help.
const EXAMPLES: &str = "Examples:\n";

/// The daemon's page, written by hand because the daemon has few options and generates no page.
const DAEMON_PAGE: (&str, &str) = (
    "goondan-orchestrator.8",
    include_str!("../../../systemd/goondan-orchestrator.8"),
);

/// Prints the page of one command, or writes the pages of all commands.
pub(crate) fn run(args: &ManArgs, command: Command, context: &Context) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = &args.out else {
        // A former spelling has the page of the current one.
        let words = spellings::command(&args.command.join(" "));
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        return context.output.bytes(&page_of(&command, &words)?);
    };
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    let (name, text) = DAEMON_PAGE;
    pages.push((name.to_owned(), text.as_bytes().to_vec()));
    write_all(dir, &pages).map_err(|error| {
        Failure::of(
            Exit::Internal,
            &error,
            format!(
                "choose a writable directory instead of {}: `gdn man --out DIR`",
                dir.display()
            ),
        )
    })?;
    let count = text::count(pages.len(), "page");
    context
        .output
        .note(format!("Wrote {count} to {}", dir.display()));
    Ok(())
}

/// Page of the command with these names below `root`.
fn page_of(root: &Command, words: &[String]) -> Result<Vec<u8>, Failure> {
    let mut command = root;
    for name in words {
        let known = command.get_subcommands().map(Command::get_name);
        let hint = "list the commands: `gdn help`".to_owned();
        let hint = names::with_near_name(name, known, hint);
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!("unknown command `gdn {}`", words.join(" ")),
                hint,
            )
        })?;
    }
    Ok(page(command)?)
}

/// Collects the pages of a command and its subcommands, by file name.
fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((format!("{}.1", name_of(command)), page(command)?));
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        collect(below, pages)?;
    }
    Ok(())
}

fn write_all(dir: &Path, pages: &[(String, Vec<u8>)]) -> io::Result<()> {
    create_dir_all(dir)?;
    for (name, text) in pages {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir.join(name))?;
        file.write_all(text)?;
    }
    Ok(())
}

/// `gdn-task-new`.
fn name_of(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// Preamble that `clap_mangen` emits for each part of a page. One is enough.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Renders one page, without a date so that the output is reproducible.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let is_root = !name_of(command).contains('-');
    let man = Man::new(command.clone());
    let mut parts = Vec::new();
    man.render_name_section(&mut parts)?;
    man.render_synopsis_section(&mut parts)?;
    man.render_description_section(&mut parts)?;
    man.render_options_section(&mut parts)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut parts)?;
    }
    examples(command, &mut parts)?;
    if is_root {
        general(&mut parts)?;
    }
    see_also(command, is_root, &mut parts)?;
    let parts = String::from_utf8_lossy(&parts).replace(PREAMBLE, "");
    let title = name_of(command).to_uppercase().replace('-', "\\-");
    let version = env!("CARGO_PKG_VERSION");
    let head = format!("{PREAMBLE}.TH {title} 1 \"\" \"goondan {version}\" \"{MANUAL}\"\n");
    Ok(in_ascii(&(head + &parts)).into_bytes())
}

/// Escapes non-ASCII characters, because not every pager knows the encoding.
fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            out.push_str(&format!("\\[u{:04X}]", u32::from(character)));
        }
    }
    out
}

/// Renders the end of a command's help: examples, verbatim lines, and the text after them.
fn examples(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let Some(help) = command.get_after_help().map(ToString::to_string) else {
        return Ok(());
    };
    let (examples, notes) = match help.strip_prefix(EXAMPLES) {
        Some(rest) => rest.split_once("\n\n").unwrap_or((rest, "")),
        None => (help.as_str(), ""),
    };
    for (title, text) in [("EXAMPLES", examples), ("NOTES", notes)] {
        if !text.is_empty() {
            let mut roff = Roff::new();
            roff.control("SH", [title]);
            lines(text, &mut roff);
            roff.to_writer(out)?;
        }
    }
    Ok(())
}

/// Renders indented lines verbatim and other lines as paragraphs.
fn lines(text: &str, roff: &mut Roff) {
    let mut is_literal = false;
    for line in text.lines() {
        let indented = line.strip_prefix("  ");
        if indented.is_some() != is_literal {
            is_literal = indented.is_some();
            roff.control(if is_literal { "nf" } else { "fi" }, []);
        }
        match (indented, line) {
            (Some(line), _) => roff.text([roman(line)]),
            (None, "") => roff.control("PP", []),
            (None, line) => roff.text([roman(line)]),
        };
    }
    if is_literal {
        roff.control("fi", []);
    }
}

/// Sections that apply to every command.
fn general(out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        roff.control("TP", ["6"]);
        roff.text([bold(exit.code().to_string())]);
        roff.text([roman(exit.name())]);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in [
        (
            "GOONDAN_STATE_ROOT",
            "Directory of all run state, unless --state-root sets it.",
        ),
        ("NO_COLOR", "If set, output has no colors."),
    ] {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["FILES"]);
    for (path, meaning) in [
        (
            "~/.goondan",
            "Default state root; only the daemon writes there.",
        ),
        ("goondan.yaml", "A project, in its directory."),
    ] {
        roff.control("TP", []);
        roff.text([bold(path)]);
        roff.text([roman(meaning)]);
    }
    roff.to_writer(out)
}

fn see_also(command: &Command, is_root: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut pages = vec![match is_root {
        true => ("goondan-orchestrator", "(8)"),
        false => ("gdn", "(1)"),
    }];
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    pages.extend(below.map(|below| (name_of(below), "(1)")));
    let mut inlines = Vec::new();
    for (name, section) in pages {
        if !inlines.is_empty() {
            inlines.push(roman(", "));
        }
        inlines.extend([bold(name), roman(section)]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text(inlines);
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pages() -> Vec<(String, Vec<u8>)> {
        let mut command = crate::command().disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        collect(&command, &mut pages).unwrap();
        pages
    }

    /// Collects `gdn-task-new.1` for each subcommand, from its name on the command line.
    fn names(command: &Command, name: &str, out: &mut BTreeSet<String>) {
        out.insert(format!("{name}.1"));
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            names(below, &format!("{name}-{}", below.get_name()), out);
        }
    }

    #[test]
    fn rel_2_every_command_has_a_page() {
        let mut wanted = BTreeSet::new();
        names(&crate::command(), "gdn", &mut wanted);
        let made: BTreeSet<String> = pages().into_iter().map(|(name, _)| name).collect();
        assert!(made.contains("gdn-demo-kill.1"), "{made:?}");
        assert_eq!(made, wanted);
    }

    #[test]
    fn rel_2_pages_hold_plain_ascii_and_their_hyphens_can_be_pasted() {
        for (name, page) in pages() {
            let page = String::from_utf8(page).unwrap();
            assert!(page.is_ascii(), "{name}");
            assert_eq!(page.matches(PREAMBLE).count(), 1, "{name}");
            // groff renders a bare hyphen as a character that shells do not accept.
            assert!(page.contains("\\-\\-state\\-root"), "{name}: {page}");
            let text = page.lines().filter(|line| !line.starts_with('.'));
            for line in text {
                assert!(!line.replace("\\-", "").contains('-'), "{name}: {line}");
            }
        }
    }

    #[test]
    fn rel_2_examples_are_kept_verbatim_in_the_man_page() {
        let mut command = Command::new("x").after_help(
            "Examples:\n  x --do it   twice\n  .x 'quoted'\n\nWhat to know.\nAnd more.",
        );
        command.build();
        let page = String::from_utf8(page(&command).unwrap()).unwrap();
        let wanted = ".SH EXAMPLES\n.nf\nx \\-\\-do it   twice\n\\&.x \\*(Aqquoted\\*(Aq\n.fi\n\
                      .SH NOTES\nWhat to know.\nAnd more.\n";
        assert!(page.contains(wanted), "{page}");
    }
}
