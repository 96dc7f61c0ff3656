//! What is wrong with a configuration, in one sentence. All of it ends as exit code 78.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the settings could not be had. No text holds a password, or more of a file than one value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file given with `--config` is missing or cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is no TOML.
    #[error("{origin}, line {line}, column {column}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The parser's reason.
        message: String,
    },
    /// An environment variable that looks like one of ours, and nothing reads it.
    #[error(
        "{variable}: expected an environment variable that delayd reads; the nearest is {nearest}. Settings are written \
         DELAYD__SECTION__KEY, with two underscores; unset what is not meant for delayd"
    )]
    Variable {
        /// Its name.
        variable: String,
        /// The known one most like it.
        nearest: String,
    },
    /// A `--set` that is no assignment.
    #[error("--set {key}: {reason}")]
    Set {
        /// What stands before the `=`.
        key: String,
        /// What would be right.
        reason: String,
    },
    /// A key that there is not.
    #[error("{origin}: there is no setting {key}; {hint}")]
    Unknown {
        /// The file, variable or option that names it.
        origin: String,
        /// The key's full path.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// A key that a section cannot do without.
    #[error("{origin}: {key} is missing{}", if key.ends_with(".topics") { ": name the topics, or [\"*\"] for all" } else { "" })]
    Missing {
        /// The file, variable or option that names the section.
        origin: String,
        /// The key's full path.
        key: String,
    },
    /// A value that cannot be used.
    #[error("{origin}: {key} = {given} {reason}")]
    Invalid {
        /// The file, variable or option that sets it.
        origin: String,
        /// The key's full path.
        key: String,
        /// The value, passwords taken out.
        given: String,
        /// What would be right; begins with a verb.
        reason: String,
    },
    /// Other machines can reach the port, and nothing says that everyone may call.
    #[error(
        "http.auth: expected a token, because http.bind = {bind} is not a loopback address; got none. Add a \
         [[http.auth.tokens]] section (`delayd token` makes one), bind to 127.0.0.1, or set http.auth.anonymous = true \
         to let everyone who reaches the port call"
    )]
    Unguarded {
        /// The address.
        bind: SocketAddr,
    },
    /// The configuration in force has tokens, and the one that would replace it has none.
    #[error(
        "http.auth.tokens: expected at least one token, as before; got none. If the file was cut off, restore it. If \
         everyone who reaches the port may call from now on, set http.auth.anonymous = true"
    )]
    LastToken,
    /// A file that had settings has none any more.
    #[error(
        "{}: expected settings, as before; got an empty file. If it was cut off, restore it. To do without its \
         settings, start delayd again",
        path.display()
    )]
    Emptied {
        /// The file.
        path: PathBuf,
    },
    /// A file that another program goes on writing to.
    #[error(
        "the configuration files: expected them to stay the same for {calm:?}; they went on changing for {patience:?}. They are read once they do"
    )]
    Unsettled {
        /// How long they must stay the same.
        calm: std::time::Duration,
        /// How long that was waited for.
        patience: std::time::Duration,
    },
}
