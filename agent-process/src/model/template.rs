//! Expansion of `${name}` in the texts of a script.

use std::collections::BTreeMap;

use serde_json::Value;

/// Captures that need no pattern: the latest user message, the latest tool result, the number of
/// the step.
pub(crate) const BUILTIN_CAPTURES: [&str; 4] = ["header", "input", "result", "step"];

/// Texts by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Captures(BTreeMap<String, String>);

impl Captures {
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Expands every `${name}` in a text. `$${` yields a literal `${`; any other `$` stays as it
    /// is.
    ///
    /// # Errors
    ///
    /// An undefined name, or a `${` without `}`.
    pub(crate) fn fill(&self, template: &str) -> Result<String, String> {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!(
                    "`${{` without `}}` in `{template}`; write `$${{` for a literal `${{`"
                ));
            };
            let Some(value) = self.0.get(name) else {
                return Err(format!(
                    "no pattern captures `{name}` in `{template}`; expected {}; write `$${{` for a \
                     literal `${{`",
                    self.names()
                ));
            };
            out.push_str(before);
            out.push_str(value);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Expands captures in every string within a value. Field names stay unchanged.
    ///
    /// # Errors
    ///
    /// As [`Captures::fill`].
    pub(crate) fn fill_value(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.fill_value(item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, field)| Ok((name.clone(), self.fill_value(field)?)))
                    .collect::<Result<_, String>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.0.keys().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn captures() -> Captures {
        let mut captures = Captures::default();
        captures.set("title", "Dune");
        captures.set("empty", "");
        captures
    }

    #[test]
    fn captures_are_put_in_and_nothing_else_is_touched() {
        let fill = |text: &str| captures().fill(text).unwrap();
        assert_eq!(fill("${title}, ${title}!${empty}"), "Dune, Dune!");
        assert_eq!(fill("$5 $HOME $${HOME} $$"), "$5 $HOME ${HOME} $$");
        assert_eq!(fill("가${title}나"), "가Dune나");
    }

    #[test]
    fn a_filled_in_text_is_not_filled_in_again() {
        let mut captures = captures();
        captures.set("input", "${title}");
        assert_eq!(captures.fill("${input}").unwrap(), "${title}");
    }

    #[test]
    fn an_unknown_capture_is_named_with_those_there_are() {
        let error = captures().fill("${tite}").unwrap_err();
        assert!(error.contains("`tite`"), "{error}");
        assert!(error.contains("`empty`, `title`"), "{error}");
        assert!(captures().fill("${title").is_err());
    }

    #[test]
    fn texts_within_arguments_are_filled_in_and_stay_texts() {
        let args = json!({"${title}": ["${title}", 1, {"a": "x ${title}"}]});
        assert_eq!(
            captures().fill_value(&args).unwrap(),
            json!({"${title}": ["Dune", 1, {"a": "x Dune"}]})
        );
    }
}
