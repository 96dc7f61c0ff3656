//! Tests of what a response means.

use super::super::success::{Expected, ValueRule};
use super::*;

const NOW: UnixMillis = UnixMillis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

fn judge(
    status: u16,
    headers: &[(&'static str, &'static str)],
    body: &str,
    success: SuccessRule,
) -> Answer {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    let reply = Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers: &headers,
        body: body.as_bytes(),
        broken: None,
        is_cut: false,
        is_unreadable: false,
    };
    replied(&reply, &AnswerRules { success: &success, final_statuses: &[410], now: NOW })
}

fn failed(outcome: &str, fault: Fault) -> Answer {
    Answer::Failed { outcome: outcome.into(), retry_after: None, hold: None, fault }
}

fn delivered(outcome: &str) -> Answer {
    Answer::delivered(outcome)
}

#[test]
fn the_status_decides_unless_a_dm_error_does() {
    let check = |status: u16, body: &str, expected: Answer| {
        assert_eq!(judge(status, &[], body, SuccessRule::DmError), expected, "{status} {body}");
    };
    check(200, "", delivered("200 OK"));
    check(204, "", delivered("204 No Content"));
    check(202, "done", delivered("202 Accepted"));
    check(299, "", delivered("299"));
    check(200, r#"{"dm_error":0}"#, delivered("200 OK"));
    check(200, r#"{"dm_error":-0.0}"#, delivered("200 OK"));
    // Some languages write every value as a text. It once counted as delivered.
    check(200, r#"{"dm_error":"7"}"#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#"{"dm_error":"-1"}"#, failed("200 OK, dm_error -1", Fault::Task));
    check(200, r#"{"dm_error":"007"}"#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#"{"dm_error":"0"}"#, delivered("200 OK"));
    check(200, r#"{"dm_error":"00"}"#, delivered("200 OK"));
    check(200, r#"{"dm_error":""}"#, delivered("200 OK"));
    check(200, r#"{"dm_error":"none"}"#, delivered("200 OK"));
    let long = format!(r#"{{"dm_error":"{}"}}"#, "9".repeat(1_000));
    check(200, &long, failed("200 OK, dm_error 18446744073709551615", Fault::Task));
    check(200, r#"{"dm_error":null}"#, delivered("200 OK"));
    check(200, r#"{"data":{"dm_error":7}}"#, delivered("200 OK"));
    check(200, "[7]", delivered("200 OK"));
    check(200, r#"{"dm_error":7"#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#"{"dm_error":7,"data":"cut of"#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#"{"data":"cut of"#, delivered("200 OK"));
    check(200, r#"{"dm_error":7,"dm_error":7}"#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, "\u{feff}{\"dm_error\":7}", failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#" {"error_msg":"no","dm_error":7} "#, failed("200 OK, dm_error 7", Fault::Task));
    check(200, r#"{"dm_error":-1}"#, failed("200 OK, dm_error -1", Fault::Task));
    check(200, r#"{"dm_error":0.5}"#, failed("200 OK, dm_error 0.5", Fault::Task));
    check(301, "", failed("301 Moved Permanently", Fault::Task));
    check(404, "", failed("404 Not Found", Fault::Task));
    check(408, "", failed("408 Request Timeout", Fault::Task));
    check(429, "", failed("429 Too Many Requests", Fault::Destination));
    check(500, r#"{"dm_error":0}"#, failed("500 Internal Server Error", Fault::Destination));
    check(599, "", failed("599", Fault::Destination));
    check(410, "", Answer::Final { outcome: "410 Gone".into() });
}

#[test]
fn a_rule_about_the_answer_decides_where_the_status_is_right() {
    let rule = |statuses: Option<Vec<u16>>, missing_is_success: bool| {
        let equals = vec![Expected::Number(0.into())];
        let value = ValueRule { pointer: "/code".parse().unwrap(), equals, missing_is_success };
        SuccessRule::Answer(AnswerRule { statuses, value: Some(value) })
    };
    let strict = rule(None, false);
    let listed = rule(Some(vec![200, 404, 410, 500]), true);
    let check = |rule: &SuccessRule, status: u16, body: &str, expected: Answer| {
        assert_eq!(judge(status, &[], body, rule.clone()), expected, "{status} {body}");
    };
    let task = |outcome: &str| failed(outcome, Fault::Task);
    check(&strict, 200, r#"{"code":0,"dm_error":7}"#, delivered("200 OK"));
    check(&strict, 299, r#"{"code":0}"#, delivered("299"));
    check(&strict, 200, r#"{"code":5}"#, task("200 OK, /code is 5"));
    check(&strict, 204, "", task("204 No Content, but the answer is not JSON"));
    check(&strict, 404, r#"{"code":0}"#, task("404 Not Found"));
    check(&strict, 500, r#"{"code":0}"#, failed("500 Internal Server Error", Fault::Destination));
    check(&listed, 404, "", delivered("404 Not Found"));
    check(&listed, 500, r#"{"code":0}"#, delivered("500 Internal Server Error"));
    check(&listed, 500, r#"{"code":5}"#, task("500 Internal Server Error, /code is 5"));
    check(
        &listed,
        204,
        r#"{"code":0}"#,
        task("204 No Content, which is not among the statuses of success"),
    );
    check(&listed, 410, r#"{"code":0}"#, delivered("410 Gone"));
    let is_final = Answer::Final { outcome: "410 Gone, /code is 5".into() };
    check(&listed, 410, r#"{"code":5}"#, is_final);
    let statuses = SuccessRule::Answer(AnswerRule { statuses: Some(vec![404]), value: None });
    check(&statuses, 404, "<html>", delivered("404 Not Found"));
    let not_listed = "200 OK, which is not among the statuses of success";
    check(&statuses, 200, "", task(not_listed));
}

#[test]
fn a_receiver_that_acknowledges_later_need_not_answer_the_value() {
    let value = ValueRule {
        pointer: "/code".parse().unwrap(),
        equals: vec![Expected::Number(0.into())],
        missing_is_success: false,
    };
    let rule = SuccessRule::Answer(AnswerRule { statuses: None, value: Some(value) });
    let check = |body: &str, expected: Answer| {
        assert_eq!(judge(202, &[("delay-ack", "later")], body, rule.clone()), expected);
    };
    check("", Answer::Accepted { lease: None });
    check(r#"{"code":0}"#, Answer::Accepted { lease: None });
    check(r#"{"code":5}"#, failed("202 Accepted, /code is 5", Fault::Task));
}

#[test]
fn an_ambiguous_success_names_the_field() {
    let check = |success: SuccessRule, status: u16, ambiguous: Option<&'static str>| {
        let expected =
            Answer::Delivered { outcome: status_text(status.try_into().unwrap()), ambiguous };
        assert_eq!(judge(status, &[], r#"{"code":500}"#, success), expected);
    };
    check(SuccessRule::DmError, 200, Some("code"));
    check(SuccessRule::DmError, 201, Some("code"));
    check(SuccessRule::Status, 200, None);
}

#[test]
fn the_status_rule_does_not_look_at_the_answer() {
    assert_eq!(judge(200, &[], r#"{"dm_error":7}"#, SuccessRule::Status), delivered("200 OK"));
}

#[test]
fn a_202_may_say_that_the_acknowledgement_follows() {
    let later = |lease: Option<u64>| Answer::Accepted { lease: lease.map(Duration::from_millis) };
    let check =
        |status: u16, headers: &[(&'static str, &'static str)], body: &str, expected: Answer| {
            assert_eq!(
                judge(status, headers, body, SuccessRule::DmError),
                expected,
                "{status} {headers:?} {body}"
            );
        };
    let ack = ("delay-ack", "later");
    check(202, &[ack], "", later(None));
    check(202, &[("delay-ack", " Later ")], r#"{"dm_error":0}"#, later(None));
    check(202, &[ack, ("delay-lease", "90")], "", later(Some(90_000)));
    check(202, &[ack, ("delay-lease", "5m")], "", later(Some(300_000)));
    check(202, &[ack, ("delay-lease", "0")], "", later(Some(1_000)));
    check(202, &[ack, ("delay-lease", "99999h")], "", later(Some(99_999 * 3_600_000)));
    check(202, &[ack, ("delay-lease", "3600")], "", later(Some(3_600_000)));
    // `delay-lease: 30000`, meant as milliseconds, was once read as 8 hours.
    check(202, &[ack, ("delay-lease", "3601")], "", later(None));
    check(202, &[ack, ("delay-lease", "30000")], "", later(None));
    check(202, &[ack, ("delay-lease", "30000ms")], "", later(Some(30_000)));
    check(202, &[ack, ("delay-lease", "99999999999999999999")], "", later(None));
    check(202, &[ack, ("delay-lease", "soon")], "", later(None));
    check(202, &[("delay-ack", "now")], "", delivered("202 Accepted"));
    check(202, &[("delay-lease", "5m")], "", delivered("202 Accepted"));
    check(200, &[ack], "", delivered("200 OK"));
    check(202, &[ack], r#"{"dm_error":7}"#, failed("202 Accepted, dm_error 7", Fault::Task));
    check(503, &[ack], "", failed("503 Service Unavailable", Fault::Destination));
}

#[test]
fn delay_no_retry_is_final_whatever_the_failure() {
    let check = |status: u16, value: &'static str, is_final: bool| {
        let answer =
            judge(status, &[("delay-no-retry", value)], r#"{"dm_error":7}"#, SuccessRule::DmError);
        assert_eq!(matches!(answer, Answer::Final { .. }), is_final, "{status} {value}");
    };
    check(500, "true", true);
    check(400, "true", true);
    check(200, "true", true);
    check(500, "false", false);
    check(500, "", false);
    // Some services always send it, because they never want a retry.
    assert_eq!(
        judge(200, &[("delay-no-retry", "true")], "", SuccessRule::DmError),
        delivered("200 OK")
    );
}

#[test]
fn retry_after_puts_off_the_task_and_on_429_and_503_the_destination() {
    let check = |status: u16, value: &'static str, task: Option<u64>, destination: Option<u64>| {
        let answer = judge(status, &[("retry-after", value)], "", SuccessRule::DmError);
        let Answer::Failed { retry_after, hold, .. } = answer else { panic!("{answer:?}") };
        let seconds = |wait: Option<Duration>| wait.map(|wait| wait.as_secs());
        assert_eq!((seconds(retry_after), seconds(hold)), (task, destination), "{status} {value}");
    };
    check(503, "120", Some(120), Some(120));
    check(429, "1", Some(1), Some(1));
    check(500, "120", Some(120), None);
    check(404, "120", Some(120), None);
    check(503, "Sun, 06 Nov 1994 08:51:37 GMT", Some(120), Some(120));
    check(503, "Sun, 06 Nov 1994 08:49:00 GMT", None, None);
    check(503, "86401", Some(86_400), Some(86_400));
    check(503, "99999999999999999999999", Some(86_400), Some(86_400));
    check(503, "0", None, None);
    check(503, "-1", None, None);
    // Some servers send a fraction of a second. It was once ignored.
    check(503, "1.5", Some(2), Some(2));
    check(503, "0.001", Some(1), Some(1));
    check(503, "7.000", Some(7), Some(7));
    check(503, "99999999999999999999.5", Some(86_400), Some(86_400));
    check(503, "0.0", None, None);
    check(503, "1.", None, None);
    check(503, ".5", None, None);
    check(503, "1.5.2", None, None);
    check(503, "1.5s", None, None);
    check(503, "soon", None, None);
    check(503, "", None, None);
}

/// With a clock that was an hour slow, a wait of two minutes lasted for an hour and two minutes.
#[test]
fn a_retry_after_that_is_a_date_counts_from_the_date_of_its_answer() {
    let check = |date: &'static str, value: &'static str, expected: Option<u64>| {
        let headers = [("date", date), ("retry-after", value)];
        let answer = judge(500, &headers, "", SuccessRule::DmError);
        let Answer::Failed { retry_after, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(retry_after.map(|wait| wait.as_secs()), expected, "{date} {value}");
    };
    let at_ten = "Sun, 06 Nov 1994 10:00:00 GMT";
    check(at_ten, "Sun, 06 Nov 1994 10:02:00 GMT", Some(120));
    check(at_ten, "Sun, 06 Nov 1994 09:59:00 GMT", None);
    check(at_ten, "120", Some(120));
    check("now", "Sun, 06 Nov 1994 08:51:37 GMT", Some(120));
}

#[test]
fn an_answer_that_broke_off_is_no_success_under_any_rule() {
    let check = |status: u16, success: SuccessRule, expected: Answer| {
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &HeaderMap::new(),
            body: br#"{"code":0}"#,
            broken: Some(Trouble::Reset),
            is_cut: false,
            is_unreadable: false,
        };
        let rules = AnswerRules { success: &success, final_statuses: &[410], now: NOW };
        assert_eq!(replied(&reply, &rules), expected);
    };
    let broken = failed("200 OK, but the answer broke off: connection reset", Fault::Destination);
    let code = ValueRule {
        pointer: "/code".parse().unwrap(),
        equals: vec![Expected::Number(0.into())],
        missing_is_success: true,
    };
    check(200, SuccessRule::DmError, broken.clone());
    check(200, SuccessRule::Status, broken.clone());
    for (statuses, value) in [(None, Some(code)), (Some(vec![200]), None)] {
        check(200, SuccessRule::Answer(AnswerRule { statuses, value }), broken.clone());
    }
    check(404, SuccessRule::DmError, failed("404 Not Found", Fault::Task));
    check(410, SuccessRule::DmError, Answer::Final { outcome: "410 Gone".into() });
}

/// It may say that the call failed.
#[test]
fn an_answer_that_cannot_be_decoded_is_no_success_if_its_body_matters() {
    let check = |status: u16, body: &[u8], success: &SuccessRule, expected: Answer| {
        let later = [("delay-ack".parse().unwrap(), "later".parse().unwrap())];
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &later.into_iter().collect(),
            body,
            broken: None,
            is_cut: false,
            is_unreadable: true,
        };
        assert_eq!(
            replied(&reply, &AnswerRules { success, final_statuses: &[410], now: NOW }),
            expected
        );
    };
    let rule = |missing_is_success: bool| {
        let equals = vec![Expected::Number(0.into())];
        let value = ValueRule { pointer: "/code".parse().unwrap(), equals, missing_is_success };
        SuccessRule::Answer(AnswerRule { statuses: None, value: Some(value) })
    };
    let unreadable = failed("200 OK, but the answer is compressed and cannot be read", Fault::Task);
    check(200, b"", &SuccessRule::DmError, unreadable.clone());
    check(200, b"{\"a\":1", &SuccessRule::DmError, unreadable.clone());
    let error = failed("200 OK, dm_error 7", Fault::Task);
    check(200, b"{\"dm_error\":7", &SuccessRule::DmError, error);
    check(200, b"", &rule(false), unreadable);
    check(200, b"", &rule(true), delivered("200 OK"));
    check(200, b"", &SuccessRule::Status, delivered("200 OK"));
    check(202, b"", &SuccessRule::DmError, Answer::Accepted { lease: None });
    check(404, b"", &SuccessRule::DmError, failed("404 Not Found", Fault::Task));
}

#[test]
fn no_answer_is_the_destinations_fault_unless_it_is_ours() {
    let check = |trouble: Trouble, expected: Answer| assert_eq!(unanswered(trouble), expected);
    check(
        Trouble::TimedOut(Duration::from_secs(15)),
        failed("timed out after 15s", Fault::Destination),
    );
    check(
        Trouble::ConnectTimedOut(Duration::from_secs(2)),
        failed("no connection within 2s", Fault::Destination),
    );
    check(Trouble::Refused, failed("connection refused", Fault::Destination));
    check(Trouble::TooManyFiles, failed("too many open files in delayd", Fault::Here));
}
