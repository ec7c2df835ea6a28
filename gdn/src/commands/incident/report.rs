//! Results of replays for people, scripts and CI.

use goondan_protocol::ids::{AgentName, InstanceKey, TurnId};
use serde::Serialize;

use super::comparison::{Divergence, DivergentPart};
use super::configuration::ReplayConfiguration;
use super::file::Incident;
use super::playback::ReplayedTurn;
use crate::output::table::{Canvas, Cell, Column, Table};
use crate::output::{diff, style, text};

/// Maximum width of a text in the table; `--json` prints it in full.
const TEXT_COLUMNS: usize = 48;

/// A difference and its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnDivergence {
    pub(super) turn_id: TurnId,
    pub(super) agent_name: AgentName,
    pub(super) instance_key: InstanceKey,
    #[serde(flatten)]
    pub(super) divergence: Divergence,
}

/// Differences of an incident, in the order of its turns.
#[derive(Debug)]
pub(super) struct IncidentVerdict {
    pub(super) found: Vec<TurnDivergence>,
}

impl IncidentVerdict {
    pub(super) fn of(incident: &Incident, played: &[ReplayedTurn]) -> Self {
        let turns = incident.turns.iter().zip(played);
        let found = turns.flat_map(|(turn, played)| {
            let owner = incident.conversation(turn);
            let divergences = played.divergences(incident, turn).into_iter();
            divergences.filter_map(move |divergence| {
                let owner = owner?;
                Some(TurnDivergence {
                    turn_id: turn.turn_id.clone(),
                    agent_name: owner.agent_name.clone(),
                    instance_key: owner.instance_key.clone(),
                    divergence,
                })
            })
        });
        Self {
            found: found.collect(),
        }
    }

    pub(super) fn is_same(&self) -> bool {
        self.found.is_empty()
    }
}

/// A difference in one line.
pub(super) fn one_line(found: &TurnDivergence) -> String {
    let Divergence {
        step,
        part,
        recorded,
        now,
        ..
    } = &found.divergence;
    let agent = &found.agent_name;
    let part = part.as_str();
    let (recorded, now) = (text::one_line(recorded), text::one_line(now));
    format!("agent {agent}, step {step}, {part}: recorded {recorded}, now {now}")
}

/// The result of one replay.
pub(super) fn page(
    incident: &Incident,
    configuration: &ReplayConfiguration,
    verdict: &IncidentVerdict,
    canvas: Canvas,
) -> String {
    let mut fields = Table::of_fields();
    fields.field("Trace", incident.trace_id.to_string());
    fields.field("Exported", text::clock(incident.exported_at));
    fields.field("Replayed with", text::one_line(&configuration.name));
    let turns = text::count(incident.turns.len(), "turn");
    let steps = text::count(incident.steps(), "step");
    fields.field("Recorded", format!("{turns}, {steps}"));
    let result = match verdict.is_same() {
        true => Cell::styled("same", style::GOOD),
        false => Cell::styled(text::count(verdict.found.len(), "difference"), style::BAD),
    };
    fields.field("Result", result);
    for note in &incident.notes {
        fields.field("Note", Cell::styled(text::one_line(note), style::FAINT));
    }
    let mut page = fields.render(canvas);
    if verdict.is_same() {
        return page;
    }
    page.push_str(&format!("\n{}", table(verdict).render(canvas)));
    for diff in prompt_diffs(incident, configuration, verdict) {
        page.push_str(&format!("\n{}", text::printable(&diff)));
    }
    page
}

fn table(verdict: &IncidentVerdict) -> Table {
    let mut table = Table::new([
        Column::new("AGENT").cut(),
        Column::new("STEP"),
        Column::new("DIFFERS"),
        Column::new("RECORDED").below(1, "recorded"),
        Column::new("NOW").below(2, "now"),
    ]);
    for found in &verdict.found {
        let Divergence {
            step,
            part,
            recorded,
            now,
            ..
        } = &found.divergence;
        let shown = |text: &str| Cell::from(text::fit(&text::one_line(text), TEXT_COLUMNS));
        table.row([
            Cell::from(&found.agent_name),
            step.to_string().into(),
            Cell::styled(part.as_str(), style::BAD),
            shown(recorded),
            shown(now),
        ]);
    }
    table
}

/// Changes of prompts, as unified diffs, once for each agent.
fn prompt_diffs(
    incident: &Incident,
    configuration: &ReplayConfiguration,
    verdict: &IncidentVerdict,
) -> Vec<String> {
    let changed = verdict.found.iter();
    let changed = changed.filter(|found| found.divergence.part == DivergentPart::Prompt);
    let mut agents: Vec<&AgentName> = changed.map(|found| &found.agent_name).collect();
    agents.sort();
    agents.dedup();
    let diffs = agents.into_iter().map(|agent| {
        let recorded = incident.configuration.agents.get(agent);
        let recorded = recorded.and_then(|it| it.get("systemPrompt")?.as_str());
        let now = configuration.agents.get(agent);
        let now = now.and_then(|it| it.system_prompt.as_deref());
        let name = format!("prompt of {agent}");
        diff::unified(&name, recorded.unwrap_or_default(), now.unwrap_or_default())
    });
    diffs.collect()
}

/// The result of a file of `gdn incident test`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IncidentResult {
    pub(super) file: String,
    /// `same`, `differs` or `unreadable`.
    pub(super) result: &'static str,
    pub(super) turns: usize,
    pub(super) steps: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) divergences: Vec<TurnDivergence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl IncidentResult {
    /// The first difference, or the error.
    fn why(&self) -> String {
        let first = self.divergences.first().map(one_line);
        first.or_else(|| self.error.clone()).unwrap_or_default()
    }
}

pub(super) fn table_of_files(files: &[IncidentResult]) -> Table {
    let mut table = Table::new([
        Column::new("FILE").cut(),
        Column::new("TURNS"),
        Column::new("STEPS"),
        Column::new("RESULT"),
        Column::new("FIRST DIFFERENCE").below(1, ""),
    ]);
    for file in files {
        let style = match file.result {
            "same" => style::GOOD,
            _ => style::BAD,
        };
        table.row([
            Cell::from(text::one_line(&file.file)),
            file.turns.to_string().into(),
            file.steps.to_string().into(),
            Cell::styled(file.result, style),
            text::one_line(&file.why()).into(),
        ]);
    }
    table
}

/// A report in the format of `JUnit` with a test case for each file.
pub(super) fn junit(files: &[IncidentResult]) -> String {
    let failed = files.iter().filter(|file| file.result == "differs").count();
    let broken = files
        .iter()
        .filter(|file| file.result == "unreadable")
        .count();
    let mut report = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"gdn incident test\" tests=\"{}\" \
         failures=\"{failed}\" errors=\"{broken}\">\n",
        files.len()
    );
    for file in files {
        let name = escaped(&file.file);
        report.push_str(&format!(
            "  <testcase classname=\"incident\" name=\"{name}\""
        ));
        if file.result == "same" {
            report.push_str("/>\n");
            continue;
        }
        let kind = match file.result {
            "differs" => "failure",
            _ => "error",
        };
        let why = escaped(&text::one_line(&file.why()));
        let all = file.divergences.iter().map(one_line);
        let all = escaped(&all.collect::<Vec<_>>().join("\n"));
        report.push_str(&format!(
            ">\n    <{kind} message=\"{why}\">{all}</{kind}>\n  </testcase>\n"
        ));
    }
    report.push_str("</testsuite>\n");
    report
}

/// Text for an attribute or an element of XML. Characters that XML does not allow are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_for_ci_is_valid_and_counts() {
        let file = |file: &str, result: &'static str, error: Option<&str>| IncidentResult {
            file: file.to_owned(),
            result,
            turns: 1,
            steps: 2,
            divergences: Vec::new(),
            error: error.map(str::to_owned),
        };
        let files = [
            file("a.json", "same", None),
            file(
                "b<\"&>.json",
                "unreadable",
                Some("it is damaged: \u{1} <x>"),
            ),
        ];
        let report = junit(&files);
        assert!(
            report.contains("tests=\"2\" failures=\"0\" errors=\"1\""),
            "{report}"
        );
        assert!(
            report.contains("name=\"b&lt;&quot;&amp;&gt;.json\""),
            "{report}"
        );
        assert!(
            report.contains("&lt;x&gt;") && !report.contains('\u{1}'),
            "{report}"
        );
        assert!(report.ends_with("</testsuite>\n"));
    }
}
