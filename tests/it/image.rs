//! What builds the image, as far as it can be tried without one.

use std::path::Path;
use std::process::{Command, Output};

fn sh(script: &str, folder: &Path) -> Output {
    Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap()
}

fn assert_worked(script: &str, done: &Output) {
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
}

/// A target that the manifest names and the image's first layer does not have stopped every build of the image.
#[test]
fn what_the_images_first_layer_has_is_a_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let layer = tempfile::tempdir().unwrap();
    let image = std::fs::read_to_string(root.join("Dockerfile")).unwrap();
    let (before, _) = image.split_once("COPY src src").unwrap();
    let copied = before.lines().filter_map(|line| line.strip_prefix("COPY ")).flat_map(|line| line.split(' '));
    for name in copied.filter(|name| root.join(name).is_file()) {
        std::fs::copy(root.join(name), layer.path().join(name)).unwrap();
    }
    let made = before.lines().find_map(|line| line.strip_prefix("RUN ")).unwrap();
    let (skeleton, _) = made.split_once("&& cargo build").unwrap();
    assert_worked(skeleton, &sh(skeleton, layer.path()));
    // What a build does first. Crates of other systems may not be at hand.
    let fetch = "cargo fetch --offline --locked --target $(rustc -vV | sed -n 's/^host: //p')";
    assert_worked(fetch, &sh(fetch, layer.path()));
}
