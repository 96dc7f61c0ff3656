use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::*;

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
        serve(listener, router, params, async move { told.await.unwrap() }).await;
    });
    Running { address, shutdown, serving }
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// A router whose answer waits, and what tells that it was asked, and what lets it go.
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

/// Reads until the answer's body has come.
async fn read_answer(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"hello") {
        read.push(stream.read_u8().await.unwrap());
    }
}

/// Reads to the end, however it comes.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn who_asks_for_nothing_or_drips_a_head_is_closed() {
    let patience = Duration::from_millis(100);
    let server = start(hello(), ServerParams { header_timeout: patience, ..ServerParams::default() }).await;
    for sent in [&b""[..], b"PRI * HT", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let read = read_to_end(&mut stream).await;
        assert!(!read.contains("200 OK"), "{sent:?}: {read}");
    }
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_for_a_slot() {
    let server = start(hello(), ServerParams { max_connections: 1, ..ServerParams::default() }).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(REQUEST).await.unwrap();
    read_answer(&mut first).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(REQUEST).await.unwrap();
    first.write_all(REQUEST).await.unwrap();
    read_answer(&mut first).await;
    assert!(second.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    drop(first);
    read_answer(&mut second).await;
}

#[tokio::test]
async fn a_running_request_is_answered_during_the_drain_and_idle_connections_end() {
    let (router, asked, go) = waiting();
    let server = start(router, ServerParams { drain: Duration::from_secs(60), ..ServerParams::default() }).await;
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

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off_after_the_drain() {
    let (router, asked, _go) = waiting();
    let server = start(router, ServerParams { drain: Duration::from_millis(20), ..ServerParams::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    asked.notified().await;
    server.shutdown.send(()).unwrap();
    server.serving.await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
}
