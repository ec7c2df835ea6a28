//! The time of a server, to which points in time in its answers refer.
//!
//! The clock of this machine can be wrong by hours, for example after a suspension or in a virtual
//! machine. A pause until a point in time would then last for hours, or not at all.

use axum::http::HeaderMap;
use axum::http::header::DATE;
use jiff::Timestamp;

/// The time at which a server answered: its `Date`, or else that of this machine.
pub(crate) fn time_of_answer(headers: &HeaderMap) -> Timestamp {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    date.map_or_else(Timestamp::now, |date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_the_time_of_an_answer_is_that_of_its_server() {
        let at = |date: &'static str| {
            let date = axum::http::HeaderValue::from_static(date);
            time_of_answer(&HeaderMap::from_iter([(DATE, date)])).as_second()
        };
        assert_eq!(at("Thu, 01 Jan 1970 00:01:00 GMT"), 60);
        let now = Timestamp::now().as_second();
        assert!((now..now + 60).contains(&at("yesterday")));
        assert!((now..now + 60).contains(&time_of_answer(&HeaderMap::new()).as_second()));
    }
}
