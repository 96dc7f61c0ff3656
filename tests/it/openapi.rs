//! The answers of the program match the OpenAPI document, whatever is asked.

use serde_json::{Value, json};

use crate::program::{Program, client, command, run};
use crate::{Kept, on_both_stores};

on_both_stores!(every_kind_of_answer_is_as_documented,);

/// The document in its strict form: an answer may not have a field that the document does not name.
pub struct Document(Value);

impl Document {
    pub async fn of(delayd: &Program) -> Self {
        let mut document = delayd.get("/openapi.json").await.body;
        for (_, schema) in document["components"]["schemas"].as_object_mut().unwrap() {
            close(schema);
        }
        Self(document)
    }

    /// Checks an answer of `POST path`.
    pub fn check(&self, path: &str, status: u16, answer: &Value) {
        self.check_by("post", path, status, answer);
    }

    fn check_by(&self, method: &str, path: &str, status: u16, answer: &Value) {
        let mut response = &self.0["paths"][path][method]["responses"][status.to_string()];
        if let Some(place) = response["$ref"].as_str() {
            response = self.0.pointer(&place[1..]).unwrap();
        }
        let mut schema = response["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{path} may not answer {status}: {answer}");
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(answer).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{path} {status} {answer}: {wrong:?}");
    }
}

/// Makes object schemas refuse properties that they do not name.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(several) => several.iter_mut().for_each(close),
        _ => {}
    }
}

/// The answers that the examples of the documentation leave out: errors, and fields that only some
/// answers have.
async fn every_kind_of_answer_is_as_documented(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let document = Document::of(&delayd).await;
    let check = async |path: &str, body: Value, status: u16| {
        let answer = delayd.post_until_confirmed(path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        document.check(path, status, &answer.body);
        answer.body
    };
    let due = json!({"topic": "t", "delay": 0, "content": {}});
    check("/delay/task/add", due.clone(), 200).await;
    check("/delay/task/add_batch", json!({"tasks": [due, {}]}), 200).await;
    let pulled = check("/delay/task/pull", json!({"topic": "t", "lease": "30s"}), 200).await;
    let (id, receipt) = (&pulled["task_id"], &pulled["receipt"]);
    check("/delay/task/pull", json!({"topic": "t", "task_id": id}), 200).await;
    check("/delay/task/cancel", json!({"topic": "t", "task_id": id}), 409).await;
    check("/delay/task/update", json!({"topic": "t", "task_id": id, "delay": 5}), 409).await;
    check("/delay/task/ack", json!({"topic": "t", "task_id": id, "receipt": receipt}), 200).await;
    check("/delay/task/nack", json!({"topic": "t", "task_id": id, "receipt": "other"}), 409).await;
    check("/delay/task/get", json!({"topic": "t", "task_id": id}), 200).await;
    check("/delay/task/list", json!({"topic": "t", "state": "delivered"}), 200).await;
    check("/delay/task/get", json!({"topic": "t", "task_id": 1}), 404).await;
    check("/delay/topic/list", json!({}), 200).await;
    check("/delay/topic/get", json!({"topic": "t"}), 200).await;
    check("/delay/topic/delete", json!({"topic": "t"}), 409).await;
    let backoff = json!({"kind": "list", "steps": ["5s", 60]});
    let retry = json!({"max_attempts": 1, "backoff": backoff, "final_statuses": [410]});
    let set = json!({
        "topic": "d", "retry": retry, "timeout": 5, "mode": "pull", "rate": "10/s",
        "concurrency": 5, "quota": 7,
        "history": {"keep": "1h", "max": 10}, "misfire": "dead", "lateness_objective": "5s",
        "paused": true});
    check("/delay/topic/set", set, 200).await;
    check("/delay/topic/resume", json!({"topic": "d"}), 200).await;
    let add = json!({"topic": "d", "delay": 0, "content": "text", "idempotency_key": "k"});
    check("/delay/task/add", add, 200).await;
    check(
        "/delay/task/add",
        json!({"topic": "d", "delay": 1, "content": "other", "idempotency_key": "k"}),
        422,
    )
    .await;
    let many = check("/delay/task/pull", json!({"topic": "d", "lease": 30, "count": 2}), 200).await;
    let task = &many["tasks"][0];
    check(
        "/delay/task/nack",
        json!({"topic": "d", "task_id": task["task_id"], "receipt": task["receipt"]}),
        200,
    )
    .await;
    check("/delay/dead/causes", json!({"topic": "d"}), 200).await;
    check("/delay/dead/replay", json!({"topic": "d", "all": true, "rate": "1/s"}), 200).await;
    check("/delay/dead/purge", json!({"topic": "d", "all": true}), 200).await;
    check("/delay/destination/hold", json!({"sn": "nobody"}), 404).await;
    let logged = check("/delay/audit/list", json!({"limit": 3}), 200).await;
    check("/delay/audit/list", json!({"cursor": logged["cursor"]}), 200).await;
    for path in ["/healthz", "/readyz"] {
        document.check_by("get", path, 200, &delayd.get(path).await.body);
    }
}

pub const TOKEN: &str = "dly_tester";

/// `printf %s … | sha256sum` of the token.
pub const TOKEN_HASH: &str = "60e3fdff7fa1ec662d2810194b3fb51ef76e2f9cbf092680b316f9baa4277edf";

/// A token with only `view` gets null in place of contents and texts of outcomes.
#[tokio::test]
async fn what_a_view_token_sees_is_as_documented() {
    let viewer = format!(
        "http.auth.tokens=[{{name='a', token_sha256='{TOKEN_HASH}', scopes=['view'], \
         topics=['*']}}]"
    );
    let kept = Kept::embedded();
    let mut delayd = kept.start(&[]).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"a": 1}, "max_attempts": 1});
    let id = delayd.add(task).await.id();
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"t","lease":30}"#).await;
    let nack = json!({"topic": "t", "task_id": id, "receipt": pulled.body["receipt"]});
    delayd.post("/delay/task/nack", nack.to_string()).await.ok();
    delayd.signal("TERM");
    assert!(delayd.ended().await.success());

    let delayd = kept.start(&[viewer]).await;
    let document = Document::of(&delayd).await;
    let check = async |path: &str, body: Value| {
        let post = client().post(delayd.url(path)).bearer_auth(TOKEN);
        let answer = post.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let answer: Value = answer.json().await.unwrap();
        document.check(path, 200, &answer);
        answer
    };
    let found = check("/delay/task/get", json!({"topic": "t", "task_id": id})).await;
    assert_eq!(
        (&found["task"]["content"], &found["task"]["state"]),
        (&Value::Null, &json!("dead"))
    );
    let listed = check("/delay/task/list", json!({"topic": "t", "state": "dead"})).await;
    assert_eq!(listed["tasks"][0]["last_outcome"], Value::Null);
    let causes = check("/delay/dead/causes", json!({"topic": "t"})).await;
    assert_eq!(
        (&causes["causes"][0]["reason"], &causes["causes"][0]["count"]),
        (&Value::Null, &json!(1))
    );
    check("/delay/destination/list", json!({})).await;
    check("/delay/audit/list", json!({})).await;
}

#[tokio::test]
async fn the_command_prints_what_the_service_answers() {
    let delayd = Kept::embedded().start(&[]).await;
    let mut openapi = command(&[]);
    openapi.arg("openapi");
    let (code, output, error) = run(openapi).await;
    assert_eq!(code, 0, "{error}");
    assert_eq!(
        serde_json::from_str::<Value>(&output).unwrap(),
        delayd.get("/openapi.json").await.body
    );
}

#[tokio::test]
async fn the_page_is_open_and_may_load_nothing_from_elsewhere() {
    let hash = "265c0d5b0ee2e930fe3e35f14ccc7da75b8aa2717db15972da8e5c6e1fea94cb";
    let token = format!(
        "http.auth.tokens=[{{name=\"a\",token_sha256=\"{hash}\",\
         scopes=[\"admin\"],topics=[\"*\"]}}]",
    );
    let delayd = Kept::embedded().start(&[token]).await;
    assert_eq!(delayd.post("/delay/topic/list", "{}").await.status, 401);
    for (path, kind) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/explorer.js", "text/javascript; charset=utf-8"),
        ("/docs/explorer.css", "text/css; charset=utf-8"),
        ("/docs/icon.svg", "image/svg+xml"),
    ] {
        let answer = delayd.get(path).await;
        assert_eq!(
            (answer.status, answer.headers["content-type"].to_str().unwrap()),
            (200, kind),
            "{path}"
        );
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{path}: {policy}");
    }
    assert_eq!(delayd.get("/openapi.json").await.body["openapi"], "3.1.0");
}
