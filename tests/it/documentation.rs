//! What the README shows works when pasted, on both stores; the demo is on time.

use std::process::Command;

use crate::openapi::Document;
use crate::program::{command, run, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores};

on_both_stores!(the_curl_examples_of_the_readme_work_when_pasted, the_examples_of_the_api_page_work_from_top_to_bottom,);

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap()
}

/// The shell blocks of a Markdown text.
fn shell_blocks(text: &str) -> Vec<&str> {
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

async fn the_curl_examples_of_the_readme_work_when_pasted(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let readme = readme();
    let examples: Vec<&str> = shell_blocks(&readme).into_iter().filter(|block| block.starts_with("curl")).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let output = paste(example, &delayd).await;
        let calls = example.matches("curl ").count();
        assert_eq!(output.matches("\"dm_error\":0").count(), calls, "{example}{output}");
        if example.contains("/pull") {
            assert!(output.contains(r#"{\"review\":7}"#), "{output}");
        }
    }
    let seen = receiver.wait_for(2).await;
    assert!(seen.iter().all(|call| call.lateness_ms() >= 0 && call.path == "/orders/cancel"));
}

/// Pastes an example into a shell, and answers what it printed.
async fn paste(example: &str, delayd: &crate::Program) -> String {
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(example.replace("127.0.0.1:7799", &delayd.address.to_string()));
    let (code, output, error) = run(shell).await;
    assert_eq!(code, 0, "{example}{error}");
    output
}

/// The page promises that its examples run from top to bottom; each answer has the fields of the one that is shown below it, and is as the
/// OpenAPI document says.
async fn the_examples_of_the_api_page_work_from_top_to_bottom(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/API.md")).unwrap();
    let blocks: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap()).collect();
    let document = Document::of(&delayd).await;
    let mut pasted = 0;
    for (i, (kind, example)) in blocks.iter().enumerate().filter(|(_, (kind, _))| kind.starts_with("sh")) {
        let answer: serde_json::Value = serde_json::from_str(&paste(example, &delayd).await).unwrap();
        let shown: serde_json::Value = serde_json::from_str(blocks[i + 1].1).unwrap();
        assert_eq!(answer["dm_error"], shown["dm_error"], "{example}{answer}");
        assert_eq!(*kind == "sh error", answer["dm_error"] != 0, "{example}{answer}");
        assert_eq!(shape(&answer), shape(&shown), "{example}{answer}");
        assert_eq!(answer["error_msg"], shown["error_msg"], "{example}");
        let path = example.rsplit_once("/delay/").unwrap().1.split(' ').next().unwrap();
        let status = if *kind == "sh error" { 400 } else { 200 };
        document.check(&format!("/delay/{path}"), status, &answer);
        pasted += 1;
    }
    assert!(pasted > 20, "{pasted}");
    receiver.wait_for(2).await;
}

/// The names of an answer's fields, all the way down.
fn shape(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}{{{}}}", shape(value))).collect()
        }
        serde_json::Value::Array(values) => values.iter().map(shape).collect(),
        _ => String::new(),
    }
}

#[test]
fn the_commands_of_the_readme_are_there() {
    let readme = readme();
    for needed in ["cargo run --release -- demo\n", "scripts/test\n", "docker-compose up --build\n"] {
        assert!(shell_blocks(&readme).iter().any(|block| block.contains(needed)), "{needed}");
    }
    for file in ["scripts/test", "docker-compose.yml", "config/dev.toml", "docs/ARCHITECTURE.md", "docs/LIFECYCLE.md"] {
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
    }
}

#[tokio::test]
async fn the_development_configuration_is_valid_and_names_the_readmes_service() {
    let dev = concat!(env!("CARGO_MANIFEST_DIR"), "/config/dev.toml");
    let settings = delayd::settings::Settings::load(&[dev.into()], &[], std::iter::empty()).unwrap();
    assert!(settings.services.contains_key("message.call") && settings.services.contains_key("other.server"));
    let compose = concat!(env!("CARGO_MANIFEST_DIR"), "/config/compose.toml");
    delayd::settings::Settings::load(&[compose.into()], &[], std::iter::empty()).unwrap();
}

#[tokio::test]
async fn the_demo_shows_tasks_arriving_on_time_and_exits_0() {
    let mut demo = command(&[]);
    demo.arg("demo").args(["--tasks", "3"]);
    let (code, output, error) = run(demo).await;
    assert_eq!(code, 0, "{output}{error}");
    assert!(output.contains("none early"), "{output}");
}
