//! Tests of answers that are long, slow, compressed or endless, or have large heads.

use super::super::super::encoding::tests::gzip;
use super::*;

/// A gateway may compress whatever the call asks for. Such a failure once counted as delivered.
#[tokio::test]
async fn an_answer_that_is_compressed_is_judged_all_the_same() {
    let packed = gzip(br#"{"dm_error":7}"#);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncontent-encoding: gzip\r\n\r\n",
        packed.len()
    );
    let act = Act::AnswerBytes([head.as_bytes(), &packed].concat());
    let unknown = answer("200 OK", "content-encoding: br\r\n", "unknown");
    let mut receiver = Receiver::start(vec![vec![act, unknown]]).await;
    let plain = Headers::default();
    let (answer, noted) = receiver.call_noted("s", "/", &plain, Duration::from_secs(10)).await;
    assert_eq!(answer, failed("200 OK, dm_error 7", Fault::Task));
    assert_eq!(noted, r#"{"dm_error":7}"#, "people can read it");
    let head = head_of(&mut receiver).await;
    assert!(head.iter().any(|line| line == "accept-encoding: identity"), "{head:?}");
    let unreadable = "200 OK, but the answer is compressed and cannot be read";
    assert_eq!(receiver.call().await, failed(unreadable, Fault::Task));
}

#[tokio::test]
async fn of_a_long_answer_the_beginning_counts() {
    let padding = "x".repeat(4 * MAX_ANSWER);
    let early = format!(r#"{{"dm_error":7,"padding":"{padding}"}}"#);
    let receiver = Receiver::start(vec![vec![answer("200 OK", "", &early)]]).await;
    assert_eq!(receiver.call().await, failed("200 OK, dm_error 7", Fault::Task));
    let late = format!(r#"{{"padding":"{padding}","dm_error":7}}"#);
    let receiver = Receiver::start(vec![vec![answer("200 OK", "", &late)]]).await;
    assert_eq!(receiver.call().await, delivered());
}

/// Each call in flight could hold a head of 400 KiB.
#[tokio::test]
async fn an_answer_with_a_large_head_is_a_failure() {
    let check = async |bytes: usize, expected: Answer| {
        let large = format!("x-large: {}\r\n", "x".repeat(bytes));
        let receiver = Receiver::start(vec![vec![answer("200 OK", &large, "")]]).await;
        assert_eq!(receiver.call().await, expected, "{bytes}");
    };
    check(30 * 1024, delivered()).await;
    let large = "head of the answer is too large: over 32 KiB, or over 100 headers";
    check(70 * 1024, failed(large, Fault::Destination)).await;
    check(1024 * 1024, failed(large, Fault::Destination)).await;
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_is_given_up() {
    let mut receiver = Receiver::start(vec![vec![Act::Hang], vec![ok()]]).await;
    let answer = receiver.call_within(Duration::from_secs(2)).await;
    assert_eq!(answer, failed("timed out after 2s", Fault::Destination));
    assert_eq!(receiver.seen(), [0]);
}

#[tokio::test]
async fn an_answer_that_never_ends_is_a_failure() {
    let head = || Act::Answer("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".into());
    let receiver = Receiver::start(vec![vec![head(), Act::Hang], vec![head(), Act::Hang]]).await;
    let broken = "200 OK, but the answer broke off: timed out after 2s";
    let endpoint = receiver.services.get("s").unwrap().pick().url("/").unwrap();
    for rule in [SuccessRule::DmError, SuccessRule::Status] {
        receiver.point_at(vec![endpoint.to_string()], rule);
        let answer = receiver.call_within(Duration::from_secs(2)).await;
        assert_eq!(answer, failed(broken, Fault::Destination));
    }
}
