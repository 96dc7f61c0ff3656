//! Idempotency: the key, from the field or the header, and the fingerprint of the request.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::api::wire::error::Error;
use crate::model::task::{Destination, Options, Topic};
use crate::store::{Idempotency, Moment};

/// The longest `key` or `idempotency_key`, in bytes.
pub(crate) const MAX_KEY: usize = 256;

/// The header of the IETF draft
/// (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>).
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

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
    checked(bare.to_owned(), "Idempotency-Key").map(Some)
}

/// The key of an add, from the field or the header. If both are given, they must agree.
///
/// # Errors
/// [`Error::Invalid`] if they differ.
pub(crate) fn agreed(field: Option<String>, header: Option<&str>) -> Result<Option<String>, Error> {
    match (field, header) {
        (Some(field), Some(header)) if field != header => Err(Error::invalid(
            "idempotency_key: differs from the header Idempotency-Key; give one of the two",
        )),
        (Some(field), _) => checked(field, "idempotency_key").map(Some),
        (None, header) => Ok(header.map(str::to_owned)),
    }
}

/// The key with the request's fingerprint. Two requests are the same if they have the same topic,
/// due time (or delay), destination, options and content; the formatting of their JSON does not
/// matter.
pub(crate) fn idempotency(
    key: String,
    window: Duration,
    topic: &Topic,
    (moment, destination, options, content): (Moment, &Destination, &Options, &str),
) -> Idempotency {
    let moment = match moment {
        Moment::At(moment) => format!("@{}", moment.0),
        Moment::After(wait) => format!("+{}", wait.as_millis()),
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
    fn a_fingerprint_differs_in_each_part() {
        let topic: Topic = "t".parse().unwrap();
        let of = |moment, sn: &str, options: &Options, content: &str| {
            let sn = sn.parse().unwrap();
            idempotency("k".into(), Duration::ZERO, &topic, (moment, &sn, options, content))
                .fingerprint
        };
        let (now, later) = (Moment::After(Duration::ZERO), Moment::After(Duration::from_millis(1)));
        let plain = Options::default();
        let first = of(now, "a", &plain, "{}");
        assert_eq!(first, of(now, "a", &plain, "{}"));
        let thrice = Options { max_attempts: Some(3), ..Options::default() };
        for other in [
            of(later, "a", &plain, "{}"),
            of(Moment::At(crate::model::clock::UnixMillis(0)), "a", &plain, "{}"),
            of(now, "b", &plain, "{}"),
            of(now, "a", &thrice, "{}"),
            of(now, "a", &plain, "{ }"),
        ] {
            assert_ne!(first, other);
        }
    }
}
