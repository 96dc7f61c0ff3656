//! Instances that are restarted one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::nginx::Nginx;
use crate::poll;
use crate::program::{Program, client, service};
use crate::receiver::Receiver;
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
            match client.post(url).json(&task).send().await {
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

/// The instances are those of the example.
#[tokio::test(flavor = "multi_thread")]
async fn no_add_through_nginx_fails_and_none_is_stored_twice() {
    let kept = Kept::redis();
    let (front, instances) = (ports::take(), [ports::take(), ports::take()]);
    let example = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/nginx/delayd.conf"));
    let example = [("8080", front), ("7799", instances[0]), ("7798", instances[1])]
        .into_iter()
        .fold(example.to_owned(), |text, (port, to)| {
            let (port, to) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{to}"));
            assert!(text.contains(&port), "the example does not name {port}");
            text.replace(&port, &to)
        });
    let start = async |port: u16| {
        let delayd = kept.start(&[format!("http.bind=\"127.0.0.1:{port}\"")]).await;
        delayd.wait_until_ready(200).await;
        delayd
    };
    let mut delayd: Vec<Program> = Vec::new();
    for port in instances {
        delayd.push(start(port).await);
    }
    let nginx = Nginx::start(front, "", &example).await;

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
