//! `[http]`: the address of the service, and who may call.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer};

use super::check::{self, Wrong};
use super::error::Error;
use super::tls::ServerTls;
use super::value::{Parsed, rate};
use crate::model::glob::Glob;
use crate::model::origin::Origin;
use crate::model::token::{Scope, TokenHash};
use delayd_wire::Rate;

/// The maximum length of the name of a token, in characters.
const LONGEST_NAME: usize = 64;

/// The section `[http]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address and port; port 0 uses a free port.
    #[serde(deserialize_with = "address")]
    pub bind: SocketAddr,
    /// Origins of web pages that may call, whatever `Host` a proxy sets.
    pub public_origins: Vec<Parsed<Origin>>,
    /// TLS on the port.
    pub tls: ServerTls,
    /// Who may call.
    pub auth: Auth,
}

/// The section `[http.auth]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Whether anyone who reaches the port may call. Allowed only without tokens.
    pub anonymous: bool,
    /// The known tokens.
    pub tokens: Vec<Token>,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name: 1 to 64 visible characters, unique.
    pub name: String,
    /// Its hash, unique.
    pub token_sha256: Parsed<TokenHash>,
    /// Its scopes, one or more.
    pub scopes: Vec<Parsed<Scope>>,
    /// The topics it may use, one or more. Required: with a default, a truncated file would widen
    /// the token to all topics.
    pub topics: Vec<Parsed<Glob>>,
    /// Its rate limit; an empty text means no limit.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<Rate>,
}

impl Http {
    /// The scheme of the port's addresses.
    pub fn scheme(&self) -> &'static str {
        if self.tls.files().is_some() { "https" } else { "http" }
    }

    /// A warning if anyone may call and other machines can reach the port.
    pub fn warning(&self) -> Option<String> {
        let is_open = self.auth.tokens.is_empty() && !is_loopback(self.bind);
        is_open.then(|| {
            format!(
                "ATTENTION: http.auth.anonymous is true and {} is not a loopback address: EVERYONE \
                 who reaches this port can add, read and purge tasks. Set [http.auth] tokens \
                 (`delayd token` makes one), or bind to 127.0.0.1",
                self.bind
            )
        })
    }

    /// Refuses a configuration that lets anyone call from other machines, unless
    /// `http.auth.anonymous` allows it.
    ///
    /// # Errors
    /// [`Error::Unguarded`].
    pub fn ensure_guarded(&self) -> Result<(), Error> {
        self.ensure_guarded_at(self.bind)
    }

    /// Refuses to replace `current` while listening at `bound`, if that would let anyone call
    /// without an explicit setting. A truncated file is often valid TOML, but lacks the tokens at
    /// its end.
    ///
    /// # Errors
    /// [`Error::Unguarded`], [`Error::LastToken`].
    pub fn ensure_may_replace(&self, current: &Self, bound: SocketAddr) -> Result<(), Error> {
        self.ensure_guarded()?;
        // The listener keeps its address, even if http.bind changes.
        self.ensure_guarded_at(bound)?;
        let loses_last_token = self.auth.tokens.is_empty() && !current.auth.tokens.is_empty();
        if loses_last_token && !self.auth.anonymous { Err(Error::LastToken) } else { Ok(()) }
    }

    fn ensure_guarded_at(&self, bind: SocketAddr) -> Result<(), Error> {
        let is_guarded = !self.auth.tokens.is_empty() || self.auth.anonymous || is_loopback(bind);
        if is_guarded { Ok(()) } else { Err(Error::Unguarded { bind }) }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.tls.check()?;
        let tokens = &self.auth.tokens;
        // If tokens simply took precedence, a file that loses them would open the port.
        check::ensure("http.auth.anonymous", !self.auth.anonymous || tokens.is_empty(), || {
            "must be false where http.auth.tokens has tokens: remove the one or the others".into()
        })?;
        for (i, token) in tokens.iter().enumerate() {
            let (name, mut others) = (&token.name, tokens[..i].iter());
            let is_plain = (1..=LONGEST_NAME).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic());
            let is_new = others.clone().all(|other| other.name != *name);
            let has_new_hash = others.all(|other| other.token_sha256.0 != token.token_sha256.0);
            let scopes = "must hold \"produce\", \"consume\", \"view\" or \"admin\"";
            let topics = "must hold at least one, such as \"order.*\" or \"*\"";
            for (key, right, reason) in [
                ("name", is_plain, "must be 1 to 64 visible characters"),
                ("name", is_new, "is the name of another token already"),
                ("token_sha256", has_new_hash, "is the hash of another token already"),
                ("scopes", !token.scopes.is_empty(), scopes),
                ("topics", !token.topics.is_empty(), topics),
            ] {
                check::ensure(&format!("http.auth.tokens.[{i}].{key}"), right, || reason.into())?;
            }
        }
        Ok(())
    }
}

/// Whether only this machine can reach the address. An IPv4-mapped IPv6 address counts as IPv4.
fn is_loopback(bind: SocketAddr) -> bool {
    bind.ip().to_canonical().is_loopback()
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    String::deserialize(from)?.parse().map_err(|_| {
        serde::de::Error::custom(
            "must be an IP address and a port, such as \"127.0.0.1:7799\" or \"[::1]:7799\"",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    const TOKEN: &str = "http.auth.tokens=[{name='a', scopes=['admin'], topics=['*'], \
        token_sha256='2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'}]";
    const ANONYMOUS: &str = "http.auth.anonymous=true";

    fn http(bind: &str, more: &[&str]) -> Http {
        let sets: Vec<_> = std::iter::once(format!("http.bind='{bind}'"))
            .chain(more.iter().map(ToString::to_string))
            .collect();
        Settings::load(&[], &sets, std::iter::empty()).unwrap().http
    }

    #[test]
    fn other_machines_may_call_only_with_a_token_or_if_everyone_may() {
        let check = |bind: &str, is_local: bool| {
            let refusal = http(bind, &[]).ensure_guarded().err().map(|error| error.to_string());
            assert_eq!(refusal.is_none(), is_local, "{bind}");
            let says = |word: &str| refusal.as_ref().is_none_or(|text| text.contains(word));
            assert!(
                says(bind) && says("http.auth.anonymous = true") && says("delayd token"),
                "{refusal:?}"
            );
            assert!(
                http(bind, &[TOKEN]).ensure_guarded().is_ok()
                    && http(bind, &[TOKEN]).warning().is_none()
            );
            assert!(http(bind, &[ANONYMOUS]).ensure_guarded().is_ok());
            assert_eq!(http(bind, &[ANONYMOUS]).warning().is_none(), is_local, "{bind}");
        };
        check("127.0.0.1:7799", true);
        check("127.8.9.10:7799", true);
        check("[::1]:7799", true);
        check("[::ffff:127.0.0.1]:7799", true);
        check("0.0.0.0:7799", false);
        check("[::]:7799", false);
        check("[::ffff:0.0.0.0]:7799", false);
        check("[::ffff:10.0.0.5]:7799", false);
        check("10.0.0.5:7799", false);
        check("[fe80::1]:7799", false);
    }

    #[test]
    fn a_reload_lets_everyone_in_only_if_it_says_so() {
        const LOCAL: &str = "127.0.0.1:7799";
        const OPEN: &str = "0.0.0.0:7799";
        let check =
            |bound: &str, current: &[&str], (bind, new): (&str, &[&str]), is_taken: bool| {
                let replaced = http(bind, new)
                    .ensure_may_replace(&http(bound, current), bound.parse().unwrap());
                assert_eq!(
                    replaced.is_ok(),
                    is_taken,
                    "{bound} {current:?} to {bind} {new:?}: {replaced:?}"
                );
            };
        check(LOCAL, &[], (LOCAL, &[]), true);
        check(LOCAL, &[TOKEN], (LOCAL, &[TOKEN]), true);
        check(LOCAL, &[TOKEN], (LOCAL, &[]), false);
        check(LOCAL, &[TOKEN], (LOCAL, &[ANONYMOUS]), true);
        check(OPEN, &[TOKEN], (OPEN, &[]), false);
        check(OPEN, &[TOKEN], (OPEN, &[ANONYMOUS]), true);
        check(OPEN, &[ANONYMOUS], (OPEN, &[TOKEN]), true);
        // The listener keeps its address, even if the file changes it.
        check(OPEN, &[TOKEN], (LOCAL, &[]), false);
        check(OPEN, &[ANONYMOUS], (LOCAL, &[]), false);
        // The next start would refuse this.
        check(LOCAL, &[], (OPEN, &[]), false);
    }
}
