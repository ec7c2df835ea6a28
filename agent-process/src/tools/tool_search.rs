//! The tool of the extension `tool-search`: finds tools by their purpose.
//!
//! A query word that fewer tools contain weighs more, and a word in a tool's name weighs more than
//! one in its description. The same catalog and query give the same answer.

use std::borrow::Cow;
use std::collections::BTreeSet;

use goondan_protocol::base_package::BaseContract;
use goondan_protocol::definition::{AgentDefinition, CatalogEntry, ExtensionSource};
use goondan_protocol::extension_settings::ExtensionSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use crate::tool_call::ToolOutcome;

/// Longest description in a result, in characters; the catalog has the full text.
const SHOWN_CHARS_MAX: usize = 240;
/// Factor for a word in a tool's name.
const NAME_WEIGHT: f64 = 3.0;
/// Factor for a partial match: one word is a prefix of the other.
const BEGINNING_WEIGHT: f64 = 0.5;
/// Shortest matching prefix, in characters.
const BEGINNING_CHARS_MIN: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct SearchSettings {
    /// The full name of the tool.
    pub(crate) tool_name: String,
    /// Maximum number of tools per search.
    results_max: usize,
    /// The shortest query, in characters.
    query_chars_min: usize,
    /// The contract of its arguments and results.
    contract: BaseContract,
}

/// Search settings of an agent; `None` if it does not have the extension.
pub(crate) fn settings_of(agent: &AgentDefinition) -> Option<SearchSettings> {
    let mut all = agent.extensions.iter();
    all.find_map(|extension| {
        let ExtensionSource::Builtin { name, .. } = &extension.source else {
            return None;
        };
        match ExtensionSettings::read(name.as_str(), &extension.config) {
            Ok(ExtensionSettings::ToolSearch {
                tool_name,
                max_results,
                min_query_length,
                ..
            }) => Some(SearchSettings {
                tool_name,
                results_max: max_results,
                query_chars_min: min_query_length,
                contract: agent.contract,
            }),
            Ok(_) | Err(_) => None,
        }
    })
}

/// Description of the tool for models.
pub(crate) fn description() -> Cow<'static, str> {
    "Finds tools by their purpose that you are not offered yet. The tools it finds are offered from the next step on: call them then. Search again with other words if nothing fits.".into()
}

/// Schema of its arguments.
pub(crate) fn parameters(settings: &SearchSettings) -> Value {
    if settings.contract == BaseContract::V0_0_3 {
        return json!({
            "type": "object",
            "required": ["query"],
            "properties": {
                "query": {"type": "string", "minLength": 1}, "limit": {"type": "number"},
            },
        });
    }
    json!({
        "type": "object",
        "required": ["query"],
        "additionalProperties": false,
        "properties": {
            "query": {
                "type": "string", "minLength": settings.query_chars_min, "maxLength": 1_000,
                "description": "Your goal in a few words, or the name of a tool",
            },
        },
    })
}

#[derive(Deserialize)]
struct FindArgs {
    query: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Findings {
    tools: Vec<ToolMatch>,
    /// Number of weaker matches that are left out.
    more: usize,
}

#[derive(Deserialize)]
struct OlderArgs {
    query: String,
    #[serde(default)]
    limit: Option<f64>,
}

/// The result in goondan 0.0.3.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OlderFindings {
    query: String,
    results: Vec<OlderMatch>,
    /// Names of the results.
    selected_tools: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OlderMatch {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct ToolMatch {
    name: String,
    description: String,
}

/// Answers a call.
pub(crate) fn run(
    call: &ToolInvocation,
    catalog: &[CatalogEntry],
    settings: &SearchSettings,
) -> ToolOutcome {
    if settings.contract == BaseContract::V0_0_3 {
        return run_older(call, catalog, settings).unwrap_or_else(ToolOutcome::from);
    }
    let FindArgs { query } = match call.args() {
        Ok(args) => args,
        Err(fault) => return fault.into(),
    };
    let SearchSettings {
        tool_name,
        results_max,
        ..
    } = settings;
    let ranked = ranked(catalog, tool_name, &query);
    if ranked.is_empty() {
        let count = catalog.len().saturating_sub(1);
        return ToolFault::new(
            "E_NO_MATCH",
            format!("no match among {count} tools; try other words"),
        )
        .into();
    }
    let more = ranked.len().saturating_sub(*results_max);
    let tools = ranked
        .into_iter()
        .take(*results_max)
        .map(|entry| ToolMatch {
            name: entry.name.to_string(),
            description: shown(&entry.description),
        });
    let findings = Findings {
        tools: tools.collect(),
        more,
    };
    match serde_json::to_string(&findings) {
        Ok(text) => ToolOutcome::ok(text),
        Err(error) => ToolFault::new("E_TOOL_FAILED", error.to_string()).into(),
    }
}

/// Finds the tools whose name or description contains the query, in the order of the catalog.
fn run_older(
    call: &ToolInvocation,
    catalog: &[CatalogEntry],
    settings: &SearchSettings,
) -> Result<ToolOutcome, ToolFault> {
    let OlderArgs { query, limit } = call.args()?;
    let wanted = query.trim().to_lowercase();
    let is_long_enough =
        !wanted.is_empty() && wanted.encode_utf16().count() >= settings.query_chars_min;
    let results: Vec<OlderMatch> = catalog
        .iter()
        .filter(|entry| {
            let has = |text: &str| text.to_lowercase().contains(&wanted);
            is_long_enough && (has(entry.name.as_str()) || has(&entry.description))
        })
        .take(limit_of(limit, settings.results_max))
        .map(|entry| OlderMatch {
            name: entry.name.to_string(),
            description: entry.description.clone(),
        })
        .collect();
    let found = OlderFindings {
        selected_tools: results.iter().map(|it| it.name.clone()).collect(),
        query,
        results,
    };
    let text = serde_json::to_string(&found);
    let text = text.map_err(|error| ToolFault::new("E_TOOL_FAILED", error.to_string()))?;
    Ok(ToolOutcome::ok(text))
}

/// The requested number of results: at least 1, at most `most`.
fn limit_of(requested: Option<f64>, most: usize) -> usize {
    let most = most.max(1);
    let Some(requested) = requested else {
        return most;
    };
    // The count of whole numbers up to the requested one, which needs no conversion.
    let fits = |count: &usize| u32::try_from(*count).is_ok_and(|it| f64::from(it) <= requested);
    (1..=most).take_while(fits).last().unwrap_or(1)
}

pub(crate) fn names_found(result: &str) -> Vec<String> {
    if let Ok(older) = serde_json::from_str::<OlderFindings>(result) {
        return older.selected_tools;
    }
    let findings = serde_json::from_str::<Findings>(result);
    let tools = findings.map_or_else(|_| Vec::new(), |findings| findings.tools);
    tools.into_iter().map(|finding| finding.name).collect()
}

/// Tools that match the query, best first; ties are sorted by name.
fn ranked<'c>(catalog: &'c [CatalogEntry], search: &str, query: &str) -> Vec<&'c CatalogEntry> {
    let wanted = words(query);
    let tools: Vec<(&CatalogEntry, ToolKeywords)> = catalog
        .iter()
        .filter(|entry| entry.name.as_str() != search)
        .map(|entry| (entry, ToolKeywords::of(entry)))
        .collect();
    let rarity: Vec<(&String, f64)> = wanted
        .iter()
        .map(|word| {
            let having = tools.iter().filter(|(_, of)| of.score(word) > 0.0).count();
            (word, rarity(tools.len(), having))
        })
        .collect();
    let mut scored: Vec<(f64, &CatalogEntry)> = tools
        .iter()
        .map(|(entry, of)| {
            let asked_by_name = query.trim().eq_ignore_ascii_case(entry.name.as_str());
            let score = rarity.iter().map(|(word, rarity)| rarity * of.score(word));
            let score: f64 = score.sum();
            (if asked_by_name { f64::MAX } else { score }, *entry)
        })
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.name.cmp(&other.name)));
    scored.into_iter().map(|(_, entry)| entry).collect()
}

/// Weight of a word that `having` of `all` tools contain.
fn rarity(all: usize, having: usize) -> f64 {
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (1.0 + count(all) / count(having.max(1))).ln()
}

struct ToolKeywords {
    name: BTreeSet<String>,
    about: BTreeSet<String>,
}

impl ToolKeywords {
    fn of(entry: &CatalogEntry) -> Self {
        let mut about = words(&entry.description);
        let properties = entry.parameters.get("properties");
        for (name, schema) in properties.and_then(Value::as_object).into_iter().flatten() {
            about.extend(words(name));
            let described = schema.get("description").and_then(Value::as_str);
            about.extend(described.map(words).unwrap_or_default());
        }
        Self {
            name: words(entry.name.as_str()),
            about,
        }
    }

    fn score(&self, word: &str) -> f64 {
        let in_set = |set: &BTreeSet<String>| {
            if set.contains(word) {
                return 1.0;
            }
            let begins =
                |a: &str, b: &str| b.chars().count() >= BEGINNING_CHARS_MIN && a.starts_with(b);
            let is_near = |other: &String| begins(other, word) || begins(word, other);
            if set.iter().any(is_near) {
                BEGINNING_WEIGHT
            } else {
                0.0
            }
        };
        NAME_WEIGHT * in_set(&self.name) + in_set(&self.about)
    }
}

/// Words of a text in lower case; `camelCase` and `snake_case` names are split.
fn words(text: &str) -> BTreeSet<String> {
    let mut apart = String::with_capacity(text.len());
    let mut was_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && was_lower {
            apart.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        apart.extend(c.to_lowercase());
    }
    apart
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn shown(description: &str) -> String {
    let mut shown: String = description.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < description.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use goondan_protocol::settings::TOOL_SEARCH_FIND;

    use super::*;

    fn settings() -> SearchSettings {
        SearchSettings {
            tool_name: TOOL_SEARCH_FIND.to_owned(),
            results_max: 1,
            query_chars_min: 1,
            contract: BaseContract::Own,
        }
    }

    fn catalog() -> Vec<CatalogEntry> {
        [
            (
                "orders__list",
                "Lists the orders of a customer.",
                "customerId",
            ),
            (
                "orders__cancel",
                "Cancels an order that is not sent yet.",
                "orderId",
            ),
            ("invoices__send", "Sends an invoice by mail.", "invoiceId"),
            (
                "weather__forecast",
                "Tells the weather of the next days.",
                "city",
            ),
            (
                TOOL_SEARCH_FIND,
                "Looks for tools: orders, invoices, weather.",
                "query",
            ),
        ]
        .map(|(name, description, argument)| CatalogEntry {
            name: name.parse().unwrap(),
            description: description.to_owned(),
            parameters: json!({"type": "object", "properties": {argument: {"type": "string"}}}),
        })
        .to_vec()
    }

    fn found(query: &str) -> Vec<String> {
        let catalog = catalog();
        let ranked = ranked(&catalog, TOOL_SEARCH_FIND, query);
        ranked.iter().map(|entry| entry.name.to_string()).collect()
    }

    #[test]
    fn tool_search_ranks_best_match_first_and_omits_mismatches() {
        assert_eq!(found("cancel an order")[0], "orders__cancel");
        assert_eq!(found("order"), ["orders__cancel", "orders__list"]);
        assert_eq!(found("mail the invoice")[0], "invoices__send");
        assert_eq!(found("customerId")[0], "orders__list");
        assert_eq!(found("Weather__Forecast")[0], "weather__forecast");
        assert_eq!(found("zebra"), Vec::<String>::new());
    }

    #[test]
    fn compat_2_tool_search_has_the_result_of_0_0_3() {
        let older = SearchSettings {
            results_max: 3,
            contract: BaseContract::V0_0_3,
            ..settings()
        };
        let found = |args: Value| {
            let call = ToolInvocation {
                call_id: "c".to_owned(),
                args,
                span: tracing::Span::none(),
                site: None,
            };
            run(&call, &catalog(), &older).text
        };
        assert_eq!(
            found(json!({"query": " Cancel"})),
            r#"{"query":" Cancel","results":[{"name":"orders__cancel","description":"Cancels an order that is not sent yet."}],"selectedTools":["orders__cancel"]}"#
        );
        assert_eq!(
            found(json!({"query": "zebra"})),
            r#"{"query":"zebra","results":[],"selectedTools":[]}"#
        );
        for (limit, count) in [(0.0, 1), (1.9, 1), (2.0, 2), (99.0, 3)] {
            let text = found(json!({"query": "s", "limit": limit}));
            assert_eq!(names_found(&text).len(), count, "{limit}");
        }
        let names = names_found(&found(json!({"query": "order"})));
        assert_eq!(names, ["orders__list", "orders__cancel", TOOL_SEARCH_FIND]);
    }

    #[test]
    fn tool_search_lists_matches_and_the_number_of_further_ones() {
        let call = |query: &str| ToolInvocation {
            call_id: "c".to_owned(),
            args: json!({ "query": query }),
            span: tracing::Span::none(),
            site: None,
        };
        let outcome = run(&call("orders"), &catalog(), &settings());
        assert!(!outcome.is_error, "{}", outcome.text);
        assert_eq!(names_found(&outcome.text).len(), 1);
        assert!(outcome.text.ends_with("\"more\":1}"), "{}", outcome.text);
        let nothing = run(&call("zebra"), &catalog(), &settings());
        assert_eq!(
            nothing.text,
            "E_NO_MATCH: no match among 4 tools; try other words"
        );
        assert_eq!(names_found(&nothing.text), Vec::<String>::new());
    }
}
