use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::poll;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::api::{ServerParams, serve};

/// A deadline that these tests do not reach.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[tokio::test(start_paused = true)]
async fn a_last_byte_that_comes_too_late_is_not_given() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let deadline = Instant::now() + Duration::from_secs(9);
    let mut body = watched(vec![b'x'; 2].into(), deadline, move |confirmation| {
        tell.send(confirmation).unwrap()
    });
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(told.recv().await, Some(Confirmation::NotWritten));
}

/// A body of `length` bytes, and the channel for its confirmation.
fn body(length: usize) -> (Body, mpsc::UnboundedReceiver<Confirmation>) {
    let (tell, told) = mpsc::unbounded_channel();
    let body = watched(vec![b'x'; length].into(), later(), move |confirmation| {
        tell.send(confirmation).unwrap()
    });
    (body, told)
}

#[tokio::test]
async fn a_body_dropped_before_its_last_byte_is_given_back() {
    for frames in 0..2 {
        let (mut body, mut told) = body(10);
        for _ in 0..frames {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap().len(), 9);
        }
        // In the pause. Dropped here, the last byte has not been sent.
        if frames == 1 {
            assert!(poll!(body.frame()).is_pending());
        }
        drop(body);
        assert_eq!(told.recv().await, Some(Confirmation::NotWritten));
        assert_eq!(told.recv().await, None);
    }
}

#[tokio::test]
async fn a_body_taken_whole_is_written_and_told_so_once() {
    let (body, mut told) = body(10);
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 10);
    assert_eq!(told.recv().await, Some(Confirmation::Written));
    assert_eq!(told.recv().await, None);
}

/// A connection to a server that answers with bodies of `length` bytes and reports their
/// confirmations. One request has been sent.
async fn asked(length: usize) -> (TcpStream, mpsc::UnboundedReceiver<Confirmation>) {
    let (tell, told) = mpsc::unbounded_channel();
    let handler = move || async move {
        watched(vec![b'x'; length].into(), later(), move |confirmation| {
            tell.send(confirmation).unwrap()
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(handler));
    tokio::spawn(serve(listener, router, ServerParams::default(), None, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    (stream, told)
}

/// The announced length of the answer's body.
async fn read_head(stream: &mut TcpStream) -> usize {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let (_, length) = head.split_once("content-length: ").unwrap();
    length.split("\r\n").next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_answer_that_its_caller_has_read_is_written() {
    for length in [1, 2, 100, 200_000, 8 << 20] {
        let (mut stream, mut told) = asked(length).await;
        assert_eq!(read_head(&mut stream).await, length);
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        assert_eq!(told.recv().await, Some(Confirmation::Written), "{length}");
    }
}

#[tokio::test]
async fn an_answer_whose_caller_hung_up_is_given_back() {
    // Longer than the sockets' buffers, so it cannot be complete when the caller disconnects.
    let (mut stream, mut told) = asked(64 << 20).await;
    stream.read_u8().await.unwrap();
    drop(stream);
    assert_eq!(told.recv().await, Some(Confirmation::NotWritten));
}

#[tokio::test]
async fn a_caller_who_leaves_during_the_pause_is_noticed() {
    // The caller disconnects after the first part, exactly in the pause: the body waits there until
    // the caller's end of the stream is closed.
    let (mut client, server) = tokio::io::duplex(1024);
    let (tell, mut told) = mpsc::unbounded_channel();
    let service = hyper::service::service_fn(move |_request| {
        let tell = tell.clone();
        let body = watched(vec![b'x'; 100].into(), later(), move |confirmation| {
            tell.send(confirmation).unwrap()
        });
        async move { Ok::<_, Infallible>(http::Response::new(body)) }
    });
    let io = hyper_util::rt::TokioIo::new(server);
    let mut connection =
        Box::pin(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // One turn of the connection: the request is read, and all but the last byte is written.
    assert!(poll!(connection.as_mut()).is_pending());
    assert!(told.try_recv().is_err());
    drop(client);
    assert!(connection.await.is_err());
    assert_eq!(told.recv().await, Some(Confirmation::NotWritten));
}
