//! Stable codes of all problems that loading can report.
//!
//! `E_…` are errors, `W_…` warnings, `N_…` notes. The meaning of a code never changes.
//! `docs/configuration.md` documents them; a test compares that table with [`ALL`].

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $code;)*

        /// Every code, in the order of this module.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

codes! {
    /// A required file is missing.
    MISSING_FILE = "E_CONFIG_MISSING_FILE";
    /// A file cannot be read or is not a text file.
    UNREADABLE_FILE = "E_CONFIG_UNREADABLE_FILE";
    /// A file exceeds its size limit, or there are too many files.
    TOO_LARGE = "E_CONFIG_TOO_LARGE";
    /// A path is absolute, contains `..`, or leads out of the Project Root (`ROOT-5`).
    PATH_OUTSIDE = "E_CONFIG_PATH_OUTSIDE";
    /// A file is not valid YAML, or exceeds the limits of nesting or repetition.
    SYNTAX = "E_CONFIG_SYNTAX";
    /// A mapping contains a field twice.
    DUPLICATE_FIELD = "E_CONFIG_DUPLICATE_FIELD";
    /// An unknown field, usually a typo.
    UNKNOWN_FIELD = "E_CONFIG_UNKNOWN_FIELD";
    /// A required field is missing or has no value.
    MISSING_FIELD = "E_CONFIG_MISSING_FIELD";
    WRONG_TYPE = "E_CONFIG_WRONG_TYPE";
    /// A value has the right type but is not allowed.
    INVALID_VALUE = "E_CONFIG_INVALID_VALUE";
    /// Two mutually exclusive fields are both given.
    CONFLICTING_FIELDS = "E_CONFIG_CONFLICTING_FIELDS";
    /// A regular expression does not compile.
    INVALID_PATTERN = "E_CONFIG_INVALID_PATTERN";
    /// A document's `kind` is unknown.
    UNKNOWN_KIND = "E_CONFIG_UNKNOWN_KIND";
    /// A planned feature that this version does not support yet.
    UNSUPPORTED = "E_CONFIG_UNSUPPORTED";
    /// A Package document that is not the first of `goondan.yaml`.
    MISPLACED_PACKAGE = "E_CONFIG_MISPLACED_PACKAGE";
    /// Two resources have the same kind and name.
    DUPLICATE_RESOURCE = "E_CONFIG_DUPLICATE_RESOURCE";
    /// A reference to something that does not exist.
    UNKNOWN_REFERENCE = "E_CONFIG_UNKNOWN_REFERENCE";
    /// A reference to a resource of the wrong kind.
    WRONG_KIND = "E_CONFIG_WRONG_KIND";
    /// The same agent or tool is listed twice in a list without duplicates.
    DUPLICATE_REFERENCE = "E_CONFIG_DUPLICATE_REFERENCE";
    /// The entry agent is ambiguous: no agent, or several agents without a Swarm.
    NO_ENTRY_AGENT = "E_CONFIG_NO_ENTRY_AGENT";
    /// A referenced environment variable is not set.
    MISSING_ENVIRONMENT = "E_CONFIG_MISSING_ENVIRONMENT";
    /// A referenced secret or its entry does not exist.
    MISSING_SECRET = "E_CONFIG_MISSING_SECRET";
    /// A referenced secret cannot be read.
    UNREADABLE_SECRET = "E_CONFIG_UNREADABLE_SECRET";
    /// No person has consented to the project's use of a secret (`SEC-6`).
    SECRET_NOT_ALLOWED = "E_CONFIG_SECRET_NOT_ALLOWED";
    /// The configuration has files that a person's consent for agents to write in the project does
    /// not cover (`SEC-3`).
    PERMISSION_OUTGROWN = "E_CONFIG_PERMISSION_OUTGROWN";
    /// This machine has no runtime for a module or program of the project.
    NO_RUNTIME = "E_CONFIG_NO_RUNTIME";
    /// This machine cannot confine programs as the configuration requires.
    NO_SANDBOX = "E_CONFIG_NO_SANDBOX";
    /// A path that a sandbox cannot grant: it is missing, or belongs to goondan.
    SANDBOX_PATH = "E_CONFIG_SANDBOX_PATH";
    /// A required package is not installed, or a different version is.
    NOT_INSTALLED = "E_CONFIG_NOT_INSTALLED";
    /// An installed package differs from the lockfile.
    PACKAGE_CHANGED = "E_CONFIG_PACKAGE_CHANGED";
    /// A package requests permissions that no person granted, or uses ones that it does not request
    /// (`PKG-3`).
    NOT_GRANTED = "E_CONFIG_NOT_GRANTED";
    /// A line of an environment file is not `NAME=value`.
    ENVIRONMENT_FILE = "E_CONFIG_ENVIRONMENT_FILE";
    /// More problems were found than can be shown.
    TOO_MANY_PROBLEMS = "E_CONFIG_TOO_MANY_PROBLEMS";
    /// Warning: a resource is never referenced.
    UNUSED_RESOURCE = "W_CONFIG_UNUSED_RESOURCE";
    /// Warning: a secret is written into a file of the project.
    PLAIN_SECRET = "W_CONFIG_PLAIN_SECRET";
    /// Warning: a setting has no effect where it is written.
    NO_EFFECT = "W_CONFIG_NO_EFFECT";
    /// Warning: an environment file sets one variable twice.
    DUPLICATE_VARIABLE = "W_CONFIG_DUPLICATE_VARIABLE";
    /// Warning: an environment variable of a Connection is not set, so the Connection does not start
    /// or receives nothing. Only in a project of the bundle format 0.0.3.
    MISSING_VARIABLE = "W_CONFIG_MISSING_VARIABLE";
    /// Note: a form of the bundle format 0.0.3 is used (`COMPAT-1`).
    OLDER_FORM = "N_CONFIG_OLDER_FORM";
    /// Note: one of several Swarms, or its Connection, does not run.
    IDLE_SWARM = "N_CONFIG_IDLE_SWARM";
}
