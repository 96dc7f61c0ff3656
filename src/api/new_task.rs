//! From one task's JSON to what the store is asked to keep, every rule of the wire checked on the way.
//!
//! Pure: the caller's text and the [`Rules`] in, a [`Checked`] task or a sentence out. Nothing is stored before all
//! of it has passed.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::body::size;
use super::error::Error;
use super::fields::{Name, Number, within};
use super::json::{self, required};
use crate::callback::{Services, target};
use crate::clock::UnixMillis;
use crate::retry::Backoff;
use crate::span::Span;
use crate::store::Moment;
use crate::task::{Destination, Mode, Options, Topic};

const MAX_ATTEMPTS: RangeInclusive<u32> = 1..=1000;
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);
/// Unix seconds below this (the year 2001) can only be a delay in the wrong field, and would fire at once.
const EARLIEST_SECONDS: f64 = 1e9;
/// Unix seconds from this on (the year 5138) can only be milliseconds.
const FIRST_MILLIS: f64 = 1e11;

/// What a task is checked against.
pub(super) struct Rules<'a> {
    /// Our own clock, for the bound on far moments; the store's decides everything else.
    pub(super) now: UnixMillis,
    /// The furthest due moment from now.
    pub(super) max_delay: Duration,
    /// The longest content, in bytes.
    pub(super) content_limit: usize,
    /// The known services.
    pub(super) services: &'a Services,
}

/// A task that may be stored, once its topic's entry is at hand.
#[derive(Debug, PartialEq)]
pub(super) struct Checked {
    pub(super) topic: Topic,
    pub(super) destination: Destination,
    pub(super) moment: Moment,
    pub(super) options: Options,
    pub(super) content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    topic: Option<Name<Topic>>,
    timing_moment: Option<Number>,
    delay: Option<Span>,
    // Not a Value: the object's own text is kept byte for byte.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    mode: Option<Mode>,
    max_attempts: Option<Number>,
    timeout: Option<Span>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
}

/// Reads and checks one task.
///
/// # Errors
/// [`Error::Invalid`] names the field; [`Error::TooLarge`] for the content's length.
pub(super) fn read(text: &[u8], rules: &Rules<'_>) -> Result<Checked, Error> {
    let request: Request<'_> = json::read(text)?;
    let Name(topic) = required(request.topic, "topic")?;
    let moment = moment(request.timing_moment, request.delay, rules)?;
    let options = Options {
        max_attempts: request.max_attempts.map(|number| number.whole("max_attempts", MAX_ATTEMPTS)).transpose()?,
        timeout: request.timeout.map(|span| within(span, "timeout", TIMEOUT).map(Span)).transpose()?,
        backoff: request.backoff.map(backoff).transpose()?,
        ..Options::default()
    };
    let mode = request.mode.unwrap_or_default();
    let content = content(required(request.content, "content")?, mode, rules.content_limit)?;
    let destination = destination(&content, mode, rules.services)?;
    Ok(Checked { topic, destination, moment, options, content })
}

/// The due moment, from whichever of the two fields is there.
fn moment(timing_moment: Option<Number>, delay: Option<Span>, rules: &Rules<'_>) -> Result<Moment, Error> {
    match (timing_moment, delay) {
        (Some(Number(seconds)), None) => at(seconds, rules).map(Moment::At),
        (None, Some(delay)) => within(delay, "delay", Duration::ZERO..=rules.max_delay).map(Moment::After),
        _ => Err(Error::invalid("delay and timing_moment: give exactly one of the two")),
    }
}

fn at(seconds: f64, rules: &Rules<'_>) -> Result<UnixMillis, Error> {
    if seconds < EARLIEST_SECONDS {
        return Err(Error::invalid(
            "timing_moment: must be Unix seconds; a number below 1000000000 looks like a delay, which goes into `delay`",
        ));
    }
    if seconds >= FIRST_MILLIS {
        return Err(Error::invalid(
            "timing_moment: must be Unix seconds; so large a number can only be milliseconds, which are to be divided by 1000",
        ));
    }
    // A double holds seconds to well below a millisecond for longer than FIRST_MILLIS allows.
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    let moment = UnixMillis((seconds * 1000.0).round() as i64);
    if moment > rules.now + rules.max_delay {
        let max = Span(rules.max_delay);
        return Err(Error::Invalid(format!("timing_moment: must be at most {max} from now")));
    }
    Ok(moment)
}

fn backoff(raw: &RawValue) -> Result<Backoff, Error> {
    let mut fields: Map<String, Value> = serde_json::from_str(raw.get())
        .map_err(|_| Error::invalid(r#"backoff: must be an object such as {"kind":"fixed","every":"30s"}"#))?;
    // As everywhere, null is absent.
    fields.retain(|_, value| !value.is_null());
    let backoff = Backoff::deserialize(Value::Object(fields))
        .map_err(|error| Error::Invalid(json::sentence("backoff", &error)))?;
    backoff.check().map_err(|error| Error::Invalid(format!("backoff: {error}")))?;
    Ok(backoff)
}

/// The text to be kept: the object's own, or the one that the string holds.
fn content(raw: &RawValue, mode: Mode, limit: usize) -> Result<String, Error> {
    let is_string = raw.get().starts_with('"');
    let content = match raw.get().as_bytes().first() {
        Some(b'{') => raw.get().to_owned(),
        Some(b'"') => serde_json::from_str(raw.get())
            .map_err(|_| Error::invalid("content: must be a string of whole Unicode characters"))?,
        _ => return Err(Error::invalid("content: must be a JSON object, or a string that holds one")),
    };
    if content.len() > limit {
        return Err(Error::TooLarge(format!("content: is larger than {}", size(limit))));
    }
    if is_string && mode == Mode::Pull {
        // Opaque: whatever its consumers make of it.
        return Ok(content);
    }
    // An object that stood in the body has been parsed with it.
    let is_object = !is_string || holds_object(&content);
    match mode {
        _ if is_object => json::check_depth(&content, "content").map(|()| content),
        Mode::Push => Err(Error::invalid("content: must hold a JSON object with sn and url, for mode is \"push\"")),
        _ => Err(Error::invalid("content: must hold a JSON object; set mode to \"pull\" to store any text as it is")),
    }
}

fn holds_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whom the content is for.
fn destination(content: &str, mode: Mode, services: &Services) -> Result<Destination, Error> {
    if mode == Mode::Pull {
        return Ok(Destination::pull());
    }
    let target = target(content).map_err(|error| Error::Invalid(error.to_string()))?;
    match target {
        Some(target) if services.get(target.sn.as_str()).is_some() => Ok(target.sn),
        Some(target) => Err(Error::Invalid(format!(
            "content.sn: \"{}\" is not a service that is known here; the configuration's [services] names them",
            target.sn
        ))),
        None if mode == Mode::Push => {
            Err(Error::invalid("content: must have sn (the service) and url (the path on it), for mode is \"push\""))
        }
        None => Ok(Destination::pull()),
    }
}

#[cfg(test)]
#[path = "new_task_tests.rs"]
mod tests;
