//! Descriptions of connectors.

use goondan_protocol::field::Field;

#[derive(Debug)]
pub struct Connector {
    /// Its name within `@goondan/base`.
    pub name: &'static str,
    pub about: &'static str,
    /// Settings in a Connection's `config`.
    pub settings: &'static [Setting],
    /// Alternative settings; exactly one must be set.
    pub one_of: Option<[&'static str; 2]>,
    /// A setting, and the secret that it requires.
    pub needs: Option<(&'static str, &'static str)>,
    /// Secrets in a Connection's `secrets`.
    pub secrets: &'static [Secret],
    /// The events it produces. If empty, events of any name.
    pub events: &'static [DescribedEvent],
}

pub type Setting = Field<SettingType>;

/// Valid values of a setting.
#[derive(Debug, Clone, Copy)]
pub enum SettingType {
    /// A text that is not empty.
    Text,
    /// A text that may be empty.
    AnyText,
    /// A name of letters, digits, `-`, `_` and `.`, with this maximum number of bytes.
    Name(usize),
    /// A fixed set of words.
    Word(&'static [&'static str]),
    /// A list of words of a fixed set; at least one.
    Words(&'static [&'static str]),
    /// A whole number in this inclusive range, or its digits, because a value from the environment
    /// is always a string.
    Number(u64, u64),
    /// The name of an HTTP header.
    HeaderName,
    UrlPath,
    /// An `http` or `https` URL.
    Url,
    /// This number of bytes in hexadecimal digits.
    Hex(usize),
    InstanceKey,
    /// A cron expression of five fields.
    Cron,
    /// The IANA name of a time zone.
    TimeZone,
    /// Hour and minute of a day, such as `22:00`.
    TimeOfDay,
    /// `true` or `false`, or these words as strings, because a value from the environment is always
    /// a string.
    Truth,
    /// Hosts that requests may go to ([`crate::AllowedHost`]); at least one.
    Hosts,
    /// A string or a whole number, as services number their chats.
    Id,
    /// Strings or whole numbers, as services number their chats.
    Names,
    /// A program and its arguments.
    Command,
    /// Strings by environment variable name.
    Variables,
    /// Strings by HTTP header name.
    Headers,
    Map(&'static [Setting]),
    /// A list of nested settings, each with a unique `name`.
    Named(&'static [Setting]),
}

#[derive(Debug)]
pub struct Secret {
    pub name: &'static str,
    /// True if the connector cannot work without it.
    pub is_required: bool,
    pub about: &'static str,
}

/// An event that a connector produces.
#[derive(Debug)]
pub struct DescribedEvent {
    pub name: &'static str,
    /// Its properties; `None` if senders choose the names.
    pub properties: Option<&'static [&'static str]>,
}
