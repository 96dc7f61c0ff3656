//! Redis over TLS: one server, a primary that Sentinels watch, a cluster; and what is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::certificates::{Authority, Pair, Valid};
use crate::load::{Load, lost};
use crate::program::service;
use crate::receiver::Receiver;
use crate::redis_many::{Cluster, MASTER, Watched, until};
use crate::redis_server::{Place, Server, Tls};
use crate::start_and_stop::refuses;
use crate::{Program, StoreAt};

const LOOPBACK: &[&str] = &["127.0.0.1"];

/// A place for servers with a certificate of the authority.
fn place(authority: &Authority, server: &Pair) -> Place {
    let Pair { certificate, key } = server.clone();
    Place { tls: Some(Tls { ca: authority.ca(), certificate, key }), ..Place::here() }
}

/// The settings of a store over TLS, whose servers ask for a client certificate.
fn store(urls: &[String], ca: &Path, client: &Pair, further: &[&str]) -> Vec<String> {
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
        let asked = Instant::now();
        refuses(&sets, 78, &[says]).await;
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}: {says}", asked.elapsed());
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
    let asked = Instant::now();
    let refused = delayd
        .post("/delay/task/add", r#"{"topic":"t","delay":"1h","mode":"pull","content":{}}"#)
        .await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_millis(300), "{:?}", asked.elapsed());
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

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_the_primary_are_used_over_tls_and_a_failover_is_followed() {
    let authority = Authority::new();
    let server = authority.issue("server", LOOPBACK, Valid::Now);
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let mut watched = Watched::at(&place(&authority, &server));
    watched.may_depose(false);
    let name = format!("store.redis.master_name={MASTER}");
    let further = ["store.redis.topology=sentinel", &name];
    let sets = store(&watched.urls(), &authority.ca(), &client, &further);
    let other = Authority::new();
    refuses(
        &store(&watched.urls(), &other.ca(), &client, &further),
        78,
        &["the certificate's issuer is not trusted"],
    )
    .await;
    let receiver = Receiver::start().await;
    let service = service("message.call", &receiver);
    let delayd = Arc::new(Program::start(&StoreAt::Set(sets), &[service]).await);
    let load = Load::start(&delayd, "t", "0s", 4);
    load.accepted_after(Instant::now(), 100).await;
    let old = watched.primary();
    let killed = Instant::now();
    watched.on(old).kill();
    watched.may_depose(true);
    watched.successor_of(old);
    watched.may_depose(false);
    load.accepted_after(Instant::now(), 100).await;
    let (topic, answers) = load.stop().await;
    let lost = lost(&delayd, &receiver, &topic, &answers).await;
    assert!(
        lost.iter().all(|a| a.at < killed + Duration::from_millis(100)),
        "the successor lost a task: {lost:?}"
    );
}

/// The nodes announce IP addresses, and their certificates have a name.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_used_over_tls_by_the_common_name_of_its_nodes() {
    let authority = Authority::new();
    let server = authority.issue("server", &["redis.test"], Valid::Now);
    let client = authority.issue("client", &["delayd"], Valid::Now);
    let mut cluster = Cluster::at(&place(&authority, &server));
    let prefix = format!("store.redis.key_prefix={}", cluster.prefix_on_first());
    let further = ["store.redis.topology=cluster", &prefix];
    refuses(
        &store(&cluster.urls(), &authority.ca(), &client, &further),
        78,
        &["the certificate is for another host than \"127.0.0.1\"; set \
           store.redis.tls.server_name"],
    )
    .await;
    let further = [&further[..], &["store.redis.tls.server_name=redis.test"]].concat();
    let sets = store(&cluster.urls(), &authority.ca(), &client, &further);
    let receiver = Receiver::start().await;
    let service = service("message.call", &receiver);
    let delayd = Arc::new(Program::start(&StoreAt::Set(sets), &[service]).await);
    delayd.wait_until_ready(200).await;
    let (healthy, hurt) = (cluster.topic_on(1), cluster.topic_on(2));
    let loads = [Load::start(&delayd, &healthy, "0s", 2), Load::start(&delayd, &hurt, "0s", 2)];
    for load in &loads {
        load.accepted_after(Instant::now(), 50).await;
    }
    let killed = Instant::now();
    cluster.nodes[2].kill();
    loads[1].refused().await;
    until("a replica takes over", || crate::redis_cluster::is_replaced(&cluster, 2));
    loads[1].accepted_after(Instant::now(), 50).await;
    for load in loads {
        let (topic, answers) = load.stop().await;
        let lost = lost(&delayd, &receiver, &topic, &answers).await;
        assert!(
            lost.iter().all(|a| a.at < killed + Duration::from_millis(100)),
            "the successor lost a task: {lost:?}"
        );
    }
}
