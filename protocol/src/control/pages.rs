//! Paging of lists (`OBS-1`), because a response must fit into a frame.

/// Takes the first page of a list: at most `limit` items, which defaults to and is capped at
/// `limit_max`. Also returns the position of the last item if more follow.
pub(super) fn page_of<T, P>(
    items: impl Iterator<Item = T>,
    limit: Option<usize>,
    limit_max: usize,
    place_of: impl FnOnce(&T) -> P,
) -> (Vec<T>, Option<P>) {
    let limit = limit.unwrap_or(limit_max).clamp(1, limit_max);
    let mut page: Vec<T> = items.take(limit + 1).collect();
    let is_last = page.len() <= limit;
    page.truncate(limit);
    let next = page.last().filter(|_| !is_last).map(place_of);
    (page, next)
}

/// Like [`page_of`] for items that must be read first; reads at most one item beyond the page.
///
/// # Errors
///
/// The first error of the iterator.
pub(super) fn try_page_of<T, P, E>(
    items: impl Iterator<Item = Result<T, E>>,
    limit: Option<usize>,
    limit_max: usize,
    place_of: impl FnOnce(&T) -> P,
) -> Result<(Vec<T>, Option<P>), E> {
    let mut failed = None;
    let read = items.map_while(|item| item.map_err(|error| failed = Some(error)).ok());
    let page = page_of(read, limit, limit_max, place_of);
    failed.map_or(Ok(page), Err)
}

#[cfg(test)]
mod tests {
    use super::{page_of, try_page_of};

    #[test]
    fn obs_1_pages_of_a_list_miss_and_repeat_nothing() {
        for limit in [None, Some(0), Some(1), Some(2), Some(3), Some(9)] {
            let mut after = None;
            let mut seen = Vec::new();
            // Between pages one seen item disappears, and one is added before the cursor.
            let mut there = vec![2, 3, 5, 7];
            loop {
                let behind = there.iter().copied();
                let behind = behind.filter(|it| after.is_none_or(|after| *it > after));
                let (page, next) = page_of(behind, limit, 3, |last| *last);
                assert!(page.len() <= limit.unwrap_or(3).clamp(1, 3), "{limit:?}");
                seen.extend(page);
                if next.is_none() {
                    break;
                }
                after = next;
                there.retain(|it| *it != 2);
                there.insert(0, 1);
            }
            assert_eq!(seen, [2, 3, 5, 7], "{limit:?}");
        }
    }

    #[test]
    fn obs_1_unreadable_item_fails_only_its_own_page() {
        let read = |from: i32| (from..9).map(|it| if it == 6 { Err("torn") } else { Ok(it) });
        let page = |from| try_page_of(read(from), None, 2, |last| *last);
        assert_eq!(page(3), Ok((vec![3, 4], Some(4))));
        assert_eq!(page(4), Err("torn"));
        assert_eq!(page(7), Ok((vec![7, 8], None)));
    }

    #[test]
    fn obs_1_full_last_page_has_no_next_page() {
        assert_eq!(
            page_of(1..=3, Some(3), 9, |last| *last),
            (vec![1, 2, 3], None)
        );
        assert_eq!(page_of(0..0, None, 9, |last: &i32| *last), (vec![], None));
    }
}
