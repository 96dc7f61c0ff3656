//! The Debian package is installed, upgraded, removed and purged, on a Debian with systemd.

use std::path::Path;
use std::process::Command;

/// `package.sh` makes the package of the programs of this test, and starts a container.
#[test]
fn an_upgrade_and_a_purge_of_the_package_keep_the_tasks() {
    let delayd = Path::new(env!("CARGO_BIN_EXE_delayd"));
    let bench = delayd.with_file_name("delayd-bench");
    assert!(bench.exists(), "first run: cargo build --package delayd-bench");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nightly/package.sh");
    let checked = Command::new(script).arg(delayd).arg(&bench).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    let error = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.contains("package: ok"), "{said}{error}");
}
