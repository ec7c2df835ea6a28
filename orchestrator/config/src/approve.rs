//! Approval rules of an agent's tool (`STEER-3`): a word for all calls, or a list of rules.

use std::collections::BTreeMap;

use goondan_protocol::approval::{Approve, ApproveRule};
use goondan_protocol::limits::MAX_APPROVE_RULES;
use regex_lite::Regex;

use crate::codes;
use crate::fields::{Fields, WordOr, text};
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{Field, FieldDefault, FieldType, Shape};

/// Field of a listed tool.
pub(crate) const APPROVE: Field = Field::optional(
    "approve",
    FieldType::WordOr(Approve::WORDS, &RULES),
    "Calls that need a person's approval. `always`: calls run without approval. `ask`: every call \
     needs approval. `askTwo`: every call needs the approval of two people. `never`: every call is denied. Or rules by export and arguments.",
)
.or(FieldDefault::Text("always"));

static RULES: Shape = Shape::of(
    "ApproveRules",
    "Calls that run, calls that are denied, and calls that need a person's approval.",
    &[
        Field::required(
            "rules",
            FieldType::List(&FieldType::Mapping(&RULE)),
            "The rules. The first rule that matches a call applies.",
        ),
        Field::optional(
            "otherwise",
            FieldType::Word(Approve::WORDS),
            "Decision for a call that matches no rule.",
        )
        .or(FieldDefault::Text("ask")),
    ],
);

static RULE: Shape = Shape::of(
    "ApproveRule",
    "Decision for the calls that match.",
    &[
        Field::optional(
            "export",
            FieldType::Text,
            "Name of the called export, such as `exec`. Default: any export.",
        ),
        Field::optional(
            "when",
            FieldType::Entries(&FieldType::Text),
            "Arguments, each with a regular expression that must match its whole text. Values that \
             are not text are matched as JSON. A missing argument matches no expression.",
        ),
        Field::required(
            "approve",
            FieldType::Word(Approve::WORDS),
            "Decision for the call.",
        ),
    ],
);

/// The configured rules, each with the place of its export if it names one.
pub(crate) type ConfiguredApprovals = Vec<(ApproveRule, Option<SourceLocation>)>;

/// Reads the field; returns no rules if it is absent.
pub(crate) fn read(fields: &mut Fields<'_>, report: &mut ProblemReport) -> ConfiguredApprovals {
    let mut rules = ConfiguredApprovals::new();
    match fields.word_or_mapping("approve", report) {
        None => {}
        Some(WordOr::Word(word)) => {
            let approve = Approve::of_word(word.value).unwrap_or(Approve::Ask);
            if approve != Approve::Always {
                rules.push((ApproveRule::of_all(approve), None));
            }
        }
        Some(WordOr::Mapping(mut written)) => {
            let place = written.place_of("rules");
            let listed = written.mappings("rules", report);
            rules.extend(
                listed
                    .into_iter()
                    .flatten()
                    .map(|rule| read_rule(rule, report)),
            );
            let otherwise = written.word("otherwise", report);
            let approve = otherwise.and_then(|word| Approve::of_word(word.value));
            written.close();
            if let Some(place) = place.filter(|_| rules.len() > MAX_APPROVE_RULES) {
                let text = format!(
                    "{} rules; at most {MAX_APPROVE_RULES} are allowed",
                    rules.len()
                );
                let problem = Problem::new(codes::INVALID_VALUE, place, text);
                report
                    .add(problem.help("combine several patterns into one: `(ls|cat|git status)`"));
            }
            let rest = approve.unwrap_or(Approve::Ask);
            rules.push((ApproveRule::of_all(rest), None));
        }
    }
    rules
}

fn read_rule(
    mut rule: Fields<'_>,
    report: &mut ProblemReport,
) -> (ApproveRule, Option<SourceLocation>) {
    let export = rule.text("export", report);
    let place = export.as_ref().map(|export| export.place);
    let export = export.map(|export| export.value.to_owned());
    let label = rule.label.field("when");
    let mut when = BTreeMap::new();
    for entry in rule.entries("when", report) {
        let label = label.field(&entry.key);
        let Some(pattern) = text(&entry.node, &label, report) else {
            continue;
        };
        if let Err(error) = Regex::new(&ApproveRule::whole(pattern.value)) {
            let message = format!("{label} is not a valid regular expression: {error}");
            let problem = Problem::new(codes::INVALID_VALUE, pattern.place, message);
            report.add(problem.help("write `\\` before a literal special character: `\\.`"));
        }
        when.insert(entry.key.clone(), pattern.value.to_owned());
    }
    let approve = rule.word("approve", report);
    let approve = approve.and_then(|word| Approve::of_word(word.value));
    rule.close();
    let rule = ApproveRule {
        export,
        when,
        // A configuration with an unreadable rule never runs.
        approve: approve.unwrap_or(Approve::Never),
    };
    (rule, place)
}
