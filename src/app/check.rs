//! What `delayd check` looks at, and what it and the start warn of.

use std::net::{SocketAddr, TcpListener};

use super::{StartError, params};
use crate::model::clock::Clock;
use crate::settings::{Settings, StoreKind};
use crate::store::embedded::Embedded;
use crate::store::redis::Redis;
use crate::store::{Durability, warning_of};

/// What the operator should know of a valid configuration.
pub fn warnings(settings: &Settings) -> Vec<String> {
    settings.http.warning().into_iter().collect()
}

/// What is there.
#[derive(Debug)]
pub struct Checked {
    /// The store, its servers by address, and what it keeps.
    pub store: String,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// Looks whether the configured address is this machine's, and at the store. Nothing is written,
/// here or at the store, and a delayd that has the address or the store is no fault.
///
/// # Errors
/// Those of a start.
pub async fn check(settings: &Settings) -> Result<Checked, StartError> {
    let address = settings.http.bind;
    // Another port: the configured one may be a running delayd's, or about to be.
    TcpListener::bind(SocketAddr::new(address.ip(), 0))
        .map_err(|source| StartError::Bind { address, source })?;
    let clock = Clock::system();
    let (found, durability, mut warnings) = match settings.store.kind {
        StoreKind::Embedded => {
            let params = params::embedded(settings, &clock);
            let probed = tokio::task::spawn_blocking(move || Embedded::probe(&params)).await;
            let probe = probed.expect("looking at the store does not panic")?;
            (probe.found, Durability::Fsynced, probe.warnings)
        }
        StoreKind::Redis => {
            let (servers, durability) = Redis::probe(params::redis(settings, &clock)).await?;
            (servers, durability, Vec::new())
        }
    };
    warnings.extend(warning_of(durability).map(str::to_owned));
    Ok(Checked { store: format!("{found}, durability: {}", durability.as_str()), warnings })
}
