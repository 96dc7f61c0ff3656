//! What is wrong with a configuration, in one sentence. All of it ends as exit code 78.

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
    /// A `--set` that is no assignment.
    #[error("--set {key}: {reason}")]
    Set {
        /// What stands before the `=`.
        key: String,
        /// What would be right.
        reason: String,
    },
    /// A key that there is not.
    #[error("{origin}: there is no setting {key}; the nearest is {nearest}")]
    Unknown {
        /// The file, variable or option that names it.
        origin: String,
        /// The key's full path.
        key: String,
        /// The known key most like it.
        nearest: String,
    },
    /// A key that a section cannot do without.
    #[error("{origin}: {key} is missing")]
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
}
