//! Tests of the headers that the operator adds to the calls of a service, and of the timestamp.

use super::super::super::{KnownSecrets, ServiceHeader, Unlisted};
use super::*;

const TOKEN: &str = "Bearer s3cret-token-of-the-operator";

/// The base address of the receiver.
fn endpoint(receiver: &Receiver) -> String {
    let service = receiver.services.get("s").unwrap();
    let url = service.pick().url("/").unwrap().to_string();
    url.trim_end_matches('/').to_owned()
}

fn with_headers(receiver: &Receiver, endpoint: String, headers: &[(&str, &str)]) {
    let headers = headers.iter().map(|(name, value)| ServiceHeader::new(name, value).unwrap());
    let credentials = Credentials { headers: headers.collect(), ..Credentials::default() };
    receiver.configure_with(vec![endpoint], SuccessRule::DmError, Vec::new(), credentials);
}

fn headers(given: &[(&str, &str)]) -> Headers {
    let owned = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Headers::new(owned).unwrap()
}

/// A task that was stored before the operator set the header has its own.
#[tokio::test]
async fn the_operators_headers_win_and_other_services_do_not_get_them() {
    let mut receiver = Receiver::start(vec![vec![ok(); 3]; 3]).await;
    let (base, plain) = (endpoint(&receiver), Headers::default());
    let set = [("Authorization", TOKEN), ("user-agent", "shop"), ("X-Key", "key-of-the-operator")];
    with_headers(&receiver, base.replace("://", "://me:password@"), &set);
    let own = headers(&[
        ("authorization", "Bearer x"),
        ("x-key", "1"),
        // A receiver behind CGI or WSGI takes it for `x-key`.
        ("x_key", "1"),
        ("x-own", "2"),
    ]);
    let of_operator = |name| {
        let names = [name].into_iter();
        receiver.services.header_of_operator(&"s".parse().unwrap(), names).is_some()
    };
    assert!(of_operator("x-key") && of_operator("x_key") && !of_operator("x-own"));
    for given in [&own, &plain] {
        assert_eq!(receiver.call_with(given).await, delivered());
        let lines = head_of(&mut receiver).await;
        let of_name = |name: &str| -> Vec<&str> {
            lines.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
        };
        assert_eq!(of_name("authorization"), [TOKEN]);
        assert_eq!(of_name("user-agent"), ["shop"]);
        assert_eq!(of_name("x-key"), ["key-of-the-operator"]);
        assert_eq!(of_name("x_key"), [""; 0]);
        assert_eq!(of_name("x-own").len(), given.len() / 4);
        assert_eq!(of_name("delay-task-id"), ["42"]);
    }
    // The same server, as an allowed host.
    let hosts = vec!["127.0.0.1".parse().unwrap()];
    receiver.services.allow(Unlisted { hosts, deny_private: false, fallback: None });
    let url = format!("{base}/path");
    let host = receiver.services.host_of(&url).unwrap().unwrap();
    let answer = receiver.call_of(host.as_str(), &url, &plain, Duration::from_secs(10)).await;
    assert_eq!(answer, delivered());
    let lines = head_of(&mut receiver).await;
    let has = |name: &str| lines.iter().any(|line| line.starts_with(name));
    assert!(!has("authorization") && !has("x-key") && has("user-agent: delayd"), "{lines:?}");
}

/// The bytes of a call were the same before services had headers.
#[tokio::test]
async fn a_service_without_headers_is_called_as_before() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    assert_eq!(receiver.call().await, delivered());
    let mut names: Vec<_> = head_of(&mut receiver)
        .await
        .iter()
        .map(|line| line.split(':').next().unwrap().to_owned())
        .collect();
    names.sort();
    let mut expected = [
        "content-type",
        "accept",
        "accept-encoding",
        "user-agent",
        "traceparent",
        "delay-task-id",
        "delay-topic",
        "delay-attempt",
        "delay-due-ms",
        "delay-receipt",
        "webhook-id",
        "host",
        "content-length",
    ];
    expected.sort();
    assert_eq!(names, expected);
    let service = receiver.services.get("s").unwrap();
    assert!(service.known_secrets().is_empty());
}

/// A receiver for developers shows the headers that it got in its error page.
#[tokio::test]
async fn an_answer_shows_no_secret_that_the_call_brought() {
    let check = async |act: Act, expected: (&str, &str)| {
        let receiver = Receiver::start(vec![vec![act]]).await;
        let base = endpoint(&receiver).replace("://", "://me:pass%2Fword@");
        with_headers(&receiver, base, &[("authorization", TOKEN), ("x-key", "12345")]);
        let (answer, noted) =
            receiver.call_noted("s", "/", &Headers::default(), Duration::from_secs(10)).await;
        assert_eq!((answer.outcome(), noted.as_str()), expected);
    };
    let page = format!("authorization: {TOKEN}, x-key: 12345");
    let error = "500 Internal Server Error";
    check(answer(error, "", &page), (error, "authorization: ***, x-key: ***")).await;
    check(answer(error, "", &TOKEN[7..]), (error, "***")).await;
    check(answer(error, "", "pass/word bWU6cGFzcy93b3Jk"), (error, "*** ***")).await;
    check(answer(error, "", r"pass\/word"), (error, "***")).await;
    // A number in an outcome.
    let body = r#"{"dm_error":12345}"#;
    check(answer("200 OK", "", body), ("200 OK, dm_error ***", r#"{"dm_error":***}"#)).await;
    // The secret lies across the end of what a note shows.
    let long = format!("{}{TOKEN}", "x".repeat(2_040));
    check(answer(error, "", &long), (error, &format!("{}***", "x".repeat(2_040)))).await;
    // The answer breaks off within the secret.
    let cut = format!("HTTP/1.1 500 E\r\ncontent-length: 99\r\n\r\nx {}", &TOKEN[..20]);
    check(Act::Close(cut), (error, "x ***")).await;
}

/// The bodies of answers are read up to 64 KiB. If they hold many secrets, the end of that is among
/// the first 2 KiB of what remains.
#[tokio::test]
async fn the_beginning_of_a_secret_at_the_end_of_a_long_answer_is_not_shown() {
    let body = TOKEN.repeat(64 * 1024 / TOKEN.len() + 2);
    let receiver = Receiver::start(vec![vec![answer("500 E", "", &body)]]).await;
    with_headers(&receiver, endpoint(&receiver), &[("authorization", TOKEN)]);
    let plain = Headers::default();
    let (_, noted) = receiver.call_noted("s", "/", &plain, Duration::from_secs(10)).await;
    assert_eq!(noted, "***");
}

#[test]
fn secrets_that_appear_later_can_be_added() {
    let known = KnownSecrets::new([TOKEN]);
    let and_token = known.and(["a-new-token"]);
    assert_eq!(and_token.redact(&format!("{TOKEN} a-new-token")), "*** ***");
}

/// Receivers refuse timestamps that are more than five minutes off.
#[tokio::test]
async fn an_instance_whose_clock_is_wrong_signs_by_the_clock_that_it_is_told() {
    let mut receiver = Receiver::start(vec![vec![ok()]]).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
    receiver.configure(vec![endpoint(&receiver)], SuccessRule::DmError, vec![secret]);
    let clock = Clock::manual(UnixMillis(1_795_236_367_000));
    let params = Params { clock, ..params(Duration::from_secs(2)) };
    receiver.client = Client::new(params).unwrap();
    receiver.clock_ahead_ms = -3_600_000;
    assert_eq!(receiver.call().await, delivered());
    let lines = head_of(&mut receiver).await;
    assert!(lines.iter().any(|line| line == "webhook-timestamp: 1795232767"), "{lines:?}");
}
