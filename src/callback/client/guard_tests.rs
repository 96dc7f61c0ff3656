//! Tests of calls to hosts that callers name: which addresses they connect to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::super::Unlisted;
use super::super::super::guard::Guard;
use super::super::super::pair::SERVICE_LOOKUPS;
use super::*;

/// Every host may be called by URL. Names resolve by `look_up`, and 127.0.0.2 stands for a private
/// network.
async fn before_a_guard(
    connections: Vec<Vec<Act>>,
    look_up: impl Fn() -> &'static str + Send + Sync + 'static,
) -> (Receiver, u16) {
    let mut receiver = Receiver::start(connections).await;
    let port = receiver.services.get("s").unwrap().pick().url("/").unwrap().port_u16().unwrap();
    receiver.services.allow(Unlisted { hosts: vec!["*".parse().unwrap()], ..Unlisted::default() });
    let guard = Guard::allowing(
        |address| address != std::net::IpAddr::from([127, 0, 0, 2]),
        Dns::asking(1, move |_| Ok(vec![SocketAddr::new(look_up().parse().unwrap(), 0)])),
    );
    receiver.client.pairs.public =
        Pair::new(Duration::from_secs(2), &connector::tls().unwrap(), None, &guard);
    (receiver, port)
}

fn not_called() -> Answer {
    failed("not called: no address of the host may be called", Fault::Here)
}

#[tokio::test]
async fn a_callers_host_is_called_where_its_address_is_allowed_and_nowhere_else() {
    let (mut receiver, port) = before_a_guard(vec![vec![ok()]], || "127.0.0.1").await;
    assert_eq!(
        receiver.call_url(&format!("http://hooks.example.com:{port}/path?q=1")).await,
        delivered()
    );
    assert!(head_of(&mut receiver).await.contains(&format!("host: hooks.example.com:{port}")));
    let (mut receiver, port) = before_a_guard(vec![vec![ok()]], || "127.0.0.2").await;
    assert_eq!(receiver.call_url(&format!("http://hooks.example.com:{port}/")).await, not_called());
    assert!(receiver.seen().is_empty());
}

/// A name that resolves to an allowed address first, and to another one later.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_connected_to_where_it_was_checked_or_not_at_all() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let look_up = move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => "127.0.0.1",
        _ => "127.0.0.2",
    };
    let (mut receiver, port) = before_a_guard(vec![vec![ok(), close()], vec![ok()]], look_up).await;
    let trap = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let url = format!("http://hooks.example.com:{port}/path?q=1");
    assert_eq!(receiver.call_url(&url).await, delivered());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "asked once for one connection");
    // The pooled connection is stale by now. The repeat needs a new one, and gets none.
    assert_eq!(receiver.call_url(&url).await, not_called());
    assert_eq!(receiver.seen(), [0, 0]);
    assert!(
        futures_util::poll!(Box::pin(trap.accept())).is_pending(),
        "something was connected to the forbidden address"
    );
}

/// A connection that was made for a service is not used for a caller's URL, even to the same
/// address.
#[tokio::test]
async fn a_callers_url_uses_no_connection_of_a_service() {
    let (mut receiver, port) = before_a_guard(vec![vec![ok(), ok()]], || "127.0.0.2").await;
    receiver.point_at(vec![format!("http://localhost:{port}")], SuccessRule::DmError);
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.call_url(&format!("http://localhost:{port}/")).await, not_called());
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.seen(), [0, 0]);
}

#[tokio::test]
async fn the_systems_names_for_this_machine_are_not_public() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    let port = receiver.services.get("s").unwrap().pick().url("/").unwrap().port_u16().unwrap();
    let hosts = vec!["*".parse().unwrap()];
    let fallback = format!("http://{{sn}}:{port}").parse().ok();
    receiver.services.allow(Unlisted { hosts, deny_private: true, fallback });
    assert_eq!(receiver.call_url(&format!("http://localhost:{port}/")).await, not_called());
    let named =
        receiver.call_of("localhost", "/", &Headers::default(), Duration::from_secs(5)).await;
    assert_eq!(named, not_called(), "a name of the template may not lead to this machine either");
    let literal = receiver.services.host_of(&format!("http://0x7f000001:{port}/"));
    assert!(literal.is_err(), "an address asks no resolver");
    receiver.services.allow(Unlisted {
        hosts: vec!["*".parse().unwrap()],
        deny_private: false,
        fallback: None,
    });
    assert_eq!(receiver.call_url(&format!("http://127.0.0.1:{port}/path?q=1")).await, delivered());
    assert_eq!(receiver.seen(), [0]);
    // Added while it was allowed, called when it is not any more.
    let service = receiver.services.get(&format!("127.0.0.1:{port}")).unwrap();
    receiver.services.allow(Unlisted { hosts: vec!["*".parse().unwrap()], ..Unlisted::default() });
    let now = receiver.services.get(service.name().as_str()).unwrap();
    assert!(now.aim(&format!("http://127.0.0.1:{port}/")).is_err());
    let outcome = receiver
        .call_of(
            service.name().as_str(),
            &format!("http://127.0.0.1:{port}/"),
            &Headers::default(),
            Duration::from_secs(5),
        )
        .await;
    let says =
        "not called: url must name a host on the public Internet (callback.deny_private_hosts)";
    assert_eq!(outcome, failed(says, Fault::Here));
}

/// Names were looked up by the blocking threads of the runtime. Lookups of hosts whose resolver is
/// silent filled them, and services by name got no calls.
#[test]
fn a_full_blocking_pool_holds_up_no_service_by_name() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async move {
        let _blocking = tokio::task::spawn_blocking(move || released.recv());
        let (receiver, port) = before_a_guard(vec![vec![ok()]], || "127.0.0.1").await;
        receiver.point_at(vec![format!("http://localhost:{port}")], SuccessRule::DmError);
        assert_eq!(receiver.call().await, delivered());
        drop(release);
    });
}

/// Hosts of callers whose resolver is silent took every thread that looks names up.
#[tokio::test]
async fn a_silent_resolver_holds_up_no_service_by_name() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    let port = receiver.services.get("s").unwrap().pick().url("/").unwrap().port_u16().unwrap();
    let (silent, answers) = std::sync::mpsc::channel::<SocketAddr>();
    let answers = Arc::new(std::sync::Mutex::new(answers));
    let resolve = move |name: &str| match name {
        "service.example" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
        _ => {
            let answer = answers.lock().unwrap().recv();
            answer.map(|address| vec![address]).map_err(std::io::Error::other)
        }
    };
    let minute = Duration::from_secs(60);
    let tls = connector::tls().unwrap();
    receiver.client.pairs = Pairs::new(minute, &tls, |places| Dns::asking(places, resolve.clone()));
    receiver.services.allow(Unlisted { hosts: vec!["*".parse().unwrap()], ..Unlisted::default() });
    receiver.point_at(vec![format!("http://service.example:{port}")], SuccessRule::DmError);
    let hosts: Vec<_> = (0..2 * SERVICE_LOOKUPS)
        .map(|number| format!("{number}.silent.example:{port}"))
        .map(|host| (format!("http://{host}/"), host))
        .collect();
    let headers = Headers::default();
    let calls = hosts.iter().map(|(url, host)| receiver.call_of(host, url, &headers, minute));
    let mut calls = Box::pin(futures_util::future::join_all(calls));
    // Each turn begins some lookups, until the runtime wants to go on.
    for _ in 0..hosts.len() {
        assert!(futures_util::poll!(&mut calls).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.call_within(minute).await, delivered());
    drop((calls, silent));
    assert_eq!(receiver.seen(), [0]);
}
