//! `delayd get --wait` and `delayd add --wait`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::program::{command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, Program, on_both_stores};

on_both_stores!(a_command_waits_for_the_end_of_a_task);

fn to(delayd: &Program, words: &[&str]) -> Command {
    let mut client = command(&[]);
    client.args(words).arg("--server").arg(delayd.url(""));
    client
}

/// Starts a command, and waits for its first line on stderr.
async fn started(mut client: Command) -> (Child, String) {
    let mut child = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (line, stderr) = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        (line, stderr.into_inner())
    })
    .await
    .unwrap();
    child.stderr = Some(stderr);
    (child, line)
}

/// Its exit code, and the rest of its stderr.
async fn ended(mut child: Child) -> (Option<i32>, String) {
    tokio::task::spawn_blocking(move || {
        let mut rest = String::new();
        child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
        (child.wait().unwrap().code(), rest)
    })
    .await
    .unwrap()
}

async fn a_command_waits_for_the_end_of_a_task(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.path.as_str() {
        "/gone" => Answer::Status(410),
        _ => Answer::Status(200),
    })
    .await;
    let delayd = kept.start(&[service("shop", &receiver)]).await;
    let content = |url: &str| json!({"sn": "shop", "url": url}).to_string();

    let done = content("/done");
    let add = ["add", "t", "--in", "100ms", "--wait", &done];
    let (code, output, error) = run(to(&delayd, &add)).await;
    assert!(code == 0 && output.contains("delivered"), "{output}{error}");
    let (code, output, _) = run(to(&delayd, &[&add[..], &["--json"]].concat())).await;
    let answers: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, answers.len()), (0, 2), "{output}");
    assert_eq!(answers[1]["task"]["state"], "delivered");

    let gone = content("/gone");
    let (code, output, error) =
        run(to(&delayd, &["add", "t", "--in", "0s", "--wait=10m", &gone])).await;
    let dead = "is dead after 1 attempt: 410 Gone";
    assert!(code == 1 && output.contains("dead") && error.contains(dead), "{output}{error}");

    let id = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.id();
    let (code, output, error) = run(to(&delayd, &["get", "t", &id.to_string(), "--wait=1s"])).await;
    // On a busy machine, the service may not have answered by then.
    let over = "delayd: the wait of 1s is over: ";
    assert!((code, output.as_str()) == (1, "") && error.contains(over), "{output}{error}");

    let get = ["get", "t", &id.to_string(), "--wait"];
    let (child, line) = started(to(&delayd, &get)).await;
    assert!(line.starts_with(&format!("delayd: task {id} is scheduled for ")), "{line}");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (code, rest) = ended(child).await;
    assert!(code == Some(1) && rest.contains("SIGINT ended the wait: task"), "{rest}");

    let (child, _) = started(to(&delayd, &get)).await;
    delayd.post("/delay/task/cancel", json!({"topic": "t", "task_id": id}).to_string()).await.ok();
    let (code, rest) = ended(child).await;
    assert!(code == Some(1) && rest.contains(&format!("task {id} is cancelled")), "{rest}");
}
