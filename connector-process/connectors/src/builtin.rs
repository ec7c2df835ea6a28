//! The built-in connectors.

use goondan_protocol::field::FieldDefault;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::oauth::CALLBACK_SETTING;

use crate::description::{Connector, DescribedEvent, Secret, Setting, SettingType};
use crate::relay::RELAY;
use crate::signatures::{
    DEFAULT_PRESET, HashAlgorithm, PRESET_NAMES, SignatureEncoding, TOLERANCE_S,
};

/// Every built-in connector, in the order of `docs/connectors.md`.
pub static BUILTINS: [&Connector; 14] = [
    &WEBHOOK, &CRON, &TELEGRAM, &SLACK, &GITHUB, &GITLAB, &DISCORD, &EMAIL, &MATRIX, &HTTP, &OTLP,
    &METRICS, &MCP, &RELAY,
];

/// The built-in connector with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Connector> {
    BUILTINS
        .iter()
        .find(|connector| connector.name == name)
        .copied()
}

const HOST: Setting = Setting::optional(
    "host",
    SettingType::Text,
    "Address or host name to listen on.",
)
.or(FieldDefault::Text("127.0.0.1"));

const PORT: Setting = Setting::optional(
    "port",
    SettingType::Number(0, 65_535),
    "Port to listen on; 0 is any free one.",
)
.or(FieldDefault::Number(0));

const PATH: Setting = Setting::optional(
    "path",
    SettingType::UrlPath,
    "The only path that is served, matched exactly.",
)
.or(FieldDefault::Text("/"));

/// Highest configurable body limit, in bytes. The entire body can become an event's input, so this
/// equals the protocol's limit for inputs.
const BODY_BYTES_CEILING: u64 = MAX_INPUT_BYTES as u64;

const BODY: Setting = Setting::optional(
    "maxBodyBytes",
    SettingType::Number(1, BODY_BYTES_CEILING),
    "Largest body, in bytes.",
)
.or(FieldDefault::Number(256 * 1024));

/// Largest payload that GitHub sends, in bytes, and GitLab, too.
pub const GITHUB_BODY_BYTES_MAX: usize = 25 * 1024 * 1024;

const GITHUB_BODY: Setting = Setting::optional(
    "maxBodyBytes",
    SettingType::Number(1, GITHUB_BODY_BYTES_MAX as u64),
    "Largest body, in bytes.",
)
.or(FieldDefault::Number(GITHUB_BODY_BYTES_MAX as u64));

const fn secret(name: &'static str, is_required: bool, about: &'static str) -> Secret {
    Secret {
        name,
        is_required,
        about,
    }
}

const fn event(name: &'static str, properties: &'static [&'static str]) -> DescribedEvent {
    DescribedEvent {
        name,
        properties: Some(properties),
    }
}

static WEBHOOK: Connector = Connector {
    name: "webhook",
    about: "A `POST` request sends a text to an agent as an event.",
    settings: &[
        HOST,
        PORT,
        PATH,
        BODY,
        Setting::optional(
            "inputField",
            SettingType::Text,
            "The field of a JSON body that holds the input.",
        ),
        Setting::optional(
            "keyField",
            SettingType::Text,
            "The field of a JSON body that holds the instance key.",
        ),
        Setting::optional(
            "idField",
            SettingType::Text,
            "The field of a JSON body that holds the event id.",
        ),
        Setting::optional(
            "idHeader",
            SettingType::HeaderName,
            "The header that holds the event id.",
        ),
        Setting::optional(
            "typeHeader",
            SettingType::HeaderName,
            "The header that holds the event type.",
        ),
        Setting::optional(
            "signature",
            SettingType::Map(&SIGNATURE),
            "The signature scheme of requests.",
        ),
        Setting::optional(
            CALLBACK_SETTING,
            SettingType::UrlPath,
            "The path to which users return from authorization servers: the path of `redirectUri` of an OAuthApp.",
        ),
        Setting::optional(
            "reply",
            SettingType::Map(&REPLY),
            "Delivery of the agent's reply to the sender.",
        ),
    ],
    one_of: None,
    needs: Some(("signature", "hmac")),
    secrets: &[
        secret("hmac", false, "If set, every request must be signed."),
        secret(
            "previousHmac",
            false,
            "A secret that is still accepted while it is rotated.",
        ),
        secret(
            "callbackHmac",
            false,
            "If set, every posted reply is signed.",
        ),
    ],
    events: &[DescribedEvent {
        name: "request",
        properties: None,
    }],
};

static REPLY: [Setting; 2] = [
    Setting::optional(
        "wait",
        SettingType::Map(&REPLY_WAIT),
        "The response to the request is the reply, if it arrives in time.",
    ),
    Setting::optional(
        "callback",
        SettingType::Map(&REPLY_CALLBACK),
        "The reply is posted to an address.",
    ),
];

/// Longest time that a request may wait for a reply, in milliseconds.
const REPLY_WAIT_MS_CEILING: u64 = 600_000;

static REPLY_WAIT: [Setting; 1] = [Setting::optional(
    "timeoutMs",
    SettingType::Number(1, REPLY_WAIT_MS_CEILING),
    "Longest wait of a request, in milliseconds.",
)
.or(FieldDefault::Number(30_000))];

static REPLY_CALLBACK: [Setting; 2] = [
    Setting::required(
        "url",
        SettingType::Url,
        "The URL that replies are posted to.",
    ),
    Setting::optional(
        "allowPrivate",
        SettingType::Truth,
        "True to permit an address of this machine or a private network.",
    )
    .or(FieldDefault::Truth(false)),
];

/// Meaning of a part of the scheme that is not set.
const BY_PRESET: FieldDefault = FieldDefault::Meaning("the value of the preset");

/// Highest tolerance of a signed time, in seconds: a day.
const TOLERANCE_S_CEILING: u64 = 24 * 60 * 60;

static SIGNATURE: [Setting; 8] = [
    Setting::optional(
        "preset",
        SettingType::Word(&PRESET_NAMES),
        "The service whose scheme applies.",
    )
    .or(FieldDefault::Text(DEFAULT_PRESET)),
    Setting::optional(
        "header",
        SettingType::HeaderName,
        "The header that holds the signature.",
    )
    .or(BY_PRESET),
    Setting::optional(
        "algorithm",
        SettingType::Word(&HashAlgorithm::NAMES),
        "The hash of the HMAC.",
    )
    .or(BY_PRESET),
    Setting::optional(
        "prefix",
        SettingType::AnyText,
        "The text before the signature's digits.",
    )
    .or(BY_PRESET),
    Setting::optional(
        "encoding",
        SettingType::Word(&SignatureEncoding::NAMES),
        "The encoding of the signature.",
    )
    .or(BY_PRESET),
    Setting::optional(
        "toleranceSeconds",
        SettingType::Number(1, TOLERANCE_S_CEILING),
        "Largest difference between a signed time and this machine's clock, in seconds.",
    )
    .or(FieldDefault::Number(TOLERANCE_S)),
    Setting::optional(
        "url",
        SettingType::Url,
        "The public URL of the webhook, which Twilio signs.",
    )
    .or(FieldDefault::Meaning(
        "the URL of the request, with forwarded headers",
    )),
    Setting::optional(
        "topics",
        SettingType::Names,
        "The only topics of Amazon SNS that are listened to, by ARN.",
    ),
];

static CRON: Connector = Connector {
    name: "cron",
    about: "Sends a text to an agent at configured times.",
    settings: &[Setting::required(
        "schedules",
        SettingType::Named(&SCHEDULE),
        "The texts for agents and their times.",
    )],
    one_of: None,
    needs: None,
    secrets: &[],
    events: &[event("tick", &["schedule", "scheduledAt", "isLate"])],
};

static SCHEDULE: [Setting; 7] = [
    Setting::required(
        "name",
        SettingType::Name(crate::schedule::NAME_BYTES_MAX),
        "Its name among the schedules.",
    ),
    Setting::required(
        "cron",
        SettingType::Cron,
        "The times, as a cron expression.",
    ),
    Setting::optional(
        "timeZone",
        SettingType::TimeZone,
        "The time zone of the expression.",
    )
    .or(FieldDefault::Text("UTC")),
    Setting::required("input", SettingType::Text, "The text for the agent."),
    Setting::optional(
        "instanceKey",
        SettingType::InstanceKey,
        "The conversation it belongs to.",
    ),
    Setting::optional(
        "catchUp",
        SettingType::Word(&["none", "latest", "all"]),
        "Handling of occurrences missed while the daemon was down.",
    )
    .or(FieldDefault::Text("latest")),
    Setting::optional(
        "catchUpMax",
        SettingType::Number(1, crate::schedule::CATCH_UP_MAX),
        "Maximum number of missed occurrences that `all` catches up: the latest ones.",
    )
    .or(FieldDefault::Number(10)),
];

const APPROVAL_USERS: Setting = Setting::required(
    "users",
    SettingType::Names,
    "The people who may decide, by their ids at the service.",
);

const APPROVAL_AGENTS: Setting = Setting::optional(
    "agents",
    SettingType::Names,
    "The only agents whose decisions are shown.",
);

const APPROVAL_KINDS: Setting = Setting::optional(
    "kinds",
    SettingType::Words(&["call", "question", "review", "proposal", "login"]),
    "The only kinds of decision that are shown: tool calls, questions, reviews, proposals without a task, or logins.",
);

const APPROVAL_TOOLS: Setting = Setting::optional(
    "tools",
    SettingType::Names,
    "The only tools whose calls are shown: `bash` for all of `bash`, or `bash__exec`.",
);

/// Maximum of the setting `afterMinutes`: a week.
const APPROVAL_AFTER_MINUTES_MAX: u64 = 10_080;

const APPROVAL_AFTER: Setting = Setting::optional(
    "afterMinutes",
    SettingType::Number(0, APPROVAL_AFTER_MINUTES_MAX),
    "Minutes that a decision waits before it is shown here, such as for a second person.",
)
.or(FieldDefault::Number(0));

const APPROVAL_QUIET_HOURS: Setting = Setting::optional(
    "quietHours",
    SettingType::Map(&QUIET_HOURS),
    "Hours of each day in which nothing new is shown.",
);

static QUIET_HOURS: [Setting; 3] = [
    Setting::required(
        "from",
        SettingType::TimeOfDay,
        "The time at which they begin.",
    ),
    Setting::required(
        "until",
        SettingType::TimeOfDay,
        "Another time, at which they end, on the next day if it is before `from`.",
    ),
    Setting::optional("timeZone", SettingType::TimeZone, "The time zone of both.")
        .or(FieldDefault::Text("UTC")),
];

const APPROVALS_ABOUT: &str = "The chat that shows tool calls that wait for a person, with buttons, and the people who may decide.";

static APPROVALS_OF_TELEGRAM: [Setting; 7] = [
    Setting::required("chat", SettingType::Id, "The chat to use, by id."),
    APPROVAL_USERS,
    APPROVAL_AGENTS,
    APPROVAL_KINDS,
    APPROVAL_TOOLS,
    APPROVAL_AFTER,
    APPROVAL_QUIET_HOURS,
];

static APPROVALS_OF_CHANNEL: [Setting; 7] = [
    Setting::required("channel", SettingType::Id, "The channel to use, by id."),
    APPROVAL_USERS,
    APPROVAL_AGENTS,
    APPROVAL_KINDS,
    APPROVAL_TOOLS,
    APPROVAL_AFTER,
    APPROVAL_QUIET_HOURS,
];

static APPROVALS_OF_MATRIX: [Setting; 7] = [
    Setting::required("room", SettingType::Id, "The room to use, by id."),
    APPROVAL_USERS,
    APPROVAL_AGENTS,
    APPROVAL_KINDS,
    APPROVAL_TOOLS,
    APPROVAL_AFTER,
    APPROVAL_QUIET_HOURS,
];

const APPROVALS_IN_TELEGRAM: Setting = Setting::optional(
    "approvals",
    SettingType::Map(&APPROVALS_OF_TELEGRAM),
    APPROVALS_ABOUT,
);

const APPROVALS_IN_CHANNEL: Setting = Setting::optional(
    "approvals",
    SettingType::Map(&APPROVALS_OF_CHANNEL),
    APPROVALS_ABOUT,
);

const APPROVALS_IN_MATRIX: Setting = Setting::optional(
    "approvals",
    SettingType::Map(&APPROVALS_OF_MATRIX),
    "The room that shows tool calls that wait for a person, with reactions, and the people who may decide.",
);

const REPLY_IN_CHAT: Setting = Setting::optional(
    "reply",
    SettingType::Word(&["auto", "always", "never"]),
    "Replies of agents that are posted to the chat: `auto` posts those of turns in which the agent did not write there itself.",
)
.or(FieldDefault::Text("auto"));

const OLDER_TEXTS: Setting = Setting::optional(
    "olderTexts",
    SettingType::Truth,
    "True to hand in texts as goondan 0.0.3 did: unchanged, with a line for each file.",
)
.or(FieldDefault::Truth(false));

static TELEGRAM: Connector = Connector {
    name: "telegram",
    about: "Messages to a Telegram bot.",
    settings: &[
        Setting::optional(
            "chats",
            SettingType::Names,
            "The only chats that are listened to, by id.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional chats that can be written to, if `chats` is set.",
        ),
        REPLY_IN_CHAT,
        Setting::optional(
            "bots",
            SettingType::Names,
            "Other bots whose messages are accepted, by id or user name.",
        ),
        Setting::optional(
            "serviceMessages",
            SettingType::Truth,
            "True to send changes of a chat, such as a new member, to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "reactions",
            SettingType::Truth,
            "True to send reactions to the bot's messages to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "memberChanges",
            SettingType::Truth,
            "True to send changes of members and their rights to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "joinRequests",
            SettingType::Truth,
            "True to send requests to join a chat to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional("endpoint", SettingType::Url, "The Bot API server.")
            .or(FieldDefault::Text("https://api.telegram.org")),
        Setting::optional(
            "pollSeconds",
            SettingType::Number(1, 50),
            "Long-polling time of one request.",
        )
        .or(FieldDefault::Number(50)),
        OLDER_TEXTS,
        APPROVALS_IN_TELEGRAM,
    ],
    one_of: None,
    needs: None,
    secrets: &[secret("botToken", true, "The token that BotFather gave.")],
    events: &[
        event("message", TELEGRAM_PROPERTIES),
        event("edited_message", TELEGRAM_PROPERTIES),
        event("channel_post", TELEGRAM_PROPERTIES),
        event("edited_channel_post", TELEGRAM_PROPERTIES),
        event("service_message", TELEGRAM_PROPERTIES),
        event("message_reaction", TELEGRAM_PROPERTIES),
        event("message_reaction_count", TELEGRAM_PROPERTIES),
        event("my_chat_member", TELEGRAM_PROPERTIES),
        event("chat_member", TELEGRAM_PROPERTIES),
        event("chat_join_request", TELEGRAM_PROPERTIES),
    ],
};

const TELEGRAM_PROPERTIES: &[&str] = &[
    "chatId",
    "chatType",
    "fromId",
    "fromUsername",
    "threadId",
    "isEdited",
    "isCaption",
    // Names of 0.0.3.
    "update_id",
    "chat_id",
    "chat_type",
    "chat_title",
    "chat_username",
    "message_id",
    "date",
    "from_id",
    "from_username",
    "from_first_name",
    "from_last_name",
];

static SLACK: Connector = Connector {
    name: "slack",
    about: "Messages to a Slack app, by the Events API.",
    settings: &[
        HOST,
        PORT,
        PATH,
        BODY,
        Setting::optional(
            "channels",
            SettingType::Names,
            "The only channels that are listened to, by id.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional channels that can be written to, if `channels` is set.",
        ),
        Setting::optional(
            "bots",
            SettingType::Names,
            "Other bots and workflows whose messages are accepted, by bot id, app id or name.",
        ),
        REPLY_IN_CHAT,
        Setting::optional("endpoint", SettingType::Url, "Slack's Web API.")
            .or(FieldDefault::Text("https://slack.com/api")),
        OLDER_TEXTS,
        APPROVALS_IN_CHANNEL,
    ],
    one_of: None,
    needs: Some(("approvals", "botToken")),
    secrets: &[
        secret("signingSecret", true, "The app's signing secret."),
        secret("botToken", false, "The app's bot token, for replies."),
    ],
    events: &[
        event("message", SLACK_PROPERTIES),
        event("app_mention", SLACK_PROPERTIES),
        event("message_changed", SLACK_PROPERTIES),
        event(
            "slash_command",
            &[
                "team",
                "channel",
                "channelName",
                "user",
                "userName",
                "command",
            ],
        ),
        event("block_action", SLACK_ACTION_PROPERTIES),
        event("shortcut", SLACK_ACTION_PROPERTIES),
        event("view_submission", SLACK_ACTION_PROPERTIES),
    ],
};

const SLACK_PROPERTIES: &[&str] = &[
    "team",
    "channel",
    "channelType",
    "user",
    "userName",
    "bot",
    "threadTs",
    "ts",
    "isEdited",
    // Names of 0.0.3.
    "channel_id",
    "thread_ts",
    "user_id",
];

const SLACK_ACTION_PROPERTIES: &[&str] = &[
    "team",
    "channel",
    "channelName",
    "user",
    "userName",
    "action",
    "threadTs",
    "ts",
];

static GITHUB: Connector = Connector {
    name: "github",
    about: "Activity in a GitHub repository.",
    settings: &[
        HOST,
        PORT,
        PATH,
        GITHUB_BODY,
        Setting::optional(
            "repositories",
            SettingType::Names,
            "The only repositories that are listened to, as `owner/name`.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional repositories that can be written to, if `repositories` is set.",
        ),
        Setting::optional("endpoint", SettingType::Url, "GitHub's REST API.")
            .or(FieldDefault::Text("https://api.github.com")),
    ],
    one_of: None,
    needs: None,
    secrets: &[
        secret("webhookSecret", true, "The webhook's secret."),
        secret("token", false, "An access token, for replies."),
    ],
    events: &[],
};

static GITLAB: Connector = Connector {
    name: "gitlab",
    about: "Activity in a GitLab project or group.",
    settings: &[
        HOST,
        PORT,
        PATH,
        GITHUB_BODY,
        Setting::optional(
            "projects",
            SettingType::Names,
            "The only projects that are listened to, by path or ID.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional projects that can be read and written to, if `projects` is set.",
        ),
        Setting::optional("endpoint", SettingType::Url, "GitLab's REST API.")
            .or(FieldDefault::Text("https://gitlab.com/api/v4")),
    ],
    one_of: None,
    needs: None,
    secrets: &[
        secret(
            "webhookSecret",
            true,
            "The webhook's secret token, or its signing token.",
        ),
        secret("token", false, "An access token, for replies."),
    ],
    events: &[],
};

static DISCORD: Connector = Connector {
    name: "discord",
    about: "Commands and buttons of a Discord application.",
    settings: &[
        HOST,
        PORT,
        PATH,
        BODY,
        Setting::required(
            "publicKey",
            SettingType::Hex(32),
            "The application's public key.",
        ),
        Setting::optional(
            "channels",
            SettingType::Names,
            "The only channels that are listened to, by id.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional channels that can be written to, if `channels` is set.",
        ),
        REPLY_IN_CHAT,
        Setting::optional("endpoint", SettingType::Url, "Discord's API.")
            .or(FieldDefault::Text("https://discord.com/api/v10")),
        APPROVALS_IN_CHANNEL,
    ],
    one_of: None,
    needs: Some(("approvals", "botToken")),
    secrets: &[secret(
        "botToken",
        false,
        "The bot's token, for messages that answer no command.",
    )],
    events: &[
        event("command", DISCORD_PROPERTIES),
        event("component", DISCORD_PROPERTIES),
    ],
};

const DISCORD_PROPERTIES: &[&str] = &[
    "name",
    "subcommand",
    "guildId",
    "channelId",
    "userId",
    "username",
    // Names of 0.0.3.
    "interaction_id",
    "channel_id",
    "guild_id",
    "command_name",
    "custom_id",
    "user_id",
];

/// Port of a mail server that is not set.
const PORT_BY_SECURITY: FieldDefault = FieldDefault::Meaning("the usual port of the protocol");

const MAIL_HOST: Setting =
    Setting::required("host", SettingType::Text, "Name or address of the server.");

const MAIL_PORT: Setting = Setting::optional(
    "port",
    SettingType::Number(1, 65_535),
    "Port of the server.",
)
.or(PORT_BY_SECURITY);

const MAIL_SECURITY: Setting = Setting::optional(
    "security",
    SettingType::Word(&["tls", "starttls", "none"]),
    "Encryption: TLS from the start, after STARTTLS, or none, on this machine only.",
)
.or(FieldDefault::Text("tls"));

static MAIL_SERVER: [Setting; 3] = [MAIL_HOST, MAIL_PORT, MAIL_SECURITY];

static EMAIL: Connector = Connector {
    name: "email",
    about: "Messages to a mailbox, by IMAP, and answers by SMTP.",
    settings: &[
        Setting::required(
            "address",
            SettingType::Text,
            "The mailbox's address, from which messages are sent.",
        ),
        Setting::optional(
            "displayName",
            SettingType::Text,
            "The name that is shown with the address.",
        ),
        Setting::optional("user", SettingType::Text, "The user name at both servers.")
            .or(FieldDefault::Meaning("the address")),
        Setting::required("imap", SettingType::Map(&MAIL_SERVER), "The IMAP server."),
        Setting::optional(
            "smtp",
            SettingType::Map(&MAIL_SERVER),
            "The server for outgoing messages.",
        ),
        Setting::optional("folder", SettingType::Text, "The folder that is read.")
            .or(FieldDefault::Text("INBOX")),
        Setting::optional(
            "from",
            SettingType::Names,
            "The only senders that are accepted: addresses and domains.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Addresses and domains that agents can write to, besides answers.",
        ),
        Setting::optional(
            "requireAuthentication",
            SettingType::Text,
            "The name of the own server whose check of the sender a message must have passed.",
        ),
        Setting::optional(
            "markSeen",
            SettingType::Truth,
            "True to mark messages as read that became events.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "pollSeconds",
            SettingType::Number(1, 3_600),
            "Pause between checks if the server does not announce new messages.",
        )
        .or(FieldDefault::Number(60)),
        REPLY_IN_CHAT,
    ],
    one_of: None,
    needs: None,
    secrets: &[
        secret("password", false, "The password of the user."),
        secret(
            "accessToken",
            false,
            "An OAuth access token, instead of a password.",
        ),
    ],
    events: &[event(
        "message",
        &[
            "from",
            "fromName",
            "fromDomain",
            "subject",
            "mailbox",
            "folder",
            "isAuthenticated",
            "isReply",
        ],
    )],
};

static MATRIX: Connector = Connector {
    name: "matrix",
    about: "Messages to a Matrix account, in rooms without encryption.",
    settings: &[
        Setting::required("endpoint", SettingType::Url, "The homeserver."),
        Setting::optional(
            "rooms",
            SettingType::Names,
            "The only rooms that are listened to, by id.",
        ),
        Setting::optional(
            "sendTo",
            SettingType::Names,
            "Additional rooms that can be written to, if `rooms` is set.",
        ),
        Setting::optional(
            "invitesFrom",
            SettingType::Names,
            "The people and servers whose invitations to rooms are accepted.",
        ),
        REPLY_IN_CHAT,
        Setting::optional(
            "bots",
            SettingType::Names,
            "Programs whose messages are accepted, by user id.",
        ),
        Setting::optional(
            "reactions",
            SettingType::Truth,
            "True to send reactions to the account's messages to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "redactions",
            SettingType::Truth,
            "True to send deletions of messages to agents.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "notices",
            SettingType::Truth,
            "True to send messages as notices, about which clients do not notify people.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "pollSeconds",
            SettingType::Number(1, 60),
            "Long-polling time of one request.",
        )
        .or(FieldDefault::Number(30)),
        APPROVALS_IN_MATRIX,
    ],
    one_of: None,
    needs: None,
    secrets: &[secret(
        "accessToken",
        true,
        "The access token of the account.",
    )],
    events: &[
        event("message", MATRIX_PROPERTIES),
        event("edited_message", MATRIX_PROPERTIES),
        event("reaction", MATRIX_PROPERTIES),
        event("redaction", MATRIX_PROPERTIES),
    ],
};

const MATRIX_PROPERTIES: &[&str] = &[
    "room",
    "roomName",
    "from",
    "fromName",
    "fromServer",
    "thread",
    "isDirect",
    "isMention",
    "isEdited",
];

static HTTP: Connector = Connector {
    name: "http",
    about: "Requests of agents to hosts that you allow.",
    settings: &[
        Setting::required(
            "allow",
            SettingType::Hosts,
            "The hosts that requests may go to.",
        ),
        Setting::optional(
            "allowPrivate",
            SettingType::Truth,
            "True to permit addresses of this machine and of private networks.",
        )
        .or(FieldDefault::Truth(false)),
        Setting::optional(
            "maxBytes",
            SettingType::Number(1, HTTP_BYTES_CEILING),
            "Largest answer, in bytes; the rest is cut off.",
        )
        .or(FieldDefault::Number(1024 * 1024)),
        Setting::optional(
            "idempotencyKey",
            SettingType::HeaderName,
            "The header that carries the key of a request that changes something.",
        ),
        Setting::optional(
            "lookBack",
            SettingType::Text,
            "The URL, with `{key}`, that shows whether such a request took effect.",
        ),
    ],
    one_of: None,
    needs: None,
    secrets: &[],
    events: &[],
};

/// Highest value of `maxBytes`: a result can contain as much, even with every character escaped.
const HTTP_BYTES_CEILING: u64 = 2 * 1024 * 1024;

static OTLP: Connector = Connector {
    name: "otlp",
    about: "Exports traces of turns and metrics to a collector, with OTLP over HTTP.",
    settings: &[
        Setting::optional(
            "endpoint",
            SettingType::Url,
            "The collector's address; `/v1/traces` and `/v1/metrics` are added to it.",
        )
        .or(FieldDefault::Text("http://127.0.0.1:4318")),
        Setting::optional(
            "serviceName",
            SettingType::Text,
            "The service name at the collector.",
        )
        .or(FieldDefault::Text("goondan")),
        Setting::optional(
            "metricsSeconds",
            SettingType::Number(0, 86_400),
            "Interval of metrics exports, in seconds; 0 disables them.",
        )
        .or(FieldDefault::Number(60)),
    ],
    one_of: None,
    needs: None,
    secrets: &[secret(
        "authorization",
        false,
        "The value of the header `Authorization`, such as `Bearer …`.",
    )],
    events: &[],
};

static METRICS: Connector = Connector {
    name: "metrics",
    about: "Serves the daemon's metrics as OpenMetrics. It produces no events.",
    settings: &[
        HOST,
        Setting::optional(
            "port",
            SettingType::Number(0, 65_535),
            "Port to listen on; 0 is any free one.",
        )
        .or(FieldDefault::Number(9_464)),
        Setting::optional(
            "path",
            SettingType::UrlPath,
            "The only path that is served, matched exactly.",
        )
        .or(FieldDefault::Text("/metrics")),
    ],
    one_of: None,
    needs: None,
    secrets: &[],
    events: &[],
};

static MCP: Connector = Connector {
    name: "mcp",
    about: "A server of the Model Context Protocol, for the tool `mcp`. It produces no events.",
    settings: &[
        Setting::optional(
            "command",
            SettingType::Command,
            "The server's program and its arguments; it runs in the Project Root.",
        ),
        Setting::optional(
            "env",
            SettingType::Variables,
            "Environment variables of the program.",
        ),
        Setting::optional("url", SettingType::Url, "The URL of a server over HTTP."),
        Setting::optional(
            "headers",
            SettingType::Headers,
            "HTTP headers of every request.",
        ),
        Setting::optional(
            "auth",
            SettingType::Word(&["oauth"]),
            "Source of the token for `url`: `oauth` uses a person's login at the authorization \
             server that the server names.",
        ),
        Setting::optional(
            "startSeconds",
            SettingType::Number(1, 600),
            "Time limit for the server to become ready.",
        )
        .or(FieldDefault::Number(60)),
        Setting::optional(
            "timeoutSeconds",
            SettingType::Number(1, 600),
            "Time limit of one tool call.",
        )
        .or(FieldDefault::Number(120)),
        Setting::optional(
            "questionSeconds",
            SettingType::Number(1, 3_600),
            "Time limit of a server's question to a person.",
        )
        .or(FieldDefault::Number(600)),
    ],
    one_of: Some(["command", "url"]),
    needs: None,
    secrets: &[secret(
        "token",
        false,
        "The bearer token of the server at `url`.",
    )],
    events: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every default is a valid value of its setting, and names are unique.
    #[test]
    fn descriptions_are_sound() {
        fn sound(settings: &[Setting]) {
            for (index, setting) in settings.iter().enumerate() {
                let earlier = settings.iter().take(index);
                assert!(earlier.clone().all(|other| other.name != setting.name));
                assert!(setting.about.ends_with('.'), "{}", setting.name);
                assert!(!setting.is_required || setting.default.is_none());
                match (setting.content, setting.default) {
                    (SettingType::Number(least, most), Some(FieldDefault::Number(value))) => {
                        assert!((least..=most).contains(&value), "{}", setting.name);
                    }
                    (SettingType::Word(words), Some(FieldDefault::Text(word))) => {
                        assert!(words.contains(&word), "{}", setting.name);
                    }
                    (SettingType::Map(inner) | SettingType::Named(inner), None) => sound(inner),
                    (SettingType::Truth, Some(FieldDefault::Truth(_))) => {}
                    (_, Some(FieldDefault::Text(_) | FieldDefault::Meaning(_)) | None) => {}
                    other => panic!("{}: {other:?}", setting.name),
                }
            }
        }
        for connector in BUILTINS {
            sound(connector.settings);
            assert!(std::ptr::eq(find(connector.name).unwrap(), connector));
        }
        assert!(find("cli").is_none());
    }
}
