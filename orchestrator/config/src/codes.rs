//! The stable codes of every problem a load can report.
//!
//! `E_…` are errors, `W_…` warnings. A code never changes its meaning. `docs/configuration.md` explains each to users; a test holds
//! that table against [`ALL`].

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $code;)*

        /// Every code, in the order of this module.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

codes! {
    /// A file that must be there is not.
    MISSING_FILE = "E_CONFIG_MISSING_FILE";
    /// A file is there but cannot be read, or is no text file.
    UNREADABLE_FILE = "E_CONFIG_UNREADABLE_FILE";
    /// A file is over its size limit, or there are too many of them.
    TOO_LARGE = "E_CONFIG_TOO_LARGE";
    /// A path is absolute, holds `..`, or leads out of the Project Root (`ROOT-5`).
    PATH_OUTSIDE = "E_CONFIG_PATH_OUTSIDE";
    /// A file is no valid YAML, or nests or repeats more than is allowed.
    SYNTAX = "E_CONFIG_SYNTAX";
    /// One mapping names a field twice.
    DUPLICATE_FIELD = "E_CONFIG_DUPLICATE_FIELD";
    /// A field that nobody reads: most often a typing error.
    UNKNOWN_FIELD = "E_CONFIG_UNKNOWN_FIELD";
    /// A required field is not there or has no value.
    MISSING_FIELD = "E_CONFIG_MISSING_FIELD";
    /// A field has a value of another type.
    WRONG_TYPE = "E_CONFIG_WRONG_TYPE";
    /// A value has the right type but is not allowed.
    INVALID_VALUE = "E_CONFIG_INVALID_VALUE";
    /// Two fields that exclude each other are both given.
    CONFLICTING_FIELDS = "E_CONFIG_CONFLICTING_FIELDS";
    /// A regular expression does not compile.
    INVALID_PATTERN = "E_CONFIG_INVALID_PATTERN";
    /// A document's `kind` is none of goondan's.
    UNKNOWN_KIND = "E_CONFIG_UNKNOWN_KIND";
    /// Something goondan has by design but this version does not do yet.
    UNSUPPORTED = "E_CONFIG_UNSUPPORTED";
    /// A Package document that is not the first of `goondan.yaml`.
    MISPLACED_PACKAGE = "E_CONFIG_MISPLACED_PACKAGE";
    /// Two resources have the same kind and name.
    DUPLICATE_RESOURCE = "E_CONFIG_DUPLICATE_RESOURCE";
    /// A reference to something that is not there.
    UNKNOWN_REFERENCE = "E_CONFIG_UNKNOWN_REFERENCE";
    /// A reference to a resource of another kind than the field takes.
    WRONG_KIND = "E_CONFIG_WRONG_KIND";
    /// The same agent or tool is named twice where each may stand once.
    DUPLICATE_REFERENCE = "E_CONFIG_DUPLICATE_REFERENCE";
    /// It cannot be told which agent answers: no agent, or several and no Swarm.
    NO_ENTRY_AGENT = "E_CONFIG_NO_ENTRY_AGENT";
    /// An environment variable that is asked for is not set.
    MISSING_ENVIRONMENT = "E_CONFIG_MISSING_ENVIRONMENT";
    /// A secret that is asked for, or the entry of it, is not there.
    MISSING_SECRET = "E_CONFIG_MISSING_SECRET";
    /// A secret that is asked for cannot be read.
    UNREADABLE_SECRET = "E_CONFIG_UNREADABLE_SECRET";
    /// No person has allowed the project to use a secret that it asks for (`SEC-6`).
    SECRET_NOT_ALLOWED = "E_CONFIG_SECRET_NOT_ALLOWED";
    /// This machine has nothing that runs a module or a program of the project.
    NO_RUNTIME = "E_CONFIG_NO_RUNTIME";
    /// This machine cannot confine programs as the configuration requires.
    NO_SANDBOX = "E_CONFIG_NO_SANDBOX";
    /// A path that no sandbox grants: it is not there, or it is one of goondan's own.
    SANDBOX_PATH = "E_CONFIG_SANDBOX_PATH";
    /// A package that the project requires is not installed, or another version of it is.
    NOT_INSTALLED = "E_CONFIG_NOT_INSTALLED";
    /// An installed package is not what was locked.
    PACKAGE_CHANGED = "E_CONFIG_PACKAGE_CHANGED";
    /// A package asks for what no person has granted it, or has a part in what it does not ask for (`PKG-3`).
    NOT_GRANTED = "E_CONFIG_NOT_GRANTED";
    /// A line of an environment file is no `NAME=value`.
    ENVIRONMENT_FILE = "E_CONFIG_ENVIRONMENT_FILE";
    /// More problems were found than are shown.
    TOO_MANY_PROBLEMS = "E_CONFIG_TOO_MANY_PROBLEMS";
    /// Warning: nothing refers to a resource.
    UNUSED_RESOURCE = "W_CONFIG_UNUSED_RESOURCE";
    /// Warning: a secret is written into a file of the project.
    PLAIN_SECRET = "W_CONFIG_PLAIN_SECRET";
    /// Warning: a setting that changes nothing where it stands.
    NO_EFFECT = "W_CONFIG_NO_EFFECT";
    /// Warning: an environment file sets one variable twice.
    DUPLICATE_VARIABLE = "W_CONFIG_DUPLICATE_VARIABLE";
    /// Note: something is written in a form of the bundle format 0.0.3 (`COMPAT-1`).
    OLDER_FORM = "N_CONFIG_OLDER_FORM";
}
