//! The dashboard in a browser, against the real program: `tests/it/dashboard/*.mjs`. One walk is
//! here; all other pages are in `nightly`, since a browser takes most of two processors.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::Kept;
use crate::program::{Program, client, folder, run, serve, service};
use crate::receiver::{Answer, Receiver};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dashboard");

/// Runs a script of `tests/it/dashboard` with node.
pub(crate) async fn browse(script: &str, input: Value) {
    let path = format!("{}/tests/it/dashboard/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("node");
    // It may be longer than an argument.
    let place = folder();
    let file = place.path().join("input.json");
    std::fs::write(&file, input.to_string()).unwrap();
    command.arg(path).arg(SOURCES).arg(&file).stdin(Stdio::null());
    let (code, shown, errors) = run(command).await;
    println!("{shown}");
    assert_eq!(code, 0, "{shown}\n{errors}\nscripts/test installs what this needs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_adds_watches_and_replays_tasks() {
    let kept = Kept::embedded();
    let has_failed = AtomicBool::new(false);
    let receiver = Receiver::answering(move |call| match call.path.as_str() {
        "/breaks" if !has_failed.swap(true, Ordering::Relaxed) => Answer::Status(500),
        _ => Answer::Status(200),
    })
    .await;
    // As the README starts it, but with ports of its own.
    let mut command = serve(&kept.store, &[service("message.call", &receiver)]);
    command.arg("--config").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/config/dev.toml"));
    let delayd = Program::launch(command).await;
    browse("newcomer.mjs", json!({"url": delayd.url("/")})).await;
    let paths: Vec<String> = receiver.seen().into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/", "/breaks", "/breaks"]);
}

/// `cargo` alone builds the program, so the built files are committed.
#[tokio::test(flavor = "multi_thread")]
async fn the_committed_files_are_those_of_the_sources_and_of_the_api() {
    let npm = |arguments: &[&str]| {
        let mut command = Command::new("npm");
        command.args(["--prefix", SOURCES, "run"]).args(arguments).stdin(Stdio::null());
        command
    };
    let program = env!("CARGO_BIN_EXE_delayd");
    for command in [npm(&["check"]), npm(&["api", "--", "--check", program])] {
        let (code, shown, errors) = run(command).await;
        assert_eq!(code, 0, "{shown}\n{errors}");
    }
}

#[tokio::test]
async fn the_files_are_compressed_for_clients_that_accept_it() {
    let delayd = Kept::embedded().start(&[]).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/app.js", "text/javascript; charset=utf-8"),
        ("/dashboard/app.css", "text/css; charset=utf-8"),
    ] {
        let ask = |encoding: &'static str| {
            let request = client().get(delayd.url(path));
            request.header("accept-encoding", encoding).send()
        };
        let compressed = ask("gzip, br").await.unwrap();
        assert_eq!(compressed.headers()["content-encoding"], "gzip", "{path}");
        assert_eq!(compressed.headers()["content-type"], kind, "{path}");
        assert!(compressed.bytes().await.unwrap().starts_with(&[0x1f, 0x8b]), "{path}");
        let plain = ask("identity").await.unwrap();
        assert!(!plain.headers().contains_key("content-encoding"), "{path}");
        let policy = plain.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("require-trusted-types-for 'script'"), "{path}: {policy}");
    }
}
