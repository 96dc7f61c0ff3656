//! Access tokens: their hashes and scopes.
//!
//! A token is a long random text, so its plain SHA-256 can be neither reversed nor guessed, and
//! reading the configuration does not reveal it. Passwords chosen by people would need a slow hash
//! and are not supported.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The prefix of new tokens, so that a leaked one can be recognized.
const PREFIX: &str = "dly_";

/// The SHA-256 of a token. Neither `Debug` nor an error shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

/// The error for an invalid hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the SHA-256 of the token as 64 hexadecimal digits; `delayd token` makes both")]
pub struct InvalidHash;

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares both in constant time.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Its text form in the configuration.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl FromStr for TokenHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidHash);
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| InvalidHash)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidHash)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(***)")
    }
}

/// Returns a new token of 256 random bits.
pub fn fresh() -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
}

/// A permission of a token. The table in `api/routes.rs` says which call needs which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Adding, reading and changing tasks.
    Produce,
    /// Pulling and settling tasks.
    Consume,
    /// Reading lists, counts and metrics: changes nothing, and sees no content.
    View,
    /// Everything else.
    Admin,
}

/// The error for an invalid scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"produce\", \"consume\", \"view\" or \"admin\"")]
pub struct InvalidScope;

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Produce, Self::Consume, Self::View, Self::Admin];

    /// The name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::View => "view",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash printed by `printf %s secret | sha256sum`.
    const OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_hash_is_that_of_sha256sum_and_reads_what_it_writes() {
        let hash: TokenHash = OF_SECRET.parse().unwrap();
        assert!(hash.is(&TokenHash::of("secret")) && !hash.is(&TokenHash::of("Secret")));
        assert_eq!(hash.to_hex(), OF_SECRET);
        assert_eq!(OF_SECRET.to_uppercase().parse(), Ok(hash));
        assert!(!format!("{hash:?}").contains("2b"), "{hash:?}");
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let check =
            |text: &str| assert_eq!(text.parse::<TokenHash>(), Err(InvalidHash), "{text:?}");
        check("");
        check("dly_abc");
        check(&OF_SECRET[1..]);
        check(&format!("{OF_SECRET}0"));
        check(&format!("+{}", &OF_SECRET[1..]));
        check(&"é".repeat(32));
    }

    #[test]
    fn fresh_tokens_differ_and_can_stand_in_a_header() {
        let token = fresh();
        assert!(token.starts_with(PREFIX) && token.len() == PREFIX.len() + 43, "{token}");
        assert!(
            token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')),
            "{token}"
        );
        assert_ne!(token, fresh());
    }
}
