//! A real receiver: an axum server that records each callback and answers as the test says.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

/// One callback as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub id: u64,
    pub attempt: u32,
    pub due_ms: i64,
    pub arrived_ms: i64,
    pub headers: HeaderMap,
    pub body: String,
}

impl Seen {
    /// How late the call came, by this machine's clock; negative if it was early.
    pub fn lateness_ms(&self) -> i64 {
        self.arrived_ms - self.due_ms
    }
}

/// How to answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Status(u16),
    With(u16, Vec<(&'static str, &'static str)>, &'static str),
    /// A status, and a text in the body and in the header `x-echo`.
    #[allow(dead_code, reason = "tests/drills share this receiver")]
    Echo(u16, String),
    /// 200, after this time.
    #[allow(dead_code, reason = "tests/drills share this receiver")]
    After(Duration),
    /// Never, until the receiver is dropped or the caller gives up.
    Never,
    /// When the receiver's gate opens: with what the test says then, or 200.
    AtTheGate,
}

type Behaviour = dyn Fn(&Seen) -> Answer + Send + Sync;

struct Inner {
    seen: Mutex<Vec<Seen>>,
    count: watch::Sender<usize>,
    behaviour: Mutex<Arc<Behaviour>>,
    gate: watch::Sender<bool>,
    /// How many answers were chosen after the gate opened.
    passed: watch::Sender<usize>,
}

/// The running receiver. Cheap to clone.
#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    inner: Arc<Inner>,
}

pub fn now_ms() -> i64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "the receiver's clock is the machine's, apart from delayd's"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

impl Receiver {
    /// Starts a receiver that answers 200 to everything.
    pub async fn start() -> Self {
        Self::answering(|_| Answer::Status(200)).await
    }

    pub async fn answering(behaviour: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::answering_at(IpAddr::V4(Ipv4Addr::LOCALHOST), behaviour).await
    }

    /// Starts a receiver that other machines or namespaces can reach.
    pub async fn answering_at(
        host: IpAddr,
        behaviour: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let inner = Arc::new(Inner {
            seen: Mutex::default(),
            count: watch::Sender::new(0),
            behaviour: Mutex::new(Arc::new(behaviour)),
            gate: watch::Sender::new(false),
            passed: watch::Sender::new(0),
        });
        let listener = tokio::net::TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(take).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, inner }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn answer(&self, behaviour: impl Fn(&Seen) -> Answer + Send + Sync + 'static) {
        *self.inner.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    /// Waits until `count` calls have passed the gate, so that a later change of the answers does
    /// not affect them. Panics after a minute.
    #[allow(dead_code, reason = "tests/drills share this receiver")]
    pub async fn wait_until_passed(&self, count: usize) {
        let mut passed = self.inner.passed.subscribe();
        let all = tokio::time::timeout(
            Duration::from_secs(60),
            passed.wait_for(|&passed| passed >= count),
        )
        .await
        .is_ok();
        assert!(all, "waited for {count} to pass the gate");
    }

    pub fn open_gate(&self) {
        self.inner.gate.send_replace(true);
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }

    /// Waits until at least `count` callbacks came. Panics if none comes for a minute.
    pub async fn wait_for(&self, count: usize) -> Vec<Seen> {
        let mut counts = self.inner.count.subscribe();
        while *counts.borrow_and_update() < count {
            let comes =
                tokio::time::timeout(Duration::from_secs(60), counts.changed()).await.is_ok();
            assert!(comes, "waited for {count} callbacks, {} came", self.seen().len());
        }
        self.seen()
    }
}

async fn take(
    State(inner): State<Arc<Inner>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let number = |name: &str| {
        headers.get(name).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<i64>().ok())
    };
    let seen = Seen {
        path: uri.to_string(),
        id: number("delay-task-id").unwrap_or_default() as u64,
        attempt: number("delay-attempt").unwrap_or_default() as u32,
        due_ms: number("delay-due-ms").unwrap_or_default(),
        arrived_ms: now_ms(),
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let behaviour = inner.behaviour.lock().unwrap().clone();
    let answer = behaviour(&seen);
    inner.seen.lock().unwrap().push(seen.clone());
    inner.count.send_modify(|count| *count += 1);
    if !matches!(answer, Answer::AtTheGate) {
        return respond(answer).await;
    }
    let _ = inner.gate.subscribe().wait_for(|open| *open).await;
    // The test may have changed the answers meanwhile.
    let behaviour = inner.behaviour.lock().unwrap().clone();
    let answer = behaviour(&seen);
    inner.passed.send_modify(|passed| *passed += 1);
    respond(answer).await
}

async fn respond(answer: Answer) -> Response {
    let status = |code: u16| StatusCode::from_u16(code).unwrap();
    match answer {
        Answer::Status(code) => status(code).into_response(),
        Answer::With(code, headers, body) => {
            let mut response = (status(code), body).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Answer::Echo(code, text) => {
            let mut response = (status(code), text.clone()).into_response();
            response.headers_mut().insert("x-echo", text.parse().unwrap());
            response
        }
        Answer::After(pause) => {
            tokio::time::sleep(pause).await;
            StatusCode::OK.into_response()
        }
        Answer::Never => std::future::pending().await,
        Answer::AtTheGate => StatusCode::OK.into_response(),
    }
}
