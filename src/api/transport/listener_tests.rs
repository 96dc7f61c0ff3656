use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::api::auth::Caller;
use crate::api::memory_budget::MemoryBudget;
use crate::api::middleware::response_budget::take_room;
use crate::api::transport::delivery_confirmation::{Confirmation, watched};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

struct Running {
    address: std::net::SocketAddr,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

async fn start(router: Router, params: ServerParams) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, told) = oneshot::channel();
    let serving = tokio::spawn(async move {
        serve(listener, router, params, None, async move { told.await.unwrap() }).await;
    });
    Running { address, shutdown, serving }
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// A router whose answer waits, with the notification of a request and the one that releases it.
fn waiting() -> (Router, Arc<Notify>, Arc<Notify>) {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (asked, go) = (asked.clone(), go.clone());
        async move || {
            asked.notify_one();
            go.notified().await;
            "hello"
        }
    };
    (Router::new().route("/", get(handler)), asked, go)
}

/// Reads until the answer's body has arrived.
async fn read_answer(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"hello") {
        read.push(stream.read_u8().await.unwrap());
    }
}

/// Reads until the connection ends, in any way.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn who_asks_for_nothing_or_drips_a_head_is_closed() {
    let timeouts = IoTimeouts { head: Duration::from_millis(100), ..IoTimeouts::default() };
    let server = start(hello(), ServerParams { timeouts, ..ServerParams::default() }).await;
    for sent in [&b""[..], b"PRI * HT", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let read = read_to_end(&mut stream).await;
        assert!(!read.contains("200 OK"), "{sent:?}: {read}");
    }
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_for_a_slot() {
    let server =
        start(hello(), ServerParams { max_connections: 1, ..ServerParams::default() }).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(REQUEST).await.unwrap();
    read_answer(&mut first).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(REQUEST).await.unwrap();
    first.write_all(REQUEST).await.unwrap();
    read_answer(&mut first).await;
    assert!(
        second.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    );
    drop(first);
    read_answer(&mut second).await;
}

#[tokio::test]
async fn a_running_request_is_answered_during_the_drain_and_idle_connections_end() {
    let (router, asked, go) = waiting();
    let server =
        start(router, ServerParams { drain: Duration::from_secs(60), ..ServerParams::default() })
            .await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    busy.write_all(REQUEST).await.unwrap();
    asked.notified().await;
    server.shutdown.send(()).unwrap();
    assert_eq!(read_to_end(&mut idle).await, "");
    assert!(TcpStream::connect(server.address).await.is_err());
    go.notify_one();
    read_answer(&mut busy).await;
    server.serving.await.unwrap();
}

/// A rolling restart once lost such requests: their callers got no answer.
#[tokio::test]
async fn a_request_on_its_way_when_the_shutdown_comes_is_answered() {
    let server =
        start(hello(), ServerParams { drain: Duration::from_secs(60), ..ServerParams::default() })
            .await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(REQUEST).await.unwrap();
    read_answer(&mut idle).await;
    // One is not accepted yet, and the other's request is not read yet, when the server is told.
    let mut late = TcpStream::connect(server.address).await.unwrap();
    late.write_all(REQUEST).await.unwrap();
    idle.write_all(REQUEST).await.unwrap();
    server.shutdown.send(()).unwrap();
    read_answer(&mut idle).await;
    read_answer(&mut late).await;
    server.serving.await.unwrap();
}

/// They were reset with the listener. The test connects without giving up the runtime's only
/// thread, so the server finds them after the time for the last connections is over.
#[tokio::test]
async fn connections_in_the_accept_queue_are_served_at_the_end() {
    let server =
        start(hello(), ServerParams { drain: Duration::from_secs(60), ..ServerParams::default() })
            .await;
    tokio::time::pause();
    server.shutdown.send(()).unwrap();
    // The server's time begins.
    tokio::task::yield_now().await;
    let queued: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(server.address).unwrap();
            std::io::Write::write_all(&mut stream, REQUEST).unwrap();
            stream.set_nonblocking(true).unwrap();
            TcpStream::from_std(stream).unwrap()
        })
        .collect();
    tokio::time::advance(LAST_CALL * 2).await;
    tokio::time::resume();
    for mut stream in queued {
        read_answer(&mut stream).await;
    }
    server.serving.await.unwrap();
}

/// The part that had been read was once dropped with its connection.
#[tokio::test]
async fn a_request_that_has_begun_when_the_linger_ends_is_answered() {
    let server =
        start(hello(), ServerParams { drain: Duration::from_secs(60), ..ServerParams::default() })
            .await;
    let (first_half, second_half) = REQUEST.split_at(10);
    let mut begun = [
        TcpStream::connect(server.address).await.unwrap(),
        TcpStream::connect(server.address).await.unwrap(),
    ];
    begun[0].write_all(REQUEST).await.unwrap();
    read_answer(&mut begun[0]).await;
    for stream in &mut begun {
        stream.write_all(first_half).await.unwrap();
    }
    // These are closed at the end of the linger, and the last one after the others.
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        read_answer(&mut stream).await;
        idle.push(stream);
    }
    server.shutdown.send(()).unwrap();
    for stream in &mut idle {
        assert_eq!(read_to_end(stream).await, "");
    }
    for stream in &mut begun {
        stream.write_all(second_half).await.unwrap();
        let read = read_to_end(stream).await;
        assert!(read.ends_with("hello"), "{read}");
    }
    server.serving.await.unwrap();
}

#[tokio::test]
async fn half_a_head_does_not_hold_up_the_drain_for_longer_than_its_patience() {
    let timeouts = IoTimeouts { head: Duration::from_secs(1), ..timeouts() };
    let server = start(
        hello(),
        ServerParams { timeouts, drain: Duration::from_secs(3600), ..ServerParams::default() },
    )
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    server.shutdown.send(()).unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    server.serving.await.unwrap();
}

/// Without `content-length`, HTTP/1.1 answers came in chunks, HTTP/1.0 answers ended only with the
/// connection, and half a pull looked complete.
#[tokio::test]
async fn a_long_answer_says_how_long_it_is() {
    let later = tokio::time::Instant::now() + Duration::from_secs(3600);
    let long = async move || Response::new(watched(vec![b'x'; 3000].into(), later, drop));
    let budget = MemoryBudget::new(1 << 20);
    let router = Router::new().route("/", get(long)).layer(map_response(move |response| {
        std::future::ready(take_room(&budget, &Caller::anyone(), response))
    }));
    let server = start(router, ServerParams::default()).await;
    for version in ["1.0", "1.1"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET / HTTP/{version}\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let read = read_to_end(&mut stream).await;
        assert!(read.contains("\r\ncontent-length: 3000\r\n"), "{read}");
        assert!(!read.contains("transfer-encoding") && read.ends_with(&"x".repeat(3000)), "{read}");
    }
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off_after_the_drain() {
    let (router, asked, _go) = waiting();
    let server =
        start(router, ServerParams { drain: Duration::from_millis(20), ..ServerParams::default() })
            .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    asked.notified().await;
    server.shutdown.send(()).unwrap();
    server.serving.await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
}

const SHORT: Duration = Duration::from_millis(100);

/// Timeouts for these tests: short where the test waits for one, otherwise out of reach.
fn timeouts() -> IoTimeouts {
    let never = Duration::from_secs(3600);
    IoTimeouts { head: never, answer: never, idle: never }
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_more_is_closed() {
    let timeouts = IoTimeouts { idle: SHORT, ..timeouts() };
    let server = start(hello(), ServerParams { timeouts, ..ServerParams::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    assert!(read_to_end(&mut stream).await.ends_with("hello"));
}

/// Live streams were cut off once their connection had sent no request for 75 s.
#[tokio::test]
async fn a_stream_that_goes_on_keeps_its_connection() {
    const PIECES: usize = 20;
    let pieces = async || {
        let pieces = futures_util::stream::unfold(0, |sent| async move {
            tokio::time::sleep(SHORT / 2).await;
            (sent < PIECES).then_some((Ok::<_, std::convert::Infallible>("piece;"), sent + 1))
        });
        Response::new(axum::body::Body::from_stream(pieces))
    };
    let timeouts = IoTimeouts { idle: SHORT, answer: SHORT, ..timeouts() };
    let router = Router::new().route("/", get(pieces));
    let server = start(router, ServerParams { timeouts, ..ServerParams::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert_eq!(answer.matches("piece;").count(), PIECES, "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
}

/// A router whose answer exceeds the sockets' buffers, and the confirmation of each.
fn endless() -> (Router, mpsc::UnboundedReceiver<Confirmation>) {
    let (tell, told) = mpsc::unbounded_channel();
    let later = tokio::time::Instant::now() + Duration::from_secs(3600);
    let answer = async move || {
        let tell = tell.clone();
        Response::new(watched(vec![b'x'; 64 << 20].into(), later, move |confirmation| {
            tell.send(confirmation).unwrap()
        }))
    };
    (Router::new().route("/", get(answer)), told)
}

#[tokio::test]
async fn an_answer_that_is_not_read_ends_its_connection_and_is_given_back() {
    let (router, mut told) = endless();
    let timeouts = IoTimeouts { answer: SHORT, ..timeouts() };
    let server =
        start(router, ServerParams { timeouts, max_connections: 1, ..ServerParams::default() })
            .await;
    for _ in 0..2 {
        // The second one needs the slot of the first.
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        assert_eq!(told.recv().await, Some(Confirmation::NotWritten));
        drop(stream);
    }
}

#[tokio::test]
async fn answers_to_a_caller_who_asks_on_and_on_and_reads_nothing_end_its_connection() {
    let timeouts = IoTimeouts { answer: SHORT, ..timeouts() };
    let server = start(hello(), ServerParams { timeouts, ..ServerParams::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // Ends when the server has closed the connection, which the caller notices only by an error.
    while stream.write_all(&REQUEST.repeat(100)).await.is_ok() {}
}

/// As an HTTP/2 client begins: its preface, its settings and a request.
#[tokio::test]
async fn a_caller_that_begins_with_http2_is_told_to_use_1_1() {
    let server =
        start(hello(), ServerParams { timeouts: timeouts(), ..ServerParams::default() }).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let get = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x";
    for sent in [&preface[..], &[&preface[..], settings, get].concat()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let read = read_to_end(&mut stream).await.into_bytes();
        let go_away = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0d";
        assert_eq!(read, [&settings[..], go_away].concat());
    }
}
