use super::*;
use crate::api::testing::services;

const NOW: UnixMillis = UnixMillis(1_795_234_567_000);

const WINDOW: Duration = Duration::from_secs(86_400);

fn rules(services: &Services) -> TaskRules<'_> {
    TaskRules {
        now: NOW,
        max_delay: Duration::from_secs(3650 * 86400),
        content_limit: 100,
        services,
        idempotency_window: WINDOW,
        mode_of: &|topic| (topic.as_str() == "pulled").then_some(Mode::Pull),
        header_key: None,
    }
}

fn read_task(json: &str) -> Result<CheckedTask, Error> {
    read(json.as_bytes(), &rules(&services()))
}

/// Reads a valid task with `fields` before its own.
fn read_with(fields: &str) -> Result<CheckedTask, Error> {
    read_task(&format!(r#"{{{fields}"topic":"t","content":"{{}}"}}"#))
}

#[test]
fn a_due_moment_is_unix_seconds_kept_to_the_millisecond() {
    let check = |number: &str, millis: i64| {
        let moment = read_with(&format!(r#""timing_moment":{number},"#)).unwrap().moment;
        assert_eq!(moment, Moment::At(UnixMillis(millis)), "{number}");
    };
    check("1795234567", 1_795_234_567_000);
    check("1795234567.25", 1_795_234_567_250);
    check("1795234567.0004", 1_795_234_567_000);
    check("1795234567.0006", 1_795_234_567_001);
    check("1795234567.999", 1_795_234_567_999);
    check("1795234567.123456", 1_795_234_567_123);
    check("1.795234567e9", 1_795_234_567_000);
    check("1000000000", 1_000_000_000_000);
    // Ten years minus one second.
    check("2110594566.007", 2_110_594_566_007);
}

#[test]
fn a_moment_that_cannot_be_meant_is_refused_with_the_reason() {
    let check = |fields: &str, says: &str| {
        let said = read_with(fields).unwrap_err().to_string();
        assert!(said.contains(says), "{fields}: {said}");
    };
    check(r#""timing_moment":30,"#, "looks like a delay");
    check(r#""timing_moment":0,"#, "looks like a delay");
    check(r#""timing_moment":-5,"#, "looks like a delay");
    check(r#""timing_moment":999999999.9,"#, "looks like a delay");
    check(r#""timing_moment":1795234567000,"#, "can only be milliseconds");
    check(r#""timing_moment":100000000000,"#, "can only be milliseconds");
    check(r#""timing_moment":99999999999,"#, "timing_moment: must be at most 3650d");
    check(r#""timing_moment":2110594568,"#, "from now");
    check(r#""timing_moment":"1795234567","#, "timing_moment: must be a number, not string");
    check(r#""delay":"3651d","#, "delay: must be from 0s to");
    check(r#""delay":-1,"#, "delay: must be a duration of 0 or more");
    check("", "delay, timing_moment and at: give exactly one of the three");
    check(r#""delay":1,"timing_moment":1795234567,"#, "give exactly one of the three");
    check(r#""delay":null,"timing_moment":null,"#, "give exactly one of the three");
}

#[test]
fn a_delay_counts_from_the_stores_now() {
    let check = |delay: &str, millis: u64| {
        let moment = read_with(&format!(r#""delay":{delay},"#)).unwrap().moment;
        assert_eq!(moment, Moment::After(Duration::from_millis(millis)), "{delay}");
    };
    check("0", 0);
    check("1.5", 1_500);
    check(r#""30m""#, 1_800_000);
    check(r#""3650d""#, 3650 * 86_400_000);
}

#[test]
fn content_is_kept_byte_for_byte() {
    let check = |content: &str, kept: &str| {
        let read = read_task(&format!(r#"{{"topic":"t","delay":1,"content":{content}}}"#));
        assert_eq!(read.unwrap().content, kept, "{content}");
    };
    check(r#"{ "b":1.0,  "a":1e2 }"#, r#"{ "b":1.0,  "a":1e2 }"#);
    check(r#"{"a":"\u00e9\ud800"}"#, r#"{"a":"\u00e9\ud800"}"#);
    check(r#""{\"a\": \"\\u00e9\"} ""#, r#"{"a": "\u00e9"} "#);
    check(r#""\u007b\u007d""#, "{}");
}

#[test]
fn content_says_who_gets_it_unless_mode_does() {
    let check = |mode: &str, content: &str, expected: &str| {
        let read =
            read_task(&format!(r#"{{"topic":"t","delay":1,"mode":{mode},"content":{content}}}"#));
        let said = match read {
            Ok(task) => task.destination.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{mode} {content}: {said}");
    };
    let (known, unknown) =
        (r#"{"sn":"message.call","url":"/call"}"#, r#"{"sn":"other","url":"/call"}"#);
    check("null", known, "message.call");
    check(r#""auto""#, r#""{\"sn\":\"message.call\",\"url\":\"/call\"}""#, "message.call");
    check(r#""push""#, known, "message.call");
    check(r#""pull""#, known, "@pull");
    check(r#""auto""#, r#"{"order":7}"#, "@pull");
    check(r#""pull""#, r#""any text""#, "@pull");
    check(r#""pull""#, r#""""#, "@pull");
    check(r#""pull""#, unknown, "@pull");
    check(r#""auto""#, unknown, r#"content.sn: "other" is not a service that is known here"#);
    check(r#""push""#, unknown, r#"content.sn: "other" is not a service that is known here"#);
    assert_eq!(service_hint("other", &[]), "no service is configured");
    check(r#""push""#, r#"{"order":7}"#, "must have sn (the service) and url");
    check(r#""push""#, r#""any text""#, "must hold a JSON object with sn and url");
    check(r#""auto""#, r#""any text""#, r#"set mode to "pull" to store any text as it is"#);
    check(r#""auto""#, r#""{} trailing""#, r#"set mode to "pull""#);
    check(r#""auto""#, r#""[1]""#, r#"set mode to "pull""#);
    check(r#""auto""#, r#"{"sn":"message.call"}"#, "url");
    // It was once stored with mode pull, and never called back.
    for mode in [r#""auto""#, r#""push""#] {
        check(
            mode,
            r#"{"url":"/call"}"#,
            r#"content.sn is missing: with a content.url, it names the service to call"#,
        );
        check(mode, r#""{\"url\":\"/call\"}""#, r#"set mode to "pull""#);
        check(mode, r#"{"url":"https://shop.example/call"}"#, r#"set mode to "pull""#);
    }
    check(r#""pull""#, r#"{"url":"/call"}"#, "@pull");
    check(r#""auto""#, r#"{"sn":"message.call","url":"//evil"}"#, "url");
    check(r#""pull""#, "[1]", "must be a JSON object, or a string that holds one");
    check(r#""pull""#, "7", "must be a JSON object, or a string that holds one");
    check(r#""pull""#, r#""\ud800""#, "whole Unicode characters");
    check(r#""later""#, known, r#"mode: must be one of "auto", "push", "pull", not "later""#);
}

#[test]
fn content_has_a_limit_and_a_depth() {
    let of_length = |length: usize| {
        format!(r#"{{"topic":"t","delay":1,"mode":"pull","content":"{}"}}"#, "x".repeat(length))
    };
    assert!(read_task(&of_length(100)).is_ok());
    let error = read_task(&of_length(101)).unwrap_err();
    assert_eq!(
        (error.code().number(), error.to_string().as_str()),
        (1013, "content: is larger than 100 B")
    );

    let services = services();
    let rules = TaskRules { content_limit: 100_000, ..rules(&services) };
    let deep = format!(
        r#"{{"topic":"t","delay":1,"content":{{"a":{}{}}}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let said = read(deep.as_bytes(), &rules).unwrap_err().to_string();
    assert_eq!(said, "content: is nested deeper than 128 levels");
}

#[test]
fn a_tasks_own_settings_keep_to_their_ranges() {
    let check = |fields: &str, says: &str| {
        let said = read_with(&format!(r#""delay":1,{fields},"#)).unwrap_err().to_string();
        assert!(said.contains(says), "{fields}: {said}");
    };
    check(r#""max_attempts":0"#, "max_attempts: must be a whole number from 1 to 1000");
    check(r#""max_attempts":1001"#, "max_attempts: must be a whole number from 1 to 1000");
    check(r#""max_attempts":"3""#, "max_attempts: must be a number, not string");
    check(r#""timeout":"99ms""#, "timeout: must be from 100ms to 10m");
    check(r#""timeout":601"#, "timeout: must be from 100ms to 10m");
    check(r#""backoff":"1s""#, "backoff: must be an object, not a string");
    check(r#""backoff":{"kind":"fixed"}"#, "backoff.every: is missing");
    check(
        r#""backoff":{"kind":"fixed","every":0}"#,
        "backoff.every: must be from 1ms to 365d, not 0s",
    );
    check(
        r#""backoff":{"kind":"fixed","every":1,"evry":1}"#,
        r#"backoff: unknown field "evry": did you mean "every"?"#,
    );
    check(r#""headers":{"x-a":5}"#, "headers.x-a: must be a string, not integer 5");

    let task = read_with(
        r#""delay":1,"max_attempts":5,"timeout":"2s",
        "backoff":{"kind":"exponential","base":1,"max":null},"#,
    );
    let options = task.unwrap().options;
    assert_eq!((options.max_attempts, options.timeout), (Some(5), Some(Span::seconds(2))));
    let default_max = Backoff::Exponential {
        base: Span::seconds(1),
        factor: 2.0,
        max: Span::seconds(10_800),
        jitter: 0.0,
    };
    assert_eq!(options.backoff, Some(default_max));
}

/// serde read the kind from a copy of the fields: errors named no field, but a "variant
/// identifier".
#[test]
fn an_error_within_a_backoff_names_the_field() {
    let check = |fields: &str, says: &str| {
        let said = read_with(&format!(r#""delay":1,"backoff":{fields},"#)).unwrap_err().to_string();
        assert_eq!(said, format!("backoff{says}"), "{fields}");
    };
    let kinds = r#".kind: must be one of "exponential", "fixed", "list""#;
    check("{}", ".kind: is missing");
    check(r#"{"kind":5}"#, &format!("{kinds}, not integer 5"));
    check(r#"{"kind":["fixed"]}"#, &format!("{kinds}, not a list"));
    check(r#"{"kind":"often"}"#, &format!("{kinds}, not \"often\""));
    let duration = "must be a duration: a number of seconds or a string such as \"1500ms\", \
                    \"10s\", \"5m\", \"2h\" or \"7d\"";
    check(r#"{"kind":"fixed","every":true}"#, &format!(".every: {duration}, not boolean true"));
    check(r#"{"kind":"fixed","every":1,"every":2}"#, ".every: is given more than once");
    check(
        r#"{"kind":"fixed","every":1,"base":2}"#,
        r#": unknown field "base": the fields are every"#,
    );
    check(r#"{"kind":"list","steps":5}"#, ".steps: must be a list, not integer 5");
    check(
        r#"{"kind":"list","steps":[1,true]}"#,
        &format!(".steps[1]: {duration}, not boolean true"),
    );
    check(r#"{"kind":"list","steps":[]}"#, ".steps: must hold 1 to 100 durations, not 0");
    check(r#"{"kind":"list","steps":[1,0]}"#, ".steps: must each be from 1ms to 365d, not 0s");
    check(
        r#"{"kind":"exponential","base":1,"factor":"2"}"#,
        r#".factor: must be a number, not string "2""#,
    );
    check(
        r#"{"kind":"exponential","base":1,"factor":0.5}"#,
        ".factor: must be from 1 to 100, not 0.5",
    );
    check(
        r#"{"kind":"exponential","base":"2h","max":"1h"}"#,
        ".base: must be at most max, 1h, not 2h",
    );
}

#[test]
fn what_is_missing_is_said() {
    let check = |json: &str, says: &str| {
        assert_eq!(read_task(json).unwrap_err().to_string(), says, "{json}")
    };
    check(r#"{"delay":1,"content":"{}"}"#, "topic: is missing");
    check(r#"{"topic":"t","delay":1}"#, "content: is missing");
    check(r#"{"topic":"t","delay":1,"content":null}"#, "content: is missing");
}

#[test]
fn a_topics_mode_goes_before_auto_and_the_tasks_own_before_the_topics() {
    let destination = |mode: &str| {
        let content = r#"{"sn":"message.call","url":"/call"}"#;
        let task =
            read_task(&format!(r#"{{"topic":"pulled","delay":1,{mode}"content":{content}}}"#));
        task.unwrap().destination.to_string()
    };
    assert_eq!(destination(""), "@pull");
    assert_eq!(destination(r#""mode":"auto","#), "message.call");
    assert_eq!(destination(r#""mode":"push","#), "message.call");
}

#[test]
fn keys_expiry_and_the_call_for_the_dead_are_read_and_checked() {
    let task = read_with(
        r#""delay":1,"idempotency_key":"order-7","key":"user-7","expires_after":"10m",
           "on_dead":{"sn":"message.call","url":"/dead"},"#,
    );
    let task = task.unwrap();
    let key = task.idempotency.unwrap();
    assert_eq!((key.key.as_str(), key.window), ("order-7", WINDOW));
    let Options { key, expires_after, on_dead, .. } = task.options;
    assert_eq!((key.as_deref(), expires_after), (Some("user-7"), Some(Span::seconds(600))));
    let on_dead = on_dead.unwrap();
    assert_eq!(
        (on_dead.sn.as_str(), on_dead.url.as_str(), on_dead.task_id),
        ("message.call", "/dead", None)
    );

    let check = |fields: &str, says: &str| {
        let said = read_with(&format!(r#""delay":1,{fields},"#)).unwrap_err().to_string();
        assert!(said.contains(says), "{fields}: {said}");
    };
    check(r#""idempotency_key":"""#, "idempotency_key: must be 1 to 256 bytes long");
    check(r#""key":"""#, "key: must be 1 to 256 bytes long");
    check(r#""key":7"#, "key: must be a string, not integer 7");
    check(r#""expires_after":0"#, "expires_after: must be from 1ms to 3650d");
    check(r#""on_dead":{"url":"/x"}"#, "on_dead.sn: is missing");
    check(r#""on_dead":{"sn":"message.call"}"#, "on_dead.url: is missing");
    check(
        r#""on_dead":{"sn":"other","url":"/x"}"#,
        "on_dead.sn: \"other\" is not a service that is known here",
    );
    check(r#""on_dead":{"sn":"message.call","url":"//evil"}"#, "on_dead.url: must be a path");
    check(
        r#""on_dead":{"sn":"message.call","url":"/../admin"}"#,
        "on_dead.url: must hold no segment . or ..",
    );
    check(
        r#""on_dead":{"sn":"message.call","url":"/x","on_dead":{}}"#,
        "unknown field \"on_dead\"",
    );
}

#[test]
fn the_headers_idempotency_key_stands_for_the_fields() {
    let services = services();
    let read_both = |header, json: &str| {
        let rules = TaskRules { header_key: Some(header), ..rules(&services) };
        read(json.as_bytes(), &rules).map(|task| task.idempotency.unwrap().key)
    };
    let plain = r#"{"topic":"t","delay":1,"content":{}}"#;
    assert_eq!(read_both("k", plain).unwrap(), "k");
    let with_field = r#"{"topic":"t","delay":1,"content":{},"idempotency_key":"k"}"#;
    assert_eq!(read_both("k", with_field).unwrap(), "k");
    let said = read_both("other", with_field).unwrap_err().to_string();
    assert!(said.contains("differs from the header"), "{said}");
}

#[test]
fn headers_are_checked_and_kept() {
    let read = |headers: &str| read_with(&format!(r#""delay":1,"headers":{headers},"#));
    let check = |headers: &str, says: &str| {
        let said = read(headers).unwrap_err().to_string();
        assert!(said.contains(says), "{headers}: {said}");
    };
    check(r#"{"Host":"evil"}"#, r#"headers: "Host" is delayd's own business"#);
    check(r#"{"webhook-id":"7"}"#, "delayd's own business");
    check(r#"{"x-a":"1\r\nhost: evil"}"#, r#"headers: the value of "x-a" must be one line"#);
    check(r#"{"x-a":"1","X-A":"2"}"#, "more than once");
    check(r#"{"x-a":"1","x-a":"2"}"#, "more than once");
    check(r#"{"x-a":1}"#, "headers.x-a: must be a string, not integer 1");
    check(r#"["x-a"]"#, "headers: must be an object, not a list");
    check(r#""x-a: 1""#, "headers: must be an object, not a string");
    let many: Vec<_> = (0..33).map(|n| format!(r#""x-{n}":"v""#)).collect();
    check(&format!("{{{}}}", many.join(",")), "headers: must be at most 32");
    let kept = read(r#"{"X-Tenant":"a","x-none":null}"#).unwrap().options.headers;
    assert_eq!(serde_json::to_string(&kept).unwrap(), r#"{"x-tenant":"a"}"#);
    assert!(read("null").unwrap().options.is_default() && read("{}").unwrap().options.is_default());
}

#[test]
fn an_absolute_url_is_pushed_to_an_allowed_host() {
    let services = services();
    let allow = |hosts: &[&str], deny_private| {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        services.allow(crate::callback::Unlisted {
            hosts,
            deny_private,
            fallback: "http://{sn}:80".parse().ok(),
        });
    };
    let check = |mode: &str, content: &str, expected: &str| {
        let rules = TaskRules { content_limit: 1000, ..rules(&services) };
        let task = format!(r#"{{"topic":"t","delay":1,"mode":"{mode}","content":{content}}}"#);
        let said = read(task.as_bytes(), &rules)
            .map_or_else(|e| e.to_string(), |task| task.destination.to_string());
        assert!(said.contains(expected), "{mode} {content}: {said}");
    };
    let url = |url: &str| format!(r#"{{"url":"{url}"}}"#);
    check("auto", &url("https://hooks.example.com/x"), "not on callback.allow_hosts");
    check("push", &url("https://hooks.example.com/x"), "not on callback.allow_hosts");
    allow(&["*.example.com", "10.0.0.5"], true);
    check("auto", &url("https://hooks.example.com/x"), "hooks.example.com:443");
    check("push", &url("https://hooks.example.com/x"), "hooks.example.com:443");
    check("pull", &url("https://hooks.example.com/x"), "@pull");
    check("auto", &url("https://other.example/x"), "not on callback.allow_hosts");
    check("push", &url("https://other.example/x"), "not on callback.allow_hosts");
    check("push", &url("/x"), "content.sn is missing");
    check(
        "auto",
        &url("https://me:pw@hooks.example.com/x"),
        "content.url: must name a host, and neither user",
    );
    check(
        "auto",
        &url("http://10.0.0.5/x"),
        "content.url: must name a host on the public Internet",
    );
    check(
        "auto",
        r#"{"sn":"message.call","url":"https://hooks.example.com/x"}"#,
        "content.url must be a path",
    );
    check("auto", r#"{"sn":"hooks.example.com:443","url":"/x"}"#, "content.sn must name a service");
    check("auto", r#"{"sn":"billing","url":"/x"}"#, "billing");
    check("auto", r#"{"sn":"10.0.0.5","url":"/x"}"#, "is not a service that is known here");
    allow(&["10.0.0.5"], false);
    check("auto", &url("http://10.0.0.5/x"), "10.0.0.5:80");
}
