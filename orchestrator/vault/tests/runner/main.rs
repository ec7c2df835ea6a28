//! Tests of the secret store's files.

#[cfg(test)]
mod documents;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vault;
