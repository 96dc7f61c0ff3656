//! Reads the TLS files of services again, once a second: a file system may report no change, and
//! there are few files. Files that cannot be used leave those in force that were read before.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::callback::Services;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What is wrong with the files of a service.
struct Wrong {
    what: String,
    is_logged: bool,
}

/// Reads the files again until it is aborted.
pub(super) async fn run(services: Arc<Services>) {
    let mut wrong = HashMap::new();
    loop {
        sleep(EVERY).await;
        let services = services.clone();
        let look = tokio::task::spawn_blocking(move || {
            look(&services, &mut wrong);
            wrong
        });
        wrong = look.await.expect("reading a file does not panic");
    }
}

/// Reads the files of all services once. `wrong` is what was wrong before, by the service.
fn look(services: &Services, wrong: &mut HashMap<String, Wrong>) {
    let mut now = HashMap::new();
    for service in services.all() {
        let Some(tls) = service.tls() else { continue };
        let name = service.name().as_str();
        match tls.read_again() {
            Ok(true) => {
                tracing::info!(sn = name, "The files of services.{name:?}.tls were read again")
            }
            Ok(false) => {
                if wrong.get(name).is_some_and(|before| before.is_logged) {
                    tracing::info!(
                        sn = name,
                        "The files of services.{name:?}.tls are those in force again"
                    );
                }
            }
            Err(error) => {
                let what = error.to_string();
                let before = wrong.get(name).filter(|before| before.what == what);
                // A renewal writes one file after the other, so the first look does not count.
                if before.is_some_and(|before| !before.is_logged) {
                    tracing::error!(
                        sn = name,
                        %error,
                        "services.{name:?}.tls: {error}; what was read before stays in force"
                    );
                }
                let is_logged = before.is_some();
                now.insert(name.to_owned(), Wrong { what, is_logged });
            }
        }
    }
    *wrong = now;
}
