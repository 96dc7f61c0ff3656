//! The Debian package and the containers of docker-compose.yml, with the programs of these tests.

use std::path::Path;
use std::process::Command;

/// It is installed, upgraded, removed and purged, on a Debian with systemd.
#[test]
fn an_upgrade_and_a_purge_of_the_package_keep_the_tasks() {
    plays("package.sh", "package: ok");
}

/// The containers of docker-compose.yml are killed and restarted under load.
#[test]
fn no_add_fails_while_instances_restart_and_no_task_is_lost_in_a_crash() {
    plays("compose.sh", "compose: ok");
}

/// Runs a script of this folder with the folder of the programs.
fn plays(script: &str, end: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_delayd")).parent().unwrap();
    let bench = programs.join("delayd-bench");
    assert!(bench.exists(), "first run: cargo build --package delayd-bench");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nightly").join(script);
    let played = Command::new(script).arg(programs).output().unwrap();
    let said = String::from_utf8_lossy(&played.stdout);
    let error = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success() && said.contains(end), "{said}{error}");
}
