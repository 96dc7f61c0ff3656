//! The headers that the operator adds to each call of a service.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::metrics::value;
use crate::moving::move_all;
use crate::program::{Program, command, folder, run, serve, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::start_and_stop::refuses;
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    an_echo_of_its_headers_shows_no_secret_anywhere,
    a_task_cannot_name_them_and_one_that_did_gets_the_operators,
);

const TOKEN: &str = "Bearer s3cret-in-the-file";
const KEY: &str = "s3cret-in-a-variable";
const OF_FILE: &str = "s3cret/in+a=file";

/// All headers of a call, as JSON.
fn echo(seen: &Seen) -> String {
    let pairs = seen
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(value.to_str().unwrap_or_default())));
    Value::Object(pairs.collect()).to_string()
}

/// The `--set` of a header of the service "message.call".
fn header(name: &str, value: &str) -> String {
    format!("services.\"message.call\".headers.{name}={value}")
}

fn task(url: &str) -> Value {
    json!({
        "topic": "t", "delay": 0, "max_attempts": 1,
        "content": {"sn": "message.call", "url": url},
    })
}

fn assert_no_secret(what: &str, text: &str) {
    let secrets = ["s3cret", "in-a-variable", "in-the-file", "a=file", "a%3Dfile", "aW4tdGhl"];
    for secret in secrets {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

/// Everything that the program answers about its tasks.
async fn all_answers(delayd: &Program, ids: &[u64]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, body) in [
        ("/delay/task/list", json!({"topic": "t", "state": "dead"})),
        ("/delay/task/list", json!({"topic": "t", "state": "delivered"})),
        ("/delay/task/search", json!({"topic": "t", "state": "dead", "text": "message.call"})),
        ("/delay/task/records", json!({"topic": "t", "task_ids": ids})),
        ("/delay/dead/causes", json!({})),
        ("/delay/destination/list", json!({})),
        ("/delay/destination/get", json!({"sn": "message.call"})),
        ("/delay/overview", json!({})),
        ("/delay/instance/list", json!({})),
        ("/delay/instance/get", json!({})),
        ("/delay/series", json!({})),
        ("/delay/audit/list", json!({})),
        ("/delay/topic/get", json!({"topic": "t"})),
    ] {
        let answer = delayd.post(path, body.to_string()).await.ok();
        all.push((path.to_owned(), format!("{} {:?}", answer.body, answer.headers)));
    }
    all.push(("/metrics".into(), delayd.get("/metrics").await.body.to_string()));
    let mut export = command(&[]);
    export.args(["export", "--history", "--server", &delayd.url("")]);
    let (code, output, error) = run(export).await;
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("***"), "{output}");
    all.push(("export".into(), output));
    all.push(("log".into(), delayd.log()));
    all
}

/// The bytes of all files in a folder.
fn files(folder: &Path) -> String {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

async fn an_echo_of_its_headers_shows_no_secret_anywhere(kept: Kept) {
    let (business, watcher) = (Receiver::start().await, Receiver::start().await);
    business.answer(|seen| match seen.path.as_str() {
        // The rule shows a value that looks like a code.
        "/code" => {
            Answer::Echo(200, json!({"x-key": seen.headers["x-key"].to_str().unwrap()}).to_string())
        }
        "/fine" => Answer::Echo(200, json!({"x-key": "fine", "all": echo(seen)}).to_string()),
        "/long" => Answer::Echo(500, format!("{}{TOKEN}", "x".repeat(2_035))),
        "/final" => Answer::Echo(410, echo(seen)),
        _ => Answer::Echo(500, echo(seen)),
    });
    let secrets = folder();
    let file = secrets.path().join("key");
    std::fs::write(&file, format!("{OF_FILE}\n")).unwrap();
    let sets = [
        service("message.call", &business),
        service("watcher", &watcher),
        header("authorization", &format!("'{TOKEN}'")),
        header("X-Key", "{env='SHOP_KEY'}"),
        header("x-file", &format!("{{file={file:?}}}")),
        "services.\"message.call\".success={pointer='/x-key', equals=['fine']}".into(),
        "history.attempts=all".into(),
        "log.level=debug".into(),
    ];
    let mut serve = serve(&kept.store, &sets);
    serve.env("SHOP_KEY", KEY);
    let delayd = Program::launch(serve).await;
    let mut ids = Vec::new();
    for (url, state, outcome) in [
        ("/error", "dead", "500 Internal Server Error"),
        ("/final", "dead", "410 Gone"),
        ("/long", "dead", "500 Internal Server Error"),
        ("/code", "dead", "200 OK, /x-key is \"***\""),
        ("/fine", "delivered", "200 OK"),
    ] {
        let mut told = task(url);
        told["on_dead"] = json!({"sn": "watcher", "url": "/dead"});
        let id = delayd.add(told).await.id();
        ids.push(id);
        let shown = delayd.wait_for_state("t", id, state).await;
        assert_eq!(shown["last_outcome"], outcome, "{shown}");
        let noted = async || {
            Some(delayd.task("t", id).await).filter(|task| task["log"][0]["answer"].is_string())
        };
        let noted = poll::answer(noted).await.expect("the attempt is noted");
        assert_no_secret(url, &noted.to_string());
        let answer = noted["log"][0]["answer"].as_str().unwrap();
        assert!(answer.contains("***") && answer.len() <= 2_048, "{answer}");
        // Only secrets are replaced.
        assert!(!answer.starts_with('{') || answer.contains("x-key"), "{answer}");
    }
    for seen in business.seen() {
        assert_eq!(seen.headers["authorization"], TOKEN);
        assert_eq!(seen.headers["x-key"], KEY);
        assert_eq!(seen.headers["x-file"], OF_FILE);
    }
    for seen in watcher.wait_for(4).await {
        assert_no_secret("the dead-letter callback", &seen.body);
        let has = |name: &str| seen.headers.contains_key(name);
        assert!(!has("authorization") && !has("x-key") && !has("x-file"), "{:?}", seen.headers);
    }
    for (what, text) in all_answers(&delayd, &ids).await {
        assert_no_secret(&what, &text);
    }
    if let crate::StoreAt::Embedded(folder) = &kept.store {
        let stored = files(folder);
        assert!(stored.contains("message.call"), "the files hold tasks");
        assert_no_secret("the store", &stored);
    }
    let other = Kept::embedded();
    let target = other.start(&sets[..2]).await;
    move_all(&delayd, &target, &["--history"]).await;
    for (what, text) in all_answers(&target, &ids).await {
        assert_no_secret(&format!("{what} after a move"), &text);
    }
}

async fn a_task_cannot_name_them_and_one_that_did_gets_the_operators(kept: Kept) {
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let plain = [service("message.call", &receiver), service("other", &other)];
    let own = |sn: &str, name: &str, delay: &str| {
        json!({
            "topic": "t", "delay": delay, "headers": {name: "own", "x-own": "1"},
            "content": {"sn": sn, "url": "/"},
        })
    };
    let mut delayd = kept.start(&plain).await;
    let stored = delayd.add(own("message.call", "x-key", "1h")).await.id();
    let record = json!({"topic": "t", "task_ids": [stored]});
    let records = delayd.post("/delay/task/records", record.to_string()).await.ok().body;
    delayd.signal("TERM");
    delayd.ended().await;

    let sets = [&plain[..], &[header("X-Key", KEY)]].concat();
    let delayd = kept.start(&sets).await;
    let refused = delayd.post("/delay/task/add", own("message.call", "X-KEY", "0s").to_string());
    let refused = refused.await;
    let expected = "headers: expected no header that the configuration sets for the service \
                    \"message.call\" (services.….headers), got \"x-key\"";
    assert_eq!((refused.status, &refused.body["error_msg"]), (400, &json!(expected)));
    let batch = json!({"tasks": [
        own("message.call", "x-key", "0s"),
        own("message.call", "x-other", "0s"),
        own("other", "x-key", "0s"),
        {"topic": "t", "delay": 0, "mode": "pull", "headers": {"x-key": "own"}, "content": {}},
    ]});
    let added = delayd.post("/delay/task/add_batch", batch.to_string()).await.body;
    let results = added["results"].as_array().unwrap();
    let errors: Vec<_> = results.iter().map(|result| &result["dm_error"]).collect();
    assert_eq!(errors, [&json!(1000), &json!(0), &json!(0), &json!(0)], "{added}");
    assert_eq!(results[0]["error_msg"], expected);

    let schedule = json!({
        "topic": "t", "schedule": "s", "every": "1h", "headers": {"x-key": "own"},
        "content": {"sn": "message.call", "url": "/"},
    });
    let refused = delayd.post("/delay/schedule/set", schedule.to_string()).await;
    assert_eq!((refused.status, &refused.body["error_msg"]), (400, &json!(expected)));

    // The task that was stored before, and a copy of it that comes from another store.
    let now = json!({"topic": "t", "task_id": stored, "delay": 0}).to_string();
    delayd.post("/delay/task/update", now).await.ok();
    for seen in receiver.wait_for(2).await {
        let keys: Vec<_> = seen.headers.get_all("x-key").iter().collect();
        assert_eq!(keys, [KEY]);
        assert_eq!(seen.headers["x-own"], "1");
    }
    assert_eq!(other.wait_for(1).await[0].headers["x-key"], "own");
    let new = Kept::embedded();
    let target = new.start(&sets).await;
    let mut record = records["records"][0].clone();
    record["due_ms"] = json!(1_700_000_000_000_u64);
    let adopted = json!({"records": [record]}).to_string();
    let adopted = target.post("/delay/task/adopt", adopted).await.ok().body;
    assert_eq!(adopted["results"][0]["known"], false, "{adopted}");
    assert_eq!(receiver.wait_for(3).await[2].headers["x-key"], KEY);
}

/// Replaces the file as Kubernetes and editors do.
fn save(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Tasks are called all the time while the file changes. Each call has one of its values.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_a_file_changes_under_load() {
    let (receiver, kept, secrets) = (Receiver::start().await, Kept::embedded(), folder());
    let (file, config) = (secrets.path().join("key"), folder());
    let config_file = config.path().join("delayd.toml");
    let text = format!(
        "[services.\"message.call\"]\nendpoints = [{:?}]\n[services.\"message.call\".headers]\n\
         x-key = {{ file = {file:?} }}\n",
        receiver.endpoint()
    );
    std::fs::write(&file, "value-0\n").unwrap();
    std::fs::write(&config_file, &text).unwrap();
    let delayd = Program::start_from(&kept.store, &config_file).await;
    let mut added = 0;
    for round in 1..=5 {
        let some: Vec<_> = (0..100).map(|_| task("/")).collect();
        added += delayd.add_all(&some).await.len();
        save(&file, &format!("value-{round}\n"));
        delayd.wait_for_logs("changed: services", round).await;
        let ids = delayd.add_all(&some).await;
        added += ids.len();
        let calls = receiver.wait_for(added).await;
        for call in calls.iter().filter(|call| ids.contains(&call.id)) {
            assert_eq!(call.headers["x-key"], format!("value-{round}"));
        }
    }
    let values: BTreeSet<_> = receiver
        .seen()
        .iter()
        .map(|seen| seen.headers["x-key"].to_str().unwrap().to_owned())
        .collect();
    let expected: BTreeSet<_> = (0..=5).map(|round| format!("value-{round}")).collect();
    assert!(values.is_subset(&expected) && values.contains("value-5"), "{values:?}");

    // A file that cannot be used leaves its old value, and the rest of the configuration changes.
    save(&file, "\n");
    delayd.wait_for_logs("its old value stays in force", 1).await;
    std::fs::remove_file(&file).unwrap();
    delayd.wait_for_logs("its old value stays in force", 2).await;
    save(&config_file, &format!("{text}[limits]\nbatch = 7\n"));
    delayd.wait_for_logs("changed: limits", 1).await;
    delayd.wait_for_logs("its old value stays in force", 3).await;
    let log = delayd.log();
    let said = log.lines().rfind(|line| line.contains("its old value stays")).unwrap();
    assert!(said.contains("ERROR") && said.contains("/key: expected a value, got"), "{said}");
    assert_eq!(value(&delayd, "delayd_config_last_reload_success").await, 0.0);
    let id = delayd.add(task("/")).await.id();
    let calls = receiver.wait_for(added + 1).await;
    let call = calls.iter().find(|call| call.id == id).unwrap();
    assert_eq!(call.headers["x-key"], "value-5");
    save(&file, "value-6\n");
    delayd.wait_for_logs("changed: services", 6).await;
    let is_right = async || value(&delayd, "delayd_config_last_reload_success").await == 1.0;
    assert!(poll::until(is_right).await, "{}", delayd.log());
    assert!(!delayd.log().contains("value-"), "{}", delayd.log());

    // A new file that does not exist yet: the configuration is taken once the file is there.
    let another = secrets.path().join("another");
    save(&config_file, &format!("{text}x-another = {{ file = {another:?} }}\n"));
    let missing = "services.\"message.call\".headers.x-another: expected one line";
    delayd.wait_for_logs(missing, 1).await;
    save(&another, "here\n");
    delayd.wait_for_logs("changed: services", 7).await;
    delayd.add(task("/")).await;
    let last = receiver.wait_for(added + 2).await.pop().unwrap();
    assert_eq!(last.headers["x-key"], "value-6");
    assert_eq!(last.headers["x-another"], "here");
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_ends_the_start_and_says_why() {
    let endpoint = "services.\"message.call\".endpoints=['http://127.0.0.1:1']".to_owned();
    let secrets = folder();
    let empty = secrets.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let path = "services.\"message.call\".headers.";
    for (name, value, says) in [
        (
            "host",
            "'s3cret'",
            "host: expected a header that delayd does not set itself, got \"host\"",
        ),
        ("webhook-id", "'s3cret'", "webhook-id: expected a header that delayd does not set itself"),
        (
            "x-key",
            "{env='NOBODY_SET_IT'}",
            "x-key: expected one line of visible ASCII in the environment variable NOBODY_SET_IT, \
             got none",
        ),
        (
            "x-key",
            "{file='/nowhere/key'}",
            "x-key: expected one line of visible ASCII in the file /nowhere/key, got No such file \
             or directory",
        ),
        ("x-key", &format!("{{file={empty:?}}}"), ", got nothing"),
        ("x-key", "\"s3cret\\nhost: x\"", "x-key: expected one line of visible ASCII, got more"),
    ] {
        refuses(&[endpoint.clone(), header(name, value)], 78, &[path, says]).await;
        let mut check = command(&[endpoint.clone(), header(name, value)]);
        check.args(["check", "--offline"]);
        let (code, output, error) = run(check).await;
        assert!(code == 78 && error.contains(says), "{output}{error}");
        assert!(!format!("{output}{error}").contains("s3cret"), "{output}{error}");
    }
    let mut check = command(&[endpoint, header("x-key", "s3cret")]);
    let (code, output, error) = run({
        check.args(["check", "--offline"]);
        check
    })
    .await;
    assert!(code == 0 && output.contains("with x-key"), "{output}{error}");
    assert!(!output.contains("s3cret"), "{output}");
}
