//! The crate as its documentation describes it.

#[cfg(test)]
mod documentation;
