//! Schemathesis compares the answers of the program with the OpenAPI document.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Kept;
use crate::openapi::{TOKEN, TOKEN_HASH};
use crate::program::{Program, folder, run, service};
use crate::receiver::Receiver;

/// The longest time that one run of schemathesis may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The checks that hold for every caller.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// Schemathesis calls every operation with generated input, valid by the document and invalid.
#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_undocumented_answer() {
    let receiver = Receiver::start().await;
    let delayd = Kept::embedded().start_as_shipped(&[service("message.call", &receiver)]).await;
    let checks = format!("{CHECKS},negative_data_rejection,unsupported_method");
    let phases =
        ["--phases", "examples,coverage,fuzzing", "--max-examples", "50", "--checks", &checks];
    ask_all(&delayd, &document_for_testers(&delayd).await, &phases).await;
}

/// With configured tokens, no operation works without one. With a token the answer is as
/// documented. Without a token or with a wrong one it is 401.
#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_call_that_works_without_a_token() {
    let receiver = Receiver::start().await;
    let scopes = "scopes=[\"produce\",\"consume\",\"admin\"],topics=[\"*\"]";
    let tokens =
        format!("http.auth.tokens=[{{name=\"a\",token_sha256=\"{TOKEN_HASH}\",{scopes}}}]");
    let delayd =
        Kept::embedded().start_as_shipped(&[service("message.call", &receiver), tokens]).await;
    let mut document = document_for_testers(&delayd).await;
    for operation in operations(&mut document) {
        operation["security"] = json!([{"token": []}]);
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let checks = format!("{CHECKS},ignored_auth");
    let some = ["--include-path-regex", "^/delay/", "--phases", "fuzzing", "--max-examples", "5"];
    ask_all(&delayd, &document, &[&some[..], &["--header", &bearer, "--checks", &checks]].concat())
        .await;

    // Without a token 401 is the only right answer to any call.
    for operation in operations(&mut document) {
        operation.as_object_mut().unwrap().remove("security");
        let refused = operation["responses"]["401"].take();
        operation["responses"] = json!({"401": refused});
    }
    ask_all(&delayd, &document, &[&some[..], &["--checks", CHECKS]].concat()).await;
}

/// The operations that need a token if tokens are configured.
fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let calls = document["paths"]
        .as_object_mut()
        .unwrap()
        .iter_mut()
        .filter(|(path, _)| path.starts_with("/delay/"));
    let operations: Vec<&mut Value> = calls.map(|(_, methods)| &mut methods["post"]).collect();
    assert!(operations.len() >= 24, "{operations:?}");
    operations.into_iter()
}

async fn document_for_testers(delayd: &Program) -> Value {
    let mut document = delayd.get("/openapi.json").await.body;
    // Its answer does not end. `live.rs` tests it.
    document["paths"].as_object_mut().unwrap().remove("/delay/live").unwrap();
    let schemas = &mut document["components"]["schemas"];
    // Without this most of the time would be spent waiting for tasks.
    schemas["PullRequest"]["properties"].as_object_mut().unwrap().remove("wait");
    // A bad task of a batch is answered in its own result: the call as a whole succeeds.
    let batches = [
        ("BatchRequest", "tasks"),
        ("AdoptRequest", "records"),
        ("ScheduleAdoptRequest", "records"),
    ];
    for (request, many) in batches {
        let items = &mut schemas[request]["properties"][many]["items"];
        *items = json!({"anyOf": [items.take(), {}]});
    }
    document
}

/// One run of schemathesis.
async fn ask_all(delayd: &Program, document: &Value, how: &[&str]) {
    let place = folder();
    let file = place.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let mut schemathesis = Command::new(schemathesis());
    schemathesis.current_dir(place.path()).stdin(Stdio::null()).arg("--no-color");
    schemathesis.arg("run").arg(&file).args(["--url", &delayd.url("")]);
    schemathesis.args(["--seed", "1", "--generation-database", "none"]);
    schemathesis.arg("--no-shrink").args(how);
    schemathesis.args([
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--request-timeout",
        "20",
    ]);
    schemathesis.arg("--continue-on-failure");
    let (code, output, error) = tokio::time::timeout(PATIENCE, run(schemathesis))
        .await
        .expect("schemathesis did not end in time");
    assert_eq!(code, 0, "{output}\n{error}\n{}", delayd.log());
}

/// Beside cargo's programs, where `scripts/needs` installs it; otherwise by `PATH`.
fn schemathesis() -> std::path::PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_delayd")).ancestors().nth(2).unwrap();
    let installed = target.join("schemathesis/bin/schemathesis");
    if installed.exists() {
        return installed;
    }
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("schemathesis"))
        .find(|program| program.exists());
    found.expect(
        "schemathesis is absent; this installs it: bash -c '. scripts/needs; need_schemathesis'",
    )
}
