//! The client commands against the real service, and the log of the service.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::program::{StoreAt, command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::ports;
use crate::{Kept, Program, on_both_stores, redis_server};

on_both_stores!(
    the_client_commands_do_what_the_calls_do,
    a_time_that_has_passed_is_mentioned,
    a_key_may_be_a_number,
);

/// Runs a client command against the service. Returns its exit code, and its standard output
/// followed by its standard error.
async fn client(delayd: &Program, words: &[&str]) -> (i32, String) {
    let mut client = command(&[]);
    client.args(words).arg("--server").arg(delayd.url(""));
    let (code, output, error) = run(client).await;
    (code, output + &error)
}

async fn the_client_commands_do_what_the_calls_do(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content = r#"{"sn":"message.call","url":"/cancel"}"#;
    let (code, added) =
        client(&delayd, &["add", "orders", "--in", "10ms", content, "--json"]).await;
    assert_eq!(code, 0, "{added}");
    let id = serde_json::from_str::<Value>(&added).unwrap()["task_id"].as_u64().unwrap();
    receiver.wait_for(1).await;
    delayd.wait_for_state("orders", id, "delivered").await;
    let (code, shown) = client(&delayd, &["get", "orders", &id.to_string()]).await;
    assert!(code == 0 && shown.contains("delivered") && shown.contains("200 OK"), "{shown}");

    let (code, _) = client(&delayd, &["add", "reviews", "--in", "0s", r#"{"review":7}"#]).await;
    assert_eq!(code, 0);
    let (code, pulled) = client(&delayd, &["pull", "reviews"]).await;
    assert!(code == 0 && pulled.contains("review") && pulled.contains('7'), "{pulled}");

    let (code, refused) =
        client(&delayd, &["add", "t", "--in", "1s", r#"{"sn":"nobody","url":"/"}"#]).await;
    let says = "content.sn: \"nobody\" is not a service that is known here; \
                the services are message.call";
    assert!(code == 1 && refused.contains(says), "{refused}");
    let (code, healthy) = client(&delayd, &["healthcheck"]).await;
    assert_eq!(code, 0, "{healthy}");
    let (code, usage) = client(&delayd, &["add", "t"]).await;
    assert_eq!(code, 2, "{usage}");

    // A pull without a lease consumes the task, so its content must be printed whole. It used to be
    // cut off after 200 characters.
    let long = "x".repeat(5_000);
    let content = json!({"long": long}).to_string();
    assert_eq!(client(&delayd, &["add", "long", "--in", "0s", &content]).await.0, 0);
    let (code, pulled) = client(&delayd, &["pull", "long"]).await;
    assert!(code == 0 && pulled.contains(&long), "{pulled}");
    let id = pulled.lines().nth(1).and_then(|row| row.split(' ').next()).unwrap();
    let (code, shown) = client(&delayd, &["get", "long", id]).await;
    assert!(code == 0 && shown.contains(&long), "{shown}");
}

/// Only `due` told that the task is due at once.
async fn a_time_that_has_passed_is_mentioned(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let past = "the given time has passed, so the task is due now";
    let check = async |words: &[&str], expected: bool| {
        let (code, said) = client(&delayd, words).await;
        assert_eq!((code, said.contains(past)), (0, expected), "{words:?}: {said}");
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let far = (now + 86_400).to_string();
    check(&["add", "t", "--key", "a", "--at", "1795236367", "{}"], true).await;
    check(&["add", "t", "--key", "a", "--at", "2020-01-31 20:00", "--zone", "+08:00", "{}"], true)
        .await;
    check(&["update", "t", "--key", "a", "--at", &far], false).await;
    check(&["update", "t", "--key", "a", "--at", "2020-01-31T20:00:00Z"], true).await;
    check(&["update", "t", "--key", "a", "--in", "0"], false).await;
    let (_, pulled) = client(&delayd, &["pull", "t", "--lease", "1h", "--json"]).await;
    let pulled: Value = serde_json::from_str(&pulled).unwrap();
    let (id, receipt) = (pulled["task_id"].to_string(), pulled["receipt"].as_str().unwrap());
    check(&["nack", "t", &id, receipt, "--at", "1795236367"], true).await;
}

/// `get TOPIC 1234` said only that there is no such task.
async fn a_key_may_be_a_number(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let check = async |words: &str, code: i32, says: &str| {
        let (found, said) = client(&delayd, &words.split(' ').collect::<Vec<_>>()).await;
        assert!(found == code && said.contains(says), "{words}: {said}");
    };
    check("add t --key 1234 --in 1h {}", 0, "").await;
    let hint = "; if 1234 is a key of your own, use --key 1234 (or --idempotency-key)";
    for words in ["get t 1234", "get t 1234 --wait", "update t 1234 --in 2h", "cancel t 1234"] {
        check(words, 1, &format!("there is no such task in this topic{hint} (dm_error 1004)"))
            .await;
    }
    check("find 1234", 0, &format!("no task{hint}")).await;
    check("get none 1234", 1, "there is no such topic (dm_error 1004)").await;
    for words in ["get t order-7", "update t order-7 --in 2h"] {
        check(words, 2, "a key of your own belongs into --key").await;
    }
    check("find --key 1234", 0, "1234").await;
    check("get t --key 1234", 0, "scheduled").await;
    check("update t --key 1234 --in 2h {}", 0, "").await;
    check("cancel t --key 1234", 0, "cancelled").await;
    check("add t --idempotency-key 77 --in 1h {}", 0, "").await;
    check("cancel t --idempotency-key 77", 0, "cancelled").await;
    // It was refused, though other commands for many tasks need it.
    check("dead replay t --all --yes", 0, "0 tasks replayed").await;
}

/// `delayd` alone used to start a service with the defaults, in the current folder.
#[tokio::test]
async fn without_a_command_there_is_help_and_no_service() {
    let folder = crate::program::folder();
    for sets in [&[][..], &["http.bind=\"127.0.0.1:0\"".to_owned()]] {
        let mut bare = command(sets);
        bare.current_dir(folder.path());
        let (code, output, error) = run(bare).await;
        assert_eq!((code, output.as_str()), (2, ""), "{error}");
        assert!(error.contains("Usage: delayd"), "{error}");
    }
    assert!(contents(folder.path()).is_empty());
}

/// A variable with one underscore instead of two used to be ignored: the service listened at its
/// default address.
#[tokio::test(flavor = "multi_thread")]
async fn variables_like_settings_end_every_command_and_others_are_a_warning() {
    let kept = Kept::embedded();
    for words in [&["serve"][..], &["check", "--offline"], &["get", "t", "1"], &["token"]] {
        let mut wrong = command(&[]);
        wrong.args(words).env("DELAYD_HTTP__BIND", "127.0.0.1:1");
        let (code, output, error) = run(wrong).await;
        assert_eq!((code, output.as_str()), (78, ""), "{error}");
        assert!(
            error.contains("DELAYD_HTTP__BIND")
                && error.contains("expected DELAYD__HTTP__BIND, with two underscores"),
            "{error}"
        );
    }
    let mut check = command(&[]);
    check.args(["check", "--offline"]).env("DELAYD_VERSION", "1.2");
    let (code, output, error) = run(check).await;
    let warning = "WARNING        Environment variables without effect: DELAYD_VERSION.";
    assert!(code == 0 && output.contains(warning) && error.is_empty(), "{output} {error}");
    let mut serve = crate::program::serve(&kept.store, &[]);
    serve.envs([
        ("DELAYD_SERVICE_HOST", "10.96.0.7"),
        ("DELAYD_SERVICE_PORT", "7799"),
        ("DELAYD_PORT", "tcp://10.96.0.7:7799"),
        ("DELAYD_PORT_7799_TCP_ADDR", "10.96.0.7"),
        ("DELAYD_TOKEN", "dly_of-a-client"),
        ("DELAYD_VERSION", "1.2"),
    ]);
    assert_eq!(Program::launch(serve).await.get("/healthz").await.status, 200);
}

/// The command used to end when one call had gone over a hundred thousand tasks without a match.
#[tokio::test]
async fn a_replay_follows_the_cursor_to_the_end() {
    let service = Receiver::answering(|seen| {
        Answer::With(
            200,
            vec![],
            match seen.path.as_str() {
                "/delay/topic/get" => {
                    concat!(
                        r#"{"dm_error":0,"error_msg":"","topic":"orders","shards":1,"policy":{},"#,
                        r#""paused":false,"counts":{"scheduled":0,"leased":0,"delivered":0,"#,
                        r#""dead":100001,"cancelled":0,"expired":0}}"#
                    )
                }
                _ if seen.body.contains("cursor") => {
                    r#"{"dm_error":0,"error_msg":"","count":1,"seen":1,"more":false,"cursor":null}"#
                }
                _ => concat!(
                    r#"{"dm_error":0,"error_msg":"","count":0,"seen":100000,"#,
                    r#""more":true,"cursor":"0.5.6.7"}"#
                ),
            },
        )
    })
    .await;
    for (verb, flags, says) in [
        ("replay", &["--reason=410 Gone"][..], "1 task replayed"),
        ("purge", &["--reason=410 Gone", "--yes"], "1 task deleted"),
        ("purge", &["--dry-run"], "1 task would be deleted"),
    ] {
        let before = service.seen().len();
        let mut client = command(&[]);
        client
            .args(["dead", verb, "orders", "--all"])
            .args(flags)
            .arg("--server")
            .arg(service.endpoint());
        let (code, output, error) = run(client).await;
        assert_eq!((code, output.trim_end()), (0, says), "{error}");
        let mut seen = service.seen().split_off(before);
        // Which services keep replayed tasks waiting.
        seen.retain(|seen| seen.path != "/delay/destination/list");
        let bodies: Vec<Value> =
            seen.iter().map(|seen| serde_json::from_str(&seen.body).unwrap()).collect();
        assert_eq!((bodies.len(), &bodies[2]["cursor"]), (3, &json!("0.5.6.7")), "{bodies:?}");
        assert_eq!(bodies[1]["reason"], bodies[2]["reason"]);
    }
}

#[tokio::test]
async fn an_unreachable_service_is_an_error_and_not_a_hang() {
    let closed = format!("127.0.0.1:{}", ports::take());
    for words in [&["get", "t", "1"][..], &["healthcheck"], &["pull", "t"], &["stats"], &["export"]]
    {
        let mut client = command(&[]);
        client.args(words).arg("--server").arg(format!("http://{closed}"));
        let (code, output, error) = run(client).await;
        assert!(
            code == 1 && (output.clone() + &error).lines().count() == 1,
            "{words:?}: {output}{error}"
        );
    }
}

#[tokio::test]
async fn check_says_what_is_configured_and_whether_the_store_answers() {
    let folder = crate::program::folder();
    let path = folder.path().join("delayd.db");
    let mut check = command(&[format!("store.embedded.path={path:?}")]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(
        code == 0 && output.contains("fsynced") && output.contains("delayd.db"),
        "{output}{error}"
    );
    assert!(output.contains("http           127.0.0.1:7799"), "{output}");
    let closed = format!("127.0.0.1:{}", ports::take());
    let mut check = command(&[
        "store.kind=\"redis\"".into(),
        format!("store.redis.urls=[\"redis://{closed}/0\"]"),
    ]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(
        code == 1 && error.contains(&format!("{closed}: Connection refused")),
        "{output}{error}"
    );
    let mut offline = command(&[
        "store.kind=\"redis\"".into(),
        format!("store.redis.urls=[\"redis://{closed}/0\"]"),
    ]);
    offline.args(["check", "--offline"]);
    let (code, output, error) = run(offline).await;
    assert!(
        code == 0 && output.contains(&closed.to_string()) && output.contains("--offline"),
        "{output}{error}"
    );
}

/// The start used to say "disk I/O error" and to leave a lock file.
#[tokio::test]
async fn a_folder_in_the_place_of_the_store_is_refused() {
    let folder = crate::program::folder();
    let path = folder.path().join("data");
    std::fs::create_dir(&path).unwrap();
    for words in [&["serve"][..], &["check"], &["fsck"], &["store", "new-id", "--yes"]] {
        let mut command =
            command(&[format!("store.embedded.path={path:?}"), "http.bind=\"127.0.0.1:0\"".into()]);
        command.args(words);
        let (code, output, error) = run(command).await;
        assert!(
            code == 78 && error.contains("data: expected a file, got a folder; name a file in"),
            "{output}{error}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Everything in a folder: paths, and the bytes and owners of files.
fn contents(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>, u32)> {
    let mut contents = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let (path, about) =
                (entry.as_ref().unwrap().path(), entry.unwrap().metadata().unwrap());
            let bytes = about.is_file().then(|| std::fs::read(&path).unwrap());
            if about.is_dir() {
                folders.push(path.clone());
            }
            contents.push((path, bytes, about.uid()));
        }
    }
    contents.sort();
    contents
}

/// `check` used to create a database and a ballast of 16 MiB. After a check by root, the service
/// could not open them. Beside a running service the check failed.
#[tokio::test(flavor = "multi_thread")]
async fn check_leaves_everything_as_it_was_also_beside_a_running_service() {
    let folder = crate::program::folder();
    let store = StoreAt::Embedded(folder.path().join("data"));
    let check = async |more: &[&str]| {
        let mut check = command(&store.sets());
        check.arg("check").args(more);
        let (code, output, error) = run(check).await;
        (code, output + &error)
    };
    for more in [&[][..], &["--offline"]] {
        let (code, said) = check(more).await;
        assert_eq!(code, 0, "{said}");
        assert!(contents(folder.path()).is_empty(), "{:?}", contents(folder.path()));
    }
    let delayd = Program::start(&store, &[]).await;
    let id = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.id();
    // The service may write meanwhile, so only the names are compared.
    let names = || contents(folder.path()).into_iter().map(|(path, ..)| path).collect::<Vec<_>>();
    let before = names();
    let (code, said) = check(&[]).await;
    assert!(code == 0 && said.contains("data/delayd.db, durability: fsynced"), "{said}");
    assert_eq!(names(), before);
    assert_eq!(delayd.task("t", id).await["state"], "scheduled");
    delayd.kill();
    let before = contents(folder.path());
    assert_eq!(check(&[]).await.0, 0);
    assert_eq!(contents(folder.path()), before);
}

/// `check` must find out without creating a file. (Root may write everywhere, so the check runs as
/// nobody.)
#[tokio::test]
async fn check_names_what_its_user_cannot_write() {
    use std::os::unix::fs::PermissionsExt;

    let folder = crate::program::folder();
    let path = folder.path().join("delayd.db");
    let set_mode = |of: &Path, mode| {
        std::fs::set_permissions(of, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    set_mode(folder.path(), 0o555);
    // The build may be in a folder that only root can enter.
    let copies = crate::program::folder();
    set_mode(copies.path(), 0o755);
    let copy = copies.path().join("delayd");
    std::fs::copy(env!("CARGO_BIN_EXE_delayd"), &copy).unwrap();
    let plain = command(&[format!("store.embedded.path={path:?}")]);
    let mut check = if rustix::process::geteuid().is_root() {
        let mut other = std::process::Command::new("setpriv");
        other.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        other.arg(&copy).args(plain.get_args());
        other
    } else {
        plain
    };
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(code == 78 && error.contains("cannot create files in"), "{output}{error}");
    assert!(error.contains(&folder.path().display().to_string()), "{error}");
    set_mode(folder.path(), 0o755);
}

/// A start warned of it and a check did not.
#[tokio::test(flavor = "multi_thread")]
async fn check_warns_of_what_a_start_warns_of() {
    let redis = redis_server::Server::start();
    redis.command(&["CONFIG", "SET", "appendonly", "no"]);
    let store = StoreAt::Redis(redis.port(), "checked".into());
    let sets =
        [store.sets(), vec!["http.auth.anonymous=true".into(), "http.bind=\"0.0.0.0:0\"".into()]]
            .concat();
    let mut check = command(&sets);
    check.arg("check");
    let (code, said, error) = run(check).await;
    assert_eq!(code, 0, "{said}{error}");
    assert!(said.contains(&format!("127.0.0.1:{}", redis.port())), "{said}");
    assert_eq!(redis.command(&["DBSIZE"]).trim(), "0");
    let warnings: Vec<_> =
        said.lines().filter_map(|line| line.strip_prefix("WARNING")).map(str::trim).collect();
    assert_eq!(warnings.len(), 2, "{said}");
    let mut delayd = Program::start(&StoreAt::Set(sets), &["http.bind=\"0.0.0.0:0\"".into()]).await;
    delayd.signal("TERM");
    delayd.ended().await;
    for warning in warnings {
        assert!(delayd.log().contains(warning), "{warning}\n{}", delayd.log());
    }
    let mut check = command(&["http.bind=\"0.0.0.0:0\"".into()]);
    check.args(["check", "--offline"]);
    let (code, said, error) = run(check).await;
    assert!(code == 78 && error.contains("http.auth.anonymous"), "{said}{error}");
}

/// The data of callers is private: no content, header value or receipt is written to the log, at
/// any log level.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_json_if_asked_for_and_never_holds_a_payload() {
    let kept = Kept::embedded();
    let receiver = Receiver::answering(|_| Answer::With(500, vec![], "answer-payload")).await;
    let delayd = kept
        .start(&[
            service("message.call", &receiver),
            "log.format=\"json\"".into(),
            "log.level=\"debug\"".into(),
        ])
        .await;
    let content = json!({"sn": "message.call", "url": "/path-payload", "data": "content-payload"});
    let headers = json!({"authorization": "Bearer header-payload"});
    let task = json!({
        "topic": "t", "delay": 0, "max_attempts": 1, "headers": headers, "content": content,
    });
    let id = delayd.add(task).await.id();
    delayd.wait_for_state("t", id, "dead").await;
    delayd.task("t", id).await;
    for headers in [
        json!({"x": "header-payload\n"}),
        json!({"host": "header-payload"}),
        json!("header-payload"),
    ] {
        let task = json!({"topic": "t", "delay": 0, "headers": headers, "content": {}}).to_string();
        let refused = delayd.post("/delay/task/add", task).await;
        assert!(
            refused.status == 400 && !refused.body.to_string().contains("payload"),
            "{refused:?}"
        );
    }
    delayd
        .post(
            "/delay/task/add",
            r#"{"topic":"t","delay":"refused-payload","content":{"x":"content-payload"}}"#,
        )
        .await;
    delayd.add(json!({"topic": "p", "delay": 0, "content": {"data": "content-payload"}})).await;
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"p","lease":"30s"}"#).await.ok();
    let log = delayd.log();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert!(
        log.contains(&format!("Task {id} is dead after attempt 1 (500 Internal Server Error)")),
        "{log}"
    );
    assert!(!log.contains("payload"), "{log}");
    assert!(!log.contains(pulled.body["receipt"].as_str().unwrap()), "{log}");
}
