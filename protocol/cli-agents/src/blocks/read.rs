//! Parses and validates blocks from their fields.

use super::fields::{Fields, bad_value, item_of};
use super::{
    AgentError, Block, DependencyKind, DependencyRequest, ErrorKind, HandoffText, Problem,
    Progress, QuestionCategory, UserQuestion,
};
use crate::limits::{FIELD_CHARS_MAX, OPTIONS_MAX};

/// A kind of block that has an opening and a closing tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Dependency,
    Question,
    Error,
    Handoff,
}

impl Tag {
    const ALL: [Self; 4] = [Self::Dependency, Self::Question, Self::Error, Self::Handoff];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dependency => "DEPENDENCY_REQUEST",
            Self::Question => "USER_QUESTION",
            Self::Error => "ERROR",
            Self::Handoff => "HANDOFF",
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Dependency => &["type", "name", "description", "required", "default"],
            Self::Question => &["category", "question", "options", "default", "required"],
            Self::Error => &["type", "message", "recovery"],
            Self::Handoff => &[],
        }
    }

    fn named(line: &str, before: &str) -> Option<Self> {
        let name = line.trim_end().strip_prefix(before)?.strip_suffix(']')?;
        Self::ALL.into_iter().find(|tag| tag.name() == name)
    }

    /// The kind of block that a line opens.
    pub(super) fn opened_by(line: &str) -> Option<Self> {
        Self::named(line, "[")
    }

    /// The kind of block that a line closes.
    pub(super) fn closed_by(line: &str) -> Option<Self> {
        Self::named(line, "[/")
    }

    /// Parses the lines between the tags.
    pub(super) fn read(self, text: &str) -> Result<Block, Problem> {
        if self == Self::Handoff {
            let text = text.trim_matches('\n').to_owned();
            return if text.trim().is_empty() {
                Err(Problem::Missing { field: "text" })
            } else {
                Ok(Block::Handoff(HandoffText { text }))
            };
        }
        let mut fields = Fields::default();
        for line in text.lines() {
            fields.line(self.fields(), line);
        }
        match self {
            Self::Dependency => dependency(&fields).map(Block::DependencyRequest),
            Self::Question => question(&fields).map(Block::UserQuestion),
            Self::Error | Self::Handoff => error(&fields).map(Block::Error),
        }
    }
}

const YES_OR_NO: [(&str, bool); 4] = [
    ("true", true),
    ("false", false),
    ("yes", true),
    ("no", false),
];

fn required(fields: &Fields) -> Result<bool, Problem> {
    let required = fields.word("required", &YES_OR_NO, "true or false")?;
    Ok(required.unwrap_or(true))
}

/// True if an environment variable can have this name.
pub(crate) fn is_environment_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn dependency(fields: &Fields) -> Result<DependencyRequest, Problem> {
    const KINDS: [(&str, DependencyKind); 6] = [
        ("api_key", DependencyKind::ApiKey),
        ("env_variable", DependencyKind::EnvVariable),
        ("service", DependencyKind::Service),
        ("file", DependencyKind::File),
        ("permission", DependencyKind::Permission),
        ("package", DependencyKind::Package),
    ];
    let allowed = "api_key, env_variable, service, file, permission or package";
    let kind = fields.word("type", &KINDS, allowed)?;
    let kind = kind.ok_or(Problem::Missing { field: "type" })?;
    let name = fields.needed("name")?;
    if kind.is_environment() && !is_environment_name(&name) {
        let allowed = "a name of the environment: letters, digits and `_`";
        return Err(bad_value("name", &name, allowed));
    }
    if name.contains('\n') {
        return Err(bad_value("name", &name, "one line"));
    }
    Ok(DependencyRequest {
        kind,
        name,
        description: fields.text("description")?.unwrap_or_default(),
        required: required(fields)?,
        default: fields.text("default")?,
    })
}

fn question(fields: &Fields) -> Result<UserQuestion, Problem> {
    const CATEGORIES: [(&str, QuestionCategory); 4] = [
        ("business", QuestionCategory::Business),
        ("clarification", QuestionCategory::Clarification),
        ("choice", QuestionCategory::Choice),
        ("confirmation", QuestionCategory::Confirmation),
    ];
    let allowed = "business, clarification, choice or confirmation";
    let category = fields.word("category", &CATEGORIES, allowed)?;
    let options = fields.text("options")?.unwrap_or_default();
    Ok(UserQuestion {
        category: category.unwrap_or(QuestionCategory::Clarification),
        question: fields.needed("question")?,
        options: self::options(&options)?,
        default: fields.text("default")?,
        required: required(fields)?,
    })
}

/// Options as lines `- x`, or as `[a, b]`.
fn options(text: &str) -> Result<Vec<String>, Problem> {
    let inline = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let options: Vec<String> = match inline {
        Some(list) if !list.contains('\n') => list
            .split(',')
            .map(|option| option.trim().trim_matches(['"', '\'']).trim().to_owned())
            .filter(|option| !option.is_empty())
            .collect(),
        _ => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let items = lines.map(|line| {
                let allowed = "lines `- x`, or `[a, b]`";
                item_of(line).ok_or_else(|| bad_value("options", line, allowed))
            });
            let items: Result<Vec<&str>, Problem> = items.collect();
            items?.into_iter().map(str::to_owned).collect()
        }
    };
    if options.len() > OPTIONS_MAX {
        let (field, max) = ("options", OPTIONS_MAX);
        return Err(Problem::TooMany { field, max });
    }
    Ok(options)
}

fn error(fields: &Fields) -> Result<AgentError, Problem> {
    const KINDS: [(&str, ErrorKind); 2] = [
        ("recoverable", ErrorKind::Recoverable),
        ("fatal", ErrorKind::Fatal),
    ];
    let kind = fields.word("type", &KINDS, "recoverable or fatal")?;
    Ok(AgentError {
        kind: kind.ok_or(Problem::Missing { field: "type" })?,
        message: fields.needed("message")?,
        recovery: fields.text("recovery")?,
    })
}

/// Parses a completion line: the number of a completed phase, or none inside for the whole task.
pub(super) fn completion_of(line: &str) -> Option<Option<u32>> {
    let ended = line
        .trim_end()
        .strip_prefix("=== ")?
        .strip_suffix(" COMPLETE ===")?;
    if ended == "CUSTOM TASK" {
        return Some(None);
    }
    let number = ended.strip_prefix("PHASE ")?.parse().ok()?;
    (number > 0).then_some(Some(number))
}

/// True if a line begins the document list of a completion.
pub(super) fn begins_documents(line: &str) -> bool {
    line.trim().eq_ignore_ascii_case("documents created:")
}

/// Parses a path in the work area: relative, and without leaving it.
pub(crate) fn document_of(text: &str) -> Result<String, Problem> {
    const PATH_BYTES_MAX: usize = 3 * 1024;
    let path = text.trim_matches('`').trim();
    let is_inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_inside && path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control) {
        Ok(path.to_owned())
    } else {
        Err(bad_value("documents", path, "a path in the work area"))
    }
}

pub(super) fn progress_of(line: &str) -> Option<Progress> {
    let (head, rest) = line.split_once(':')?;
    let title = rest.trim();
    if title.is_empty() || title.chars().nth(FIELD_CHARS_MAX).is_some() {
        return None;
    }
    if head.eq_ignore_ascii_case("progress") {
        let percent = title.strip_suffix('%')?.trim().parse().ok()?;
        return (percent <= 100).then_some(Progress::Percent(percent));
    }
    if head.eq_ignore_ascii_case("document created") {
        return document_of(title).ok().map(Progress::Document);
    }
    let title = title.to_owned();
    if let Some(number) = head.strip_prefix("Phase ") {
        let number = number.parse().ok().filter(|number| *number > 0)?;
        return Some(Progress::Phase { number, title });
    }
    let (number, total) = match head.strip_prefix("Step ")?.split_once('/') {
        Some((number, total)) => (number, Some(total.trim().parse().ok()?)),
        None => (head.strip_prefix("Step ")?, None),
    };
    let number = number.trim().parse().ok()?;
    Some(Progress::Step {
        number,
        total,
        title,
    })
}
