//! Tests of the client against a receiver that is a bare socket and controls every byte.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, mpsc};

use super::super::{Credentials, Secret, ServiceParams, Services, SuccessRule};
use super::*;

#[path = "answer_tests.rs"]
mod answer_tests;
#[path = "guard_tests.rs"]
mod guard_tests;
#[path = "h2_tests.rs"]
mod h2_tests;
#[path = "header_tests.rs"]
mod header_tests;

/// What the receiver does after it has read a request.
#[derive(Clone)]
enum Act {
    /// Writes this, and keeps the connection open.
    Answer(String),
    /// The same, once as many requests are there as the barrier waits for.
    AnswerTogether(Arc<Barrier>, String),
    /// Writes this, perhaps nothing, and closes the connection.
    Close(String),
    /// As `Answer`, with a body that is not text.
    AnswerBytes(Vec<u8>),
    /// Never responds.
    Hang,
}

fn ok() -> Act {
    answer("200 OK", "", "")
}

fn answer(status: &str, headers: &str, body: &str) -> Act {
    Act::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

fn close() -> Act {
    Act::Close(String::new())
}

fn client(connect_timeout: Duration) -> Client {
    crate::install_crypto();
    Client::new(params(connect_timeout)).unwrap()
}

fn params(connect_timeout: Duration) -> Params {
    Params { connect_timeout, final_statuses: vec![410], clock: Clock::system() }
}

/// A receiver, and its requests: the number of the connection and the text of the request.
struct Receiver {
    services: Services,
    client: Client,
    requests: mpsc::UnboundedReceiver<(usize, String)>,
    clock_ahead_ms: i64,
}

impl Receiver {
    /// Starts a receiver. Each connection performs its list of acts, one per request, and is then
    /// closed.
    async fn start(connections: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for (number, acts) in connections.into_iter().enumerate() {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, number, acts, sender.clone()));
            }
        });
        let services = Services::new(Vec::new()).unwrap();
        let client = client(Duration::from_secs(2));
        let receiver = Self { services, client, requests, clock_ahead_ms: 0 };
        receiver.point_at(vec![format!("http://127.0.0.1:{port}")], SuccessRule::DmError);
        receiver
    }

    /// Sets the endpoints of the service, and its rule of success.
    fn point_at(&self, endpoints: Vec<String>, success: SuccessRule) {
        self.configure(endpoints, success, Vec::new());
    }

    fn configure(&self, endpoints: Vec<String>, success: SuccessRule, secrets: Vec<Secret>) {
        self.configure_with(endpoints, success, secrets, Credentials::default());
    }

    fn configure_with(
        &self,
        endpoints: Vec<String>,
        success: SuccessRule,
        secrets: Vec<Secret>,
        credentials: Credentials,
    ) {
        let params = ServiceParams {
            name: "s".into(),
            endpoints,
            allowance: Default::default(),
            success,
            secrets,
            credentials,
        };
        self.services.replace(vec![params]).unwrap();
    }

    async fn call(&self) -> Answer {
        self.call_within(Duration::from_secs(10)).await
    }

    async fn call_within(&self, timeout: Duration) -> Answer {
        self.call_of("s", "/path?q=1", &Headers::default(), timeout).await
    }

    async fn call_with(&self, headers: &Headers) -> Answer {
        self.call_of("s", "/path?q=1", headers, Duration::from_secs(10)).await
    }

    /// Calls a caller's URL.
    async fn call_url(&self, url: &str) -> Answer {
        let host = self.services.host_of(url).unwrap().expect("it is allowed");
        self.call_of(host.as_str(), url, &Headers::default(), Duration::from_secs(10)).await
    }

    async fn call_of(&self, name: &str, url: &str, headers: &Headers, timeout: Duration) -> Answer {
        self.call_noted(name, url, headers, timeout).await.0
    }

    /// Returns the excerpt too.
    async fn call_noted(
        &self,
        name: &str,
        url: &str,
        headers: &Headers,
        timeout: Duration,
    ) -> (Answer, String) {
        let excerpt = Excerpt::default();
        let service = self.services.get(name).unwrap();
        let call = Call {
            service: &service,
            url,
            id: TaskId(42),
            webhook_id: "00c0ffee00c0ffee-42",
            topic: &"orders".parse().unwrap(),
            attempt: 2,
            due: UnixMillis(1_795_236_367_000),
            receipt: &"abc".parse().unwrap(),
            headers,
            timeout,
            body: Bytes::from_static(b"{\"n\": 1}"),
            final_statuses: None,
            excerpt: &excerpt,
            clock_ahead_ms: self.clock_ahead_ms,
            trace: TraceContext::random(false),
            called: None,
            occurrence: None,
        };
        (self.client.call(&call).await, excerpt.into_text())
    }

    /// The connections that requests came on, in order.
    fn seen(&mut self) -> Vec<usize> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).map(|(number, _)| number).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    number: usize,
    acts: Vec<Act>,
    requests: mpsc::UnboundedSender<(usize, String)>,
) {
    for act in acts {
        let Some(request) = read_request(&mut stream).await else { return };
        requests.send((number, request)).unwrap();
        let (text, goes_on) = match act {
            Act::AnswerBytes(bytes) => (bytes, true),
            Act::Answer(text) => (text.into(), true),
            Act::AnswerTogether(barrier, text) => {
                barrier.wait().await;
                (text.into(), true)
            }
            Act::Close(text) => (text.into(), false),
            Act::Hang => std::future::pending().await,
        };
        // The caller may have closed the connection before the end of a long response.
        let _ = stream.write_all(&text).await;
        if !goes_on {
            return;
        }
    }
    // Open and silent, until the caller closes it.
    let _ = stream.read(&mut [0]).await;
}

/// A request with the body `{"n": 1}`.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n{\"n\": 1}") {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    Some(text)
}

fn failed(outcome: &str, fault: Fault) -> Answer {
    Answer::Failed { outcome: outcome.into(), retry_after: None, hold: None, fault }
}

fn delivered() -> Answer {
    Answer::delivered("200 OK")
}

#[tokio::test]
async fn a_call_says_what_task_it_is_about() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    assert_eq!(receiver.call().await, delivered());
    let (_, request) = receiver.requests.recv().await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!((lines.remove(0), body), ("POST /path?q=1 HTTP/1.1", "{\"n\": 1}"));
    let has = |line: &str| assert!(lines.contains(&line), "{line} is not in {lines:?}");
    has("content-type: application/json");
    has("delay-task-id: 42");
    has("delay-topic: orders");
    has("delay-attempt: 2");
    has("delay-due-ms: 1795236367000");
    has("delay-receipt: abc");
    has("webhook-id: 00c0ffee00c0ffee-42");
    has(concat!("user-agent: delayd/", env!("CARGO_PKG_VERSION")));
    has("content-length: 8");
    let trace = lines.iter().find_map(|line| line.strip_prefix("traceparent: ")).unwrap();
    assert_eq!(trace.split('-').map(str::len).collect::<Vec<_>>(), [2, 32, 16, 2], "{trace}");
    assert!(trace.starts_with("00-") && trace.ends_with("-00"), "{trace}");
}

/// The headers of the next request, as lines.
async fn head_of(receiver: &mut Receiver) -> Vec<String> {
    let (_, request) = receiver.requests.recv().await.unwrap();
    request.split("\r\n\r\n").next().unwrap().lines().skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_service_with_secrets_is_called_with_a_signature_by_each() {
    let mut receiver = Receiver::start(vec![vec![ok(), ok()]]).await;
    let endpoint = receiver
        .services
        .get("s")
        .unwrap()
        .pick()
        .url("/")
        .unwrap()
        .to_string()
        .trim_end_matches('/')
        .to_owned();
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDzzjGJkMzvZw=",
    ];
    let parsed = secrets.iter().map(|secret| secret.parse().unwrap()).collect();
    receiver.configure(vec![endpoint], SuccessRule::DmError, parsed);
    assert_eq!(receiver.call().await, delivered());
    let lines = head_of(&mut receiver).await;
    let headers: http::HeaderMap = lines
        .iter()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    for secret in secrets {
        standardwebhooks::Webhook::new(secret).unwrap().verify(b"{\"n\": 1}", &headers).unwrap();
    }
    assert_eq!(headers["webhook-signature"].to_str().unwrap().split(' ').count(), 2);
}

#[tokio::test]
async fn a_service_without_secrets_is_called_without_a_signature() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    assert_eq!(receiver.call().await, delivered());
    let lines = head_of(&mut receiver).await;
    let signed = |line: &String| {
        line.starts_with("webhook-signature") || line.starts_with("webhook-timestamp")
    };
    assert!(!lines.iter().any(signed), "{lines:?}");
}

#[tokio::test]
async fn a_tasks_headers_go_along_and_replace_none_of_delayds_own() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let given = [
        ("X-Tenant", "a b"),
        ("content-type", "application/cloudevents+json"),
        ("user-agent", "shop/1"),
        ("traceparent", trace),
        ("authorization", "Bearer x"),
    ];
    let headers = Headers::new(given.map(|(name, value)| (name.into(), value.into()))).unwrap();
    assert_eq!(receiver.call_with(&headers).await, delivered());
    let lines = head_of(&mut receiver).await;
    for (name, value) in given {
        let of_name = |line: &&String| line.split(':').next().unwrap().eq_ignore_ascii_case(name);
        assert_eq!(
            lines.iter().filter(of_name).collect::<Vec<_>>(),
            [&format!("{}: {value}", name.to_lowercase())]
        );
    }
    assert!(
        lines.contains(&"delay-task-id: 42".to_owned())
            && lines.contains(&"content-length: 8".to_owned())
    );
    // Values that an unchecked record could hold.
    let forged: Headers = serde_json::from_str(r#"{"delay-task-id":"7","host":"evil"}"#).unwrap();
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    assert_eq!(receiver.call_with(&forged).await, delivered());
    let lines = head_of(&mut receiver).await;
    assert!(
        lines.contains(&"delay-task-id: 42".to_owned())
            && !lines.iter().any(|line| line.contains("evil"))
    );
}

#[tokio::test]
async fn answers_are_judged() {
    let check = async |act: Act, expected: Answer| {
        let receiver = Receiver::start(vec![vec![act]]).await;
        assert_eq!(receiver.call().await, expected);
    };
    check(answer("200 OK", "", r#"{"dm_error":7}"#), failed("200 OK, dm_error 7", Fault::Task))
        .await;
    check(
        answer("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
        failed("302 Found", Fault::Task),
    )
    .await;
    check(answer("410 Gone", "", ""), Answer::Final { outcome: "410 Gone".into() }).await;
    let wait = Some(Duration::from_secs(7));
    let busy = Answer::Failed {
        outcome: "503 Service Unavailable".into(),
        retry_after: wait,
        hold: wait,
        fault: Fault::Destination,
    };
    check(answer("503 Go Away", "retry-after: 7\r\n", ""), busy).await;
    check(
        Act::Close("SSH-2.0-OpenSSH\r\n".into()),
        failed("answer is no HTTP", Fault::Destination),
    )
    .await;
    let broken = "200 OK, but the answer broke off: connection closed early";
    check(
        Act::Close("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".into()),
        failed(broken, Fault::Destination),
    )
    .await;
}

#[tokio::test]
async fn a_refused_connection_says_so_and_its_endpoint_rests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut receiver = Receiver::start(vec![vec![ok(), ok()]]).await;
    let live = receiver.services.get("s").unwrap().pick().url("/").unwrap();
    let live = live.to_string().trim_end_matches('/').to_owned();
    let dead = format!("http://127.0.0.1:{port}");
    receiver.point_at(vec![dead, live], SuccessRule::DmError);
    assert_eq!(receiver.call().await, failed("connection refused", Fault::Destination));
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.seen(), [0, 0]);
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_says_why() {
    let check = async |endpoint: String, connect_timeout: Duration, outcome: &str| {
        let mut receiver = Receiver::start(Vec::new()).await;
        receiver.client = client(connect_timeout);
        receiver.point_at(vec![endpoint], SuccessRule::DmError);
        assert_eq!(receiver.call().await, failed(outcome, Fault::Destination));
    };
    let ample = Duration::from_secs(5);
    check("http://no-such-host.invalid:9000".into(), ample, "name not resolved").await;
    let not_tls = "TLS failed: the answer is not TLS; a port without TLS is called by http://";
    check(format!("https://{}", says(b"HTTP/1.1 400 Bad Request\r\n\r\n").await), ample, not_tls)
        .await;
    let short = Duration::from_millis(50);
    check(format!("https://{}", says(b"").await), short, "no connection within 50ms").await;
}

/// The address of a server that writes this to each connection, and then never closes it.
async fn says(text: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(text).await.unwrap();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    address
}

/// Servers close idle connections, sometimes while the next call is written on one. An attempt was
/// spent on a healthy service.
#[tokio::test]
async fn a_call_on_a_connection_that_had_gone_stale_is_repeated_once_on_a_fresh_one() {
    let mut receiver = Receiver::start(vec![vec![ok(), close()], vec![ok()]]).await;
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.seen(), [0, 0, 1]);
}

#[tokio::test]
async fn the_repeat_does_not_take_another_stale_connection() {
    let both = Arc::new(Barrier::new(2));
    let together = || match ok() {
        Act::Answer(text) => Act::AnswerTogether(Arc::clone(&both), text),
        other => other,
    };
    let mut receiver =
        Receiver::start(vec![vec![together(), close()], vec![together(), close()], vec![ok()]])
            .await;
    tokio::join!(receiver.call(), receiver.call());
    assert_eq!(receiver.seen().len(), 2);
    assert_eq!(receiver.call().await, delivered());
    let seen = receiver.seen();
    assert!(seen.len() == 2 && seen[0] < 2 && seen[1] == 2, "{seen:?}");
}

#[tokio::test]
async fn a_repeat_that_fails_is_not_repeated() {
    let mut receiver = Receiver::start(vec![vec![ok(), close()], vec![close()], vec![ok()]]).await;
    assert_eq!(receiver.call().await, delivered());
    assert_eq!(receiver.call().await, failed("connection closed early", Fault::Destination));
    assert_eq!(receiver.seen(), [0, 0, 1]);
}

#[tokio::test]
async fn a_call_on_a_fresh_connection_is_never_repeated() {
    let mut receiver = Receiver::start(vec![vec![close()], vec![ok()]]).await;
    assert_eq!(receiver.call().await, failed("connection closed early", Fault::Destination));
    assert_eq!(receiver.seen(), [0]);
}

#[tokio::test]
async fn garbage_or_silence_on_a_used_connection_is_not_repeated() {
    let check = async |act: Act, outcome: &str| {
        let mut receiver = Receiver::start(vec![vec![ok(), act], vec![ok()]]).await;
        assert_eq!(receiver.call().await, delivered());
        assert_eq!(
            receiver.call_within(Duration::from_secs(2)).await,
            failed(outcome, Fault::Destination)
        );
        assert_eq!(receiver.seen(), [0, 0]);
    };
    check(Act::Close("SSH-2.0-OpenSSH\r\n\r\n".into()), "answer is no HTTP").await;
    check(Act::Hang, "timed out after 2s").await;
}
