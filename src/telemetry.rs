//! Logs to stderr, as text or as JSON with one object per line.
//!
//! stdout is reserved for the output of commands. `RUST_LOG` is not read, on purpose: the level is
//! a setting.

use std::io::IsTerminal;

use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::metrics::CountLines;

/// The parameters of the logs.
#[derive(Clone, Debug)]
pub struct Params {
    /// A level, or directives such as `info,delayd=debug`.
    pub level: String,
    /// JSON instead of text.
    pub json: bool,
}

/// Why the logs cannot be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is invalid.
    #[error(
        "must be off, error, warn, info, debug or trace, or directives such as \
         \"info,delayd=debug\": {0}"
    )]
    Level(String),
    /// Another subscriber is already installed in this process.
    #[error("the logs were started before: {0}")]
    Taken(#[from] TryInitError),
}

/// A handle to change the level of the running logs.
#[derive(Debug)]
pub struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Changes the level.
    ///
    /// # Errors
    /// [`Error::Level`]; the level then stays as it was.
    pub fn set(&self, level: &str) -> Result<(), Error> {
        self.0.reload(filter(level)?).map_err(|e| Error::Level(e.to_string()))
    }
}

/// Starts the logs of the process.
///
/// # Errors
/// An invalid level, or logs that were started before.
pub fn init(params: &Params) -> Result<Level, Error> {
    let (filter, handle) = reload::Layer::new(filter(&params.level)?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = if params.json {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(is_ours_to_tell))
        .with(CountLines)
        .with(lines)
        .try_init()?;
    Ok(Level(handle))
}

/// Whether a line is kept. The certificate verifier logs each refusal as an error, without task or
/// service. The line about the attempt has all three.
fn is_ours_to_tell(line: &Metadata<'_>) -> bool {
    !(*line.level() == tracing::Level::ERROR
        && line.target().starts_with("rustls_platform_verifier"))
}

/// Parses a level or directives.
///
/// # Errors
/// [`Error::Level`].
pub fn filter(level: &str) -> Result<Targets, Error> {
    // A directive without a level ("inof") would be taken for the name of a module, and nothing
    // else would be logged.
    let directives: Vec<_> = level.split(',').map(str::trim).collect();
    for directive in &directives {
        if !directive.contains('=')
            && (directive.is_empty() || directive.parse::<LevelFilter>().is_err())
        {
            return Err(Error::Level(format!("{directive:?} is no level")));
        }
    }
    directives.join(",").parse().map_err(|e: ParseError| Error::Level(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_or_directives() {
        let check =
            |level: &str, right: bool| assert_eq!(filter(level).is_ok(), right, "{level:?}");
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
