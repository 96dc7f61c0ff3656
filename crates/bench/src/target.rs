//! The options that say which service is measured.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::RangedU64ValueParser;
use delayd_wire::Span;
use reqwest::Url;

use crate::task::LEAST_CONTENT;
use crate::wire::Peer;

/// The service to measure, and the size of its tasks. It has no `Debug`, because of the token.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// Bytes of each task's content
    #[arg(
        long,
        global = true,
        default_value = "200",
        value_parser = RangedU64ValueParser::<u16>::new().range(u64::from(LEAST_CONTENT)..)
    )]
    pub(crate) bytes: u16,
    /// A running service, instead of one that is started for the bench
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<Server>,
    /// With --server: the name of the receiver in that service (`[services."NAME"]`)
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) service: Option<String>,
    /// With --server: the address at which that service expects the receiver
    #[arg(long, value_name = "ADDRESS", global = true, default_value = "127.0.0.1:9000")]
    pub(crate) receiver: SocketAddr,
    /// With --server: the access token, if the service requires one
    #[arg(long, env = "DELAYD_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// The program to start; by default delayd beside this program, or on the PATH
    #[arg(long, value_name = "PROGRAM", global = true)]
    delayd: Option<PathBuf>,
    /// A file with settings for the service that is started; may be repeated
    #[arg(long, value_name = "FILE", global = true)]
    config: Vec<String>,
    /// A setting for the service that is started; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", global = true)]
    set: Vec<String>,
    /// The store of the service that is started
    #[arg(
        long,
        value_name = "KIND",
        global = true,
        default_value = "embedded",
        value_parser = ["embedded", "redis"]
    )]
    pub(crate) store: String,
    /// The Redis of --store redis
    #[arg(long, value_name = "URL", global = true, default_value = "redis://127.0.0.1:6379/0")]
    pub(crate) redis: String,
    /// With --store redis: the round trip to that Redis, for which a proxy delays each direction
    #[arg(long, value_name = "DURATION", global = true, default_value = "0s")]
    pub(crate) redis_round_trip: Span,
}

/// The address of a service without TLS, which the load generator does not speak.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    address: String,
    base: String,
}

impl FromStr for Server {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "must be an address such as http://127.0.0.1:7799; https is not supported here";
        let url = Url::parse(text).map_err(|_| WRONG)?;
        let is_plain = url.scheme() == "http" && url.query().is_none() && url.fragment().is_none();
        let (Some(host), true) = (url.host_str(), is_plain) else { return Err(WRONG) };
        let address = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
        Ok(Self { address, base: url.path().trim_end_matches('/').to_owned() })
    }
}

impl Target {
    /// Why these options cannot be combined, or `None`.
    pub(crate) fn objection(&self) -> Option<&'static str> {
        self.server.as_ref()?;
        if self.service.is_none() {
            return Some("--server needs --service: the name of the receiver in that service");
        }
        let is_configured = !self.config.is_empty() || !self.set.is_empty();
        is_configured.then_some(
            "--config and --set are for a service that is started: --server names a running one",
        )
    }

    pub(crate) fn is_redis(&self) -> bool {
        self.store == "redis"
    }

    /// The running service; without --server, one whose address is not yet known.
    pub(crate) fn peer(&self) -> Peer {
        let Some(server) = self.server.clone() else { return Peer::at("") };
        let token = self.token.as_ref().map(|token| token.trim().to_owned());
        let token = token.filter(|token| !token.is_empty());
        Peer { address: server.address, base: server.base, token }
    }

    /// The arguments of the program for its settings.
    pub(crate) fn settings(&self) -> Vec<String> {
        let files = self.config.iter().map(|file| ["--config", file]);
        let sets = self.set.iter().map(|set| ["--set", set]);
        files.chain(sets).flatten().map(str::to_owned).collect()
    }

    /// The program to start.
    pub(crate) fn program(&self) -> PathBuf {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("delayd"));
        let beside = || beside().filter(|program| program.exists());
        self.delayd.clone().or_else(beside).unwrap_or_else(|| "delayd".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_plain_address() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let read = text.parse::<Server>().ok();
            let read = read.as_ref().map(|url| (url.address.as_str(), url.base.as_str()));
            assert_eq!(read, expected);
        };
        check("http://127.0.0.1:7799", Some(("127.0.0.1:7799", "")));
        check("http://delay.example/base/", Some(("delay.example:80", "/base")));
        check("https://127.0.0.1:7799", None);
        check("127.0.0.1:7799", None);
    }
}
