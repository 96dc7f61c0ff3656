//! Arguments that several commands have, and how they are parsed.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::model::task::Mode;
use delayd_wire::span::{InvalidSpan, Span, wait_of};
use delayd_wire::{Backoff, GivenHeaders, OnDeadCall};

/// The options of a task, or of each occurrence of a recurring schedule.
#[derive(Debug, clap::Args)]
pub(super) struct TaskOptions {
    /// Whether the task is called back or pulled; auto: by its content
    #[arg(long, value_name = "MODE", value_parser = one_of(&Mode::ALL, Mode::as_str))]
    pub(super) mode: Option<Mode>,
    /// Attempts before the task is dead, 1 to 1000
    #[arg(long, value_name = "N")]
    pub(super) max_attempts: Option<u32>,
    /// How long one call may take, 100ms to 10m
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<Span>,
    /// The wait between attempts: 30s, a list such as 5s,5m,30m, or a JSON object
    #[arg(long, value_name = "BACKOFF", value_parser = backoff)]
    pub(super) backoff: Option<Backoff>,
    /// Drop the task if it is not delivered within this time after its due time
    #[arg(long, value_name = "DURATION")]
    pub(super) expires_after: Option<Span>,
    /// A header of your own for the callback; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    pub(super) headers: Vec<(String, String)>,
    /// The call to make if the task becomes dead
    #[arg(long, value_name = "SN/PATH", value_parser = call)]
    pub(super) on_dead: Option<OnDeadCall>,
}

impl TaskOptions {
    /// The headers, if there are any.
    pub(super) fn headers(&self) -> Option<GivenHeaders> {
        Some(GivenHeaders(self.headers.clone())).filter(|headers| !headers.0.is_empty())
    }
}

/// The arguments of one command, for its tests.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
pub(super) struct Alone<Args: clap::Args> {
    #[command(flatten)]
    pub(super) args: Args,
}

/// A parser for one of several names.
pub(super) fn one_of<T>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.iter().map(|value| name(*value))).map(move |given| {
        let is_it = |value: &&T| name(**value) == given;
        *all.iter().find(is_it).expect("no other name passes")
    })
}

/// Parses `30s`, `5s,5m,30m`, or the JSON object of the API.
pub(super) fn backoff(text: &str) -> Result<Backoff, String> {
    const WRONG: &str = "must be a wait such as 30s, a list such as 5s,5m,30m (the last one \
                         repeats), or an object such as \
                         {\"kind\":\"exponential\",\"base\":\"1s\",\"factor\":2,\
                         \"max\":\"1h\",\"jitter\":0.2}";
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("{WRONG}: {error}"));
    }
    let steps: Result<Vec<Span>, _> = text.split(',').map(|step| wait_of(step.trim())).collect();
    let steps = steps.map_err(|error| match error {
        InvalidSpan::NoUnit(_) => error.to_string(),
        _ => WRONG.into(),
    })?;
    match steps.as_slice() {
        [every] => Ok(Backoff::Fixed { every: *every }),
        steps => Ok(Backoff::List { steps: steps.to_vec() }),
    }
}

/// Parses `name: value`, as curl does.
pub(super) fn header(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("must be a name and a value, such as 'x-tenant: a'"),
    }
}

/// Parses a service and a path: `message.call/orders/failed`.
pub(super) fn call(text: &str) -> Result<OnDeadCall, &'static str> {
    let (sn, url) = text.split_at(text.find('/').unwrap_or_default());
    match sn.parse() {
        Ok(sn) => Ok(OnDeadCall { sn, url: url.into() }),
        Err(_) => Err("must be a service and a path on it, such as message.call/orders/failed"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_backoff_is_one_wait_several_or_an_object() {
        let check = |text: &str, expected: Option<Value>| {
            assert_eq!(backoff(text).ok().map(|read| json!(read)), expected, "{text}")
        };
        check("30s", Some(json!({"kind": "fixed", "every": "30000ms"})));
        check("5s, 5m", Some(json!({"kind": "list", "steps": ["5000ms", "300000ms"]})));
        check(r#"{"kind":"fixed","every":1}"#, Some(json!({"kind": "fixed", "every": "1000ms"})));
        check("soon", None);
        check("5s,", None);
        check("{", None);
    }

    #[test]
    fn a_header_is_split_at_its_first_colon() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            assert_eq!(
                header(text).ok(),
                expected.map(|(name, value)| (name.to_owned(), value.to_owned())),
                "{text}"
            );
        };
        check("x-tenant: a:b", Some(("x-tenant", "a:b")));
        check("x-empty:", Some(("x-empty", "")));
        check("none", None);
        check(": a", None);
    }

    #[test]
    fn a_call_for_the_dead_is_split_at_its_first_slash() {
        let check = |text: &str, expected: Option<Value>| {
            assert_eq!(call(text).ok().map(|call| json!(call)), expected, "{text}")
        };
        check("message.call/a/b", Some(json!({"sn": "message.call", "url": "/a/b"})));
        check("/a", None);
        check("message.call", None);
    }
}
