//! The checks of `delayd check`, and the warnings that it and the start print.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::{StartError, params};
use crate::callback::Services;
use crate::model::clock::Clock;
use crate::settings::{Settings, StoreKind};
use crate::store::embedded::Embedded;
use crate::store::redis::Redis;
use crate::store::{Durability, warning_of};
use crate::tls;

/// Warnings about a valid configuration, and about certificates that have expired: they may be
/// renewed while the service runs, so they are no errors.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let now = u64::try_from(Clock::system().now().0).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_millis(now));
    let certificates = settings.own_certificates().into_iter().filter_map(|(key, path)| {
        let got = tls::not_valid(path, now)?;
        let path = path.display();
        Some(format!("{key}: expected certificates that are valid now, got one {got}, in {path}"))
    });
    settings.http.warning().into_iter().chain(certificates).collect()
}

/// How many calls a start would allow at a time, and its warnings about the limit of open files.
pub fn calls(settings: &Settings) -> (usize, Vec<String>) {
    let open_files = params::raise_open_file_limit();
    (params::calls(settings, open_files), params::open_file_warnings(settings, open_files))
}

/// The result of a check.
#[derive(Debug)]
pub struct CheckResult {
    /// A description of the store: its kind, its servers, its durability.
    pub store: String,
    /// The warnings.
    pub warnings: Vec<String>,
}

/// Checks whether this machine has the configured address, whether the files of the port and of the
/// services can be used, and whether the store can be used.
/// Writes nothing. It is no error if another delayd uses the address or the store.
///
/// # Errors
/// See [`StartError`].
pub async fn check(settings: &Settings) -> Result<CheckResult, StartError> {
    let address = settings.http.bind;
    // Another port, because a running delayd may use the configured one.
    TcpListener::bind(SocketAddr::new(address.ip(), 0))
        .map_err(|source| StartError::Bind { address, source })?;
    super::params::port(settings)?;
    Services::new(params::services(settings))?;
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
    Ok(CheckResult { store: format!("{found}, durability: {}", durability.as_str()), warnings })
}
