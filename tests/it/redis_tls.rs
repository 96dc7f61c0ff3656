//! Redis over TLS: one server, a primary that Sentinels watch, a cluster; and what is refused.

use std::path::Path;

use serde_json::json;

use crate::certificates::{Authority, Pair, Valid};
use crate::program::service;
use crate::receiver::Receiver;
use crate::redis_many::until;
use crate::redis_server::{Place, Server, Tls};
use crate::start_and_stop::refuses;
use crate::{Program, StoreAt};

pub const LOOPBACK: &[&str] = &["127.0.0.1"];

/// A place for servers with a certificate of the authority.
pub fn place(authority: &Authority, server: &Pair) -> Place {
    let Pair { certificate, key } = server.clone();
    Place { tls: Some(Tls { ca: authority.ca(), certificate, key }), ..Place::here() }
}

/// The settings of a store over TLS, whose servers ask for a client certificate.
pub fn store(urls: &[String], ca: &Path, client: &Pair, further: &[&str]) -> Vec<String> {
    let mut sets = vec![
        "http.bind=\"127.0.0.1:0\"".into(),
        "store.kind=redis".into(),
        format!("store.redis.urls={urls:?}"),
        format!("store.redis.tls.ca={ca:?}"),
        format!("store.redis.tls.client_cert={:?}", client.certificate),
        format!("store.redis.tls.client_key={:?}", client.key),
    ];
    sets.extend(further.iter().map(ToString::to_string));
    sets
}

/// Renewed files are used without a restart, also those of another authority.
#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_used_over_tls_and_renewed_files_are_read() {
    let authority = Authority::new();
    let server = authority.issue("server", LOOPBACK, Valid::Now);
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let mut redis = Server::at(&place(&authority, &server), &[]);
    let sets = store(&[redis.url()], &authority.ca(), &client, &[]);
    let receiver = Receiver::start().await;
    let delayd = Program::start(&StoreAt::Set(sets), &[service("message.call", &receiver)]).await;
    delayd.wait_until_ready(200).await;
    let task =
        json!({"topic": "t", "delay": "10ms", "content": {"sn": "message.call", "url": "/"}});
    let id = delayd.add(task.clone()).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
    // Messages between instances come over TLS as well.
    until("the hints are subscribed", || !redis.command(&["PUBSUB", "CHANNELS"]).trim().is_empty());

    redis.kill();
    delayd.wait_until_ready(503).await;
    let other = Authority::new();
    other.issue_into(&server, LOOPBACK, Valid::Now);
    other.issue_into(&client, &["delayd"], Valid::Now);
    // The server's own file of authorities is the one that delayd trusts.
    std::fs::copy(other.ca(), authority.ca()).unwrap();
    redis.restart();
    delayd.wait_until_ready(200).await;
    delayd.wait_for_log("The files of store.redis.tls were read again").await;
    let id = delayd.add(task).await.id();
    delayd.wait_for_state("t", id, "delivered").await;

    // Files that cannot be used leave the ones in force that were read before.
    std::fs::write(&client.key, "nonsense").unwrap();
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    delayd.wait_for_log("what was read before stays in force").await;
    delayd.wait_until_ready(200).await;
    let log = delayd.log();
    assert!(log.contains("client-key.pem: expected PEM with a private key"), "{log}");
    assert!(!log.contains("nonsense") && !log.contains("PRIVATE KEY-----M"), "{log}");
}

/// Without a hint, an operator would compare certificates by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_work_names_what_failed_and_the_setting() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.issue("server", LOOPBACK, Valid::Now);
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let redis = Server::at(&place(&authority, &server), &[]);
    let urls = [redis.url()];
    let check = async |sets: Vec<String>, says: &str| {
        refuses(&sets, 78, &[says]).await;
    };
    check(
        store(&urls, &other.ca(), &client, &[]),
        "TLS failed: the certificate's issuer is not trusted; name the issuer in \
         store.redis.tls.ca",
    )
    .await;
    check(
        store(&urls, &authority.ca(), &client, &["store.redis.tls.server_name=redis.test"]),
        "the certificate is for another host than \"redis.test\"",
    )
    .await;
    let without: Vec<String> = store(&urls, &authority.ca(), &client, &[])
        .into_iter()
        .filter(|set| !set.contains("client_"))
        .collect();
    check(without, "the server requires a client certificate; set store.redis.tls.client_cert")
        .await;
    let foreign = other.issue("client", &["delayd"], Valid::Now);
    check(
        store(&urls, &authority.ca(), &foreign, &[]),
        "the server refused the client certificate",
    )
    .await;
    let mixed = Pair { key: foreign.key, ..client.clone() };
    check(
        store(&urls, &authority.ca(), &mixed, &[]),
        "expected the private key of the certificate",
    )
    .await;
    check(store(&urls, Path::new("/no/ca.pem"), &client, &[]), "/no/ca.pem: cannot be read").await;
    check(store(&urls, &client.key, &client, &[]), "expected PEM with a certificate").await;
    let old = authority.issue("old", LOOPBACK, Valid::Past);
    let expired = Server::at(&place(&authority, &Pair { ..server.clone() }), &[]);
    expired.command(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        old.certificate.to_str().unwrap(),
        "tls-key-file",
        old.key.to_str().unwrap(),
    ]);
    check(store(&[expired.url()], &authority.ca(), &client, &[]), "the certificate has expired")
        .await;
}

/// A certificate that expires while delayd runs: the log names it, callers are refused quickly, and
/// a new certificate is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_expires_is_named_and_callers_are_refused_at_once() {
    let authority = Authority::new();
    let server = authority.issue("server", LOOPBACK, Valid::Now);
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let redis = Server::at(&place(&authority, &server), &[]);
    let sets = store(&[redis.url()], &authority.ca(), &client, &[]);
    let delayd = Program::start(&StoreAt::Set(sets), &[]).await;
    delayd.wait_until_ready(200).await;
    let reload = |pair: &Pair| {
        let (certificate, key) = (pair.certificate.to_str().unwrap(), pair.key.to_str().unwrap());
        redis.command(&["CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key]);
    };
    reload(&authority.issue("old", LOOPBACK, Valid::Past));
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    delayd.wait_until_ready(503).await;
    delayd.wait_for_log("TLS failed: the certificate has expired").await;
    let refused = delayd
        .post("/delay/task/add", r#"{"topic":"t","delay":"1h","mode":"pull","content":{}}"#)
        .await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    reload(&server);
    delayd.wait_until_ready(200).await;
}

/// A server without TLS never answers a handshake, and may be a fault of the moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_tls_is_named_in_the_log() {
    let (authority, redis) = (Authority::new(), Server::start());
    let urls = [format!("rediss://127.0.0.1:{}/0", redis.port())];
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let sets = store(&urls, &authority.ca(), &client, &[]);
    let delayd = Program::start(&StoreAt::Set(sets), &[]).await;
    delayd.wait_for_log("a port without TLS is reached by redis://").await;
}
