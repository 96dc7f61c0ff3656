//! Overload: requests beyond the capacity are refused at once, and the memory of accepted ones is
//! bounded.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::open_loop::{Callers, End, read_answer, resident_kib};
use crate::{Kept, on_both_stores};

on_both_stores!(an_overloaded_service_answers_every_call_and_recovers);

/// The load is far more than a debug build can serve. Each request gets 200, or 503 with
/// `Retry-After`. After the load, everything is as before. (The drill of the same name measures how
/// fast.)
async fn an_overloaded_service_answers_every_call_and_recovers(kept: Kept) {
    let delayd = kept.start_as_shipped(&[]).await;
    let callers = Callers::of(delayd.address, 4_000, Duration::from_secs(120));
    callers.connect().await;
    let add = |n| json!({"topic": "load", "delay": "24h", "content": {"n": n}}).to_string();
    let answers = callers.open_loop(20_000.0, Duration::from_secs(2), add).await;
    let improper: Vec<End> =
        answers.0.iter().map(|ended| ended.end).filter(|end| !end.is_proper()).collect();
    assert!(
        improper.is_empty(),
        "{} of {}: {:?}",
        improper.len(),
        answers.0.len(),
        &improper[..improper.len().min(5)]
    );
    let resident = resident_kib(delayd.pid());
    assert!(resident < 512 << 10, "{resident} KiB");
    delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await;
}

/// Batches without their last byte fill the memory budget of bodies. One more batch is refused at
/// once. Small requests go on.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_batches_is_bounded_and_small_adds_go_on() {
    let delayd = Kept::embedded().start_as_shipped(&["limits.bodies=\"64MiB\"".into()]).await;
    let head = "POST /delay/task/add_batch HTTP/1.1\r\nhost: [::1]\r\n\
                content-length: 16777216\r\n\r\n";
    let most = vec![b' '; (16 << 20) - 1];
    let mut held = Vec::new();
    let refusal = loop {
        let mut stream = TcpStream::connect(delayd.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refused connection may be closed before all is sent.
        let _ = stream.write_all(&most).await;
        if let Ok(answer) =
            tokio::time::timeout(Duration::from_secs(1), read_answer(&mut stream)).await
        {
            break answer.unwrap();
        }
        held.push(stream);
        assert!(held.len() < 4, "more than 64 MiB of bodies are held");
    };
    assert!(refusal.starts_with("HTTP/1.1 503") && refusal.contains("retry-after: 1"), "{refusal}");
    assert!(refusal.contains("too many bytes"), "{refusal}");
    assert!(!held.is_empty());
    for n in 0..50 {
        delayd.add(json!({"topic": "t", "delay": "1h", "content": {"n": n}})).await;
    }
}
