//! Checks that the documentation is correct: links resolve, names exist, tables match the sources,
//! and the README's commands work.
//!
//! Pages whose examples need a crate's own types are tested in that crate (`documentation.rs`).

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod architecture;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crash_matrix;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod first_wishes;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod images;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod index;
#[cfg(test)]
mod korean;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod links;
mod machines;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod service;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod style;
#[cfg(test)]
mod two_nodes;
#[cfg(test)]
mod words;
