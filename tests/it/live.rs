//! The live stream of the real program, and the calls that show the same once.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    an_overview_shows_tasks_and_destinations,
    what_is_not_called_is_among_the_first_destinations,
    an_instance_tells_how_it_works,
    destinations_are_listed_by_the_last_samples,
);

/// The most streams of an instance.
const STREAMS: usize = 64;

/// A reader of server-sent events.
struct Stream {
    response: Response,
    read: String,
    /// The bytes of the last event.
    bytes: usize,
}

async fn ask(delayd: &Program, token: Option<&str>) -> Response {
    let request = Client::new().post(delayd.url("/delay/live")).body("{}");
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
    .send()
    .await
    .unwrap()
}

impl Stream {
    async fn open(delayd: &Program) -> Self {
        let response = ask(delayd, None).await;
        assert_eq!(response.status(), 200);
        Self { response, read: String::new(), bytes: 0 }
    }

    /// The data of the next event; `None` if the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let data = event.strip_prefix("event: overview\ndata: ");
                let data = data.map(|data| serde_json::from_str(data).unwrap());
                self.bytes = event.len() + 2;
                self.read = rest.to_owned();
                match data {
                    Some(data) => return Some(data),
                    None => continue,
                }
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

/// Twenty services with more overdue tasks hid a service that failed.
async fn what_is_not_called_is_among_the_first_destinations(kept: Kept) {
    const MOST: usize = 20;
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let mut sets: Vec<String> =
        (0..MOST).map(|at| service(&format!("busy{at}"), &receiver)).collect();
    sets.extend(["fails", "held"].map(|sn| service(sn, &receiver)));
    let breaker = ["consecutive_failures=1", "open='1h'", "open_max='1h'"];
    sets.extend(breaker.map(|set| format!("callback.breaker.{set}")));
    let delayd = kept.start(&sets).await;
    let post = async |path: &str, body: Value| delayd.post(path, body.to_string()).await.ok().body;
    post("/delay/topic/set", json!({"topic": "paused", "paused": true})).await;
    let task = |topic: &str, sn: &str| {
        let content = json!({"sn": sn, "url": "/"});
        json!({"topic": topic, "delay": 0, "content": content})
    };
    let busy = (0..MOST).flat_map(|at| vec![task("paused", &format!("busy{at}")); 3]);
    delayd.add_all(&busy.collect::<Vec<_>>()).await;
    delayd.add(task("called", "fails")).await.ok();
    post("/delay/destination/hold", json!({"sn": "held"})).await;
    let overview = async || post("/delay/overview", json!({})).await;
    let are_first = async || {
        let shown = overview().await;
        let first: Vec<_> = shown["destinations"].as_array().unwrap().iter().take(2).collect();
        shown["more_destinations"] == 2
            && first.iter().any(|one| one["sn"] == "fails" && one["breaker"] == "open")
            && first.iter().any(|one| one["sn"] == "held" && one["held"] == true)
            && shown["destinations"][2]["overdue"] == 3
    };
    assert!(poll::until(are_first).await, "{}", overview().await);
}

async fn an_overview_shows_tasks_and_destinations(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let task = json!({
        "topic": "orders", "delay": "1h",
        "content": {"sn": "message.call", "url": "/", "text": "secret"},
    });
    delayd.add(task).await.ok();
    let mut stream = Stream::open(&delayd).await;
    let is_there = |shown: &Value| shown["tasks"]["scheduled"] == 1 && shown["complete"] == true;
    let mut shown = stream.next().await.unwrap();
    while !is_there(&shown) {
        shown = stream.next().await.unwrap();
    }
    assert_eq!(shown["topics"], 1);
    assert_eq!(shown["objective"]["lateness_ms"], 1_000);
    let culprits: Vec<&str> = shown["overdue"]
        .as_array()
        .unwrap()
        .iter()
        .map(|overdue| overdue["culprit"].as_str().unwrap())
        .collect();
    assert_eq!(culprits, ["delayd", "receiver", "operator", "store", "consumer"]);
    let destination = &shown["destinations"][0];
    assert_eq!(destination["sn"], "message.call");
    assert_eq!((&destination["waiting"], &destination["breaker"]), (&json!(1), &json!("closed")));
    assert!(!shown.to_string().contains("secret"), "{shown}");

    let once = delayd.post("/delay/overview", "{}").await.ok().body;
    assert!(is_there(&once), "{once}");
    assert_eq!(once["destinations"][0], shown["destinations"][0]);

    let who = delayd.post("/delay/whoami", "{}").await.ok().body;
    assert_eq!((&who["token"], &who["topics"]), (&Value::Null, &json!(["*"])));
    assert_eq!(who["scopes"], json!(["produce", "consume", "view", "admin"]));
}

async fn an_instance_tells_how_it_works(kept: Kept) {
    let delayd = kept.start(&[]).await;
    delayd.add(json!({"topic": "orders", "delay": "1h", "content": {}})).await.ok();
    let shown = delayd.post("/delay/instance/get", "{}").await.ok().body;
    let who = delayd.post("/delay/whoami", "{}").await.ok().body;
    assert_eq!((&shown["id"], &shown["store"]), (&who["instance"], &who["store"]), "{shown}");
    let is_add = |operation: &&Value| operation["op"] == "add";
    let add = shown["operations"].as_array().unwrap().iter().find(is_add).unwrap();
    assert_eq!((&add["calls"], &add["errors"]), (&json!(1), &json!([])), "{shown}");
    assert!(add["p99_ms"].as_f64().unwrap() > 0.0, "{shown}");
    let servers = shown["servers"].as_array().unwrap();
    if shown["store"] == "redis" {
        assert_eq!((servers.len(), &shown["disk"]), (1, &Value::Null), "{shown}");
        assert_eq!(servers[0]["away"], false, "{shown}");
    } else {
        assert!(servers.is_empty(), "{shown}");
        assert!(shown["disk"]["fsync_p99_ms"].is_number(), "{shown}");
        let free = async || {
            let shown = delayd.post("/delay/instance/get", "{}").await.ok().body;
            (shown["disk"]["free_bytes"].as_u64() > shown["disk"]["reserve_bytes"].as_u64())
                .then_some(())
        };
        poll::answer(free).await.expect("the disk is not full");
    }
    assert_eq!(shown["reloads"]["in_force"], true, "{shown}");
    assert_eq!(shown["log"]["errors"], 0, "{shown}");
}

async fn destinations_are_listed_by_the_last_samples(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    for delay in ["0s", "1h"] {
        let content = json!({"sn": "message.call", "url": "/"});
        delayd.add(json!({"topic": "orders", "delay": delay, "content": content})).await.ok();
    }
    receiver.wait_for(1).await;
    let counted = async || {
        let list = delayd.post("/delay/destination/list", r#"{"sampled":true}"#).await.ok().body;
        let one = &list["destinations"][0];
        let is_counted = one["waiting"] == 1 && one["overdue"] == 0;
        let has_ended = one["recent"]["calls"] == 1 && list["unharmed"]["calls"] == 1;
        (is_counted && has_ended).then(|| list.clone())
    };
    let list = poll::answer(counted).await.expect("the sampler counts the task that waits");
    assert!(list["as_of_ms"].as_i64().unwrap() > 0, "{list}");
    assert!(list["unharmed"]["lateness_p99_ms"].is_u64(), "{list}");
    let exact = delayd.post("/delay/destination/list", "{}").await.ok().body;
    let one = &exact["destinations"][0];
    assert_eq!((&one["waiting"], one.get("overdue")), (&json!(1), None), "{exact}");
}

#[tokio::test]
async fn each_second_has_an_event_for_every_viewer() {
    let delayd = Kept::embedded().start(&[]).await;
    let (mut one, mut other) = (Stream::open(&delayd).await, Stream::open(&delayd).await);
    let mut moments = Vec::new();
    for _ in 0..3 {
        moments.push(one.next().await.unwrap()["at_ms"].as_i64().unwrap());
    }
    assert!(moments.windows(2).all(|pair| pair[1] > pair[0]), "{moments:?}");
    let mut seen = other.next().await.unwrap();
    while seen["at_ms"].as_i64().unwrap() < moments[2] {
        seen = other.next().await.unwrap();
    }
    let headers = one.response.headers();
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(headers["x-accel-buffering"], "no");
}

/// One event is sent each second, so this is what a viewer costs the network, at any load.
#[tokio::test]
async fn a_viewer_receives_at_most_5_kb_a_second() {
    const SERVICES: usize = 25;
    const SHOWN: usize = 20;
    /// Of each lane, the sampler counts the destinations with most tasks.
    const COUNTED: usize = 16;
    let names: Vec<String> =
        (0..SERVICES).map(|at| format!("a-service-with-a-name-{at:02}")).collect();
    let sets: Vec<String> = names
        .iter()
        .map(|name| format!("services.\"{name}\".endpoints=[\"http://127.0.0.1:9\"]"))
        .collect();
    let delayd = Kept::embedded().start(&sets).await;
    let tasks = names.iter().flat_map(|name| {
        let task = json!({"topic": "orders", "delay": "1h", "content": {"sn": name, "url": "/"}});
        std::iter::repeat_n(task, 40)
    });
    delayd.add_all(&tasks.collect::<Vec<_>>()).await;
    let mut stream = Stream::open(&delayd).await;
    let is_full = |shown: &Value| {
        let destinations = shown["destinations"].as_array().unwrap();
        let counted = destinations.iter().filter(|destination| destination["waiting"] == 40);
        shown["more_destinations"] == SERVICES - SHOWN
            && destinations.len() == SHOWN
            && counted.count() == COUNTED
    };
    while !is_full(&stream.next().await.unwrap()) {}
    assert!(stream.bytes <= 5_000, "{} bytes", stream.bytes);
}

#[tokio::test]
async fn the_number_of_streams_is_limited() {
    let delayd = Kept::embedded().start(&[]).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = Stream::open(&delayd).await;
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let refused = ask(&delayd, None).await;
    assert_eq!(refused.status(), 503);
    let why = refused.text().await.unwrap();
    assert!(why.contains("too many live streams are open"), "{why}");
    delayd.add(json!({"topic": "orders", "delay": "1h", "content": {}})).await.ok();

    streams.pop();
    let is_free = poll::until(async || ask(&delayd, None).await.status() == 200).await;
    assert!(is_free, "a closed stream keeps its place");
}

#[tokio::test]
async fn a_drain_ends_the_streams() {
    let mut delayd = Kept::embedded().start(&[]).await;
    let mut stream = Stream::open(&delayd).await;
    stream.next().await.unwrap();
    delayd.signal("TERM");
    let ends = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), ends).await.expect("the stream ends");
    assert!(delayd.ended().await.success());
}

#[tokio::test]
async fn a_stream_needs_a_token_that_may_read_all_topics() {
    let token = |name: &str, scope: &str, topics: &str| {
        let hash = delayd::model::token::TokenHash::of(name).to_hex();
        format!("{{name='{name}', token_sha256='{hash}', scopes=['{scope}'], topics=['{topics}']}}")
    };
    let tokens = [
        token("view", "view", "*"),
        token("add", "produce", "*"),
        token("part", "admin", "orders.*"),
    ];
    let sets = [format!("http.auth.tokens=[{}]", tokens.join(", "))];
    let delayd = Kept::embedded().start(&sets).await;
    for (token, status) in
        [(None, 401), (Some("view"), 200), (Some("add"), 403), (Some("part"), 403)]
    {
        assert_eq!(ask(&delayd, token).await.status(), status, "{token:?}");
    }
    let who = Client::new().post(delayd.url("/delay/whoami")).bearer_auth("part").body("{}");
    let who: Value = who.send().await.unwrap().json().await.unwrap();
    assert_eq!((&who["token"], &who["scopes"]), (&json!("part"), &json!(["admin"])));
    assert_eq!((&who["topics"], &who["all_topics"]), (&json!(["orders.*"]), &json!(false)));
}
