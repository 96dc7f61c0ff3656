//! `[http]`: where the service listens, and who may call.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer};

use super::check::Wrong;
use super::value::{Parsed, rate};
use crate::glob::Glob;
use crate::rate::Rate;
use crate::token::{Scope, TokenHash};

/// The longest name of a token, in characters.
const LONGEST_NAME: usize = 64;

/// The section `[http]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address and port; port 0 takes a free one.
    #[serde(deserialize_with = "address")]
    pub bind: SocketAddr,
    /// Who may call.
    pub auth: Auth,
}

/// The section `[http.auth]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The tokens that are known; without any everyone may call.
    pub tokens: Vec<Token>,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// What it goes by: 1 to 64 visible characters, another for each.
    pub name: String,
    /// What is kept of it, another for each.
    pub token_sha256: Parsed<TokenHash>,
    /// What it is for; one or more.
    pub scopes: Vec<Parsed<Scope>>,
    /// The topics that it covers; one or more.
    #[serde(default = "all_topics")]
    pub topics: Vec<Parsed<Glob>>,
    /// How many calls it may make in a time; an empty text is no limit.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<Rate>,
}

impl Http {
    /// Whether everyone who reaches the port may call, and others than this machine may reach it.
    pub fn is_open_to_others(&self) -> bool {
        self.auth.tokens.is_empty() && !self.bind.ip().is_loopback()
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let tokens = &self.auth.tokens;
        for (i, token) in tokens.iter().enumerate() {
            let ensure = |key: &str, right: bool, reason: &str| {
                let path = ["http", "auth", "tokens", &format!("[{i}]"), key].map(str::to_owned).to_vec();
                if right { Ok(()) } else { Err(Wrong { path, reason: reason.into() }) }
            };
            let (name, others) = (&token.name, &tokens[..i]);
            let is_plain = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
            ensure("name", is_plain, "must be 1 to 64 visible characters")?;
            ensure("name", others.iter().all(|other| other.name != *name), "is the name of another token already")?;
            let is_new = |other: &Token| other.token_sha256.0 != token.token_sha256.0;
            ensure("token_sha256", others.iter().all(is_new), "is the hash of another token already")?;
            ensure("scopes", !token.scopes.is_empty(), "must hold \"produce\", \"consume\" or \"admin\"")?;
            ensure("topics", !token.topics.is_empty(), "must hold at least one, such as \"order.*\" or \"*\"")?;
        }
        Ok(())
    }
}

fn all_topics() -> Vec<Parsed<Glob>> {
    vec![Parsed("*".parse().expect("a star is a pattern"))]
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    String::deserialize(from)?.parse().map_err(|_| {
        serde::de::Error::custom("must be an IP address and a port, such as \"127.0.0.1:7799\" or \"[::1]:7799\"")
    })
}
