//! Reads the certificate and the key of the port again: when one of their files changes, on SIGHUP,
//! and once a minute. A pair that cannot be used leaves the old one in force.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::reload::watch;
use crate::tls;

/// How long the files must stay the same: a renewal writes one after the other.
const CALM: Duration = Duration::from_millis(500);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval without a change. A file system may report none.
const EVERY: Duration = Duration::from_secs(60);

/// Reads the files again until it is aborted.
pub(super) async fn run(port: Arc<tls::Server>) {
    let (changed, mut changes) = mpsc::channel(1);
    let files = port.files();
    let paths = [files.certificate.clone(), files.key.clone()];
    let _watchers = watch(&paths, &changed);
    let mut hangup = signal(SignalKind::hangup()).ok();
    let mut wrong: Option<String> = None;
    loop {
        let is_told = tokio::select! {
            _ = timeout(EVERY, changes.recv()) => false,
            Some(()) = async { hangup.as_mut()?.recv().await } => true,
        };
        let calm = async { while timeout(CALM, changes.recv()).await.is_ok() {} };
        // Files that keep changing are read nevertheless.
        let _ = timeout(PATIENCE, calm).await;
        let read = {
            let port = port.clone();
            tokio::task::spawn_blocking(move || port.read_again()).await
        };
        match read.expect("reading a file does not panic") {
            Ok(has_changed) => {
                if has_changed {
                    tracing::info!("The certificate of http.tls was read again");
                } else if wrong.is_some() {
                    tracing::info!("The files of http.tls are those in force again");
                }
                wrong = None;
            }
            Err(error) => {
                let text = error.to_string();
                if is_told || wrong.as_ref() != Some(&text) {
                    tracing::error!(
                        %error,
                        "http.tls: {error}; the old certificate stays in force"
                    );
                }
                wrong = Some(text);
            }
        }
        // A watcher that fails closes the channel; then the interval alone remains.
        if changes.is_closed() {
            sleep(CALM).await;
        }
    }
}
