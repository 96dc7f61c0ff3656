//! Idempotency: the key, from the field or the header, and the fingerprint of the request.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::api::wire::error::Error;
use crate::model::task::{Destination, Options, Topic};
use crate::store::{Idempotency, Moment};

/// The longest `key` or `idempotency_key`, in bytes.
pub(crate) const MAX_KEY: usize = 256;

/// The beginning of the keys under which a run of a schedule stores its task.
pub(crate) const OF_RUN: &str = "schedule-run/";

/// The header of the IETF draft
/// (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>).
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// Its name in sentences.
const HEADER_NAME: &str = "Idempotency-Key";

/// Checks a `key` or an `idempotency_key`.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn checked(key: String, field: &str) -> Result<String, Error> {
    match key.len() {
        1..=MAX_KEY => Ok(key),
        _ => Err(Error::Invalid(format!("{field}: must be 1 to {MAX_KEY} bytes long"))),
    }
}

/// The key in the header, with or without the quotation marks of the draft.
///
/// # Errors
/// [`Error::Invalid`] if there are several, or the value is not plain text.
pub(crate) fn of_header(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let text = text.ok_or_else(|| {
        Error::invalid("Idempotency-Key: must be one value of visible ASCII characters")
    })?;
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    checked(bare.to_owned(), HEADER_NAME).map(Some)
}

/// The key of an add, from the field or the header. If both are given, they must agree.
///
/// # Errors
/// [`Error::Invalid`] if they differ, or if the key could be that of a schedule.
pub(crate) fn agreed(field: Option<String>, header: Option<&str>) -> Result<Option<String>, Error> {
    match (field, header) {
        (Some(field), Some(header)) if field != header => {
            return Err(Error::invalid(
                "idempotency_key: differs from the header Idempotency-Key; give one of the two",
            ));
        }
        (Some(field), _) => {
            checked(field, "idempotency_key").and_then(|key| unreserved(key, "idempotency_key"))
        }
        (None, Some(header)) => unreserved(header.to_owned(), HEADER_NAME),
        (None, None) => return Ok(None),
    }
    .map(Some)
}

/// Refuses the keys of schedules. A caller's add under such a key would take the place of an
/// occurrence.
fn unreserved(key: String, field: &str) -> Result<String, Error> {
    match key.starts_with(OF_RUN) {
        false => Ok(key),
        true => Err(Error::Invalid(format!(
            "{field}: expected a key that does not begin with {OF_RUN:?}, because the keys of \
             recurring schedules do, got {key:?}"
        ))),
    }
}

/// When a task is due, as a request says it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GivenDue<'a> {
    /// With a number.
    Moment(Moment),
    /// With a text. The text counts, because other zone data may read it as another moment.
    Text { at: &'a str, zone: Option<&'a str> },
}

/// The key with the request's fingerprint. Two requests are the same if they have the same topic,
/// due time (or delay, or texts of `at` and `zone`), destination, options and content; the
/// formatting of their JSON does not matter.
pub(crate) fn idempotency(
    key: String,
    window: Duration,
    topic: &Topic,
    (moment, destination, options, content): (GivenDue<'_>, &Destination, &Options, &str),
) -> Idempotency {
    let moment = match moment {
        GivenDue::Moment(Moment::At(moment)) => format!("@{}", moment.0),
        GivenDue::Moment(Moment::After(wait)) => format!("+{}", wait.as_millis()),
        // With the length of the first text, so that different pairs cannot be the same.
        GivenDue::Text { at, zone } => format!("at {} {at}{}", at.len(), zone.unwrap_or_default()),
    };
    let options = serde_json::to_string(options).expect("options are plain data");
    let mut hash = sha1_smol::Sha1::new();
    for part in [topic.as_str(), &moment, destination.as_str(), &options, content] {
        // With its length first, so that different lists of parts cannot have the same bytes.
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.digest().bytes();
    let first = digest.first_chunk::<16>().expect("a digest has twenty bytes");
    Idempotency { key, fingerprint: u128::from_be_bytes(*first), window }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::UnixMillis;

    #[test]
    fn the_header_is_taken_with_and_without_quotation_marks() {
        let check = |values: &[&'static str], expected: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, http::HeaderValue::from_static(value));
            }
            let read = of_header(&headers).map_err(|_| ());
            assert_eq!(read, expected.map(|key| key.map(str::to_owned)), "{values:?}");
        };
        check(&[], Ok(None));
        check(&["order-7"], Ok(Some("order-7")));
        check(&["\"order-7\""], Ok(Some("order-7")));
        check(&["\"half"], Ok(Some("\"half")));
        check(&["a", "b"], Err(()));
        check(&[""], Err(()));
        check(&["\"\""], Err(()));
    }

    #[test]
    fn field_and_header_must_agree() {
        let check = |field: Option<&str>, header: Option<&str>, expected: Option<Option<&str>>| {
            let read = agreed(field.map(str::to_owned), header).ok();
            assert_eq!(read, expected.map(|key| key.map(str::to_owned)), "{field:?} {header:?}");
        };
        check(None, None, Some(None));
        check(Some("a"), None, Some(Some("a")));
        check(None, Some("a"), Some(Some("a")));
        check(Some("a"), Some("a"), Some(Some("a")));
        check(Some("a"), Some("b"), None);
        check(Some(""), None, None);
        check(Some(&"k".repeat(256)), None, Some(Some(&"k".repeat(256))));
        check(Some(&"k".repeat(257)), None, None);
    }

    #[test]
    fn no_key_of_a_caller_can_be_that_of_a_schedule() {
        let says = |field: Option<&str>, header| {
            agreed(field.map(str::to_owned), header).unwrap_err().to_string()
        };
        let key = "schedule-run/nightly/k";
        let rest = "expected a key that does not begin with \"schedule-run/\", because the keys of \
                    recurring schedules do, got \"schedule-run/nightly/k\"";
        assert_eq!(says(Some(key), None), format!("idempotency_key: {rest}"));
        assert_eq!(says(Some(key), Some(key)), format!("idempotency_key: {rest}"));
        assert_eq!(says(None, Some(key)), format!("Idempotency-Key: {rest}"));
        assert!(agreed(Some("schedule-running/k".into()), None).is_ok());
    }

    #[test]
    fn a_fingerprint_differs_in_each_part() {
        let topic: Topic = "t".parse().unwrap();
        let of = |moment, sn: &str, options: &Options, content: &str| {
            let sn = sn.parse().unwrap();
            idempotency("k".into(), Duration::ZERO, &topic, (moment, &sn, options, content))
                .fingerprint
        };
        let after = |millis| GivenDue::Moment(Moment::After(Duration::from_millis(millis)));
        let (now, later) = (after(0), after(1));
        let plain = Options::default();
        let first = of(now, "a", &plain, "{}");
        assert_eq!(first, of(now, "a", &plain, "{}"));
        let thrice = Options { max_attempts: Some(3), ..Options::default() };
        for other in [
            of(later, "a", &plain, "{}"),
            of(GivenDue::Moment(Moment::At(UnixMillis(0))), "a", &plain, "{}"),
            of(GivenDue::Text { at: "0", zone: None }, "a", &plain, "{}"),
            of(now, "b", &plain, "{}"),
            of(now, "a", &thrice, "{}"),
            of(now, "a", &plain, "{ }"),
        ] {
            assert_ne!(first, other);
        }
    }

    /// Keys that are stored, and those of other versions, must keep their fingerprints.
    #[test]
    fn the_fingerprint_of_a_number_never_changes() {
        let of = |moment| {
            let (topic, sn): (Topic, Destination) = ("t".parse().unwrap(), "a".parse().unwrap());
            let what = (GivenDue::Moment(moment), &sn, &Options::default(), "{}");
            idempotency("k".into(), Duration::ZERO, &topic, what).fingerprint
        };
        // By Python's hashlib.
        let after = Moment::After(Duration::ZERO);
        assert_eq!(of(after), 0x351fdf06e99293e10363e5a2248bb27d);
        let at = Moment::At(UnixMillis(1_795_234_567_042));
        assert_eq!(of(at), 0x4ec078b240c2ae8ae107948aa7d34a0f);
    }

    #[test]
    fn a_fingerprint_covers_the_texts_of_the_time_and_the_zone() {
        let of = |at, zone| {
            let (topic, sn): (Topic, Destination) = ("t".parse().unwrap(), "a".parse().unwrap());
            let what = (GivenDue::Text { at, zone }, &sn, &Options::default(), "{}");
            idempotency("k".into(), Duration::ZERO, &topic, what).fingerprint
        };
        let first = of("2026-11-23 20:00", Some("Asia/Shanghai"));
        assert_eq!(first, of("2026-11-23 20:00", Some("Asia/Shanghai")));
        for (at, zone) in [
            ("2026-11-23 20:00", Some("+08:00")),
            ("2026-11-23T20:00", Some("Asia/Shanghai")),
            ("2026-11-23 20:00[Asia/Shanghai]", None),
            ("2026-11-23 20:00Asia/Shanghai", None),
            ("2026-11-23T20:00+08:00", None),
        ] {
            assert_ne!(first, of(at, zone), "{at} {zone:?}");
        }
    }
}
