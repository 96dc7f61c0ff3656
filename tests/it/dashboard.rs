//! The dashboard in a browser, against the real program: `tests/it/dashboard/*.mjs`.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::program::{run, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores};

on_both_stores!(an_operator_sees_the_state_and_follows_a_task);

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dashboard");

/// A content that would be markup, would break out of an attribute, or would look like another
/// text, if the page did not show it as text. Its number is larger than JavaScript can hold.
const CONTENT: &str = concat!(
    r#"{"sn":"message.call","url":"/hook", "big":12345678901234567890,"#,
    r#" "html":"<img src=x onerror=\"window.broken=1\"></pre><script>window.broken=1</script>","#,
    r#" "quotes":"\"'`&amp;","rtl":""#,
    "\u{202e}gnp.exe\u{2066}\u{200f}",
    r#""}"#,
);

/// Runs a script of `tests/it/dashboard` with node.
async fn browse(script: &str, input: serde_json::Value) {
    let path = format!("{}/tests/it/dashboard/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("node");
    command.arg(path).arg(SOURCES).arg(input.to_string()).stdin(Stdio::null());
    let (code, shown, errors) = run(command).await;
    println!("{shown}");
    assert_eq!(code, 0, "{shown}\n{errors}\nscripts/test it installs what this needs");
}

async fn an_operator_sees_the_state_and_follows_a_task(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let task = json!({"topic": "orders", "delay": "1h", "content": {"a": 1}});
    delayd.add(task).await.ok();
    browse("operator.mjs", json!({"url": delayd.url("/"), "content": CONTENT})).await;
    let seen = receiver.wait_for(1).await;
    assert_eq!(seen[0].body, CONTENT);
    assert_eq!(delayd.post("/delay/topic/list", "{}").await.body["topics"][0]["paused"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_and_decides_what_is_shown() {
    let token = |name: &str, scope: &str| {
        let hash = delayd::model::token::TokenHash::of(name).to_hex();
        format!("{{name='{name}', token_sha256='{hash}', scopes=['{scope}'], topics=['*']}}")
    };
    let tokens = [token("viewer", "view"), token("adder", "produce")].join(", ");
    let delayd = Kept::embedded().start(&[format!("http.auth.tokens=[{tokens}]")]).await;
    browse("tokens.mjs", json!({"url": delayd.url("/")})).await;
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
            let request = reqwest::Client::new().get(delayd.url(path));
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
