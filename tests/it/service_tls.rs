//! Services with TLS of their own: client certificates, an authority, the name of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Authority, Pair, Valid, replace};
use crate::program::{Program, command, embedded, folder, run, serve};
use crate::start_and_stop::refuses;
use crate::{Kept, poll};

const LOOPBACK: &[&str] = &["127.0.0.1"];
const H2: &[&[u8]] = &[b"h2", b"http/1.1"];
const H1: &[&[u8]] = &[b"http/1.1"];

/// One request: the number of its connection, the client's certificate, the path.
#[derive(Clone, Debug)]
struct Seen {
    connection: usize,
    certificate: Option<Vec<u8>>,
    path: String,
}

/// A receiver over TLS.
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Whether a client must identify itself.
#[derive(Clone, Copy)]
enum Asks {
    Required,
    Optional,
}

impl Receiver {
    /// Trusts client certificates of these authorities.
    async fn start(server: &Pair, clients: &[&Authority], asks: Asks, protocols: &[&[u8]]) -> Self {
        delayd::install_crypto();
        let mut roots = RootCertStore::empty();
        for authority in clients {
            roots.add(CertificateDer::from_pem_file(authority.ca()).unwrap()).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
        let verifier = match asks {
            Asks::Required => verifier,
            Asks::Optional => verifier.allow_unauthenticated(),
        };
        let mut config = ServerConfig::builder()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&server.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&server.key).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = seen.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, seen) = (acceptor.clone(), all.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let certificates = stream.get_ref().1.peer_certificates();
                    let certificate = certificates.map(|chain| chain[0].as_ref().to_vec());
                    let take = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let (seen, certificate) = (seen.clone(), certificate.clone());
                        async move {
                            let path = request.uri().path().to_owned();
                            // A call that was withdrawn before it began breaks off.
                            request.into_body().collect().await?;
                            seen.lock().unwrap().push(Seen { connection, certificate, path });
                            Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::new())))
                        }
                    });
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), take).await;
                });
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The `--set` that makes it a service, with further keys.
    fn service(&self, name: &str, further: &[String]) -> Vec<String> {
        let key = |key: &str| format!("services.{name:?}.{key}");
        let mut sets = vec![key(&format!("endpoints=[\"https://{}\"]", self.address))];
        sets.extend(further.iter().map(|further| key(further)));
        sets
    }
}

/// The section `tls` of a service.
fn tls(ca: &Authority, client: Option<&Pair>) -> Vec<String> {
    let mut keys = vec![format!("tls.ca={:?}", ca.ca())];
    if let Some(Pair { certificate, key }) = client {
        keys.push(format!("tls.client_cert={certificate:?}"));
        keys.push(format!("tls.client_key={key:?}"));
    }
    keys
}

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_file(&pair.certificate).unwrap().as_ref().to_vec()
}

async fn call(delayd: &Program, sn: &str, state: &str) -> Value {
    let content = json!({"sn": sn, "url": format!("/{sn}")});
    let task = json!({"topic": "t", "delay": 0, "max_attempts": 1, "content": content});
    let id = delayd.add(task).await.id();
    delayd.wait_for_state("t", id, state).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_requires_a_client_certificate_gets_that_of_the_service() {
    let alert = "TLS failed: the server requires a client certificate";
    // HTTP/2 hides the alert that ends the connection. What it sees of the end is a race.
    let hidden = [alert, "connection closed early", "connection reset", "call failed"];
    for (protocols, outcomes) in [(H1, &[alert][..]), (H2, &hidden[..])] {
        let authority = Authority::new();
        let server = authority.issue("server", LOOPBACK, Valid::Now);
        let client = authority.issue("client", &["delayd"], Valid::Now);
        let receiver = Receiver::start(&server, &[&authority], Asks::Required, protocols).await;
        let sets = [
            receiver.service("with", &tls(&authority, Some(&client))),
            receiver.service("without", &tls(&authority, None)),
        ];
        let delayd = Kept::embedded().start(&sets.concat()).await;
        call(&delayd, "with", "delivered").await;
        let task = call(&delayd, "without", "dead").await;
        assert!(outcomes.iter().any(|outcome| task["last_outcome"] == *outcome), "{task}");
        let seen = receiver.seen();
        let [seen] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((&*seen.path, &seen.certificate), ("/with", &Some(der(&client))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_the_server_must_have_the_name_of_the_settings() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.issue("server", &["receiver.test"], Valid::Now);
    let receiver = Receiver::start(&server, &[&authority], Asks::Optional, H2).await;
    let named = |name: &str| {
        let mut keys = tls(&authority, None);
        keys.push(format!("tls.server_name={name:?}"));
        keys
    };
    let sets = [
        receiver.service("right", &named("receiver.test")),
        receiver.service("wrong", &named("other.test")),
        receiver.service("unnamed", &tls(&authority, None)),
        receiver.service("untrusting", &tls(&stranger, None)),
    ];
    let delayd = Kept::embedded().start(&sets.concat()).await;
    call(&delayd, "right", "delivered").await;
    for (sn, reason) in [
        ("wrong", "the certificate is for another host"),
        ("unnamed", "the certificate is for another host"),
        ("untrusting", "the certificate's issuer is not trusted"),
    ] {
        let task = call(&delayd, sn, "dead").await;
        assert_eq!(task["last_outcome"], format!("TLS failed: {reason}"), "{sn}");
    }
    assert_eq!(receiver.seen().len(), 1);
}

/// A connection with a client certificate carries that service only.
#[tokio::test(flavor = "multi_thread")]
async fn two_services_at_one_address_share_no_connection() {
    for protocols in [H1, H2] {
        let authority = Authority::new();
        let server = authority.issue("server", LOOPBACK, Valid::Now);
        let (one, two) = (
            authority.issue("one", &["delayd"], Valid::Now),
            authority.issue("two", &["delayd"], Valid::Now),
        );
        let receiver = Receiver::start(&server, &[&authority], Asks::Optional, protocols).await;
        let sets = [
            receiver.service("one", &tls(&authority, Some(&one))),
            receiver.service("two", &tls(&authority, Some(&two))),
            receiver.service("plain", &[]),
        ];
        let kept = Kept::embedded();
        let mut serve = serve(&kept.store, &sets.concat());
        // The connections of all services trust the authorities of the system.
        serve.env("SSL_CERT_FILE", authority.ca());
        let delayd = Program::launch(serve).await;
        let services = ["one", "two", "plain"];
        let tasks: Vec<Value> = (0..60)
            .map(|number| {
                let sn = services[number % 3];
                let content = json!({"sn": sn, "url": format!("/{sn}")});
                json!({"topic": "t", "delay": 0, "content": content})
            })
            .collect();
        for id in delayd.add_all(&tasks).await {
            delayd.wait_for_state("t", id, "delivered").await;
        }
        let seen = receiver.seen();
        assert_eq!(seen.len(), 60);
        let mut paths: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        for one in &seen {
            paths.entry(one.connection).or_default().insert(&one.path);
        }
        assert!(paths.values().all(|paths| paths.len() == 1), "{paths:?}");
        for Seen { path, certificate, .. } in &seen {
            let expected = match path.as_str() {
                "/one" => Some(der(&one)),
                "/two" => Some(der(&two)),
                _ => None,
            };
            assert_eq!(*certificate, expected, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_pair_is_not() {
    let (first, second) = (Authority::new(), Authority::new());
    let server = first.issue("server", LOOPBACK, Valid::Now);
    let client = first.issue("client", &["delayd"], Valid::Now);
    let receiver = Receiver::start(&server, &[&first, &second], Asks::Required, H2).await;
    let sets = receiver.service("shop", &tls(&first, Some(&client)));
    let delayd = Kept::embedded().start(&sets).await;
    call(&delayd, "shop", "delivered").await;
    second.issue_into(&client, &["delayd"], Valid::Now);
    let renewed = der(&client);
    delayd.wait_for_log("The files of services.\"shop\".tls were read again").await;
    call(&delayd, "shop", "delivered").await;
    let last = |receiver: &Receiver| receiver.seen().last().unwrap().certificate.clone();
    assert_eq!(last(&receiver), Some(renewed.clone()));

    let other = first.issue("other", &["delayd"], Valid::Now);
    let key = std::fs::read_to_string(&client.key).unwrap();
    replace(&client.key, &std::fs::read_to_string(&other.key).unwrap());
    delayd.wait_for_log("what was read before stays in force").await;
    let log = delayd.log();
    assert!(log.contains("expected the private key of the certificate in"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    call(&delayd, "shop", "delivered").await;
    assert_eq!(last(&receiver), Some(renewed));
    replace(&client.key, &key);
    delayd.wait_for_log("are those in force again").await;
    assert_eq!(delayd.log().matches("stays in force").count(), 1, "{}", delayd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_a_check_and_a_reload_refuse_what_cannot_work() {
    let authority = Authority::new();
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let other = authority.issue("other", &["delayd"], Valid::Now);
    let mixed = Pair { key: other.key.clone(), ..client.clone() };
    let folder = folder();
    let store = embedded(folder.path());
    let refused = async |endpoint: &str, keys: &[String], says: &str| {
        let mut sets = store.sets();
        sets.push(format!("services.a.endpoints=[{endpoint:?}]"));
        sets.extend(keys.iter().map(|key| format!("services.a.{key}")));
        refuses(&sets, 78, &[says]).await;
        let mut check = command(&sets);
        check.arg("check");
        let (code, output, error) = run(check).await;
        assert_eq!(code, 78, "{output}{error}");
        assert!(error.contains(says), "{error}");
    };
    let right = tls(&authority, Some(&client));
    let clear = "must begin with https://, because services.\"a\".tls is set";
    refused("http://127.0.0.1:1", &right, clear).await;
    refused("https://a", &right[..2], "services.a.tls.client_cert").await;
    refused("https://a", &right[..2], "goes only with client_key").await;
    let mismatch = "services.\"a\".tls: ";
    refused("https://a", &tls(&authority, Some(&mixed)), mismatch).await;
    let pair = "expected the private key of the certificate in";
    refused("https://a", &tls(&authority, Some(&mixed)), pair).await;
    let missing = ["tls.ca=\"/no/ca.pem\"".to_owned()];
    refused("https://a", &missing, "/no/ca.pem: cannot be read").await;
    let name = ["tls.server_name=\"a:443\"".to_owned()];
    refused("https://a", &name, "must be a host name or an IP address").await;

    // A reload with a broken pair changes nothing.
    let server = authority.issue("server", LOOPBACK, Valid::Now);
    let receiver = Receiver::start(&server, &[&authority], Asks::Required, H1).await;
    let file = folder.path().join("delayd.toml");
    let save = |pair: &Pair, further: &str| {
        let text = format!(
            "[services.shop]\nendpoints = [\"https://{}\"]\n[services.shop.tls]\nca = {:?}\n\
             client_cert = {:?}\nclient_key = {:?}\n{further}",
            receiver.address,
            authority.ca(),
            pair.certificate,
            pair.key
        );
        replace(&file, &text);
    };
    save(&client, "");
    let delayd = Program::start_from(&store, &file).await;
    call(&delayd, "shop", "delivered").await;
    save(&mixed, "");
    delayd.wait_for_log("The new configuration is refused, the old one stays").await;
    call(&delayd, "shop", "delivered").await;
    // A reload that does not change the section keeps its connections.
    save(&client, "[objective]\ntarget = 0.5\n");
    delayd.wait_for_log("changed: objective").await;
    call(&delayd, "shop", "delivered").await;
    assert_eq!(receiver.seen().last().unwrap().certificate, Some(der(&client)));
    save(&other, "");
    delayd.wait_for_log("changed: services").await;
    let comes = poll::until(async || {
        call(&delayd, "shop", "delivered").await;
        receiver.seen().last().unwrap().certificate == Some(der(&other))
    });
    assert!(comes.await);
}
