//! Ports for servers that have to be told theirs. A server that can choose takes port 0 instead.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;

/// Below the ports that the system gives to outgoing connections and to port 0, so that none of
/// those takes one of these: not even while its server restarts.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port of this machine that nothing listens at. No other test gets it before this process ends.
pub(crate) fn take() -> u16 {
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let first = rand::random_range(PORTS);
    let file = |port: u16| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("port-{port}"));
        File::options().write(true).create(true).truncate(false).open(path).unwrap()
    };
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        let file = file(port);
        if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(file);
            return port;
        }
    }
    panic!("all ports of {PORTS:?} are taken")
}
