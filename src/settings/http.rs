//! `[http]`: where the service listens.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer};

/// The section `[http]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address and port; port 0 takes a free one.
    #[serde(deserialize_with = "address")]
    pub bind: SocketAddr,
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    String::deserialize(from)?.parse().map_err(|_| {
        serde::de::Error::custom("must be an IP address and a port, such as \"127.0.0.1:7799\" or \"[::1]:7799\"")
    })
}
