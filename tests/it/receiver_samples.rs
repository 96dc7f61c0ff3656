//! The receivers that `docs/RECEIVERS.md` shows accept what delayd signed, act on it once, and
//! refuse everything else.
//!
//! These tests run the receivers in Python and Node, and the nightly ones that in Go. The other
//! languages would need too many installs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver as Lines, channel};
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::Kept;
use crate::client_samples::interpreted;
use crate::program::{client, service};
use crate::receiver::{Receiver, now_ms};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDzzjGJkMzvZw=";
const FOREIGN: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A running sample. Dropping it kills it.
struct Sample {
    child: Child,
    lines: Lines<String>,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Sample {
    /// Starts the sample on a free port and waits until it prints the port.
    fn start(program: &str, file: &str, secrets: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = interpreted(program, file);
        command
            .env("DELAYD_SECRETS", secrets)
            .env("PORT", "0")
            .env("DATABASE", folder.path().join("receiver.db"));
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child =
            started.unwrap_or_else(|error| panic!("{program}: {error}; scripts/needs installs it"));
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let first = lines.recv_timeout(Duration::from_secs(60));
        let first = first.unwrap_or_else(|_| panic!("{file} does not say where it listens"));
        let port = first
            .strip_prefix("listens on port ")
            .unwrap_or_else(|| panic!("{file} says {first:?}"));
        let endpoint = format!("http://127.0.0.1:{port}");
        Self { child, lines, endpoint, _folder: folder }
    }

    /// The `--set`s that make it a service whose calls delayd signs.
    fn service(&self, name: &str, secrets: &str) -> [String; 2] {
        [
            format!("services.\"{name}\".endpoints=[\"{}\"]", self.endpoint),
            format!("services.\"{name}\".secrets=[{secrets}]"),
        ]
    }

    /// What it did since the last call of this function. It prints that before it answers.
    fn did(&self) -> Vec<String> {
        // Its output passes through a pipe and a thread, so the first line may arrive a little
        // later.
        let first = self.lines.recv_timeout(Duration::from_secs(60));
        first.into_iter().chain(self.lines.try_iter()).collect()
    }

    async fn post(&self, headers: HeaderMap, body: &str) -> (u16, Value) {
        let post = client().post(format!("{}/orders/cancel", self.endpoint));
        let answer = post.headers(headers).body(body.to_owned()).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Headers as delayd sends them, signed with `secret`, `age` seconds ago.
fn signed(secret: &str, id: &str, age: i64, body: &str) -> HeaderMap {
    let moment = now_ms() / 1000 - age;
    let signature = Webhook::new(secret).unwrap().sign(id, moment, body.as_bytes()).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", moment.to_string().parse().unwrap());
    // Another secret's signature comes first, as during a rotation.
    headers.insert("webhook-signature", format!("v1,AAAA {signature}").parse().unwrap());
    headers
}

pub async fn check(program: &str, file: &str) {
    // The sample knows both secrets, as during a rotation. delayd signs with one of them, with an
    // unknown one, and with both.
    let sample = Sample::start(program, file, &format!("{OLD} {NEW}"));
    let recorder = Receiver::start().await;
    let sets = [
        &sample.service("message.call", &format!("'{NEW}'"))[..],
        &sample.service("foreign", &format!("'{FOREIGN}'")),
        &[
            service("recorder", &recorder),
            format!("services.recorder.secrets=['{OLD}', '{FOREIGN}']"),
        ],
    ]
    .concat();
    let delayd = Kept::embedded().start(&sets).await;
    let add = async |sn: &str| {
        let content = json!({"sn": sn, "url": "/orders/cancel", "名": "订单"});
        delayd
            .add(json!({"topic": "t", "delay": 0, "max_attempts": 1, "content": content}))
            .await
            .id()
    };

    let right = add("message.call").await;
    let task = delayd.wait_for_state("t", right, "delivered").await;
    assert_eq!(task["last_outcome"], "200 OK", "{file}");
    assert_eq!(sample.did(), [format!("did {}", task["webhook_id"].as_str().unwrap())], "{file}");

    let wrong = add("foreign").await;
    let task = delayd.wait_for_state("t", wrong, "dead").await;
    assert_eq!(task["last_outcome"], "401 Unauthorized", "{file}");

    // What delayd really sent, sent again, as if the first answer had been lost.
    let recorded = add("recorder").await;
    let call = recorder.wait_for(1).await.remove(0);
    let words = |name: &str| name.starts_with("webhook-");
    let headers: HeaderMap = call
        .headers
        .iter()
        .filter(|(name, _)| words(name.as_str()))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    assert_eq!(
        sample.post(headers.clone(), &call.body).await,
        (200, json!({"dm_error": 0})),
        "{file}"
    );
    let again = sample.post(headers.clone(), &call.body).await;
    assert_eq!(again, (200, json!({"dm_error": 0, "duplicate": true})), "{file}");
    let recorded = &delayd.task("t", recorded).await["webhook_id"];
    assert_eq!(
        sample.did(),
        [format!("did {}", recorded.as_str().unwrap())],
        "{file} acted twice, or acted on a call that it refused"
    );

    // Everything must be refused that is not exactly what was signed, at most five minutes ago.
    let refused = async |headers: HeaderMap, body: &str, why: &str| {
        assert_eq!(
            sample.post(headers, body).await,
            (401, json!({"dm_error": 401})),
            "{file} took {why}"
        );
    };
    refused(headers.clone(), &call.body.replace("订单", "定单"), "another body").await;
    refused(signed(OLD, "7", 310, "{}"), "{}", "what is too old").await;
    refused(signed(OLD, "7", -310, "{}"), "{}", "what is not yet").await;
    refused(HeaderMap::new(), "{}", "what is not signed").await;
    let mut moved = signed(OLD, "7", 0, "{}");
    moved.insert("webhook-id", "8".parse().unwrap());
    refused(moved, "{}", "another id").await;
    let mut odd = signed(OLD, "7", 0, "{}");
    odd.insert("webhook-timestamp", "soon".parse().unwrap());
    refused(odd, "{}", "a moment that is none").await;
    // Small differences between clocks are accepted.
    assert_eq!(sample.post(signed(OLD, "7", 290, "{}"), "{}").await.0, 200, "{file}");
    assert_eq!(sample.did(), ["did 7"], "{file}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_in_python_takes_what_is_signed_once_and_nothing_else() {
    check("python3", "receiver.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_in_node_takes_what_is_signed_once_and_nothing_else() {
    check("node", "receiver.mjs").await;
}

/// The page shows exactly the files that the tests run.
#[test]
fn the_page_on_receivers_shows_the_samples_as_they_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    let page = std::fs::read_to_string(format!("{folder}/RECEIVERS.md")).unwrap();
    let mut shown = 0;
    for file in std::fs::read_dir(format!("{folder}/samples")).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_string_lossy().to_lowercase().starts_with("receiver.") {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        let whole = page
            .split("\n```")
            .any(|block| block.split_once('\n').is_some_and(|(_, block)| block == text.trim_end()));
        assert!(whole, "docs/RECEIVERS.md does not show {:?} as it is", file.file_name());
        shown += 1;
    }
    assert_eq!(shown, 5);
}

/// Authors of receivers in other languages compare their result with it.
#[test]
fn the_signature_on_the_page_is_right() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/RECEIVERS.md")).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let (head, body) = example.split_once("\n\n").unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let moment = field("webhook-timestamp: ").parse().unwrap();
    let signature = Webhook::new(OLD)
        .unwrap()
        .sign(field("webhook-id: "), moment, body.trim_end().as_bytes())
        .unwrap();
    assert_eq!(field("webhook-signature: "), signature);
    assert!(page.contains(OLD), "the page does not show the key");
}

/// SQLite stands for the databases of the page's readers.
#[test]
fn the_sql_on_the_page_knows_a_duplicate() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/RECEIVERS.md")).unwrap();
    let sql = page.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let (table, work) = sql.split_once("\n\n").unwrap();
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database
        .execute_batch("CREATE TABLE orders (id, state); INSERT INTO orders VALUES (42, 'unpaid');")
        .unwrap();
    database.execute_batch(table).unwrap();
    database.execute_batch(work).unwrap();
    let state: String =
        database.query_row("SELECT state FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(state, "cancelled");
    let insert = work.lines().find(|line| line.starts_with("INSERT")).unwrap();
    assert_eq!(database.execute(insert, []).unwrap(), 0, "the second insert must change nothing");
}
