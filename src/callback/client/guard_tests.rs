//! Tests of calls to hosts that callers name: which addresses they connect to.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::super::Unlisted;
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
    let guard = Guard::asking(
        |address| address != std::net::IpAddr::from([127, 0, 0, 2]),
        move |_| {
            let found = look_up().parse().unwrap();
            Box::pin(async move { Ok(vec![found]) })
        },
    );
    receiver.client.public =
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
