//! How a connector is described.

use goondan_protocol::field::Field;

/// A built-in connector.
#[derive(Debug)]
pub struct Connector {
    /// Its name within `@goondan/base`.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
    /// What a Connection's `config` may hold.
    pub settings: &'static [Setting],
    /// Settings of which exactly one must be set.
    pub one_of: Option<[&'static str; 2]>,
    /// A setting, and the secret without which it means nothing.
    pub needs: Option<(&'static str, &'static str)>,
    /// What a Connection's `secrets` may hold.
    pub secrets: &'static [Secret],
    /// The events it brings. Empty: it brings events of any name.
    pub events: &'static [DescribedEvent],
}

/// One setting.
pub type Setting = Field<Content>;

/// What a setting's value may be.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// A text that is not empty.
    Text,
    /// A text that may be empty.
    AnyText,
    /// A name of letters, digits, `-`, `_` and `.`, at most so many bytes long.
    Name(usize),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second, or its digits: a value from the environment is
    /// always a text.
    Number(u64, u64),
    /// The name of an HTTP header.
    HeaderName,
    /// The path of a URL.
    UrlPath,
    /// An `http` or `https` URL.
    Url,
    /// So many bytes in hexadecimal digits.
    Hex(usize),
    /// An instance key.
    InstanceKey,
    /// A cron expression of five fields.
    Cron,
    /// The IANA name of a time zone.
    TimeZone,
    /// `true` or `false`, or a text that says so: a value from the environment is always a text.
    Truth,
    /// Hosts that requests may go to ([`crate::AllowedHost`]); at least one.
    Hosts,
    /// A text or a whole number, as the outside numbers its chats.
    Id,
    /// Texts or whole numbers, as the outside numbers its chats.
    Names,
    /// A program and its arguments.
    Command,
    /// Texts under names of environment variables.
    Variables,
    /// Texts under names of HTTP headers.
    Headers,
    /// Further settings.
    Map(&'static [Setting]),
    /// A list of further settings, each with a `name` of its own.
    Named(&'static [Setting]),
}

/// One secret.
#[derive(Debug)]
pub struct Secret {
    /// Its name.
    pub name: &'static str,
    /// Whether the connector does nothing without it.
    pub is_required: bool,
    /// What it is, for people.
    pub about: &'static str,
}

/// An event that a connector brings.
#[derive(Debug)]
pub struct DescribedEvent {
    /// Its name.
    pub name: &'static str,
    /// Its properties; `None` if the outside names them.
    pub properties: Option<&'static [&'static str]>,
}
