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
    /// An unknown key.
    #[error("{origin}: there is no setting {key}; expected {expected}")]
    Unknown {
        /// The file, variable or option with the key.
        origin: String,
        /// The full path of the key.
        key: String,
        /// The keys that there are.
        expected: String,
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
        /// The value, unless it may be a secret.
        given: String,
        /// The rule; begins with a verb.
        reason: String,
    },
    /// A value of which only a part may be shown; a variable or an option that cannot be used.
    #[error("{key}: expected {expected}, got {got}")]
    Unexpected {
        /// The full path of the key, or the name.
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

/// A path as TOML writes it: `services."message.call".endpoints[0]`.
pub(super) fn dotted<T: AsRef<str>>(path: &[T]) -> String {
    let is_bare = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let mut text = String::new();
    for key in path.iter().map(AsRef::as_ref) {
        if !text.is_empty() && index_of(key).is_none() {
            text.push('.');
        }
        if is_bare(key) || index_of(key).is_some() {
            text.push_str(key);
        } else {
            text.push_str(&format!("{key:?}"));
        }
    }
    text
}

/// The index in a part of a path such as `[0]`.
pub(super) fn index_of(part: &str) -> Option<usize> {
    part.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
