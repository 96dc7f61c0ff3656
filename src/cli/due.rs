//! The arguments that name a moment, for `add`, `update` and lists.

use serde_json::Value;

use delayd_wire::Span;

/// The due time: exactly one of the two.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Due {
    /// Due after this time: seconds, or 1500ms, 10s, 5m, 2h, 7d
    #[arg(long = "in", value_name = "DURATION")]
    after: Option<Span>,
    /// Due at this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    at: Option<Value>,
}

impl Due {
    /// The value of the field `delay`.
    pub(super) fn delay(&self) -> Option<Span> {
        self.after
    }

    /// The value of the field `timing_moment`.
    pub(super) fn timing_moment(&self) -> Option<Value> {
        self.at.clone()
    }
}

/// Parses a number. A whole number stays whole.
pub(super) fn seconds(text: &str) -> Result<Value, &'static str> {
    match serde_json::from_str(text) {
        Ok(number @ Value::Number(_)) => Ok(number),
        _ => Err("must be a number of Unix seconds, such as 1795236367 or 1795236367.25"),
    }
}
