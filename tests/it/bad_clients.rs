//! Slow and malformed clients: whatever a client sends is answered with a 4xx or a closed
//! connection, soon, and other clients are not affected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::open_loop::{ADD, read_answer, resident_kib};
use crate::poll;
use crate::program::{self, Program, service};
use crate::receiver::Receiver;
use crate::{Kept, StoreAt};

/// Longer than any timeout of the service. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).await.unwrap()
}

/// Sends the bytes, and reads until the connection ends.
async fn sent(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(to).await;
    // A client that is cut off while it still sends gets an answer as well.
    let _ = stream.write_all(bytes).await;
    read_to_end(&mut stream).await
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset ends the connection as well.
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    assert!(ended.is_ok(), "the connection stays open after {:?}", String::from_utf8_lossy(&read));
    String::from_utf8_lossy(&read).into_owned()
}

/// The status of the only answer, or `None` if there was no answer.
fn status(answer: &str) -> Option<u16> {
    assert!(answer.matches("HTTP/1.1 ").count() <= 1, "more than one answer: {answer}");
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// A well-behaved client is served.
async fn assert_well(delayd: &Program) {
    let asked = delayd.add(json!({"topic": "well", "delay": "1h", "content": {}}));
    assert!(tokio::time::timeout(PATIENCE, asked).await.is_ok(), "{}", delayd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_http_gets_a_4xx_or_a_closed_connection() {
    let delayd = Kept::embedded().start(&[]).await;
    let head = "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n";
    let headers = "x-flood: 1\r\n".repeat(5_000);
    let long = "x".repeat(200_000);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no request line", b"\r\n\r\n\r\n\r\nhello\r\n\r\n".to_vec()),
        ("noise", (0..=255).cycle().take(4_096).collect()),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(40)),
        ("HTTP/0.9", b"GET /healthz\r\n\r\n".to_vec()),
        ("a version to come", b"GET /healthz HTTP/3.0\r\nhost: [::1]\r\n\r\n".to_vec()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frame at all, but some bytes".to_vec()),
        ("a NUL in the path", b"GET /heal\0thz HTTP/1.1\r\nhost: [::1]\r\n\r\n".to_vec()),
        ("a NUL in a header", b"GET /healthz HTTP/1.1\r\nhost: [::1]\r\na: b\0c\r\n\r\n".to_vec()),
        ("a space before the colon", b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n".to_vec()),
        ("a flood of headers", format!("{head}{headers}\r\n").into()),
        ("a huge header", format!("{head}a: {long}\r\n\r\n").into()),
        ("a huge path", format!("GET /{long} HTTP/1.1\r\nhost: [::1]\r\n\r\n").into()),
        ("no number for a length", format!("{head}content-length: ten\r\n\r\n{{}}").into()),
        ("a negative length", format!("{head}content-length: -1\r\n\r\n{{}}").into()),
        (
            "two lengths",
            format!("{head}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}} ").into(),
        ),
        (
            "chunks in HTTP/1.0",
            b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        ),
        ("an unknown transfer coding", format!("{head}transfer-encoding: gzip\r\n\r\n{{}}").into()),
        (
            "a chunk of no size",
            format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n").into(),
        ),
        (
            "a chunk size beyond 64 bits",
            format!("{head}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{{}}").into(),
        ),
        (
            "a chunk without its end",
            format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}xx0\r\n\r\n").into(),
        ),
    ];
    for (what, bytes) in cases {
        let answer = sent(delayd.address, &bytes).await;
        let refused = status(&answer).is_none_or(|status| (400..500).contains(&status));
        assert!(refused && !answer.contains("\"dm_error\":0"), "{what}: {answer}");
        assert_well(&delayd).await;
    }
    assert!(!delayd.log().contains("panicked"), "{}", delayd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_speaks_only_http2_fails_at_once() {
    let delayd = Kept::embedded().start(&[]).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().timeout(PATIENCE);
    let url = format!("http://{}/healthz", delayd.address);
    let error = client.build().unwrap().get(url).send().await.unwrap_err();
    assert!(!error.is_timeout(), "{error:?}");
}

/// With both a length and chunks, the chunks count (RFC 9112, 6.3). No bytes may be left over that
/// could pass for another request.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_beside_chunks_smuggles_nothing_in() {
    let delayd = Kept::embedded().start(&[]).await;
    let smuggled = "GET /healthz HTTP/1.1\r\nhost: [::1]\r\n\r\n";
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
    ] {
        let request = format!(
            "POST /delay/task/pull HTTP/1.1\r\nhost: [::1]\r\nconnection: close\r\n\
             {lengths}\r\n\r\n\
             {:x}\r\n{smuggled}\r\n0\r\n\r\n",
            smuggled.len()
        );
        assert_eq!(status(&sent(delayd.address, request.as_bytes()).await), Some(400), "{lengths}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_sending_is_disconnected() {
    let delayd = Kept::embedded().start(&[]).await;
    let cases = [
        ("a request", "GET /healthz HTTP/1.1\r\nhost: [::1]\r\n\r\n"),
        ("a half head", "GET /healthz HTTP/1.1\r\nho"),
        (
            "a half body",
            "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 100\r\n\r\n{\"topic\"",
        ),
        (
            "a half chunk",
            "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n\
             transfer-encoding: chunked\r\n\r\nff\r\n{",
        ),
        ("half a hello", "PRI * HT"),
    ];
    for (what, bytes) in cases {
        let mut stream = connect(delayd.address).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(!answer.contains("\"dm_error\":0"), "{what}: {answer}");
    }
    assert_well(&delayd).await;
}

/// Each of these connections must be closed after its timeout. All wait at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_ends_in_a_timeout_on_every_route() {
    let delayd = Kept::embedded().start(&[]).await;
    let cases = [
        ("POST /delay/task/add", "", 503),
        ("POST /delay/task/add_batch", "", 503),
        ("POST /delay/task/add", "expect: 100-continue\r\n", 503),
        ("POST /nowhere", "", 404),
        ("POST /nowhere", "expect: 100-continue\r\n", 404),
        ("PUT /delay/task/add", "", 405),
        ("GET /healthz", "", 200),
        ("GET /delay/task/add", "", 405),
    ];
    let drip = async |(line, more, expected): (&str, &str, u16)| {
        for length in ["content-length: 1000", "transfer-encoding: chunked"] {
            let head = format!("{line} HTTP/1.1\r\nhost: [::1]\r\n{more}{length}\r\n\r\n");
            let mut stream = connect(delayd.address).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            let (mut reading, mut writing) = stream.into_split();
            let dripping = tokio::spawn(async move {
                // Until the connection is closed.
                while writing.write_all(b"1\r\n{\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            });
            let mut read = Vec::new();
            let ended = tokio::time::timeout(PATIENCE, reading.read_to_end(&mut read)).await;
            let answer =
                String::from_utf8_lossy(&read).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
            assert!(ended.is_ok(), "{line} {more} stays open: {answer}");
            assert_eq!(status(&answer), Some(expected), "{line} {more} {length}: {answer}");
            tokio::time::timeout(PATIENCE, dripping).await.unwrap().unwrap();
        }
    };
    futures_util::future::join_all(cases.map(drip)).await;
    assert_well(&delayd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_one_write_are_answered_in_order() {
    let delayd = Kept::embedded().start(&[]).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: [::1]\r\n\r\n");
    let all = [
        &get("/healthz"),
        ADD,
        &get("/nowhere"),
        ADD,
        "GET /healthz HTTP/1.1\r\nhost: [::1]\r\nconnection: close\r\n\r\n",
    ]
    .concat();
    let answer = sent(delayd.address, all.as_bytes()).await;
    let statuses: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "200", "404", "200", "200"], "{answer}");
}

/// Hundreds of connections send nothing, half a head, or half a body. Other clients are served as
/// usual, before and after those connections are closed.
#[tokio::test(flavor = "multi_thread")]
async fn slowloris_does_not_affect_other_clients() {
    let delayd = Kept::embedded().start(&[]).await;
    let kinds = [
        "",
        "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n",
        "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 1000000\r\n\r\n{",
        "POST /delay/task/add_batch HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 16777216\r\n\r\n{",
    ];
    let mut held = Vec::new();
    for n in 0..1_200 {
        let mut stream = connect(delayd.address).await;
        stream.write_all(kinds[n % kinds.len()].as_bytes()).await.unwrap();
        held.push(stream);
    }
    let resident = resident_kib(delayd.pid());
    assert!(resident < 200 << 10, "{resident} KiB for 1,200 connections that have sent nothing");
    let began = Instant::now();
    for stream in &mut held {
        assert_well(&delayd).await;
        // None of these connections has sent a whole request, so it gets its end or a 503.
        if began.elapsed() > Duration::from_secs(1) {
            let answer = read_to_end(stream).await;
            assert!(matches!(status(&answer), None | Some(503)), "{answer}");
        }
    }
    for stream in &mut held {
        read_to_end(stream).await;
    }
    assert_well(&delayd).await;
}

/// A client that pulls and does not read loses nothing and blocks nothing: the next pull gets the
/// task.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_answer_is_not_read_goes_to_the_next_pull() {
    // Larger than what the sockets between two processes buffer.
    let content = "x".repeat(16 << 20);
    let sets = ["limits.content=\"20MiB\"", "limits.body=\"20MiB\"", "limits.batch_body=\"20MiB\""]
        .map(str::to_owned);
    let delayd = Kept::embedded().start(&sets).await;
    let task = json!({"topic": "t", "delay": 0, "mode": "pull", "idempotency_key": "once",
        "content": content});
    // So large an add may take long on a busy machine.
    delayd.post_until_confirmed("/delay/task/add", &task).await.ok();
    let mut staller = connect(delayd.address).await;
    let pull = "{\"topic\":\"t\"}";
    let request = format!(
        "POST /delay/task/pull HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {}\r\n\r\n{pull}",
        pull.len()
    );
    staller.write_all(request.as_bytes()).await.unwrap();
    // The answer has begun: the task is leased to a client that reads no further.
    staller.read_exact(&mut [0; 15]).await.unwrap();
    // A busy machine may refuse a pull.
    let is_back = async || delayd.post("/delay/task/pull", pull).await.body["content"] == *content;
    assert!(poll::until(is_back).await, "the task did not come back");
    let rest = read_to_end(&mut staller).await;
    assert!(!rest.ends_with('}'), "the client that did not read got the whole answer as well");
}

/// With few file descriptors delayd takes fewer connections and says so. It keeps the descriptors
/// that its store and its callbacks need. Connected clients go on.
#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_of_open_files_connected_clients_go_on() {
    let receiver = Receiver::start().await;
    let folder = program::folder();
    let serve = program::serve(
        &StoreAt::Embedded(folder.path().to_owned()),
        &[service("message.call", &receiver)],
    );
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args());
    let delayd = Program::launch(limited).await;
    assert!(delayd.log().contains("at most 64 connections at a time"), "{}", delayd.log());
    let mut early = connect(delayd.address).await;
    early.write_all(ADD.as_bytes()).await.unwrap();
    assert!(read_answer(&mut early).await.unwrap().contains("\"dm_error\":0"));
    let mut held = Vec::new();
    for _ in 0..120 {
        held.push(connect(delayd.address).await);
    }
    for round in 1..=3 {
        let body = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}})
            .to_string();
        let request = format!(
            "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        early.write_all(request.as_bytes()).await.unwrap();
        let answer =
            tokio::time::timeout(PATIENCE, read_answer(&mut early)).await.unwrap().unwrap();
        assert!(answer.contains("\"dm_error\":0"), "{answer}");
        receiver.wait_for(round).await;
    }
    // Silent connections are closed, and clients that connect later are served.
    let late = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}}));
    assert!(tokio::time::timeout(PATIENCE, late).await.is_ok(), "{}", delayd.log());
    assert!(!delayd.log().contains("Cannot accept"), "{}", delayd.log());
}
