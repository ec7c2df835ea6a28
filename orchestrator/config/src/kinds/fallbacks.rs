//! `modelConfig.fallbacks` of an Agent: models that are used when its model fails (`STEER-5`).

use goondan_protocol::call::CallErrorCode;
use goondan_protocol::definition::{Fallback, ModelParams};

use super::{Context, keyword_lists, params};
use crate::codes;
use crate::fields::Fields;
use crate::kind::ResourceKind;
use crate::limits::MAX_FALLBACK_MODELS;
use crate::reference::Reference;
use crate::report::{Problem, SourceLocation};
use crate::shape::{Field, FieldDefault, FieldType, Shape};

pub(crate) const OF_MODEL_CONFIG: Field = Field::optional(
    "fallbacks",
    FieldType::List(&ENTRY),
    "Models to try, in order, when the model cannot answer. Not with the scripted model.",
);

static ENTRY: FieldType = FieldType::Mapping(&FALLBACK);

static FALLBACK: Shape = Shape::of(
    "Fallback",
    "A model to try when the previous one cannot answer.",
    &[
        Field::required("modelRef", FieldType::Reference(ResourceKind::MODEL), "The Model."),
        Field::optional(
            "params",
            FieldType::Mapping(&params::PARAMS),
            "Parameters of each call; they override the Model's.",
        ),
        Field::optional(
            "on",
            FieldType::List(&FieldType::Word(&WORDS)),
            "Kinds of failure of the previous model, after its last attempt, that lead to this one.",
        )
        .or(FieldDefault::Meaning(
            "rateLimited, overloaded, unavailable, timedOut, interrupted",
        )),
    ],
);

/// The words of [`Fallback::NAMED`].
static WORDS: [&str; 10] = [
    "rateLimited",
    "overloaded",
    "unavailable",
    "timedOut",
    "interrupted",
    "unauthorized",
    "notFound",
    "refused",
    "tooLarge",
    "internal",
];

/// An entry as written.
#[derive(Debug)]
pub(crate) struct FallbackSpec {
    pub(crate) model: Reference,
    pub(crate) params: ModelParams,
    /// Their place, if they are given.
    pub(crate) params_place: Option<SourceLocation>,
    pub(crate) on: Vec<CallErrorCode>,
}

/// Reads the field; unreadable entries are skipped.
pub(crate) fn read(config: &mut Fields<'_>, cx: &mut Context<'_>) -> Vec<FallbackSpec> {
    let place = config.place_of("fallbacks");
    let entries = config.mappings("fallbacks", &mut cx.report);
    if let Some(place) = place.filter(|_| entries.len() > MAX_FALLBACK_MODELS) {
        let message = format!(
            "`fallbacks` has {} entries; at most {MAX_FALLBACK_MODELS} are allowed",
            entries.len()
        );
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, place, message).help("remove some"));
    }
    let entries = entries.into_iter().flatten();
    entries.filter_map(|entry| read_entry(entry, cx)).collect()
}

fn read_entry(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<FallbackSpec> {
    let model = fields.reference("modelRef", &mut cx.report);
    let params = params::read(&mut fields, cx);
    let params_place = fields.place_of("params");
    let on = keyword_lists::read(&mut fields, "on", &WORDS, of_word, cx);
    fields.close();
    Some(FallbackSpec {
        model: model?,
        params,
        params_place,
        on: on.unwrap_or_else(|| Fallback::USUAL.to_vec()),
    })
}

fn of_word(word: &str) -> Option<CallErrorCode> {
    let mut named = Fallback::NAMED.into_iter();
    named.find(|code| code.as_str() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_codes() {
        assert_eq!(WORDS, Fallback::NAMED.map(CallErrorCode::as_str));
    }
}
