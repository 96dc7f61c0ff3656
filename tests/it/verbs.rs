//! The client commands for tasks, topics and dead letters: the real program against the real
//! service.

use serde_json::{Value, json};

use crate::program::{command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, Program, on_both_stores};

on_both_stores!(
    a_leased_task_is_extended_given_back_and_done,
    a_waiting_task_is_listed_rescheduled_and_cancelled,
    a_task_is_named_by_its_keys,
    a_topic_is_set_paused_forecast_purged_and_deleted,
    dead_letters_are_grouped_replayed_and_purged,
    a_destination_is_held_and_released,
    an_import_restores_exported_tasks_once,
    a_task_that_lost_its_key_is_not_exported,
    an_import_skips_invalid_lines,
    topics_dead_letters_and_history_are_exported,
);

/// Runs a client command. Returns its exit code, standard output and standard error.
async fn client(delayd: &Program, words: &[&str]) -> (i32, String, String) {
    let mut client = command(&[]);
    client.args(words).arg("--server").arg(delayd.url(""));
    run(client).await
}

/// Runs a command that must succeed. Returns what it printed.
async fn done(delayd: &Program, words: &[&str]) -> String {
    let (code, output, error) = client(delayd, words).await;
    assert_eq!(code, 0, "{words:?}: {output}{error}");
    output
}

/// Runs a command that must fail with one line that contains `why`.
async fn failed(delayd: &Program, words: &[&str], why: &str) {
    let (code, output, error) = client(delayd, words).await;
    assert_eq!(
        (code, output.as_str(), error.lines().count()),
        (1, "", 1),
        "{words:?}: {output}{error}"
    );
    assert!(error.contains(why), "{words:?}: {error}");
}

async fn json_of(delayd: &Program, words: &[&str]) -> Value {
    let printed = done(delayd, &[words, &["--json"]].concat()).await;
    serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{words:?}: {printed}"))
}

async fn a_leased_task_is_extended_given_back_and_done(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let id =
        delayd.add(json!({"topic": "t", "delay": 0, "content": {"a": 1}})).await.id().to_string();
    let pulled = json_of(&delayd, &["pull", "t", "--lease", "30s", "--wait", "20s"]).await;
    let receipt = pulled["receipt"].as_str().unwrap();
    assert!(
        done(&delayd, &["extend", "t", &id, receipt, "--lease", "10m"])
            .await
            .contains("10m from now")
    );
    failed(
        &delayd,
        &["extend", "t", &id, "another", "--lease", "1m"],
        "receipt: it no longer holds the task",
    )
    .await;
    done(&delayd, &["nack", "t", &id, receipt, "--in", "0s"]).await;
    let pulled = json_of(&delayd, &["pull", "t", "--lease", "30s", "--wait", "20s"]).await;
    assert_eq!(pulled["attempt"], 2);
    let receipt = pulled["receipt"].as_str().unwrap();
    assert_eq!(done(&delayd, &["ack", "t", &id, receipt]).await, "delivered\n");
    assert_eq!(done(&delayd, &["ack", "t", &id, receipt]).await, "delivered\n");
    assert!(done(&delayd, &["list", "t", "delivered"]).await.contains("acked"));
}

async fn a_waiting_task_is_listed_rescheduled_and_cancelled(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let heartbeat = ["add", "alive", "--key", "device-7", "--in", "1h", r#"{"device":7}"#];
    let first = json_of(&delayd, &heartbeat).await["task_id"].to_string();
    assert!(done(&delayd, &heartbeat).await.contains("moved"));
    let other = [
        "add",
        "alive",
        "--idempotency-key",
        "i",
        "--in",
        "2h",
        "--max-attempts",
        "3",
        r#"{"device":8}"#,
    ];
    let second = json_of(&delayd, &other).await["task_id"].to_string();
    assert!(done(&delayd, &other).await.contains("added before"));

    let (code, page, hint) = client(&delayd, &["list", "alive", "--limit", "1"]).await;
    assert!(
        code == 0 && page.contains(&first) && page.contains("device-7") && !page.contains(&second),
        "{page}"
    );
    assert!(hint.contains("--cursor"), "{hint}");
    let all = done(&delayd, &["list", "alive", "--limit", "1", "--all"]).await;
    assert!(all.contains(&first) && all.contains(&second), "{all}");

    done(&delayd, &["update", "alive", &second, "--in", "3h", r#"{"device":9}"#]).await;
    let shown = done(&delayd, &["get", "alive", &second]).await;
    assert!(
        shown.contains(r#"{"device":9}"#) && shown.contains(r#"{"max_attempts":3}"#),
        "{shown}"
    );
    assert_eq!(done(&delayd, &["cancel", "alive", &second]).await, "cancelled\n");
    failed(&delayd, &["update", "alive", &second, "--in", "1s"], "the task is cancelled").await;
    failed(&delayd, &["cancel", "alive", "7"], "no such task").await;
}

async fn a_task_is_named_by_its_keys(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let add = ["add", "alive", "--in", "1h", r#"{"device":7}"#];
    let of_key = json_of(&delayd, &[&add[..], &["--key", "device-7"]].concat()).await;
    let once = json_of(&delayd, &[&add[..], &["--idempotency-key", "i"]].concat()).await;
    for (name, id) in [
        (["--key", "device-7"], of_key["task_id"].to_string()),
        (["--idempotency-key", "i"], once["task_id"].to_string()),
    ] {
        let with_name = |words: &[&'static str]| [words, &name].concat();
        done(&delayd, &with_name(&["update", "alive", "--in", "2h"])).await;
        let update = ["update", "alive", "--in", "2h", r#"{"device":9}"#];
        let moved = json_of(&delayd, &with_name(&update)).await;
        assert_eq!(moved["task_id"].to_string(), id);
        let read = json_of(&delayd, &with_name(&["pull", "alive"])).await;
        assert_eq!(
            (read["task_id"].to_string(), &read["content"]),
            (id, &json!(r#"{"device":9}"#))
        );
        assert!(done(&delayd, &with_name(&["get", "alive"])).await.contains(r#"{"device":9}"#));
        assert_eq!(done(&delayd, &with_name(&["cancel", "alive"])).await, "cancelled\n");
    }
    let unknown = ["cancel", "alive", "--key", "device-8"];
    failed(&delayd, &unknown, "no task of the topic alive has the key \"device-8\"").await;
}

async fn a_topic_is_set_paused_forecast_purged_and_deleted(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let set = [
        "topic",
        "set",
        "report",
        "--shards",
        "2",
        "--max-attempts",
        "3",
        "--rate",
        "100/s",
        "--misfire",
        "skip",
    ];
    let shown = done(&delayd, &set).await;
    assert!(shown.contains("100/s") && shown.contains("skip"), "{shown}");
    assert!(!done(&delayd, &["topic", "set", "report", "--reset", "rate"]).await.contains("100/s"));
    done(&delayd, &["add", "report", "--in", "90m", "{}"]).await;
    let forecast =
        json_of(&delayd, &["topic", "forecast", "report", "--step", "1h", "--steps", "2"]).await;
    assert_eq!(
        (&forecast["steps"][0]["count"], &forecast["steps"][1]["count"]),
        (&json!(0), &json!(1))
    );
    done(&delayd, &["topic", "pause", "report"]).await;
    assert!(done(&delayd, &["topic", "list"]).await.contains("report  2       paused"));
    assert!(done(&delayd, &["topic", "get", "report"]).await.contains("paused since        2"));
    done(&delayd, &["topic", "resume", "report", "--misfire", "fire"]).await;

    done(&delayd, &["add", "other", "--in", "1h", "{}"]).await;
    let stats = done(&delayd, &["stats"]).await;
    assert!(
        stats.lines().count() == 3 && stats.contains("\nother ") && stats.contains("\nreport "),
        "{stats}"
    );
    let lines = done(&delayd, &["stats", "--json"]).await;
    let topics: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(topics.iter().all(|topic| topic["counts"]["scheduled"] == 1), "{lines}");

    failed(&delayd, &["topic", "delete", "report"], "it still holds tasks").await;
    failed(
        &delayd,
        &["topic", "purge", "report", "--confirm", "other"],
        "confirm: must repeat the topic",
    )
    .await;
    assert_eq!(
        done(&delayd, &["topic", "purge", "report", "--confirm", "report"]).await,
        "1 task deleted\n"
    );
    done(&delayd, &["topic", "delete", "report"]).await;
    failed(&delayd, &["topic", "get", "report"], "no such topic").await;
}

async fn dead_letters_are_grouped_replayed_and_purged(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::With(503, vec![], "no")).await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content = json!({"sn": "message.call", "url": "/x"});
    for _ in 0..3 {
        let id = delayd
            .add(json!({"topic": "t", "delay": 0, "max_attempts": 1, "content": content}))
            .await
            .id();
        delayd.wait_for_state("t", id, "dead").await;
    }
    let causes = done(&delayd, &["dead", "causes", "t"]).await;
    assert!(causes.contains("3 ") && causes.contains("503 Service Unavailable"), "{causes}");
    assert_eq!(done(&delayd, &["dead", "list", "t"]).await.lines().count(), 4);
    let dead = json_of(&delayd, &["dead", "list", "t"]).await;
    let first = dead["tasks"][0]["task_id"].to_string();

    let dry = ["dead", "replay", "t", "--reason", "503 Service Unavailable", "--dry-run"];
    assert_eq!(done(&delayd, &dry).await, "3 tasks would be replayed\n");
    done(&delayd, &["destination", "hold", "message.call"]).await;
    let replayed = done(&delayd, &["dead", "replay", "t", &first]).await;
    let held = "message.call is held: calls begin when it is released";
    assert_eq!(replayed, format!("1 task replayed\n{held}\n"));
    assert_eq!(delayd.task("t", first.parse().unwrap()).await["state"], "scheduled");

    let (code, _, error) = client(&delayd, &["dead", "purge", "t", "--all"]).await;
    assert!(code == 2 && error.contains("--yes"), "{code}: {error}");
    assert_eq!(done(&delayd, &["dead", "purge", "t", "--all", "--yes"]).await, "2 tasks deleted\n");
    assert_eq!(done(&delayd, &["dead", "causes", "t"]).await, "no dead tasks\n");
}

async fn a_destination_is_held_and_released(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    done(&delayd, &["destination", "hold", "message.call"]).await;
    assert_eq!(json_of(&delayd, &["destination", "list"]).await["destinations"][0]["held"], true);
    done(&delayd, &["destination", "release", "message.call"]).await;
    assert!(done(&delayd, &["destination", "list"]).await.contains("message.call  ready "));
    failed(&delayd, &["destination", "hold", "nobody"], "there is no such service").await;
}

async fn an_import_restores_exported_tasks_once(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("message.call", &receiver)];
    let from = kept.start(&sets).await;
    let push = json!({"sn": "message.call", "url": "/x", "n": 1});
    let ids = [
        from.add(json!({
            "topic": "a", "delay": "1h", "content": push, "max_attempts": 3, "timeout": "5s",
            "key": "k",
            "backoff": {"kind": "list", "steps": ["5s", "5m"]}, "headers": {"x-tenant": "7"},
            "expires_after": "2h",
            "on_dead": {"sn": "message.call", "url": "/dead"},
        }))
        .await
        .id(),
        from.add(
            json!({"topic": "a", "delay": "90m", "mode": "pull", "content": "any \"text\"\n订单"}),
        )
        .await
        .id(),
    ];
    let many: Vec<Value> =
        (0..1_100).map(|n| json!({"topic": "b", "delay": "1h", "content": {"n": n}})).collect();
    from.add_all(&many).await;
    let gone = from.add(json!({"topic": "a", "delay": "1h", "content": {}})).await.id();
    done(&from, &["cancel", "a", &gone.to_string()]).await;
    let folder = crate::program::folder();
    let file = folder.path().join("tasks.ndjson");
    let file = file.to_str().unwrap();
    assert_eq!(done(&from, &["export", "--out", file]).await, "");
    let lines = std::fs::read_to_string(file).unwrap();
    assert_eq!(lines.lines().count(), 1_102 + 2, "tasks, and topics");
    assert_eq!(
        done(&from, &["export", "--topic", "a"]).await,
        lines.split_inclusive('\n').take(3).collect::<String>()
    );

    let into_kept = Kept::embedded();
    let into = into_kept.start(&sets).await;
    let counts = json_of(&into, &["import", file]).await;
    assert_eq!(counts, json!({"stored": 1_102, "known": 0, "failed": 0}));
    let listed = json_of(&into, &["list", "a"]).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(from.task("a", ids[0]).await["options"]["headers"], json!({"x-tenant": "7"}));
    for id in ids {
        assert_eq!(from.task("a", id).await, into.task("a", id).await);
    }
    let counts = json_of(&into, &["import", file]).await;
    assert_eq!(counts, json!({"stored": 0, "known": 1_102, "failed": 0}));
    assert_eq!(json_of(&into, &["topic", "get", "b"]).await["counts"]["scheduled"], 1_100);
}

/// If the leased task were exported with its key, it would replace the one that waits.
async fn a_task_that_lost_its_key_is_not_exported(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let beat = |delay: &str, n: u32| {
        json!({
            "topic": "t", "key": "k", "delay": delay, "content": {"n": n},
        })
    };
    let first = delayd.add(beat("0s", 1)).await.id();
    let pulled = json_of(&delayd, &["pull", "t", "--lease", "10m", "--wait", "20s"]).await;
    assert_eq!(pulled["task_id"], first);
    let second = delayd.add(beat("1h", 2)).await.id();
    assert_ne!(first, second);
    let exported = done(&delayd, &["export"]).await;
    let (topic, exported) = exported.split_once('\n').unwrap();
    assert_eq!(topic, r#"{"topic":"t","shards":1,"policy":{},"paused":false}"#);
    let exported: Value = serde_json::from_str(exported).unwrap();
    assert_eq!(exported["task_id"], second);
}

/// Only what is not confirmed is sent again.
#[tokio::test]
async fn an_import_repeats_tasks_that_are_not_confirmed() {
    let stored =
        |known: bool| json!({"dm_error": 0, "error_msg": "", "task_id": 7, "known": known});
    let batch = |results: &[Value]| {
        json!({"dm_error": 0, "error_msg": "", "failed": 0, "results": results}).to_string()
    };
    let first = batch(&[
        stored(false),
        stored(true),
        json!({"dm_error": 2003, "error_msg": "not confirmed"}),
        json!({"dm_error": 1000, "error_msg": "content: is missing"}),
    ]);
    let bad = json!({"dm_error": 1000, "error_msg": "content: is missing"});
    let none = json!({"dm_error": 1000, "error_msg": "none", "results": vec![bad; 4]});
    let (none, wrong) = (none.to_string(), batch(&[]));
    let checks = [
        (first, r#"{"failed":1,"known":1,"stored":2}"#, "line 4: content: is missing"),
        (none, r#"{"failed":4,"known":0,"stored":0}"#, "line 1: content: is missing"),
        (wrong, "", "0 results to 4 items"),
    ];
    let lines: String = (1..=4)
        .map(|id| {
            json!({"topic": "t", "task_id": id, "state": "scheduled", "created_ms": 1,
                "due_ms": 1_700_000_000_000_u64, "mode": "pull", "content": "x"})
            .to_string()
                + "\n"
        })
        .collect();
    let folder = crate::program::folder();
    let file = folder.path().join("tasks.ndjson");
    std::fs::write(&file, lines).unwrap();
    for (first, output, says) in checks {
        let again = batch(&[stored(false)]);
        let service = Receiver::answering(move |seen| {
            let body: Value = serde_json::from_str(&seen.body).unwrap();
            let is_first = body["records"].as_array().unwrap().len() == 4;
            Answer::With(200, vec![], if is_first { first.clone() } else { again.clone() }.leak())
        })
        .await;
        let mut import = command(&[]);
        import.args(["import", "--json", "--server", &service.endpoint()]).arg(&file);
        let (code, printed, error) = run(import).await;
        assert_eq!((code, printed.trim_end()), (1, output), "{error}");
        assert!(error.contains(says), "{error}");
    }
}

async fn an_import_skips_invalid_lines(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let line = |id: u64, content: Value| {
        let content = content.to_string();
        json!({
            "topic": "t", "task_id": id, "state": "scheduled",
            "created_ms": 1_600_000_000_000_u64,
            "due_ms": 1_700_000_000_000_u64,
            "mode": if id == 2 { "push" } else { "pull" }, "content": content,
        })
    };
    let nobody = json!({"sn": "nobody", "url": "/x"});
    let lines =
        format!("{}\n\nno line\n{}\n{}\n", line(1, json!({})), line(2, nobody), line(3, json!({})));
    let folder = crate::program::folder();
    let file = folder.path().join("tasks.ndjson");
    std::fs::write(&file, lines).unwrap();
    let (code, output, error) =
        client(&delayd, &["import", "--batch", "2", file.to_str().unwrap(), "--json"]).await;
    assert_eq!(
        (code, output.as_str()),
        (1, "{\"failed\":2,\"known\":0,\"stored\":2}\n"),
        "{error}"
    );
    assert!(
        error.contains("line 3: is not a line of an export")
            && error.contains("line 4: content.sn"),
        "{error}"
    );
}

async fn topics_dead_letters_and_history_are_exported(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(410)).await;
    let sets = [service("message.call", &receiver)];
    let from = kept.start(&sets).await;
    let set = json!({
        "topic": "t", "shards": 2, "rate": "50/s", "history": {"max": 9},
        "retry": {"max_attempts": 4},
    });
    from.post("/delay/topic/set", set.to_string()).await.ok();
    let call = json!({"sn": "message.call", "url": "/x"});
    let doomed = from.add(json!({"topic": "t", "delay": 0, "content": call})).await.id();
    let dead = from.wait_for_state("t", doomed, "dead").await;
    let gone = from.add(json!({"topic": "t", "delay": "1h", "content": call})).await.id();
    done(&from, &["cancel", "t", &gone.to_string()]).await;
    let waiting =
        from.add(json!({"topic": "t", "delay": "1h", "content": call, "key": "k"})).await.id();
    from.post("/delay/topic/pause", json!({"topic": "t"}).to_string()).await.ok();
    let folder = crate::program::folder();
    let file = folder.path().join("all.ndjson");
    let file = file.to_str().unwrap();
    done(&from, &["export", "--history", "--out", file]).await;

    let into_kept = Kept::embedded();
    let into = into_kept.start(&sets).await;
    for (stored, known) in [(3, 0), (0, 3)] {
        let counts = json_of(&into, &["import", file]).await;
        assert_eq!(counts, json!({"stored": stored, "known": known, "failed": 0}));
    }
    let names = ["shards", "policy", "paused"];
    let (before, after) = (
        json_of(&from, &["topic", "get", "t"]).await,
        json_of(&into, &["topic", "get", "t"]).await,
    );
    assert_eq!(names.map(|name| &before[name]), names.map(|name| &after[name]));
    for id in [gone, waiting] {
        assert_eq!(into.task("t", id).await, from.task("t", id).await);
    }
    let there = into.task("t", doomed).await;
    for name in ["state", "last_outcome", "attempts", "finished_ms", "content"] {
        assert_eq!(there[name], dead[name], "{name}");
    }
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let folder = crate::program::folder();
    let mut man = command(&[]);
    man.arg("man").arg(folder.path());
    let (code, output, error) = run(man).await;
    assert_eq!((code, output.as_str()), (0, ""), "{error}");
    for page in ["delayd.1", "delayd-serve.1", "delayd-schedule-set.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let mut man = command(&[]);
    man.args(["man", "/nowhere"]);
    let (code, _, error) = run(man).await;
    assert!(code == 1 && error.contains("cannot write manual pages to /nowhere"), "{error}");
}

#[tokio::test]
async fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let mut completions = command(&[]);
        completions.args(["completions", shell]);
        let (code, output, error) = run(completions).await;
        assert!(
            code == 0
                && error.is_empty()
                && output.contains("forecast")
                && output.contains("export"),
            "{output}"
        );
    }
}
