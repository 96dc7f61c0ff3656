//! TLS between delayd and the servers of Sentinel and of a Redis Cluster, across a failover.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::certificates::{Authority, Valid};
use crate::load::{Load, lost};
use crate::program::service;
use crate::receiver::Receiver;
use crate::redis_many::{Cluster, MASTER, Watched, until};
use crate::redis_tls::{LOOPBACK, place, store};
use crate::start_and_stop::refuses;
use crate::{Program, StoreAt};

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
    until("a replica takes over", || super::redis_cluster::is_replaced(&cluster, 2));
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
