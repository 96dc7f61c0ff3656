//! The headers that the operator adds to each call of a service.
//!
//! They replace the headers of the same name that a task brings, and those of the client's that a
//! task may replace. A value may be a secret, so `Debug` shows only names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

use super::secret_text::{Unexpected, line};
use crate::model::task::is_reserved_header;
use crate::model::trace::TRACEPARENT;

/// A header of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHeader {
    name: HeaderName,
    value: HeaderValue,
}

impl ServiceHeader {
    /// Checks the header.
    ///
    /// # Errors
    /// If the name is none, or belongs to delayd, or if the value cannot be sent.
    pub fn new(name: &str, value: &str) -> Result<Self, Unexpected> {
        let name = check_header_name(name)?;
        let value = line(value).map_err(|got| Unexpected {
            expected: "one line of visible ASCII".into(),
            got: got.into(),
        })?;
        let mut value = HeaderValue::from_str(value).expect("visible ASCII is a value");
        // HTTP/2 then compresses it with no other, and `Debug` hides it.
        value.set_sensitive(true);
        Ok(Self { name, value })
    }

    /// Its name, in lower case.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    pub(super) fn value(&self) -> &HeaderValue {
        &self.value
    }
}

/// Returns the name in lower case.
///
/// # Errors
/// If it is no name of a header, or one that only delayd sets.
pub fn check_header_name(name: &str) -> Result<HeaderName, Unexpected> {
    let invalid = |expected: &str| Unexpected {
        expected: expected.to_owned(),
        got: format!("{:?}", name.chars().take(64).collect::<String>()),
    };
    let known = HeaderName::try_from(name)
        .map_err(|_| invalid("the name of a header, such as x-api-key"))?;
    if is_reserved_header(known.as_str()) || known == TRACEPARENT {
        return Err(invalid("a header that delayd does not set itself"));
    }
    Ok(known)
}

/// The secrets in the value of a header: the value, what follows the name of a scheme, and the
/// password of the scheme `Basic`.
pub(super) fn secrets_in(value: &HeaderValue) -> Vec<String> {
    let Ok(value) = value.to_str() else { return Vec::new() };
    let mut secrets = vec![value.to_owned()];
    let Some((scheme, rest)) = value.split_once(' ') else { return secrets };
    secrets.push(rest.trim_ascii().to_owned());
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(said) = STANDARD.decode(rest.trim_ascii())
        && let Ok(said) = String::from_utf8(said)
    {
        secrets.extend(said.split_once(':').map(|(_, password)| password.to_owned()));
        secrets.push(said);
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delayds_own_headers_and_wrong_values_are_refused() {
        let check = |name: &str, value: &str, expected: &str| {
            let said = ServiceHeader::new(name, value).map_err(|error| error.to_string());
            assert_eq!(said.map(|_| String::new()).unwrap_or_else(|error| error), expected);
        };
        check("Authorization", "Bearer x", "");
        check("x-key", "a\tb", "");
        check("content-type", "text/plain", "");
        check("user-agent", "shop", "");
        for name in [
            "host",
            "Content-Length",
            "connection",
            "transfer-encoding",
            "webhook-id",
            "Webhook-Signature",
            "delay-task-id",
            "traceparent",
            "expect",
            "accept-encoding",
            "proxy-authorization",
            "webhook_id",
            "delay_task_id",
        ] {
            let expected =
                format!("expected a header that delayd does not set itself, got {name:?}");
            check(name, "secret", &expected);
        }
        check("a b", "x", "expected the name of a header, such as x-api-key, got \"a b\"");
        check("", "x", "expected the name of a header, such as x-api-key, got \"\"");
        check("x-key", "", "expected one line of visible ASCII, got nothing");
        check(
            "x-key",
            "secret\nhost: evil",
            "expected one line of visible ASCII, got more than one line",
        );
        let header = ServiceHeader::new("x-key", "secret").unwrap();
        assert!(!format!("{header:?}").contains("secret"));
    }

    #[test]
    fn the_secret_within_a_value_is_known_too() {
        let check = |value: &str, expected: &[&str]| {
            assert_eq!(secrets_in(&HeaderValue::from_str(value).unwrap()), expected, "{value}");
        };
        check("token", &["token"]);
        check("Bearer token", &["Bearer token", "token"]);
        let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        check(basic, &[basic, &basic[6..], "open sesame", "Aladdin:open sesame"]);
        check("Basic ?", &["Basic ?", "?"]);
    }
}
