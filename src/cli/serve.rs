//! `delayd serve`: runs the service until a signal drains it.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::signals::EndSignals;
use super::{Code, Configuration, start_logs, systemd};
use crate::app::{App, check, reload};
use crate::model::version;

/// Run the service until SIGTERM or SIGINT.
///
/// The first signal drains the service: it takes no new work, and running calls end within
/// shutdown.grace. A second one ends it at once with exit code 1. On SIGHUP, or when a --config
/// file changes, it reads the configuration again. config/default.toml explains every setting.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd serve --config config/dev.toml
  delayd serve --set http.bind=127.0.0.1:8000 --set store.embedded.path=/var/lib/delayd/tasks.db
  DELAYD__STORE__KIND=redis DELAYD__STORE__REDIS__URLS=redis://10.0.0.5:6379/0 delayd serve")]
pub(super) struct Args {}

/// `unread` is a warning about environment variables.
pub(super) async fn run(
    configuration: Configuration,
    unread: Option<String>,
) -> anyhow::Result<Code> {
    let files = configuration.read();
    let settings = configuration.load_from(&files)?;
    let level = start_logs(&settings, None)?;
    let mut signals = EndSignals::listen().context("cannot listen for signals")?;
    // From here on SIGHUP does not end the process.
    let hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let source = reload::SettingsSource {
        files,
        load: Box::new(move |files| configuration.load_without_named_files(files)),
        hangup,
        level,
    };
    let (store, scheme) = (settings.store.summary(), settings.http.scheme());
    let warnings = check::warnings(&settings);
    let mut app = tokio::select! {
        app = App::start(settings) => app?,
        signal = signals.next() => {
            info!(signal, "Received {signal} during the start, ending");
            return Ok(Code::Done);
        }
    };
    let bind = app.local_addr();
    let (version, commit) = (version::VERSION, version::COMMIT);
    info!(
        version,
        commit,
        %bind,
        store,
        "delayd {version} listens on {scheme}://{bind}, store: {store}"
    );
    for warning in unread.into_iter().chain(warnings) {
        warn!("{warning}");
    }
    app.reload_from(source);
    let _sign = systemd::listens();
    app.run(drain_on(signals)).await?;
    info!("Stopped");
    Ok(Code::Done)
}

/// Returns at the first signal. A second one ends the process.
async fn drain_on(mut signals: EndSignals) {
    let signal = signals.next().await;
    systemd::drains();
    info!(signal, "Received {signal}, draining; a second signal ends at once");
    tokio::spawn(async move {
        let signal = signals.next().await;
        warn!(signal, "Received {signal} while draining, ending at once");
        std::process::exit(Code::Failed as i32);
    });
}
