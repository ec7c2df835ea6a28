//! The store as its documentation describes it, on a real file system.

#[cfg(test)]
mod documentation;
