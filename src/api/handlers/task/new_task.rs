//! Reads one task's JSON and checks every rule of an add.
//!
//! Pure: it takes the caller's text and the [`TaskRules`], and returns a [`CheckedTask`] or an
//! error.

use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) use delayd_wire::AddRequest as Request;
use delayd_wire::{Backoff, GivenHeaders, Number, OnDeadCall, Span};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::api::auth::Caller;
use crate::api::handlers::task::due::{DueTime, FarthestDue, Written, due};
use crate::api::state::Api;
use crate::api::wire::cost::spend;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::api::wire::idempotency::{self, GivenDue};
use crate::api::wire::json;
use crate::api::wire::long_body::size;
use crate::callback::{
    InvalidTarget, InvalidUrl, Services, Target, check_segments, check_url, new_target,
};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Headers, Mode, OnDead, Options, Topic, is_reserved_header};
use crate::model::zone::Zone;
use crate::store::{Idempotency, Moment};

pub(crate) const MAX_ATTEMPTS: RangeInclusive<u32> = 1..=1000;
/// At least a millisecond, or a task could expire when it is due.
const EXPIRES_AFTER: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3650 * 86_400);
pub(crate) const TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(600);
/// How many services an error names.
const SERVICES_SHOWN: usize = 5;
/// The most services that are compared with an unknown one.
const MOST_COMPARED: usize = 256;
/// What a task is checked against.
pub(crate) struct TaskRules<'a> {
    /// This process's clock, which only limits `max_delay`; the store's clock decides everything
    /// else.
    pub(crate) now: UnixMillis,
    /// The latest due time, from now.
    pub(crate) max_delay: Duration,
    /// The longest content, in bytes.
    pub(crate) content_limit: usize,
    /// The configured services.
    pub(crate) services: &'a Services,
    /// How long an idempotency key is remembered.
    pub(crate) idempotency_window: Duration,
    /// A topic's default mode.
    pub(crate) mode_of: &'a dyn Fn(&Topic) -> Option<Mode>,
    /// The key in the header `Idempotency-Key`.
    pub(crate) header_key: Option<&'a str>,
}

impl TaskRules<'_> {
    /// How far ahead a task may be due.
    pub(crate) fn reach(&self) -> FarthestDue {
        FarthestDue { now: self.now, max_delay: self.max_delay }
    }

    /// The mode of a task: as given, or the default of its topic.
    pub(crate) fn mode(&self, given: Option<Mode>, topic: &Topic) -> Mode {
        given.or_else(|| (self.mode_of)(topic)).unwrap_or_default()
    }
}

impl Api {
    /// Names the services in an error about an unknown one, if the caller may list them.
    pub(crate) fn explained(&self, mut error: Error, caller: &Caller) -> Error {
        if let Error::UnknownService { sn, hint, .. } = &mut error
            && caller.lists_destinations()
        {
            let all = self.services.all();
            let names: Vec<_> = all.iter().map(|service| service.name().as_str()).collect();
            *hint = service_hint(sn, &names);
        }
        error
    }

    /// Calls `check` with the rules for new tasks.
    pub(crate) fn checked<T>(
        &self,
        header_key: Option<&str>,
        check: impl FnOnce(&TaskRules<'_>) -> T,
    ) -> T {
        let bounds = self.bounds();
        check(&TaskRules {
            now: self.clock.now(),
            max_delay: bounds.max_delay,
            content_limit: bounds.content_limit,
            services: &self.services,
            idempotency_window: bounds.idempotency_window,
            mode_of: &|topic| self.topics.policy_of(topic).mode,
            header_key,
        })
    }
}

/// A task that passed the checks. The topic's entry is still to be looked up.
#[derive(Debug, PartialEq)]
pub(crate) struct CheckedTask {
    pub(crate) topic: Topic,
    pub(crate) destination: Destination,
    pub(crate) moment: Moment,
    /// The zone in which the answer shows the due time; `None`: UTC.
    pub(crate) zone: Option<Zone>,
    pub(crate) options: Options,
    pub(crate) content: String,
    pub(crate) idempotency: Option<Idempotency>,
}

/// The options that a request gives to a task, without those that only some requests have.
pub(crate) struct GivenOptions {
    pub(crate) max_attempts: Option<Number>,
    pub(crate) timeout: Option<Span>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) headers: Option<GivenHeaders>,
    pub(crate) expires_after: Option<Span>,
}

impl GivenOptions {
    /// Checks them. The other options are absent.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming the field.
    pub(crate) fn read(self) -> Result<Options, Error> {
        let attempts = self.max_attempts.map(|number| number.whole("max_attempts", MAX_ATTEMPTS));
        let timeout = self.timeout.map(|span| within(span, "timeout", TIMEOUT).map(Span));
        let expiry = |span| within(span, "expires_after", EXPIRES_AFTER).map(Span);
        Ok(Options {
            max_attempts: attempts.transpose()?,
            timeout: timeout.transpose()?,
            backoff: self.backoff.map(|wait| backoff(wait, "backoff")).transpose()?,
            headers: self.headers.map(headers).transpose()?.unwrap_or_default(),
            expires_after: self.expires_after.map(expiry).transpose()?,
            ..Options::default()
        })
    }
}

/// Reads and checks one task.
///
/// # Errors
/// [`Error::Invalid`] names the field; [`Error::TooLarge`] if the content is too long.
pub(crate) fn read(text: &[u8], rules: &TaskRules<'_>) -> Result<CheckedTask, Error> {
    let request: Request = json::read(text)?;
    let topic = request.topic;
    let written = Written::of(&request.at, &request.zone);
    let DueTime { moment, zone } =
        due(request.timing_moment, request.delay, written, rules.reach())?;
    let Request { max_attempts, timeout, backoff, headers, expires_after, .. } = request;
    let given = GivenOptions { max_attempts, timeout, backoff, headers, expires_after };
    let options = Options {
        key: request.key.map(|key| idempotency::checked(key, "key")).transpose()?,
        on_dead: request
            .on_dead
            .map(|call| on_dead(call, "on_dead", rules.services))
            .transpose()?,
        ..given.read()?
    };
    let mode = rules.mode(request.mode, &topic);
    let content = content(request.content, mode, rules.content_limit)?;
    let destination = destination(mode, rules.services, || new_target(&content))?;
    check_headers(&options.headers, &destination, rules.services)?;
    let key = idempotency::agreed(request.idempotency_key, rules.header_key)?;
    let idempotency = key.map(|key| {
        let moment = match written {
            Written { at: Some(at), zone } => GivenDue::Text { at, zone },
            Written { at: None, .. } => GivenDue::Moment(moment),
        };
        let what = (moment, &destination, &options, content.as_str());
        idempotency::idempotency(key, rules.idempotency_window, &topic, what)
    });
    Ok(CheckedTask { topic, destination, moment, zone, options, content, idempotency })
}

/// Checks a call that a caller sends now; `field` is its path.
pub(crate) fn on_dead(call: OnDeadCall, field: &str, services: &Services) -> Result<OnDead, Error> {
    check_segments(&call.url).map_err(|error| wrong_url(field, error))?;
    stored_on_dead(call, field, services)
}

fn wrong_url(field: &str, error: InvalidUrl) -> Error {
    Error::Invalid(format!("{field}.url: {error}"))
}

/// Checks a call that was stored before; `field` is its path.
pub(crate) fn stored_on_dead(
    OnDeadCall { sn, url }: OnDeadCall,
    field: &str,
    services: &Services,
) -> Result<OnDead, Error> {
    check_url(&url).map_err(|error| wrong_url(field, error))?;
    if !sn.is_service() || services.get(sn.as_str()).is_none() {
        return Err(unknown_service(&format!("{field}.sn"), &sn));
    }
    Ok(OnDead { sn, url, task_id: None })
}

fn unknown_service(field: &str, sn: &Destination) -> Error {
    Error::UnknownService {
        field: field.into(),
        sn: sn.to_string(),
        hint: "the configuration's [services] names them".into(),
    }
}

/// A sentence that names some of the services, and the one that `sn` may mean.
fn service_hint(sn: &str, names: &[&str]) -> String {
    let (shown, more) = names.split_at(names.len().min(SERVICES_SHOWN));
    // A bad request costs little.
    let compared = names.iter().copied().filter(|_| names.len() <= MOST_COMPARED);
    let meant = match json::nearest(sn, compared) {
        Some(name) => format!("did you mean {name:?}? The"),
        None => "the".into(),
    };
    let more = match more.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    match names {
        [] => "no service is configured".into(),
        _ => format!("{meant} services are {}{more}", shown.join(", ")),
    }
}

/// Checks the backoff in `field`.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn backoff(backoff: Backoff, field: &str) -> Result<Backoff, Error> {
    backoff.check().map_err(|error| Error::Invalid(format!("{field}.{error}")))?;
    Ok(backoff)
}

/// Checks `headers`.
fn headers(GivenHeaders(given): GivenHeaders) -> Result<Headers, Error> {
    Headers::new(given).map_err(|error| Error::Invalid(format!("headers: {error}")))
}

/// Checks the headers of a stored task. One that an earlier version accepted, but that a receiver
/// may take for one of delayd's own, is left out: it would not be sent.
pub(crate) fn stored_headers(GivenHeaders(mut given): GivenHeaders) -> Result<Headers, Error> {
    let is_alike = |name: &str| name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    given.retain(|(name, _)| !(is_alike(name) && is_reserved_header(&name.to_ascii_lowercase())));
    headers(GivenHeaders(given))
}

/// Refuses headers that the operator sets for the destination.
///
/// # Errors
/// [`Error::Invalid`], naming the header.
pub(crate) fn check_headers(
    headers: &Headers,
    destination: &Destination,
    services: &Services,
) -> Result<(), Error> {
    if headers.is_empty() {
        return Ok(());
    }
    let Some(name) = services.header_of_operator(destination, headers.names()) else {
        return Ok(());
    };
    Err(Error::Invalid(format!(
        "headers: expected no header that the configuration sets for the service \"{destination}\" \
         (services.….headers), got {name:?}"
    )))
}

/// The content's text: that of the object, or the one in the string.
///
/// # Errors
/// [`Error::Invalid`], naming the field; [`Error::TooLarge`].
pub(crate) fn content(raw: Box<RawValue>, mode: Mode, limit: usize) -> Result<String, Error> {
    let too_large = || Error::TooLarge(format!("content: is larger than {}", size(limit)));
    let is_string = raw.get().starts_with('"');
    spend(raw.get().len());
    let content = match raw.get().as_bytes().first() {
        Some(b'{') if raw.get().len() > limit => return Err(too_large()),
        Some(b'{') => Box::<str>::from(raw).into_string(),
        Some(b'"') => serde_json::from_str(raw.get())
            .map_err(|_| Error::invalid("content: must be a string of whole Unicode characters"))?,
        Some(b'n') => return Err(Error::invalid("content: is missing")),
        _ => {
            return Err(Error::invalid(
                "content: must be a JSON object, or a string that holds one",
            ));
        }
    };
    if content.len() > limit {
        return Err(too_large());
    }
    if is_string && mode == Mode::Pull {
        // Any text, for the consumer.
        return Ok(content);
    }
    // An object in the body has already been parsed.
    let is_object = !is_string || holds_object(&content);
    match mode {
        _ if is_object => json::check_depth(&content, "content").map(|()| content),
        Mode::Push => Err(Error::invalid(
            "content: must hold a JSON object with sn and url, because mode is \"push\"",
        )),
        _ => Err(Error::invalid(
            "content: must hold a JSON object; set mode to \"pull\" to store any text as it is",
        )),
    }
}

fn holds_object(text: &str) -> bool {
    spend(text.len());
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The destination of a content. `target` reads `sn` and `url` from it.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn destination(
    mode: Mode,
    services: &Services,
    target: impl FnOnce() -> Result<Option<Target>, InvalidTarget>,
) -> Result<Destination, Error> {
    if mode == Mode::Pull {
        return Ok(Destination::pull());
    }
    let target = target().map_err(|error| Error::Invalid(error.to_string()))?;
    let host = |url: &str| {
        services.host_of(url).map_err(|error| Error::Invalid(format!("content.url: {error}")))
    };
    match target {
        Some(Target { sn: Some(sn), .. }) if services.get(sn.as_str()).is_some() => Ok(sn),
        Some(Target { sn: Some(sn), .. }) => Err(unknown_service("content.sn", &sn)),
        Some(Target { sn: None, url }) => match host(&url)? {
            Some(host) => Ok(host),
            None => Err(Error::invalid(
                "content.url: its host is not on callback.allow_hosts, and there is no content.sn, \
                 so it cannot be called; for a task that consumers pull, set mode to \"pull\"",
            )),
        },
        None if mode == Mode::Push => Err(Error::invalid(
            "content: must have sn (the service) and url (the path on it), because mode is \
             \"push\"",
        )),
        None => Ok(Destination::pull()),
    }
}

#[cfg(test)]
#[path = "new_task_tests.rs"]
mod tests;
