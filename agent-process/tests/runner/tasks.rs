//! Runs of programs for tasks: the real binary opposite a small orchestrator.

mod confined;
mod example;
mod fakes;
mod formats;
mod lifecycle;
mod pause;
mod run;
mod tools;
