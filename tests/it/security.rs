//! Who may call delayd, which hosts delayd may call, how it signs its calls, and which secrets are
//! never shown.

use serde_json::{Value, json};

use crate::program::{Program, client, command, run, serve_with, service};
use crate::receiver::Receiver;
use crate::{Kept, StoreAt, on_both_stores, redis_server};

on_both_stores!(
    a_token_gives_access_to_its_own_calls_and_topics,
    header_values_are_shown_only_to_admins,
    calls_of_a_service_with_secrets_are_signed_on_every_attempt,
    headers_of_a_task_go_along_with_every_attempt,
    an_absolute_url_is_called_on_an_allowed_host,
    a_private_address_is_not_called_whatever_its_name,
);

const WRITER: &str = "dly_writer-of-orders";
const READER: &str = "dly_reader-of-all";
const KEEPER: &str = "dly_keeper-of-all";
/// `printf %s … | sha256sum` of each token.
const HASHES: [&str; 3] = [
    "609a113f8662c1047dcc541cf1fb799cf5c7ae3e75907cbb7dee46d37c533320",
    "68582b62fd73d1ee5026c6d3e541c843a3faa3ed7600d5c8a9768e95e6b00d52",
    "25bb754bfe258c19866beb4611f73c0ce2d0dd41dcdc92446f50338a91586404",
];

fn tokens() -> String {
    let [writer, reader, keeper] = HASHES;
    format!(
        "http.auth.tokens=[{{name='writer', token_sha256='{writer}', \
         scopes=['produce'], topics=['order.*']}}, \
         {{name='reader', token_sha256='{reader}', scopes=['consume'], topics=['*']}}, \
         {{name='keeper', token_sha256='{keeper}', \
         scopes=['produce', 'consume', 'admin'], topics=['*']}}]",
    )
}

/// Posts with headers. Returns status and body.
async fn post(
    delayd: &Program,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> (u16, Value) {
    let mut post = client().post(delayd.url(path)).body(body);
    for (name, value) in headers {
        post = post.header(*name, *value);
    }
    let answer = post.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn as_holder(delayd: &Program, token: &str, path: &str, body: Value) -> (u16, Value) {
    post(delayd, path, &[("authorization", &format!("Bearer {token}"))], body.to_string()).await
}

/// A command used to say only "must be given once" if its token was missing.
#[tokio::test]
async fn a_command_names_the_variable_of_the_token_that_is_missing() {
    let (open, guarded) = (Kept::embedded(), Kept::embedded());
    let (open, guarded) = (open.start(&[]).await, guarded.start(&[tokens()]).await);
    open.add(json!({"topic": "order.a", "delay": "1h", "content": {"n": 1}})).await;
    let told = async |variables: &[(&str, &str)], words: &[&str], says: &str| {
        let mut client = command(&[]);
        client.envs(variables.iter().copied()).args(words);
        let (code, output, error) = run(client).await;
        assert!(code == 1 && error.contains(says), "{words:?}: {output}{error}");
    };
    let (open, guarded) = (open.url(""), guarded.url(""));
    let stats = ["stats", "--server", &guarded];
    let missing = format!(
        "{guarded} expects an access token, got none: \
         set DELAYD_TOKEN or give --token (dm_error 1001)",
    );
    told(&[], &stats, &missing).await;
    told(&[("DELAYD_TOKEN", "")], &stats, &missing).await;
    told(
        &[("DELAYD_TOKEN", "x")],
        &stats,
        "does not know this access token: check DELAYD_TOKEN or --token",
    )
    .await;
    told(
        &[("DELAYD_TOKEN", WRITER)],
        &stats,
        "must be a token with the scope view or admin; \"writer\" has produce",
    )
    .await;
    let to = ["move", "--server", &open, "--to", &guarded];
    told(&[("DELAYD_TOKEN", "x")], &to, "got none: set DELAYD_TO_TOKEN or give --to-token").await;
    let from = ["move", "--server", &guarded, "--to", &open];
    told(&[("DELAYD_TO_TOKEN", "x")], &from, "got none: set DELAYD_TOKEN or give --token").await;
}

async fn a_token_gives_access_to_its_own_calls_and_topics(kept: Kept) {
    let names = ["a", "b", "c", "d", "message.call", "other", "x"];
    let service = |name| format!("services.\"{name}\".endpoints=[\"http://127.0.0.1:1\"]");
    let delayd = kept.start(&[vec![tokens()], names.map(service).to_vec()].concat()).await;
    let task = |topic: &str| json!({"topic": topic, "delay": 0, "content": {"n": 1}});
    let refused = async |answer: (u16, Value), status: u16, dm_error: u16| {
        assert_eq!((answer.0, &answer.1["dm_error"]), (status, &json!(dm_error)), "{answer:?}");
    };
    refused(post(&delayd, "/delay/task/add", &[], task("order.a").to_string()).await, 401, 1001)
        .await;
    refused(as_holder(&delayd, "dly_nobody", "/delay/task/add", task("order.a")).await, 401, 1001)
        .await;
    refused(as_holder(&delayd, WRITER, "/delay/task/add", task("review")).await, 403, 1003).await;
    refused(as_holder(&delayd, READER, "/delay/task/add", task("order.a")).await, 403, 1003).await;
    refused(
        as_holder(&delayd, WRITER, "/delay/task/pull", json!({"topic": "order.a"})).await,
        403,
        1003,
    )
    .await;
    refused(as_holder(&delayd, READER, "/delay/destination/list", json!({})).await, 403, 1003)
        .await;
    // An answer of 401 arrives although the caller still sends megabytes.
    refused(post(&delayd, "/delay/task/add_batch", &[], " ".repeat(12 << 20)).await, 401, 1001)
        .await;
    assert_eq!(delayd.get("/healthz").await.status, 200);
    delayd.wait_until_ready(200).await;

    let batch = json!({"tasks": [task("order.b"), task("review")]});
    let (status, answer) = as_holder(&delayd, WRITER, "/delay/task/add_batch", batch).await;
    assert_eq!((status, &answer["failed"]), (200, &json!(1)), "{answer}");
    assert_eq!(
        [&answer["results"][0]["dm_error"], &answer["results"][1]["dm_error"]],
        [&json!(0), &json!(1003)]
    );
    for topic in ["order.b", "review"] {
        let (status, pulled) =
            as_holder(&delayd, READER, "/delay/task/pull", json!({"topic": topic})).await;
        assert_eq!((status, pulled["task_id"].is_u64()), (200, topic == "order.b"), "{pulled}");
    }

    // Who may not list the services learns none of their names from an error.
    for (token, hint) in [
        (WRITER, "the configuration's [services] names them"),
        (
            KEEPER,
            "did you mean \"message.call\"? The services are a, b, c, d, message.call and 2 more",
        ),
    ] {
        let task = json!({"topic": "order.a", "delay": 0,
            "content": {"sn": "mesage.call", "url": "/"}});
        let (status, answer) = as_holder(&delayd, token, "/delay/task/add", task).await;
        let says =
            format!("content.sn: \"mesage.call\" is not a service that is known here; {hint}");
        assert_eq!((status, &answer["error_msg"]), (400, &json!(says)));
    }

    // The client sends its token, from the variable or the option, and prints it nowhere.
    let client = async |words: &[&str], variable: Option<&str>| {
        let mut client = command(&[]);
        client.args(words).arg("--server").arg(delayd.url(""));
        variable.map(|token| client.env("DELAYD_TOKEN", token));
        let (code, output, error) = run(client).await;
        let all = output + &error;
        assert!(!all.contains("writer-of-orders"), "{all}");
        (code, all)
    };
    let add = ["add", "order.c", "--in", "1h", "{}"];
    assert_eq!(client(&add, Some(WRITER)).await.0, 0);
    assert_eq!(client(&[&add[..], &["--token", WRITER]].concat(), None).await.0, 0);
    let (code, said) = client(&add, None).await;
    assert!(code == 1 && said.contains("dm_error 1001"), "{said}");
    let (code, said) = client(&[&add[..], &["--token", "writer-of-orders\n"]].concat(), None).await;
    assert_eq!(code, 1, "{said}");
    let (code, help) = client(&["add", "--help"], Some(WRITER)).await;
    assert!(code == 0 && help.contains("DELAYD_TOKEN"), "{help}");
}

/// A consumer used to see the passwords that producers had given for their receivers.
async fn header_values_are_shown_only_to_admins(kept: Kept) {
    let delayd = kept.start(&[tokens()]).await;
    let headers = json!({"Authorization": "Bearer secret", "x-tenant": "a"});
    let task = json!({"topic": "order.a", "delay": 60, "headers": headers, "content": {"n": 1}});
    let (_, added) = as_holder(&delayd, WRITER, "/delay/task/add", task).await;
    let named = json!({"topic": "order.a", "task_id": added["task_id"]});
    for (token, value, tenant) in [
        (WRITER, Value::Null, Value::Null),
        (READER, Value::Null, Value::Null),
        (KEEPER, json!("Bearer secret"), json!("a")),
    ] {
        let (status, shown) = as_holder(&delayd, token, "/delay/task/get", named.clone()).await;
        let shown = &shown["task"]["options"]["headers"];
        assert_eq!(
            (status, shown),
            (200, &json!({"authorization": value, "x-tenant": tenant})),
            "{token}"
        );
        let (_, pulled) = as_holder(&delayd, KEEPER, "/delay/task/pull", named.clone()).await;
        assert!(
            pulled["content"].is_string() && !pulled.to_string().contains("secret"),
            "{pulled}"
        );
    }
    let list = json!({"topic": "order.a", "state": "scheduled"});
    let (_, listed) = as_holder(&delayd, KEEPER, "/delay/task/list", list).await;
    assert!(listed["tasks"][0].is_object() && !listed.to_string().contains("secret"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_may_not_call() {
    let delayd = Kept::embedded().start(&[]).await;
    let pull = || json!({"topic": "t"}).to_string();
    let own = format!("http://{}", delayd.address);
    let (status, _) = post(&delayd, "/delay/task/pull", &[("origin", &own)], pull()).await;
    assert_eq!(status, 200);
    for origin in ["https://evil.example", "null", "http://localhost"] {
        let (status, answer) =
            post(&delayd, "/delay/task/pull", &[("origin", origin)], pull()).await;
        assert_eq!((status, &answer["dm_error"]), (403, &json!(1003)), "{origin}");
    }
    let rebound = [("origin", "http://evil.example:7799"), ("host", "evil.example:7799")];
    assert_eq!(post(&delayd, "/delay/task/pull", &rebound, pull()).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_port_is_warned_of_loudly_and_one_with_tokens_is_not() {
    let kept = Kept::embedded();
    for (sets, warns) in
        [(vec!["http.auth.anonymous=true".to_owned()], true), (vec![tokens()], false)]
    {
        let sets = [vec!["http.bind='0.0.0.0:0'".to_owned()], sets].concat();
        let delayd = kept.start(&sets).await;
        // The warning comes right after the line with the address, which marks the start. The line
        // of the drain comes after both.
        let mut delayd = delayd;
        delayd.signal("TERM");
        delayd.ended().await;
        assert_eq!(delayd.log().contains("ATTENTION"), warns, "{}", delayd.log());
    }
}

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDzzjGJkMzvZw=";

async fn calls_of_a_service_with_secrets_are_signed_on_every_attempt(kept: Kept) {
    let receiver = Receiver::answering(|call| {
        crate::receiver::Answer::Status(if call.path == "/signed" && call.attempt == 1 {
            500
        } else {
            200
        })
    })
    .await;
    let secrets = format!("services.\"message.call\".secrets=['{OLD}', '{NEW}']");
    let delayd = kept
        .start(&[service("message.call", &receiver), secrets, service("plain", &receiver)])
        .await;
    let task = |sn: &str, url: &str| {
        json!({
            "topic": "t", "delay": 0, "backoff": {"kind": "fixed", "every": "1ms"},
            "content": {"sn": sn, "url": url, "名": "订单"},
        })
    };
    delayd.add(task("message.call", "/signed")).await;
    let seen = receiver.wait_for(2).await;
    for call in &seen {
        for secret in [OLD, NEW] {
            let webhook = standardwebhooks::Webhook::new(secret).unwrap();
            webhook.verify(call.body.as_bytes(), &call.headers).unwrap();
        }
    }
    assert_eq!(seen[0].headers["webhook-id"], seen[1].headers["webhook-id"]);
    delayd.add(task("plain", "/plain")).await;
    let plain = receiver.wait_for(3).await.pop().unwrap();
    assert!(
        !plain.headers.contains_key("webhook-signature")
            && plain.headers.contains_key("webhook-id")
    );
}

async fn headers_of_a_task_go_along_with_every_attempt(kept: Kept) {
    let receiver = Receiver::answering(|call| {
        crate::receiver::Answer::Status(if call.attempt == 1 { 500 } else { 200 })
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let mut task = json!({"topic": "t", "delay": 0, "backoff": {"kind": "fixed", "every": "1ms"},
        "content": {"sn": "message.call", "url": "/x"}});
    task["headers"] = json!({"X-Tenant": "a  b", "content-type": "application/cloudevents+json"});
    delayd.add(task.clone()).await;
    for call in receiver.wait_for(2).await {
        assert_eq!(
            (&call.headers["x-tenant"], &call.headers["content-type"]),
            (&"a  b".parse().unwrap(), &"application/cloudevents+json".parse().unwrap())
        );
    }
    for refused in [
        json!({"host": "evil"}),
        json!({"delay-task-id": "1"}),
        json!({"x": "a\r\nhost: evil"}),
        json!({"x": "y".repeat(9_000)}),
    ] {
        task["headers"] = refused;
        let answer = delayd.post("/delay/task/add", task.to_string()).await;
        assert_eq!((answer.status, &answer.body["dm_error"]), (400, &json!(1000)), "{answer:?}");
    }
    assert_eq!(receiver.seen().len(), 2);
}

async fn an_absolute_url_is_called_on_an_allowed_host(kept: Kept) {
    let receiver = Receiver::start().await;
    let host = receiver.address.to_string();
    let sets =
        [format!("callback.allow_hosts=[\"{host}\"]"), "callback.deny_private_hosts=false".into()];
    let delayd = kept.start(&sets).await;
    let task = |url: String, mode: &str| {
        json!({
            "topic": "t", "delay": 0, "mode": mode, "content": {"url": url},
        })
    };
    let answer = delayd.add(task(format!("http://{host}/hook?a=b"), "auto")).await;
    assert_eq!(answer.body["mode"], "push");
    let seen = receiver.wait_for(1).await;
    assert_eq!((seen[0].path.as_str(), seen[0].id), ("/hook?a=b", answer.id()));
    delayd.wait_for_state("t", answer.id(), "delivered").await;
    // The host can be listed and held like any destination.
    delayd.post("/delay/destination/hold", json!({"sn": host}).to_string()).await.ok();
    let held = delayd.add(task(format!("http://{host}/held"), "push")).await.id();
    let listed = delayd.post("/delay/destination/list", "{}").await.ok();
    let listed = listed.body["destinations"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["sn"] == host.as_str())
        .unwrap()
        .clone();
    assert_eq!(
        [&listed["configured"], &listed["held"], &listed["waiting"]],
        [&json!(true), &json!(true), &json!(1)]
    );
    let mut fsck = command(&kept.store.sets());
    fsck.arg("fsck");
    let (code, found, error) = run(fsck).await;
    assert_eq!(code, 0, "a host is a destination like any other: {found}{error}");
    delayd.post("/delay/destination/release", json!({"sn": host}).to_string()).await.ok();
    delayd.wait_for_state("t", held, "delivered").await;
    // No other host is called, so such a task is refused unless consumers are to pull it.
    let other = delayd.add(task("http://127.0.0.1:1/".into(), "pull")).await;
    assert_eq!(other.body["mode"], "pull");
    for url in
        ["http://127.0.0.1:1/".into(), format!("http://me@{host}/"), format!("http://{host}/#x")]
    {
        for mode in ["auto", "push"] {
            let answer = delayd.post("/delay/task/add", task(url.clone(), mode).to_string()).await;
            assert_eq!(
                (answer.status, &answer.body["dm_error"]),
                (400, &json!(1000)),
                "{answer:?}"
            );
        }
    }
}

async fn a_private_address_is_not_called_whatever_its_name(kept: Kept) {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let sets = [
        "callback.allow_hosts=['*']".into(),
        format!("services_fallback.dns='http://{{sn}}:{port}'"),
    ];
    let delayd = kept.start(&sets).await;
    let task = |content: Value| {
        json!({
            "topic": "t", "delay": 0, "max_attempts": 2,
            "backoff": {"kind": "fixed", "every": "1ms"},
            "content": content,
        })
    };
    for content in [
        json!({"url": format!("http://localhost:{port}/x")}),
        json!({"sn": "localhost", "url": "/x"}),
    ] {
        let id = delayd.add(task(content)).await.id();
        let dead = delayd.wait_for_state("t", id, "dead").await;
        let outcome = "not called: no address of the host may be called";
        assert_eq!((&dead["attempts"], &dead["last_outcome"]), (&json!(2), &json!(outcome)));
    }
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "169.254.169.254", "10.0.0.1"] {
        let answer = delayd
            .post(
                "/delay/task/add",
                task(json!({"url": format!("http://{host}:{port}/x")})).to_string(),
            )
            .await;
        assert_eq!((answer.status, &answer.body["dm_error"]), (400, &json!(1000)), "{answer:?}");
    }
    assert!(receiver.seen().is_empty());
}

/// A configuration full of secrets, at the most verbose log level, with everything that can go
/// wrong.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_log_or_in_an_answer() {
    let receiver = Receiver::answering(|_| crate::receiver::Answer::Status(500)).await;
    let redis = redis_server::shared();
    let (password, prefix) = ("redis-password-secret", format!("it{:016x}", rand::random::<u64>()));
    let user = format!("user{prefix}");
    redis.command(&["ACL", "SETUSER", &user, "on", &format!(">{password}"), "~*", "&*", "+@all"]);
    let url = |password: &str| {
        format!("store.redis.urls=[\"redis://{user}:{password}@127.0.0.1:{}/0\"]", redis.port())
    };
    let base = vec![
        "store.kind=\"redis\"".to_owned(),
        format!("store.redis.key_prefix={prefix:?}"),
        "log.level=\"trace\"".into(),
        service("message.call", &receiver),
        format!("services.\"message.call\".secrets=['{OLD}']"),
        "callback.allow_hosts=['*']".into(),
        tokens(),
    ];
    let secrets = |text: &str| {
        let known = [
            password,
            "wrong-secret",
            WRITER,
            READER,
            HASHES[0],
            HASHES[1],
            &OLD[6..],
            "task-header-secret",
            "url-secret",
            "content-secret",
        ];
        known
            .into_iter()
            .filter(|secret| text.contains(secret))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    // With a wrong password or a bad secret, the start fails and the message does not contain them.
    for bad in [
        url("wrong-secret"),
        "services.\"message.call\".secrets=['whsec_wrong-secret']".into(),
        "http.auth.tokens=['wrong-secret']".into(),
    ] {
        let serve = serve_with(&[&base[..], &[url(password), bad]].concat());
        let (code, output, error) = run(serve).await;
        assert_eq!((code, secrets(&(output + &error))), (78, vec![]), "{error}");
    }

    let mut sets = base.clone();
    sets.push(url(password));
    let delayd = Kept { store: StoreAt::Set(sets), _folder: None }.start(&[]).await;
    let mut answers = String::new();
    let mut ask = async |token: &str, path: &str, body: Value| {
        let (_, answer) = as_holder(&delayd, token, path, body).await;
        answers.push_str(&answer.to_string());
        answer
    };
    let content = json!({"sn": "message.call", "url": "/x?url-secret", "data": "content-secret"});
    let task = json!({
        "topic": "order.a", "delay": 0, "max_attempts": 2,
        "backoff": {"kind": "fixed", "every": "1ms"},
        "headers": {"authorization": "Bearer task-header-secret"}, "content": content});
    let id = ask(WRITER, "/delay/task/add", task.clone()).await["task_id"].as_u64().unwrap();
    let refused = [
        ("headers", json!({"x": "task-header-secret\r\n"})),
        ("headers", json!({"host": "task-header-secret"})),
        ("content", json!({"url": "http://me:url-secret@hooks.example.com/"})),
        ("content", json!({"url": "http://127.0.0.1/url-secret"})),
        ("topic", json!("elsewhere")),
    ];
    for (field, value) in refused {
        let mut bad = task.clone();
        bad[field] = value;
        assert_ne!(ask(WRITER, "/delay/task/add", bad).await["dm_error"], 0);
    }
    for (token, path) in [
        ("wrong-secret", "/delay/task/add"),
        (READER, "/delay/task/add"),
        (HASHES[0], "/delay/task/pull"),
    ] {
        assert_ne!(ask(token, path, task.clone()).await["dm_error"], 0);
    }
    receiver.wait_for(2).await;
    delayd.wait_for_log(&format!("Task {id} is dead")).await;
    // The Redis user is removed: connections end, and new ones are refused.
    redis.command(&["ACL", "DELUSER", &user]);
    delayd.wait_until_ready(503).await;
    ask(WRITER, "/delay/task/add", task).await;
    let log = delayd.log();
    assert!(log.contains(&format!("Task {id} is dead")) && log.contains("TRACE"), "{log}");
    assert!(
        log.contains("Admitted writer to /delay/task/add") && log.contains("Not admitted to"),
        "{log}"
    );
    let signature = receiver.seen()[0].headers["webhook-signature"].to_str().unwrap().to_owned();
    assert!(!log.contains(&signature), "{log}");
    assert_eq!((secrets(&log), secrets(&answers)), (vec![], vec![]), "{log}");
}

/// A parser that recurses for each bracket would end the whole process when its stack is used up.
#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_json_is_refused_everywhere() {
    let delayd = Kept::embedded().start(&["limits.content='1MiB'".into(), tokens()]).await;
    let (open, objects) = ("[".repeat(400_000), r#"{"a":"#.repeat(100_000));
    let closed = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let add = |fields: String| {
        ("/delay/task/add", format!(r#"{{"topic":"order.a","delay":"1h",{fields}}}"#))
    };
    let cases = [
        ("/delay/task/add", open.clone()),
        ("/delay/task/add", objects.clone()),
        add(format!(r#""content":{{"a":{closed}}}"#)),
        add(format!(r#""content":{{"a":{open}"#)),
        add(format!(r#""content":"{{\"a\":{closed}}}""#)),
        add(format!(r#""content":{{"sn":{closed},"url":"/x"}}"#)),
        add(format!(r#""content":{{"url":{closed}}}"#)),
        add(format!(r#""content":{{}},"headers":{closed}"#)),
        add(format!(r#""content":{{}},"headers":{{"x":{closed}}}"#)),
        add(format!(r#""content":{{}},"backoff":{closed}"#)),
        add(format!(r#""content":{{}},"unknown":{closed}"#)),
        add(format!(r#""content":{{}},"mode":{closed}"#)),
        ("/delay/task/add", format!(r#"{{"topic":{closed}}}"#)),
        ("/delay/task/add_batch", format!(r#"{{"tasks":{open}"#)),
        ("/delay/task/add_batch", format!(r#"{{"x":{closed}}}"#)),
        ("/delay/task/get", format!(r#"{{"topic":"order.a","task_id":{closed}}}"#)),
    ];
    for (path, body) in cases {
        let shown: String = body.chars().take(80).collect();
        let bearer = format!("Bearer {WRITER}");
        let (status, answer) = post(&delayd, path, &[("authorization", &bearer)], body).await;
        assert_eq!((status, &answer["dm_error"]), (400, &json!(1000)), "{path} {shown}: {answer}");
        assert!(answer["error_msg"].as_str().unwrap().len() < 300, "{shown}");
    }
    // The other tasks of a batch are not affected.
    let batch =
        format!(r#"{{"tasks":[{closed},{{"topic":"order.a","delay":"1h","content":{{}}}}]}}"#);
    let (status, answer) = post(
        &delayd,
        "/delay/task/add_batch",
        &[("authorization", &format!("Bearer {WRITER}"))],
        batch,
    )
    .await;
    assert_eq!((status, &answer["failed"]), (200, &json!(1)), "{answer}");
    assert!(!delayd.log().contains("panicked"), "{}", delayd.log());
}
