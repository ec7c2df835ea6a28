//! The shell: carries out what the core decides, and tells it what happened.

mod ancestry;
mod bundles;
mod cgroups;
mod child;
mod control;
mod daemon;
mod daemon_files;
mod descriptors;
mod event;
mod frame_memory;
mod joint;
mod launcher;
mod limits;
mod loading;
mod logs;
mod masking;
mod memory;
mod module_gate;
mod oauth;
mod orphans;
mod packages;
mod process_watches;
mod programs;
mod proposals;
mod reading;
mod rehearsing;
mod replication;
mod secrets;
mod strays;
mod supervisor;
mod supply;
mod tasks;
mod timed_disk;
mod usage;
mod watching;

pub use daemon::main;
