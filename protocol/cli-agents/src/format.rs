//! The forms of output that are read.

pub use goondan_protocol::task::AgentFormat as Format;
