//! The containers of docker-compose.yml are killed and restarted under load.

use std::path::Path;
use std::process::Command;

/// `compose.sh` makes the image of the programs of this test, and starts the project.
#[test]
fn no_add_fails_while_instances_restart_and_no_task_is_lost_in_a_crash() {
    let delayd = Path::new(env!("CARGO_BIN_EXE_delayd"));
    let bench = delayd.with_file_name("delayd-bench");
    assert!(bench.exists(), "first run: cargo build --package delayd-bench");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nightly/compose.sh");
    let checked = Command::new(script).arg(delayd).arg(&bench).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    let error = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.contains("compose: ok"), "{said}{error}");
}
