//! Names whose resolver is silent. The program sees a `resolv.conf` and a `hosts` of this test, in
//! a mount namespace of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::UdpSocket;

use super::isolation::Figures;
use crate::program::{Program, StoreAt, folder};
use crate::receiver::Receiver;
use crate::{poll, redis_server};

/// The resolver that is silent. Its port needs root.
const RESOLVER: &str = "127.0.53.53";
/// How many hosts it is asked for.
const HOSTS: usize = 1_500;
/// How long it may take to call a service, and until Redis is reached again.
const SOON: Duration = Duration::from_secs(5);

/// Replaces the files that say how names are looked up, and becomes the program.
const REPLACING: &str = r#"
    for file in hosts resolv.conf; do
        mount --bind "$1/$file" "$(readlink -f /etc/$file)" || exit
    done
    shift
    exec "$@"
"#;

/// A service by name got none of its calls for 96 seconds, a large batch and every add after a lost
/// connection to Redis were refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_resolver_holds_up_neither_services_nor_bodies_nor_redis() {
    let redis = redis_server::shared();
    let store = StoreAt::Set(vec![
        "store.kind=\"redis\"".into(),
        format!("store.redis.urls=[\"redis://redis.test:{}/0\"]", redis.port()),
        format!("store.redis.key_prefix=\"it{:016x}\"", rand::random::<u64>()),
    ]);
    let (delayd, receiver, _resolver) = beside_a_silent_resolver(&store).await;

    let before = receiver.seen().len();
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let began = Instant::now();
    let is_added =
        async || delayd.post("/delay/task/add", healthy("").to_string()).await.status == 200;
    assert!(poll::until(is_added).await, "Redis is not reached again");
    receiver.wait_for(before + 1).await;
    assert!(began.elapsed() < SOON, "the next call took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_resolver_holds_up_no_service_beside_the_embedded_store() {
    let folder = folder();
    beside_a_silent_resolver(&StoreAt::Embedded(folder.path().to_owned())).await;
}

fn healthy(text: &str) -> Value {
    json!({
        "topic": "healthy", "delay": 0,
        "content": {"sn": "healthy", "url": "/", "text": text},
    })
}

/// Starts the program, measures a healthy service by name, and measures it again while the resolver
/// is silent about many other hosts.
async fn beside_a_silent_resolver(store: &StoreAt) -> (Program, Receiver, UdpSocket) {
    let resolver = UdpSocket::bind((RESOLVER, 53)).await.expect("root may listen on port 53");
    let files = folder();
    let write = |name: &str, text: String| std::fs::write(files.path().join(name), text).unwrap();
    write("hosts", "127.0.0.1 localhost service.test redis.test\n".into());
    write("resolv.conf", format!("nameserver {RESOLVER}\n"));
    let receiver = Receiver::start().await;
    let sets = [
        format!("services.healthy.endpoints=[\"http://service.test:{}\"]", receiver.address.port()),
        "callback.allow_hosts=[\"*.silent.test\"]".into(),
    ];
    let delayd = Program::start_by(store, &sets, |serve| {
        let mut outer = Command::new("unshare");
        outer.args(["-Urm", "sh", "-c", REPLACING, "sh"]).arg(files.path());
        outer.arg(serve.get_program()).args(serve.get_args());
        outer
    })
    .await;
    let alone = Figures::measure(&delayd, &receiver).await;

    let silent: Vec<_> = (0..HOSTS)
        .map(|host| format!("http://{host}.silent.test/"))
        .map(|url| json!({"topic": "silent", "delay": 0, "content": {"url": url}}))
        .collect();
    for part in silent.chunks(1_000) {
        delayd.add_all(part).await;
    }
    let mut question = [0; 512];
    for _ in 0..100 {
        resolver.recv(&mut question).await.unwrap();
    }
    let (before, began) = (receiver.seen().len(), Instant::now());
    delayd.add_all(&vec![healthy(""); 8]).await;
    delayd.add_all(&vec![healthy(&"a".repeat(150_000)); 2]).await;
    receiver.wait_for(before + 10).await;
    assert!(began.elapsed() < SOON, "ten calls took {:?}", began.elapsed());

    let beside = Figures::measure(&delayd, &receiver).await;
    eprintln!("alone {alone:?}, beside a silent resolver {beside:?}");
    alone.assert_near(&beside);
    (delayd, receiver, resolver)
}
