//! Tests of calls to a server that speaks HTTP/2 and allows few streams per connection.
//!
//! `localhost/` holds a self-signed certificate and its key, which only these tests trust. It was
//! made with `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj
//! /CN=localhost -days 36500 -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext
//! basicConstraints=critical,CA:FALSE`.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

const CERTIFICATE: &[u8] = include_bytes!("localhost/cert.der");
const KEY: &[u8] = include_bytes!("localhost/key.der");

/// The number of streams that the server allows per connection.
const STREAMS: u32 = 2;
/// The number of concurrent calls.
const CALLS: usize = 10;

/// What the server has received.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Requests with complete bodies.
    requests: AtomicUsize,
}

/// Serves HTTP/2 only. It responds once as many requests are there as the barrier waits for.
async fn serve_h2(listener: TcpListener, seen: Arc<Seen>, barrier: Arc<Barrier>) {
    serve_h2_with(listener, seen, barrier, HeaderMap::new()).await;
}

/// The same, with these headers in each response.
async fn serve_h2_with(
    listener: TcpListener,
    seen: Arc<Seen>,
    barrier: Arc<Barrier>,
    headers: HeaderMap,
) {
    let key = PrivateKeyDer::try_from(KEY).unwrap();
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![CERTIFICATE.into()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, seen, barrier) = (acceptor.clone(), seen.clone(), barrier.clone());
        let headers = headers.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            seen.connections.fetch_add(1, Ordering::SeqCst);
            let answer = service_fn(move |request: Request<Incoming>| {
                let (seen, barrier) = (seen.clone(), barrier.clone());
                let mut response = Response::new(Full::new(Bytes::new()));
                *response.headers_mut() = headers.clone();
                async move {
                    if request.into_body().collect().await.is_ok() {
                        seen.requests.fetch_add(1, Ordering::SeqCst);
                        barrier.wait().await;
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let _ = builder
                .max_concurrent_streams(STREAMS)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// Calls beyond the streams of a connection waited on it, unsent, until they timed out.
#[tokio::test]
async fn calls_beyond_the_streams_of_a_connection_go_by_others_each_once() {
    let mut receiver = Receiver::start(Vec::new()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    receiver.point_at(
        vec![format!("https://{}", listener.local_addr().unwrap())],
        SuccessRule::DmError,
    );
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    receiver.client = Client::trusting(params(Duration::from_secs(2)), &tls);
    let seen = Arc::new(Seen::default());
    tokio::spawn(serve_h2(listener, seen.clone(), Arc::new(Barrier::new(CALLS))));
    // First without a connection, then with one.
    for round in 1..=2 {
        let answers = join_all((0..CALLS).map(|_| receiver.call())).await;
        let (requests, connections) = (&seen.requests, &seen.connections);
        assert_eq!(
            answers,
            vec![delivered(); CALLS],
            "round {round}: {requests:?} requests, {connections:?} connections"
        );
        assert_eq!(requests.load(Ordering::SeqCst), round * CALLS, "each comes once");
    }
    let connections = seen.connections.load(Ordering::SeqCst);
    assert!(connections <= 4 * CALLS, "{connections} connections");
}

#[tokio::test]
async fn an_answer_with_a_large_head_is_a_failure_over_http2_too() {
    let check = async |count: usize, expected: Answer| {
        let mut receiver = Receiver::start(Vec::new()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        receiver.point_at(vec![format!("https://{address}")], SuccessRule::DmError);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        receiver.client = Client::trusting(params(Duration::from_secs(2)), &tls);
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            headers.append("x-large", "x".repeat(4_000).parse().unwrap());
        }
        let barrier = Arc::new(Barrier::new(1));
        tokio::spawn(serve_h2_with(listener, Arc::default(), barrier, headers));
        assert_eq!(receiver.call().await, expected, "{count}");
    };
    check(5, delivered()).await;
    let large = "answer is no HTTP/2, or its head is too large: over 32 KiB";
    check(20, failed(large, Fault::Destination)).await;
    check(200, failed(large, Fault::Destination)).await;
}

/// For an untrusted certificate and for a wrong name, the outcome was "TLS failed".
#[tokio::test]
async fn a_certificate_that_is_refused_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_h2(listener, Arc::default(), Arc::new(Barrier::new(1))));
    let other = {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_h2(listener, Arc::default(), Arc::new(Barrier::new(1))));
        address
    };
    let check = async |address: std::net::SocketAddr, trusted: bool, says: &str| {
        let mut receiver = Receiver::start(Vec::new()).await;
        receiver.point_at(vec![format!("https://{address}")], SuccessRule::DmError);
        // Not the system's roots: the result must not depend on this machine.
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
        }
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        receiver.client = Client::trusting(params(Duration::from_secs(2)), &tls);
        assert_eq!(
            receiver.call().await,
            failed(&format!("TLS failed: {says}"), Fault::Destination)
        );
    };
    check(address, false, "the certificate's issuer is not trusted").await;
    check(other, true, "the certificate is for another host").await;
}
