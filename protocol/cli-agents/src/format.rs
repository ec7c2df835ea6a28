//! Supported output formats.

pub use goondan_protocol::task::AgentFormat as Format;
