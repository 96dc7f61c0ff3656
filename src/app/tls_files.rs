//! Reads the TLS files of the port and of services again, once a second: a file system may report
//! no change, and there are few files. Files that cannot be used leave those in force that were
//! read before.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::callback::Services;
use crate::tls;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What is wrong with files, by the section that names them.
type AllWrong = HashMap<String, WrongPair>;

struct WrongPair {
    what: String,
    is_logged: bool,
}

/// Reads the files again until it is aborted.
pub(super) async fn run(port: Option<Arc<tls::TlsServer>>, services: Arc<Services>) {
    let mut wrong = AllWrong::new();
    loop {
        sleep(EVERY).await;
        let (port, services) = (port.clone(), services.clone());
        let look = tokio::task::spawn_blocking(move || {
            let mut now = AllWrong::new();
            if let Some(port) = port {
                report("http.tls".into(), port.read_again(), &wrong, &mut now);
            }
            for service in services.all() {
                let Some(tls) = service.tls() else { continue };
                let section = format!("services.{:?}.tls", service.name().as_str());
                report(section, tls.read_again(), &wrong, &mut now);
            }
            now
        });
        wrong = look.await.expect("reading a file does not panic");
    }
}

fn report(
    section: String,
    read: Result<bool, tls::InvalidFile>,
    wrong: &AllWrong,
    now: &mut AllWrong,
) {
    let before = wrong.get(&section);
    match read {
        Ok(true) => tracing::info!("The files of {section} were read again"),
        Ok(false) => {
            if before.is_some_and(|before| before.is_logged) {
                tracing::info!("The files of {section} are those in force again");
            }
        }
        Err(error) => {
            let what = error.to_string();
            let before = before.filter(|before| before.what == what);
            // A renewal writes one file after the other, so the first look does not count.
            if before.is_some_and(|before| !before.is_logged) {
                tracing::error!(%error, "{section}: {error}; what was read before stays in force");
            }
            let is_logged = before.is_some();
            now.insert(section, WrongPair { what, is_logged });
        }
    }
}
