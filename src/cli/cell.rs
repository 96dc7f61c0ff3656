//! How values of answers are shown in tables.

use delayd_wire::{
    BreakerState, Destination, Durability, Holder, Span, TaskId, TaskState, Topic, UnixMillis, Way,
};
use serde_json::Value;

use super::{output, time};

/// The maximum length of a cell, in characters.
const MOST: usize = 200;

/// A value that can be shown in a table.
pub(super) trait Cell {
    /// Its text, with control characters escaped and cut to the maximum length.
    fn cell(&self) -> String;
}

macro_rules! cells {
    ($($type:ty: $value:ident => $text:expr;)+) => {
        $(impl Cell for $type {
            fn cell(&self) -> String {
                let $value = self;
                $text
            }
        })+
    };
}

cells! {
    u16: number => number.to_string();
    u32: number => number.to_string();
    u64: number => number.to_string();
    usize: number => number.to_string();
    bool: is => if *is { "yes" } else { "no" }.into();
    String: text => output::plain(text, MOST);
    Value: value => value.as_str().map_or_else(|| value.to_string(), str::to_owned).cell();
    TaskId: id => id.to_string();
    Topic: name => name.to_string().cell();
    Destination: name => name.to_string().cell();
    UnixMillis: moment => time::local(crate::model::clock::UnixMillis(moment.0));
    TaskState: state => state.as_str().into();
    Way: way => way.as_str().into();
    Holder: holder => holder.as_str().into();
    Durability: durability => durability.as_str().into();
    BreakerState: state => state.as_str().into();
}

impl<T: Cell> Cell for Option<T> {
    fn cell(&self) -> String {
        self.as_ref().map_or_else(|| "-".into(), T::cell)
    }
}

/// Settings for people: the durations, which answers have in milliseconds, in their largest unit.
pub(super) fn settings(value: &Value) -> Value {
    match value {
        Value::String(text) if text.ends_with("ms") => {
            text.parse::<Span>().map_or_else(|_| value.clone(), |span| span.to_string().into())
        }
        Value::Array(items) => items.iter().map(settings).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match name.as_str() {
                // Texts of the caller.
                "headers" => (name.clone(), value.clone()),
                _ => (name.clone(), settings(value)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        value => value.clone(),
    }
}

/// A text at full length, with control characters escaped.
pub(super) fn whole(text: &str) -> String {
    output::plain(text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_of_settings_have_their_largest_unit() {
        let given = json!({
            "timeout": "2000ms", "lateness_objective": "250ms", "rate": "100/s",
            "backoff": {"kind": "list", "steps": ["5000ms", "300000ms"]},
            "headers": {"x-wait": "5000ms"},
        });
        let shown = json!({
            "timeout": "2s", "lateness_objective": "250ms", "rate": "100/s",
            "backoff": {"kind": "list", "steps": ["5s", "5m"]},
            "headers": {"x-wait": "5000ms"},
        });
        assert_eq!(settings(&given), shown);
        assert_eq!(settings(&json!("by gms")), json!("by gms"));
    }
}
