//! How a connector is described.

/// A built-in connector.
#[derive(Debug)]
pub struct Connector {
    /// Its name within `@goondan/base`.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
    /// What a Connection's `config` may hold.
    pub settings: &'static [Setting],
    /// What a Connection's `secrets` may hold.
    pub secrets: &'static [Secret],
    /// The events it brings. Empty: it brings events of any name.
    pub events: &'static [DescribedEvent],
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub content: Content,
    /// Whether it must be set.
    pub is_required: bool,
    /// What holds if it is not set.
    pub default: Option<Default>,
    /// A secret without which it means nothing.
    pub needs_secret: Option<&'static str>,
    /// The other of two settings of which exactly one must be set.
    pub instead_of: Option<&'static str>,
    /// What it does, for people.
    pub about: &'static str,
}

impl Setting {
    /// A setting that must be set.
    pub(crate) const fn required(
        name: &'static str,
        content: Content,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            content,
            is_required: true,
            default: None,
            needs_secret: None,
            instead_of: None,
            about,
        }
    }

    /// A setting that need not be set.
    pub(crate) const fn optional(
        name: &'static str,
        content: Content,
        about: &'static str,
    ) -> Self {
        Self {
            is_required: false,
            ..Self::required(name, content, about)
        }
    }

    /// The same with the value that holds if it is not set.
    pub(crate) const fn or(self, default: Default) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }

    /// The same, of which exactly one is set: it or that other.
    pub(crate) const fn instead_of(self, other: &'static str) -> Self {
        Self {
            instead_of: Some(other),
            ..self
        }
    }

    /// The same, of no use without this secret.
    pub(crate) const fn needs(self, secret: &'static str) -> Self {
        Self {
            needs_secret: Some(secret),
            ..self
        }
    }
}

/// What holds if a setting is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// This text.
    Text(&'static str),
    /// This number.
    Number(u64),
    /// Whether it is so.
    Truth(bool),
}

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
