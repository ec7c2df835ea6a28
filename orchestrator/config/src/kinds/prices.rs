//! Prices of a model's tokens, in a Model.

use goondan_protocol::definition::HostedProvider;
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{MicroUsd, Price, PriceTable};

use super::Context;
use crate::codes;
use crate::fields::Fields;
use crate::report::Problem;
use crate::shape::{Field, FieldDefault, FieldType, Shape};

/// The field `prices` of a Model.
pub(crate) const PRICES: Field = Field::optional(
    "prices",
    FieldType::List(&EACH),
    "Prices of its tokens. Without them, the cost of a reply is unknown.",
);

static EACH: FieldType = FieldType::Mapping(&PRICE);

static PRICE: Shape = Shape::of(
    "Price",
    "Prices of a million tokens, in US dollars, from a given day.",
    &[
        Field::optional(
            "since",
            FieldType::Text,
            "The first day (UTC) on which these prices apply, such as `2026-01-31`.",
        )
        .or(FieldDefault::Meaning("no first day")),
        Field::required("input", FieldType::Amount, "Price of input tokens."),
        Field::required(
            "output",
            FieldType::Amount,
            "Price of output tokens, including reasoning.",
        ),
        Field::optional(
            "cacheRead",
            FieldType::Amount,
            "Price of tokens read from the provider's cache.",
        )
        .or(FieldDefault::Meaning(
            "same as `input`; for `anthropic`, a tenth",
        )),
        Field::optional(
            "cacheWrite",
            FieldType::Amount,
            "Price of tokens written to the provider's cache.",
        )
        .or(FieldDefault::Meaning(
            "same as `input`; for `anthropic`, a quarter more",
        )),
    ],
);

/// Reads the field `prices`.
pub(crate) fn read(
    fields: &mut Fields<'_>,
    provider: HostedProvider,
    cx: &mut Context<'_>,
) -> PriceTable {
    let mut prices: Vec<Price> = Vec::new();
    for written in fields
        .mappings("prices", &mut cx.report)
        .into_iter()
        .flatten()
    {
        let place = written.place;
        let Some(price) = read_price(written, provider, cx) else {
            continue;
        };
        if prices.iter().any(|other| other.since == price.since) {
            cx.report.add(
                Problem::new(
                    codes::INVALID_VALUE,
                    place,
                    "two prices of the model have the same `since`",
                )
                .help("change one `since`, or remove one of the prices"),
            );
        }
        prices.push(price);
    }
    PriceTable::new(prices)
}

/// Default cache prices of a provider in percent of `input`: for reads and for writes. goondan
/// enables the cache of Anthropic, whose published prices these are.
fn cache_percents(provider: HostedProvider) -> (u64, u64) {
    match provider {
        HostedProvider::Anthropic => (10, 125),
        HostedProvider::OpenAi | HostedProvider::Google => (100, 100),
    }
}

fn read_price(
    mut fields: Fields<'_>,
    provider: HostedProvider,
    cx: &mut Context<'_>,
) -> Option<Price> {
    let report = &mut cx.report;
    let mut is_known = true;
    let since = fields.text("since", report).and_then(|written| {
        let day = format!("{}T00:00:00Z", written.value).parse::<Timestamp>();
        if day.is_err() {
            is_known = false;
            let message = format!("`since` must be a day, not `{}`", written.value);
            report.add(
                Problem::new(codes::INVALID_VALUE, written.place, message)
                    .help("write it like `2026-01-31`"),
            );
        }
        day.ok()
    });
    let input = fields.amount("input", report);
    let output = fields.amount("output", report);
    let cache_read = fields.amount("cacheRead", report);
    let cache_write = fields.amount("cacheWrite", report);
    fields.close();
    let input = input?;
    let (read_percent, write_percent) = cache_percents(provider);
    let share = |percent: u64| MicroUsd(input.0.saturating_mul(percent).div_ceil(100));
    is_known.then_some(Price {
        since,
        input,
        output: output?,
        cache_read: cache_read.unwrap_or_else(|| share(read_percent)),
        cache_write: cache_write.unwrap_or_else(|| share(write_percent)),
    })
}
