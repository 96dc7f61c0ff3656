//! The manifests of `deploy/kubernetes` are valid, agree with the image, and open no access.

use std::path::Path;
use std::process::Command;

/// `kubernetes.py` compares them with the schemas of the API, and has the program check their
/// configuration.
#[test]
fn the_manifests_are_valid_and_fit_the_program() {
    let delayd = env!("CARGO_BIN_EXE_delayd");
    let target = Path::new(delayd).ancestors().nth(2).unwrap();
    let python = target.join("kubernetes-validate/bin/python");
    assert!(
        python.exists(),
        "kubernetes-validate is absent; this installs it: \
         bash -c '. scripts/needs; need_kubernetes_validate'"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nightly/kubernetes.py");
    let checked = Command::new(python).arg(script).arg(delayd).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    let error = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.contains("ok"), "{said}{error}");
}
