//! The audit log, as an operator reads it: the log lines, the call and the command.

use serde_json::{Value, json};

use crate::program::{Program, client, command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    an_operator_sees_who_did_what,
    a_replay_has_its_cause_and_its_number_of_tasks,
    entries_outlast_the_program_and_commands_add_some,
);

const OPERATOR: &str = "dly_secret";
const VIEWER: &str = "dly_tester";

/// `printf %s … | sha256sum` of both tokens.
fn tokens() -> String {
    let operator = "265c0d5b0ee2e930fe3e35f14ccc7da75b8aa2717db15972da8e5c6e1fea94cb";
    let viewer = "60e3fdff7fa1ec662d2810194b3fb51ef76e2f9cbf092680b316f9baa4277edf";
    format!(
        "http.auth.tokens=[\
         {{name='operator', token_sha256='{operator}', scopes=['admin', 'produce'], \
         topics=['*']}}, {{name='viewer', token_sha256='{viewer}', scopes=['view'], topics=['*']}}]"
    )
}

/// Status and answer of a call with this token and request id.
async fn ask(delayd: &Program, token: &str, id: &str, path: &str, body: Value) -> (u16, Value) {
    let post = client().post(delayd.url(path)).bearer_auth(token);
    let answer = post.header("x-request-id", id).body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// The entries once there are so many, the newest first.
async fn entries(delayd: &Program, count: usize) -> Vec<Value> {
    let listed = async || {
        let (status, page) = ask(delayd, VIEWER, "list", "/delay/audit/list", json!({})).await;
        assert_eq!(status, 200, "{page}");
        let entries = page["entries"].as_array().unwrap().clone();
        (entries.len() >= count).then_some(entries)
    };
    let listed = poll::answer(listed).await.expect("the entries are stored");
    assert_eq!(listed.len(), count, "{listed:?}");
    listed
}

async fn an_operator_sees_who_did_what(kept: Kept) {
    let delayd = kept.start(&[tokens()]).await;
    let task = json!({"topic": "orders", "delay": 60, "content": {"a": "hidden-text"}});
    assert_eq!(ask(&delayd, OPERATOR, "r-0", "/delay/task/add", task).await.0, 200);
    let orders = json!({"topic": "orders"});
    let pause = "/delay/topic/pause";
    assert_eq!(ask(&delayd, OPERATOR, "r-1", pause, orders.clone()).await.0, 200);
    assert_eq!(ask(&delayd, VIEWER, "r-2", pause, orders.clone()).await.0, 403);
    assert_eq!(ask(&delayd, "dly_unknown", "r-3", pause, orders.clone()).await.0, 401);
    assert_eq!(ask(&delayd, OPERATOR, "r-4", pause, json!({"topic": "other"})).await.0, 404);
    delayd.signal("HUP");
    let all = entries(&delayd, 5).await;
    let fields = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
        [text("request_id"), text("token"), text("action"), text("topic"), text("result")].join(" ")
    };
    let said: Vec<String> = all.iter().rev().map(fields).collect();
    assert_eq!(
        said,
        [
            "r-1 operator topic/pause orders done",
            "r-2 viewer topic/pause - refused",
            "r-3 - topic/pause - refused",
            "r-4 operator topic/pause other refused",
            "- - config/reload - done",
        ]
    );
    for text in ["dly_", "hidden-text"] {
        assert!(!json!(all).to_string().contains(text), "{all:?}");
    }

    delayd.wait_for_logs("delayd::audit", 5).await;
    let log = delayd.log();
    let paused = log.lines().find(|line| line.contains("request_id=\"r-1\"")).unwrap();
    for part in ["delayd::audit: topic/pause by operator: done", "topic=\"orders\"", "status=200"] {
        assert!(paused.contains(part), "{paused}");
    }
    assert!(!log.contains("dly_") && !log.contains("hidden-text"), "{log}");

    let audit = async |words: &[&str]| {
        let mut audit = command(&[]);
        audit.env("DELAYD_TOKEN", VIEWER).args(["audit", "--server", &delayd.url("")]).args(words);
        let (code, output, error) = run(audit).await;
        assert_eq!(code, 0, "{error}");
        output
    };
    let table = audit(&[]).await;
    assert!(table.starts_with("TIME") && table.contains("refused (401)"), "{table}");
    let pages = audit(&["--json", "--all", "--limit", "2"]).await;
    let pages = pages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let paged: Vec<Value> =
        pages.flat_map(|page| page["entries"].as_array().unwrap().clone()).collect();
    assert_eq!(paged, all);
}

async fn a_replay_has_its_cause_and_its_number_of_tasks(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(410)).await;
    let delayd = kept.start(&[tokens(), service("shop", &receiver)]).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "shop", "url": "/"}});
    for _ in 0..2 {
        ask(&delayd, OPERATOR, "add", "/delay/task/add", task.clone()).await;
    }
    let dead = async || {
        let causes = json!({"topic": "t"});
        let causes = ask(&delayd, OPERATOR, "causes", "/delay/dead/causes", causes).await.1;
        (causes["causes"][0]["count"] == 2).then(|| causes["causes"][0]["reason"].clone())
    };
    let reason = poll::answer(dead).await.expect("both tasks die");
    let of = |reason: &Value| json!({"topic": "t", "all": true, "reason": reason});
    let replay = "/delay/dead/replay";
    ask(&delayd, OPERATOR, "r-1", replay, of(&json!("any text of the caller"))).await;
    ask(&delayd, OPERATOR, "r-2", replay, of(&reason)).await;
    entries(&delayd, 2).await;
    let all = ask(&delayd, OPERATOR, "list", "/delay/audit/list", json!({})).await.1;
    let said =
        |at: usize| (all["entries"][at]["tasks"].clone(), all["entries"][at]["reason"].clone());
    assert_eq!(said(0), (json!(2), reason), "{all}");
    assert_eq!(said(1), (json!(0), Value::Null), "{all}");
    for entry in entries(&delayd, 2).await {
        assert_eq!(entry["reason"], Value::Null, "a token that only views sees no outcome");
    }
}

/// What waits for the store at the stop is written, too.
async fn entries_outlast_the_program_and_commands_add_some(kept: Kept) {
    let mut delayd = kept.start(&[tokens()]).await;
    let set = json!({"topic": "orders", "paused": true});
    assert_eq!(ask(&delayd, OPERATOR, "r-1", "/delay/topic/set", set).await.0, 200);
    delayd.signal("TERM");
    assert!(delayd.ended().await.success(), "{}", delayd.log());
    for words in [&["store", "new-id", "--yes"][..], &["format", "--raise"], &["fsck", "--repair"]]
    {
        let mut change = command(&kept.store.sets());
        change.args(words);
        let (code, output, error) = run(change).await;
        assert!(code == 0 && !error.contains("audit"), "{words:?}: {output}{error}");
    }
    let delayd = kept.start(&[tokens()]).await;
    let actions: Vec<Value> =
        entries(&delayd, 4).await.into_iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["store/repair", "store/format", "store/new-id", "topic/set"]);
}
