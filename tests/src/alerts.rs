//! The alert rules of `docs/operations/alerts.yml`.

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// When it fires.
    pub expression: String,
}

/// The rules, in the order of the file. Each has its expression on one line.
#[must_use]
pub fn rules() -> Vec<Rule> {
    let text = include_str!("../../docs/operations/alerts.yml");
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            rules.push(Rule {
                name: name.to_owned(),
                expression: String::new(),
            });
        } else if let (Some(expression), Some(rule)) =
            (line.strip_prefix("expr: "), rules.last_mut())
        {
            expression.clone_into(&mut rule.expression);
        }
    }
    rules
}
