//! Errors of the configuration, in one sentence each. All of them end with exit code 78.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the settings could not be loaded. No text contains a password, or more of a file than one
/// value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file given with `--config` is missing or cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not valid TOML.
    #[error("{origin}, line {line}, column {column}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
        /// The error of the parser.
        message: String,
    },
    /// An environment variable with our prefix that no setting reads.
    #[error(
        "{variable}: expected an environment variable that delayd reads; the nearest is {nearest}. \
         Settings are written DELAYD__SECTION__KEY, with two underscores; unset \
         what is not meant for delayd"
    )]
    Variable {
        /// The name of the variable.
        variable: String,
        /// The most similar known one.
        nearest: String,
    },
    /// A `--set` that is not an assignment.
    #[error("--set {key}: {reason}")]
    Set {
        /// The text before the `=`.
        key: String,
        /// The rule.
        reason: String,
    },
    /// An unknown key.
    #[error("{origin}: there is no setting {key}; {hint}")]
    Unknown {
        /// The file, variable or option with the key.
        origin: String,
        /// The full path of the key.
        key: String,
        /// A suggestion.
        hint: String,
    },
    /// A required key is missing.
    #[error(
        "{origin}: {key} is missing{}",
        if key.ends_with(".topics") { ": name the topics, or [\"*\"] for all" } else { "" }
    )]
    Missing {
        /// The file, variable or option with the section.
        origin: String,
        /// The full path of the key.
        key: String,
    },
    /// An invalid value.
    #[error("{origin}: {key} = {given} {reason}")]
    Invalid {
        /// The file, variable or option with the value.
        origin: String,
        /// The full path of the key.
        key: String,
        /// The value, without passwords.
        given: String,
        /// The rule; begins with a verb.
        reason: String,
    },
    /// A value that is missing, or of which only a part may be shown.
    #[error("{key}: expected {expected}, got {got}")]
    Unexpected {
        /// The full path of the key.
        key: String,
        /// What would be right.
        expected: String,
        /// What was there, without secrets.
        got: String,
    },
    /// Other machines can reach the port, and the configuration does not say that anyone may call.
    #[error(
        "http.auth: expected a token, because http.bind = {bind} is not a loopback address; got \
         none. Add a [[http.auth.tokens]] section (`delayd token` makes one), bind to \
         127.0.0.1, or set http.auth.anonymous = true to let everyone who reaches the port call"
    )]
    Unguarded {
        /// The address.
        bind: SocketAddr,
    },
    /// The current configuration has tokens, and the new one has none.
    #[error(
        "http.auth.tokens: expected at least one token, as before; got none. If the file was cut \
         off, restore it. If everyone who reaches the port may call from now on, set \
         http.auth.anonymous = true"
    )]
    LastToken,
    /// A file had settings, and is now empty.
    #[error(
        "{}: expected settings, as before; got an empty file. If it was cut off, restore \
         it. To do without its settings, start delayd again",
        path.display()
    )]
    Emptied {
        /// The file.
        path: PathBuf,
    },
    /// A file keeps changing.
    #[error(
        "the configuration files: expected them to stay the same for {calm:?}; they went on \
         changing for {patience:?}. They are read once they do"
    )]
    Unsettled {
        /// How long the files must stay the same.
        calm: std::time::Duration,
        /// How long they were observed.
        patience: std::time::Duration,
    },
}
