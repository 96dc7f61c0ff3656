//! Instances that are restarted one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::nginx::Nginx;
use crate::poll;
use crate::program::{Program, client, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::redis_server::ports;
use crate::{Kept, on_both_stores};

on_both_stores!(an_instance_that_leaves_works_on_until_it_drains);

async fn an_instance_that_leaves_works_on_until_it_drains(kept: Kept) {
    let receiver = Receiver::start().await;
    let delay = "shutdown.delay=\"10m\"".to_owned();
    let mut delayd = kept.start(&[service("message.call", &receiver), delay]).await;
    delayd.signal("TERM");
    delayd.wait_until_ready(503).await;
    assert_eq!(delayd.get("/readyz").await.body["not_ready"], json!(["draining"]));
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    let added = delayd.add(task).await;
    // A kept connection would lead to this instance again.
    assert_eq!(added.headers["connection"], "close");
    receiver.wait_for(1).await;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(1), "{}", delayd.log());

    let mut delayd = kept.start(&["shutdown.delay=\"1ms\"".into()]).await;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
}

/// Callers that add tasks through a proxy until they are told to stop.
#[derive(Default)]
struct Callers {
    stop: AtomicBool,
    added: AtomicUsize,
}

impl Callers {
    /// Adds tasks. Returns the answers that are no success.
    async fn add(&self, url: &str) -> Vec<String> {
        let (client, mut failed) = (client(), Vec::new());
        let task = json!({"topic": "t", "delay": "1h", "content": {"a": 1}});
        while !self.stop.load(Ordering::Relaxed) {
            let key = format!("{:x}", rand::random::<u128>());
            match client.post(url).header("idempotency-key", key).json(&task).send().await {
                Ok(answer) if answer.status() == 200 => {
                    self.added.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => failed.push(answer.text().await.unwrap_or_default()),
                Err(error) => failed.push(format!("{error:?}")),
            }
        }
        failed
    }

    async fn add_more(&self, tasks: usize) {
        let enough = self.added.load(Ordering::Relaxed) + tasks;
        assert!(poll::until(async || self.added.load(Ordering::Relaxed) >= enough).await);
    }
}

/// nginx as in the example, before instances on these ports.
async fn nginx_before(instances: [u16; 2]) -> Nginx {
    let front = ports::take();
    let example = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/nginx/delayd.conf"));
    let example = [("8080", front), ("7799", instances[0]), ("7798", instances[1])]
        .into_iter()
        .fold(example.to_owned(), |text, (port, to)| {
            let (port, to) = (format!(":{port}"), format!(":{to}"));
            assert!(text.contains(&port), "the example does not name {port}");
            text.replace(&port, &to)
        });
    Nginx::start(front, "", &example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_add_through_nginx_fails_and_none_is_stored_twice() {
    let kept = Kept::redis();
    let instances = [ports::take(), ports::take()];
    let start = async |port: u16| {
        let delayd = kept.start(&[format!("http.bind=\"127.0.0.1:{port}\"")]).await;
        delayd.wait_until_ready(200).await;
        delayd
    };
    let mut delayd: Vec<Program> = Vec::new();
    for port in instances {
        delayd.push(start(port).await);
    }
    let nginx = nginx_before(instances).await;

    let callers = Arc::new(Callers::default());
    let running: Vec<_> = (0..8)
        .map(|_| {
            let (callers, url) = (callers.clone(), nginx.url("/delay/task/add"));
            tokio::spawn(async move { callers.add(&url).await })
        })
        .collect();
    for _ in 0..3 {
        for (port, delayd) in instances.into_iter().zip(&mut delayd) {
            callers.add_more(100).await;
            delayd.signal("TERM");
            assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
            callers.add_more(100).await;
            *delayd = start(port).await;
        }
    }
    callers.stop.store(true, Ordering::Relaxed);
    for caller in running {
        assert_eq!(caller.await.unwrap(), Vec::<String>::new());
    }
    let topic = delayd[0].post("/delay/topic/get", r#"{"topic":"t"}"#).await.ok();
    let added = callers.added.load(Ordering::Relaxed);
    assert_eq!(topic.body["counts"]["scheduled"], Value::from(added), "{topic:?}");
}

/// Two instances that answer the calls of tasks as `answer` says, and those of nginx's test with
/// 200.
async fn answering(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> [Receiver; 2] {
    let (answer, calls) = (Arc::new(answer), Arc::<AtomicUsize>::default());
    let behaviour = move || {
        let (answer, calls) = (answer.clone(), calls.clone());
        move |call: &Seen| match call.path.as_str() {
            "/healthz" => Answer::Status(200),
            _ => answer(calls.fetch_add(1, Ordering::Relaxed)),
        }
    };
    [Receiver::answering(behaviour()).await, Receiver::answering(behaviour()).await]
}

/// How many calls came to each of them.
fn calls(instances: &[Receiver; 2]) -> [usize; 2] {
    instances
        .each_ref()
        .map(|one| one.seen().iter().filter(|call| call.path.starts_with("/delay/")).count())
}

/// Takes requests, and closes their connections without an answer.
async fn mute(listener: TcpListener, taken: Arc<AtomicUsize>) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let _ = connection.read(&mut [0; 4096]).await;
        taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// nginx passed an add whose connection broke to the other instance, and it was stored twice.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_repeats_only_what_was_certainly_not_stored() {
    const ADD: &str = "/delay/task/add";
    delayd::install_crypto();
    let refusal = |stored: &'static str| {
        Answer::With(503, vec![("delay-stored", stored)], r#"{"dm_error":2003}"#)
    };
    let send = async |nginx: &Nginx, key: Option<&str>| {
        let add = client().post(nginx.url(ADD)).body("{}");
        let add = key.iter().fold(add, |add, key| add.header("idempotency-key", *key));
        add.send().await.unwrap()
    };
    let with_key = async |instances: &[Receiver; 2], key: Option<&str>| {
        let nginx = nginx_before(instances.each_ref().map(|one| one.address.port())).await;
        let sent = send(&nginx, key).await;
        let stored = sent.headers().get("delay-stored").map(|value| value.to_str().unwrap().into());
        (sent.status().as_u16(), stored, sent.json::<Value>().await.unwrap_or_default())
    };
    let through = async |instances: &[Receiver; 2]| with_key(instances, None).await;
    let stored = |word: &str| Some(word.to_owned());

    let instances = answering(move |number| match number {
        0 => refusal("no"),
        _ => Answer::With(200, vec![], r#"{"dm_error":0}"#),
    })
    .await;
    assert_eq!(through(&instances).await, (200, None, json!({"dm_error": 0})));
    assert_eq!(calls(&instances), [1, 1]);

    let instances = answering(move |_| refusal("no")).await;
    assert_eq!(through(&instances).await, (503, stored("no"), json!({"dm_error": 2003})));
    assert_eq!(calls(&instances), [1, 1]);

    let unconfirmed =
        json!({"dm_error": 2003, "error_msg": "not confirmed: repeat it", "stored": "unknown"});
    let without_answer = || Answer::Status(503);
    for first in [refusal("unknown"), without_answer()] {
        let instances = answering(move |_| first.clone()).await;
        assert_eq!(through(&instances).await, (503, stored("unknown"), unconfirmed.clone()));
        assert_eq!(calls(&instances).iter().sum::<usize>(), 1);
    }

    // What the second one says is true of the second one only.
    let too_fast = || Answer::Status(429);
    for (first, second) in [
        (refusal("unknown"), refusal("no")),
        (without_answer(), refusal("no")),
        (without_answer(), too_fast()),
    ] {
        let instances = answering(move |number| match number {
            0 => first.clone(),
            _ => second.clone(),
        })
        .await;
        let said = with_key(&instances, Some("k")).await;
        assert_eq!(said, (503, stored("unknown"), unconfirmed.clone()));
        assert_eq!(calls(&instances), [1, 1]);
    }

    let taken = Arc::<AtomicUsize>::default();
    let mut ports = [0; 2];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        *port = listener.local_addr().unwrap().port();
        tokio::spawn(mute(listener, taken.clone()));
    }
    let nobody = [ports::take(), ports::take()];
    for (instances, key, sent) in [(ports, None, 1), (ports, Some("k"), 2), (nobody, None, 0)] {
        let nginx = nginx_before(instances).await;
        taken.store(0, Ordering::Relaxed);
        let answer = send(&nginx, key).await;
        let said = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert_eq!(said, (503, unconfirmed.clone()));
        assert_eq!(taken.load(Ordering::Relaxed), sent);
    }
}
