//! Many lists at once, such as one of each workspace.
//!
//! One after another, each list would take the time of an exchange with the daemon.

use std::collections::{HashMap, VecDeque};

use goondan_protocol::control::ControlError;
use serde_json::value::RawValue;

use crate::{CallError, Client, PagedMethod, RequestTimeout, refused, within};

/// Requests in flight at a time. The daemon accepts four times as many on one connection.
const IN_FLIGHT_MAX: usize = 32;

/// A request for the next page of one of the lists.
struct Turn<L> {
    /// Position of the list among the others.
    place: usize,
    list: L,
}

impl Client {
    /// All items of each list, from the requested page to the last, in the order of `lists`. A list
    /// that the daemon refuses does not affect the others.
    ///
    /// After an error, the connection must not be used again, because its next answers would
    /// belong to these requests.
    ///
    /// # Errors
    ///
    /// As [`Self::query`], except for refusals.
    pub async fn all_of_each<L: PagedMethod>(
        &mut self,
        lists: impl IntoIterator<Item = L>,
    ) -> Result<Vec<Result<Vec<L::Item>, ControlError>>, CallError> {
        let turns = lists.into_iter().enumerate();
        let mut waiting: VecDeque<Turn<L>> =
            turns.map(|(place, list)| Turn { place, list }).collect();
        let mut listed: Vec<Result<Vec<L::Item>, ControlError>> =
            waiting.iter().map(|_| Ok(Vec::new())).collect();
        let mut in_flight = HashMap::new();
        loop {
            while in_flight.len() < IN_FLIGHT_MAX
                && let Some(turn) = waiting.pop_front()
            {
                let id = self.send(L::NAME, &turn.list).await?;
                in_flight.insert(id, turn);
            }
            if in_flight.is_empty() {
                return Ok(listed);
            }
            let receive = self.receive(L::NAME);
            let incoming = within(RequestTimeout::Query, L::NAME, receive).await?;
            let asked = incoming.id.and_then(|id| in_flight.remove(&id));
            let Some(mut turn) = asked else {
                match incoming.error {
                    // It ends the connection.
                    Some(error) => return Err(refused(incoming.id, error.into())),
                    None => continue,
                }
            };
            let Some(of_it) = listed.get_mut(turn.place) else {
                continue;
            };
            if let Some(error) = incoming.error {
                *of_it = Err(error.into());
                continue;
            }
            let result = incoming.result.as_deref().map_or("null", RawValue::get);
            let page = serde_json::from_str(result).map_err(|source| CallError::Unreadable {
                method: L::NAME,
                source,
            })?;
            if let Ok(items) = of_it
                && turn.list.turn(page, items)
            {
                waiting.push_front(turn);
            }
        }
    }
}
