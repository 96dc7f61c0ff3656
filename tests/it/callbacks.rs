//! The main purpose: a task is called back at its due moment, once, and the answer decides what
//! happens next.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::service;
use crate::receiver::{Answer, Receiver, now_ms};
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_task_is_called_back_at_its_due_moment_and_never_before,
    ten_thousand_tasks_of_one_second_all_arrive_once,
    failures_are_retried_and_the_outcome_is_kept,
    final_answers_and_spent_attempts_make_a_task_dead,
    retry_after_is_honoured,
    content_reaches_the_service_byte_for_byte,
    tasks_of_a_removed_service_wait,
    a_call_longer_than_the_lease_has_it_extended_first,
);

fn task(delay: &str) -> Value {
    json!({
        "topic": "order.cancel", "delay": delay,
        "content": {"sn": "message.call", "url": "/cancel"},
    })
}

/// The certificate verifier used to log each refusal as an error, without task and service.
#[tokio::test]
async fn an_untrusted_certificate_is_logged_once_with_its_task() {
    delayd::install_crypto();
    let certificate =
        include_bytes!("../../src/callback/client/localhost/cert.der").to_vec().into();
    let key = include_bytes!("../../src/callback/client/localhost/key.der").as_slice();
    let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(
        vec![certificate],
        rustls::pki_types::PrivateKeyDer::try_from(key).unwrap(),
    );
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls.unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!(
        "services.\"message.call\".endpoints=[\"https://{}\"]",
        listener.local_addr().unwrap()
    );
    let shaking = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = acceptor.accept(stream).await;
        }
    });
    let kept = Kept::embedded();
    let delayd = kept.start(&[endpoint]).await;
    let id = delayd.add(task("0s")).await.id();
    // The message is the same whether the issuer is unknown, or the system trusts another issuer of
    // that name.
    delayd.wait_for_log("TLS failed: the certificate").await;
    let log = delayd.log();
    assert!(log.contains(&id.to_string()) && !log.contains("rustls_platform_verifier"), "{log}");
    shaking.abort();
}

async fn a_task_is_called_back_at_its_due_moment_and_never_before(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let before = now_ms();
    let mut due = Vec::new();
    for delay in ["0s", "1ms", "40ms", "300ms", "1s"] {
        let answer = delayd.add(task(delay)).await;
        assert_eq!(answer.body["mode"], "push");
        assert_eq!(answer.body["error_msg"], "操作成功");
        due.push(answer.body["due_ms"].as_i64().unwrap());
        assert!(answer.id() < 1 << 53);
    }
    let moment = (now_ms() + 700) as f64 / 1000.0;
    let order = json!({
        "topic": "order.cancel", "timing_moment": moment,
        "content": {"sn": "message.call", "url": "/cancel"},
    });
    let at = delayd.add(order).await;
    assert_eq!(at.body["due_ms"].as_i64().unwrap(), (moment * 1000.0).round() as i64);

    let seen = receiver.wait_for(6).await;
    for call in &seen {
        assert!(call.lateness_ms() >= 0, "early: {call:?}");
        assert!(call.due_ms >= before);
        assert_eq!(call.path, "/cancel");
        let webhook_id = delayd.task("order.cancel", call.id).await["webhook_id"].clone();
        assert_eq!(call.headers["webhook-id"].to_str().unwrap(), webhook_id);
        assert!(webhook_id.as_str().unwrap().ends_with(&format!("-{}", call.id)), "{webhook_id}");
        assert_eq!(call.headers["delay-topic"], "order.cancel");
        assert_eq!(call.headers["content-type"], "application/json");
        assert!(call.headers["user-agent"].to_str().unwrap().starts_with("delayd/"));
        assert!(
            call.headers.contains_key("traceparent") && call.headers.contains_key("delay-receipt")
        );
        let done = delayd.wait_for_state("order.cancel", call.id, "delivered").await;
        assert_eq!((&done["attempts"], &done["last_outcome"]), (&json!(1), &json!("200 OK")));
    }
    assert_eq!(receiver.seen().len(), 6);
}

async fn ten_thousand_tasks_of_one_second_all_arrive_once(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    // Late enough that all are stored before any is due. On a very slow machine the last ones are
    // due when they are added.
    let moment = now_ms() / 1000 + 8;
    let tasks: Vec<Value> = (0..10_000)
        .map(|n| {
            json!({
                "topic": "burst", "timing_moment": moment,
                "content": {"sn": "message.call", "url": "/b", "n": n},
            })
        })
        .collect();
    let ids = delayd.add_all(&tasks).await;
    let seen = receiver.wait_for(10_000).await;
    assert!(seen.iter().all(|call| call.arrived_ms >= moment * 1000), "a task came early");
    delayd.wait_for_state("burst", *ids.last().unwrap(), "delivered").await;
    let arrived: Vec<u64> = receiver.seen().iter().map(|call| call.id).collect();
    assert_eq!(arrived.len(), 10_000, "some tasks came more than once");
    assert_eq!(arrived.into_iter().collect::<HashSet<_>>(), ids.into_iter().collect());
}

async fn failures_are_retried_and_the_outcome_is_kept(kept: Kept) {
    let receiver = Receiver::answering(|call| match call.attempt {
        1 => Answer::Status(500),
        2 => Answer::With(200, vec![], r#"{"dm_error": 7, "error_msg": "not now"}"#),
        _ => Answer::With(200, vec![], r#"{"dm_error": 0}"#),
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let mut retried = task("0s");
    retried["backoff"] = json!({"kind": "fixed", "every": "50ms"});
    let id = delayd.add(retried).await.id();
    let seen = receiver.wait_for(3).await;
    assert_eq!(seen.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(seen.iter().all(|call| call.id == id));
    assert!(seen[1].arrived_ms - seen[0].arrived_ms >= 50, "the retry came before its backoff");
    let done = delayd.wait_for_state("order.cancel", id, "delivered").await;
    assert_eq!(done["attempts"], 3);
}

async fn final_answers_and_spent_attempts_make_a_task_dead(kept: Kept) {
    let receiver = Receiver::answering(|call| match call.path.as_str() {
        "/gone" => Answer::Status(410),
        "/no" => Answer::With(500, vec![("delay-no-retry", "true")], ""),
        _ => Answer::Status(404),
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let dead = async |url: &str, max_attempts: u32, calls: usize, outcome: &str| {
        let id = delayd
            .add(json!({
                "topic": "t", "delay": 0, "max_attempts": max_attempts,
                "backoff": {"kind": "fixed", "every": "1ms"},
                "content": {"sn": "message.call", "url": url}}))
            .await
            .id();
        let task = delayd.wait_for_state("t", id, "dead").await;
        assert_eq!(task["last_outcome"], outcome);
        assert_eq!(receiver.seen().iter().filter(|call| call.id == id).count(), calls, "{url}");
    };
    dead("/gone", 9, 1, "410 Gone").await;
    dead("/no", 9, 1, "500 Internal Server Error").await;
    dead("/other", 3, 3, "404 Not Found").await;
}

async fn retry_after_is_honoured(kept: Kept) {
    let receiver = Receiver::answering(|call| match call.attempt {
        1 => Answer::With(400, vec![("retry-after", "2")], ""),
        _ => Answer::Status(204),
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let mut hasty = task("0s");
    hasty["backoff"] = json!({"kind": "fixed", "every": "1ms"});
    delayd.add(hasty).await;
    let seen = receiver.wait_for(2).await;
    assert!(seen[1].arrived_ms - seen[0].arrived_ms >= 2_000);
}

async fn content_reaches_the_service_byte_for_byte(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let odd = concat!(
        "{ \"url\":\"/x?a=1&b=%20\" ,\"sn\" : \"message.call\",",
        "\t\"n\":1.50, \"名\":\"订单\\u00e9\" }"
    );
    delayd
        .post("/delay/task/add", format!("{{\"topic\":\"t\",\"delay\":0,\"content\":{odd}}}"))
        .await
        .ok();
    delayd.add(json!({"topic": "t", "delay": 0, "content": odd})).await;
    for call in receiver.wait_for(2).await {
        assert_eq!((call.body.as_str(), call.path.as_str()), (odd, "/x?a=1&b=%20"));
    }
}

/// The lease is one second and the call takes three. Without the extension the task would be
/// claimed and called again.
async fn a_call_longer_than_the_lease_has_it_extended_first(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let settings = [service("message.call", &receiver), "worker.lease=\"1100ms\"".into()];
    let delayd = kept.start(&settings).await;
    let other = if matches!(kept.store, crate::StoreAt::Redis(..)) {
        Some(kept.start(&settings).await)
    } else {
        None
    };
    let mut long = task("0s");
    long["timeout"] = json!("30s");
    let id = delayd.add(long).await.id();
    receiver.wait_for(1).await;
    // Three leases.
    delayd.lives_for(Duration::from_millis(3_300)).await;
    assert_eq!(delayd.task("order.cancel", id).await["state"], "leased");
    receiver.open_gate();
    let done = delayd.wait_for_state("order.cancel", id, "delivered").await;
    assert_eq!((&done["attempts"], receiver.seen().len()), (&json!(1), 1));
    drop(other);
}

async fn tasks_of_a_removed_service_wait(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd =
        kept.start(&[service("message.call", &receiver), service("other.server", &receiver)]).await;
    let id = delayd.add(task("2s")).await.id();
    delayd.kill();
    let without = kept.start(&[service("other.server", &receiver)]).await;
    without
        .add(json!({
            "topic": "order.cancel", "delay": "3s",
            "content": {"sn": "other.server", "url": "/next"},
        }))
        .await;
    receiver.wait_for(1).await;
    let held = without.task("order.cancel", id).await;
    assert_eq!((&held["state"], &held["attempts"]), (&json!("scheduled"), &json!(0)), "{held}");
    assert!(without.log().contains("message.call"), "the log should warn:\n{}", without.log());
    without.kill();
    let again = kept.start(&[service("message.call", &receiver)]).await;
    again.wait_for_state("order.cancel", id, "delivered").await;
    assert_eq!(receiver.seen().len(), 2);
}

/// Tasks must be on time without the poll: with polls an hour apart they are still called at their
/// due moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_woken_by_its_timer_and_not_by_the_poll() {
    use std::sync::Arc;

    use delayd::callback::{self, Client, ServiceParams, Services};
    use delayd::limits::{DestinationLimits, LimitParams};
    use delayd::model::clock::Clock;
    use delayd::outcome::Policy;
    use delayd::store::{AnyStore, Intake, Moment, NewTask, embedded, redis};
    use delayd::topic::{self, Registry};
    use delayd::worker::{self, Worker};

    delayd::install_crypto();
    let folder = crate::program::folder();
    let params = embedded::Params {
        path: folder.path().join("delayd.db"),
        reserve: 1 << 20,
        clock: Clock::system(),
    };
    let embedded = AnyStore::Embedded(embedded::Embedded::open(params).unwrap());
    let redis = AnyStore::Redis(
        redis::Redis::connect(redis::Params {
            key_prefix: format!("timer{:x}", rand::random::<u64>()),
            timeout: Duration::from_secs(5),
            clock: Clock::system(),
            ..redis::Params::standalone(crate::redis_server::shared().url())
        })
        .await
        .unwrap(),
    );
    for store in [embedded, redis] {
        let receiver = Receiver::answering(|call| {
            Answer::Status(if call.path == "/again" && call.attempt == 1 { 500 } else { 200 })
        })
        .await;
        let store = Arc::new(store);
        let topics = Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 }));
        let service = ServiceParams {
            name: "message.call".into(),
            endpoints: vec![receiver.endpoint()],
            allowance: Default::default(),
            success: callback::SuccessRule::DmError,
            secrets: Vec::new(),
            credentials: Default::default(),
        };
        let client = callback::Params {
            connect_timeout: Duration::from_secs(2),
            final_statuses: vec![410],
            clock: Clock::system(),
        };
        let parts = worker::Parts {
            store: store.clone(),
            topics: topics.clone(),
            client: Client::new(client).unwrap(),
            services: Arc::new(Services::new(vec![service]).unwrap()),
            topic_limits: Default::default(),
            limits: DestinationLimits::new(LimitParams {
                concurrency: 64,
                concurrency_per_service: 64,
                breaker: delayd::model::breaker::Params::default(),
                retry_after_max: delayd::callback::LONGEST_RETRY_AFTER,
            }),
            instances: Arc::default(),
            metrics: delayd::metrics::Metrics::new([]),
            clock: Clock::system(),
            tracer: Default::default(),
        };
        let worker = Worker::start(
            parts,
            worker::Params {
                enabled: true,
                lease: Duration::from_secs(30),
                idle_stop: Duration::from_secs(60),
                claim_batch: 512,
                policy: Policy { max_attempts: 3, backoff: delayd_wire::Backoff::default() },
                timeout: Duration::from_secs(15),
                noted: worker::NotedAttempts::Failures,
                poll_every: Duration::from_secs(3600),
            },
        );
        let topic = topics.ensure(&"timer".parse().unwrap()).await.unwrap();
        let task = |millis| NewTask {
            topic: topic.entry.clone(),
            destination: "message.call".parse().unwrap(),
            moment: Moment::After(Duration::from_millis(millis)),
            options: Default::default(),
            content: r#"{"sn":"message.call","url":"/t"}"#.into(),
            idempotency: None,
            quota: None,
        };
        // The latest one first: each of the others is earlier than the one that the lane sleeps
        // towards.
        for millis in [2_500, 1_500, 700, 0] {
            store.add(vec![task(millis)]).await.pop().unwrap().unwrap();
        }
        let seen = receiver.wait_for(4).await;
        assert!(seen.iter().all(|call| call.lateness_ms() >= 0));
        // A retry wakes its lane as well.
        let mut again = task(0);
        again.content = r#"{"sn":"message.call","url":"/again"}"#.into();
        again.options.backoff =
            Some(delayd_wire::Backoff::Fixed { every: "300ms".parse().unwrap() });
        store.add(vec![again]).await.pop().unwrap().unwrap();
        let seen = receiver.wait_for(6).await;
        assert_eq!((seen[4].attempt, seen[5].attempt), (1, 2));
        assert_eq!(worker.drain(Duration::from_secs(5)).await, 0);
    }
}
