//! Signed callbacks, by the rules of Standard Webhooks: a receiver can check that delayd made the
//! call, and that nobody changed it.
//!
//! The text `id.timestamp.body` is signed with HMAC-SHA256, by each secret of the service. So a
//! secret can be rotated without a gap: the operator adds the new one, receivers switch to it, and
//! the operator removes the old one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::clock::UnixMillis;

/// The prefix of a secret.
const PREFIX: &str = "whsec_";
/// The prefix of a signature of this kind.
const VERSION: &str = "v1,";
/// The number of bytes of a key.
const LENGTH: std::ops::RangeInclusive<usize> = 24..=64;
/// How far the clocks of sender and receiver may differ.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The key of a service. Neither `Debug` nor an error shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// The error for a text that is not a secret. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"whsec_\" and 24 to 64 bytes in base64, as `openssl rand -base64 32` makes them")]
pub struct InvalidSecret;

/// Why a call is not authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header is missing.
    #[error("not signed")]
    Missing,
    /// The timestamp is not a number, or too far from now: the call may be a replay.
    #[error("signed too long ago, or the clocks differ")]
    Stale,
    /// No signature matches.
    #[error("signed with another secret, or changed on its way")]
    Wrong,
}

impl Secret {
    /// The signature of a call, as one word of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        format!(
            "{VERSION}{}",
            STANDARD.encode(self.mac(id, timestamp, body).finalize().into_bytes())
        )
    }

    /// Checks a received call. At least one of the `signatures` in the header has to match.
    ///
    /// # Errors
    /// See [`Unverified`].
    pub fn verify(&self, received: &Received<'_>, now: UnixMillis) -> Result<(), Unverified> {
        let Received { id, timestamp, signatures, body } = received;
        if id.is_empty() || timestamp.is_empty() || signatures.is_empty() {
            return Err(Unverified::Missing);
        }
        let seconds: i64 = timestamp.parse().map_err(|_| Unverified::Stale)?;
        if (now.0 / 1000).abs_diff(seconds) > TOLERANCE.as_secs() {
            return Err(Unverified::Stale);
        }
        let fits = |signature: &str| {
            let bytes = signature.strip_prefix(VERSION).and_then(|text| STANDARD.decode(text).ok());
            // Compared in constant time.
            bytes.is_some_and(|bytes| self.mac(id, seconds, body).verify_slice(&bytes).is_ok())
        };
        if signatures.split(' ').any(fits) { Ok(()) } else { Err(Unverified::Wrong) }
    }

    fn mac(&self, id: &str, timestamp: i64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        mac
    }
}

/// What a receiver checks.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signatures: &'a str,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// The value of `webhook-signature`, with a signature by each secret.
pub(super) fn signatures(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let key = text.strip_prefix(PREFIX).and_then(|key| STANDARD.decode(key).ok());
        key.filter(|key| LENGTH.contains(&key.len())).map(Self).ok_or(InvalidSecret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use standardwebhooks::Webhook;

    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDzzjGJkMzvZw=";

    fn secret(text: &str) -> Secret {
        text.parse().unwrap()
    }

    fn seconds_now() -> i64 {
        // The oracle uses the machine's clock.
        crate::model::clock::Clock::system().now().0 / 1000
    }

    /// The example of the specification's own reference implementations.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let signature = secret(OLD).sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            b"{\"test\": 2432232314}",
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn receivers_of_the_old_and_of_the_new_secret_both_take_the_call() {
        let (now, body) = (seconds_now(), "{\"名\":\"订单\"}".as_bytes());
        let header = signatures(&[secret(OLD), secret(NEW)], "42", now, body);
        let headers = |signature: &str| {
            let pairs = [("webhook-id", "42".to_owned()), ("webhook-timestamp", now.to_string())];
            let pairs = pairs.into_iter().chain([("webhook-signature", signature.to_owned())]);
            pairs
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect::<http::HeaderMap>()
        };
        for known in [OLD, NEW] {
            Webhook::new(known).unwrap().verify(body, &headers(&header)).unwrap();
        }
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert!(Webhook::new(other).unwrap().verify(body, &headers(&header)).is_err());
        assert!(Webhook::new(OLD).unwrap().verify(b"{}", &headers(&header)).is_err());
    }

    #[test]
    fn what_another_signed_is_verified_and_what_was_changed_is_not() {
        let (now, body) = (seconds_now(), b"{}");
        let theirs = Webhook::new(OLD).unwrap().sign("7", now, body).unwrap();
        let both = format!("v1,AAAA v1a,xyz {theirs}");
        let (text, stale) = (now.to_string(), (now - 301).to_string());
        let check = |change: fn(&mut Received<'_>), expected: Result<(), Unverified>| {
            let mut received = Received { id: "7", timestamp: &text, signatures: &both, body };
            change(&mut received);
            assert_eq!(
                secret(OLD).verify(&received, UnixMillis(now * 1000)),
                expected,
                "{received:?}"
            );
        };
        check(|_| {}, Ok(()));
        check(|received| received.body = b"{} ", Err(Unverified::Wrong));
        check(|received| received.id = "8", Err(Unverified::Wrong));
        check(|received| received.id = "", Err(Unverified::Missing));
        check(|received| received.timestamp = "soon", Err(Unverified::Stale));
        check(|received| received.timestamp = "1", Err(Unverified::Stale));
        check(|received| received.signatures = "", Err(Unverified::Missing));
        check(|received| received.signatures = "v1,", Err(Unverified::Wrong));
        let late = Received { id: "7", timestamp: &stale, signatures: &both, body };
        assert_eq!(secret(OLD).verify(&late, UnixMillis(now * 1000)), Err(Unverified::Stale));
        let right = Received { id: "7", timestamp: &text, signatures: &both, body };
        assert_eq!(secret(NEW).verify(&right, UnixMillis(now * 1000)), Err(Unverified::Wrong));
    }

    #[test]
    fn a_secret_has_24_to_64_bytes_and_is_never_shown() {
        let check = |text: &str, right: bool| {
            let read = text.parse::<Secret>();
            assert_eq!(read.is_ok(), right, "{text}");
            let shown = format!(
                "{read:?} {}",
                read.as_ref().map_or_else(ToString::to_string, |_| String::new())
            );
            assert!(!shown.contains("QUFB"), "{shown}");
        };
        check(&format!("whsec_{}", "QUFB".repeat(8)), true);
        check(&format!("whsec_{}", STANDARD.encode([0x41; 64])), true);
        check(&format!("whsec_{}", "QUFB".repeat(7)), false);
        check(&format!("whsec_{}", STANDARD.encode([0x41; 65])), false);
        check(&"QUFB".repeat(8), false);
        check(&format!("whsec_{}!", "QUFB".repeat(8)), false);
        check("whsec_", false);
        check("", false);
    }
}
