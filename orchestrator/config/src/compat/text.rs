//! Text of resource files in either format (`COMPAT-1`).

use super::format::ProjectFormat;
use crate::codes;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::tree::{self, YamlNode};
use crate::unquoted_texts::{QuotedLine, with_quotes};

/// Parses all documents of a resource file, as [`tree::parse`]. In a file of the format 0.0.3, texts
/// without quotes that only its parser accepted are read as before, and reported as notes.
pub(crate) fn parse(file: FileId, text: &str, report: &mut ProblemReport) -> Option<Vec<YamlNode>> {
    match tree::try_parse(file, text, report) {
        Ok(documents) => Some(documents),
        Err(error) => {
            let older = parse_older(file, text, report);
            if older.is_none() {
                tree::report_syntax(&error, file, text, report);
            }
            older
        }
    }
}

/// `None` if the file is not of the format 0.0.3, or still invalid with quotes.
fn parse_older(file: FileId, text: &str, report: &mut ProblemReport) -> Option<Vec<YamlNode>> {
    let (quoted, lines) = with_quotes(text)?;
    let tried = tree::try_parse(file, &quoted, &mut ProblemReport::default()).ok()?;
    if ProjectFormat::of(&[(file, tried)]).contract().is_own() {
        return None;
    }
    for QuotedLine { number, text: line } in lines {
        let place = SourceLocation {
            line: number,
            ..SourceLocation::start_of(file)
        };
        let message = "a text without quotes that only goondan 0.0.3 accepts";
        let problem = Problem::note(codes::OLDER_FORM, place, message);
        // The line may contain a secret.
        let hides = tree::may_be_secret(text, number);
        report.add(problem.help(match hides {
            true => "put the text in quotes".to_owned(),
            false => format!("put the text in quotes: `{line}`"),
        }));
        if hides {
            report.hide_line(file, number);
        }
    }
    tree::try_parse(file, &quoted, report).ok()
}
