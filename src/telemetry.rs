//! Logs to stderr, as text for people or as JSON, one object a line.
//!
//! stdout belongs to the commands' own output. What is absent on purpose: `RUST_LOG`; the level is a setting like
//! every other.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, reload};

/// The settings of the logs.
#[derive(Clone, Debug)]
pub struct Params {
    /// A level, or directives such as `info,delayd=debug`.
    pub level: String,
    /// JSON instead of text.
    pub json: bool,
}

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level cannot be read.
    #[error("must be off, error, warn, info, debug or trace, or directives such as \"info,delayd=debug\": {0}")]
    Level(String),
    /// Someone else in this process takes the logs already.
    #[error("the logs are already taken care of: {0}")]
    Taken(#[from] TryInitError),
}

/// Changes the level of logs that run.
pub struct Level(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl Level {
    /// Logs at another level from now on.
    ///
    /// # Errors
    /// [`Error::Level`]; the old one then stays.
    pub fn set(&self, level: &str) -> Result<(), Error> {
        let filter = filter(level)?;
        (self.0)(filter).map_err(|e| Error::Level(e.to_string()))
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Level")
    }
}

/// Starts the process's logs.
///
/// # Errors
/// An unreadable level, or logs that were started before.
pub fn init(params: &Params) -> Result<Level, Error> {
    let filter = filter(&params.level)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if params.json {
        let logs = logs.json().flatten_event(true).with_filter_reloading();
        let handle = logs.reload_handle();
        logs.finish().try_init()?;
        Ok(Level(Box::new(move |filter| handle.reload(filter))))
    } else {
        let logs = logs.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
        let handle = logs.reload_handle();
        logs.finish().try_init()?;
        Ok(Level(Box::new(move |filter| handle.reload(filter))))
    }
}

/// Reads a level or directives.
///
/// # Errors
/// [`Error::Level`] says what is wrong.
pub fn filter(level: &str) -> Result<EnvFilter, Error> {
    // EnvFilter takes a misspelt level ("inof") for the name of a module, and then logs nothing else.
    let directives: Vec<_> = level.split(',').map(str::trim).collect();
    for directive in &directives {
        let is_level = !directive.contains(['=', '[']);
        if is_level && (directive.is_empty() || directive.parse::<LevelFilter>().is_err()) {
            return Err(Error::Level(format!("{directive:?} is no level")));
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|e| Error::Level(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_or_directives() {
        let check = |level: &str, right: bool| assert_eq!(filter(level).is_ok(), right, "{level:?}");
        check("info", true);
        check("WARN", true);
        check("off", true);
        check("info,delayd=debug", true);
        check("info, delayd::store=trace", true);
        check("inof", false);
        check("", false);
        check("info,", false);
        check("delayd=loud", false);
    }
}
