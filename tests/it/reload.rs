//! The configuration changes while the program serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::program::{Program, client, embedded, folder, serve};
use crate::receiver::{Answer, Receiver};

/// A folder with a store and a configuration file, and the program that reads it.
struct Served {
    folder: tempfile::TempDir,
    file: PathBuf,
    delayd: Program,
}

fn service(name: &str, receiver: &Receiver) -> String {
    format!("[services.\"{name}\"]\nendpoints = [\"{}\"]\n", receiver.endpoint())
}

async fn launch(store: &Path, file: &Path) -> Program {
    let mut command = serve(&embedded(store), &[]);
    command.arg("--config").arg(file);
    Program::launch(command).await
}

impl Served {
    async fn by(text: &str) -> Self {
        let folder = folder();
        let file = folder.path().join("delayd.toml");
        std::fs::write(&file, text).unwrap();
        let delayd = launch(folder.path(), &file).await;
        Self { folder, file, delayd }
    }

    /// Saves as an editor does: it writes another file and renames it.
    fn save(&self, text: &str) {
        let new = self.folder.path().join(".delayd.toml.swp");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }
}

async fn metrics(delayd: &Program, token: &str) -> String {
    let get = client().get(delayd.url("/metrics")).bearer_auth(token);
    get.send().await.unwrap().text().await.unwrap()
}

async fn add(delayd: &Program, sn: &str) -> crate::program::Answer {
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": sn, "url": "/"}});
    delayd.post("/delay/task/add", task.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_makes_a_new_service_known_and_a_bad_one_changes_nothing() {
    let receiver = Receiver::start().await;
    let served = Served::by(&service("one", &receiver)).await;
    let delayd = &served.delayd;
    assert_eq!(add(delayd, "two").await.status, 400);
    served.save(&(service("one", &receiver) + &service("two", &receiver)));
    delayd.wait_for_logs("changed: services", 1).await;
    add(delayd, "two").await.ok();
    receiver.wait_for(1).await;
    for (bad, why) in [
        ("[services.\"one\"]\nendpoints = []\n", "services.one.endpoints"),
        ("[limits]\nbatsch = 7\n", "batsch"),
        ("[limits\n", "line 1"),
    ] {
        let before = delayd.log().len();
        served.save(bad);
        delayd.wait_for_logs(why, 1).await;
        let log = delayd.log();
        let said = log[before..].lines().find(|line| line.contains(why)).unwrap();
        assert!(said.contains("ERROR") && said.contains("the old one stays"), "{said}");
        add(delayd, "two").await.ok();
    }
    std::fs::remove_file(&served.file).unwrap();
    delayd.wait_for_logs("cannot read the configuration file", 1).await;
    add(delayd, "two").await.ok();
    let metrics = delayd.get("/metrics").await;
    let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(metrics.headers["content-type"], open_metrics);
    let counted = metrics.body.as_str().unwrap();
    assert!(counted.contains("delayd_config_reloads_total{result=\"taken\"} 1\n"), "{counted}");
    assert!(counted.contains("delayd_config_reloads_total{result=\"refused\"} 4\n"), "{counted}");
    // A valid file again.
    served.save(&service("three", &receiver));
    delayd.wait_for_logs("changed: services", 2).await;
    add(delayd, "three").await.ok();
    assert_eq!(add(delayd, "two").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_the_log_level_change_and_other_settings_are_named() {
    let served = Served::by("").await;
    let delayd = &served.delayd;
    delayd.get("/readyz").await;
    assert!(!delayd.log().contains("DEBUG"));
    served.save(concat!(
        "[http]\nbind = \"127.0.0.1:7\"\n[worker]\nlease = \"45s\"\n",
        "[limits]\nbatch = 1\ncontent = \"10B\"\n[log]\nlevel = \"debug\"\n"
    ));
    delayd.wait_for_logs("changed: limits, log.level", 1).await;
    // The address is given by --set, which overrides the file.
    delayd.wait_for_logs("These changes need a restart: worker", 1).await;
    delayd.get("/readyz").await;
    delayd.wait_for_logs("DEBUG", 1).await;
    let task = json!({"topic": "t", "delay": 0, "content": {}});
    let batch = json!({"tasks": [task, task]}).to_string();
    assert_eq!(delayd.post("/delay/task/add_batch", batch.clone()).await.body["dm_error"], 1000);
    let long = json!({"topic": "t", "delay": 0, "content": {"n": 1234567890}}).to_string();
    assert_eq!(delayd.post("/delay/task/add", long.clone()).await.status, 413);
    served.save("[limits]\nbody = \"1KiB\"\ncontent = \"1KiB\"\n");
    delayd.wait_for_logs("changed: limits, log.level", 2).await;
    delayd.post("/delay/task/add_batch", batch).await.ok();
    delayd.post("/delay/task/add", long).await.ok();
    let large = json!({"topic": "t", "delay": 0, "content": {"n": "x".repeat(2_000)}}).to_string();
    assert_eq!(delayd.post("/delay/task/add", large).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_retry_after_max_applies_to_existing_holds() {
    let receiver =
        Receiver::answering(|_| Answer::With(429, vec![("retry-after", "600")], "")).await;
    let text = service("one", &receiver)
        + "concurrency = 1
";
    let served = Served::by(&text).await;
    for _ in 0..3 {
        add(&served.delayd, "one").await.ok();
    }
    receiver.wait_for(1).await;
    receiver.answer(|_| Answer::Status(200));
    served.save(&(text + "[callback]\nretry_after_max = \"1s\"\n"));
    served.delayd.wait_for_logs("changed: callback.retry_after_max", 1).await;
    // The task that was answered keeps its own wait.
    receiver.wait_for(3).await;
}

/// An unchanged file, or other changes in its folder, cause no reload. SIGHUP always does.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_configuration_again_and_ends_nothing() {
    let receiver = Receiver::start().await;
    let served = Served::by(&service("one", &receiver)).await;
    let delayd = &served.delayd;
    std::fs::write(served.folder.path().join("other.toml"), "nothing").unwrap();
    served.save(&service("one", &receiver));
    delayd.signal("HUP");
    delayd.wait_for_logs("nothing has changed", 1).await;
    delayd.signal("HUP");
    delayd.wait_for_logs("nothing has changed", 2).await;
    assert!(!delayd.log().contains("files have changed"), "{}", delayd.log());
    add(delayd, "one").await.ok();
    receiver.wait_for(1).await;
}

/// Kubernetes mounts a ConfigMap in this way: the file is a link into a folder that is itself a
/// link, and the second link is swapped.
#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_folder_behind_a_link_is_noticed() {
    use std::os::unix::fs::symlink;

    let receiver = Receiver::start().await;
    let (store, mount) = (folder(), folder());
    let at = |name: &str| mount.path().join(name);
    for (version, text) in
        [("..v1", service("one", &receiver)), ("..v2", service("two", &receiver))]
    {
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("delayd.toml"), text).unwrap();
    }
    symlink("..v1", at("..data")).unwrap();
    symlink("..data/delayd.toml", at("delayd.toml")).unwrap();
    let delayd = launch(store.path(), &at("delayd.toml")).await;
    add(&delayd, "one").await.ok();
    symlink("..v2", at("..data_tmp")).unwrap();
    std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    std::fs::remove_dir_all(at("..v1")).unwrap();
    delayd.wait_for_logs("changed: services", 1).await;
    add(&delayd, "two").await.ok();
    receiver.wait_for(2).await;
}

/// The SHA-256 of "dly_operator".
const OPERATOR: &str = "ff8ea802a87c3f804697e03f957282a43674912f1a04d98b5cdd2c1e942b37ed";

/// The SHA-256 of "dly_tester".
const VIEWER: &str = "60e3fdff7fa1ec662d2810194b3fb51ef76e2f9cbf092680b316f9baa4277edf";

/// The operator's, for some topics, and one that may read the metrics.
fn both_tokens() -> String {
    format!(
        "[[http.auth.tokens]]\nname = \"operator\"\ntoken_sha256 = \"{OPERATOR}\"\n\
         scopes = [\"produce\", \"admin\"]\ntopics = [\"order.*\"]\n\
         [[http.auth.tokens]]\nname = \"viewer\"\ntoken_sha256 = \"{VIEWER}\"\n\
         scopes = [\"view\"]\ntopics = [\"*\"]\n",
    )
}

/// Calls without a token or with the operator's. Returns the status.
async fn purge(delayd: &Program, topic: &str, token: Option<&str>) -> u16 {
    let body = json!({"topic": topic, "confirm": topic}).to_string();
    let mut post = client().post(delayd.url("/delay/topic/purge")).body(body);
    if let Some(token) = token {
        post = post.bearer_auth(token);
    }
    post.send().await.unwrap().status().as_u16()
}

/// A truncated file is usually valid TOML. A file cut off before its tokens used to admit everyone,
/// and the purge below succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_file_gives_no_access() {
    let receiver = Receiver::start().await;
    let before = service("one", &receiver) + "[log]\nlevel = \"info\"\n";
    let whole = before.clone() + &both_tokens();
    let served = Served::by(&whole).await;
    let delayd = &served.delayd;
    let without_topics = whole.find("topics = ").unwrap();
    let mut refused = 0;
    for (length, why) in [
        (before.len(), "http.auth.tokens: expected at least one token"),
        (without_topics, "http.auth.tokens[0].topics is missing"),
        (before.find("[log]").unwrap(), "http.auth.tokens: expected at least one token"),
        (0, "got an empty file"),
    ] {
        // In place, as a full disk or a killed editor leaves the file.
        std::fs::write(&served.file, &whole[..length]).unwrap();
        refused += 1;
        delayd.wait_for_logs("the old one stays", refused).await;
        let log = delayd.log();
        let said = log.lines().rfind(|line| line.contains("the old one stays")).unwrap();
        assert!(said.contains("ERROR") && said.contains(why), "{said}");
        assert_eq!(purge(delayd, "order.a", None).await, 401);
        assert_eq!(
            purge(delayd, "other", Some("dly_operator")).await,
            403,
            "the token has access to more topics than before"
        );
        assert_eq!(purge(delayd, "order.a", Some("dly_operator")).await, 404);
    }
    let counted = metrics(delayd, "dly_tester").await;
    assert!(counted.contains("delayd_config_reloads_total{result=\"refused\"} 4\n"), "{counted}");
    assert!(counted.contains("delayd_config_reloads_total{result=\"taken\"} 0\n"), "{counted}");
    // SIGHUP accepts no more than a change of the file does.
    delayd.signal("HUP");
    delayd.wait_for_logs("the old one stays", 5).await;
    assert_eq!(purge(delayd, "order.a", None).await, 401);
    // It works if the file says so explicitly.
    served.save(&(before + "[http.auth]\nanonymous = true\n"));
    delayd.wait_for_logs("changed: http.auth", 1).await;
    assert_eq!(purge(delayd, "order.a", None).await, 404);
}

/// Two hundred tasks are called while the services are replaced again and again. Each is called
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_loses_no_call() {
    let receiver = Receiver::answering(|_| Answer::After(Duration::from_millis(50))).await;
    let served = Served::by(&service("one", &receiver)).await;
    for round in 0..10 {
        let tasks: Vec<_> = (0..20)
            .map(
                |n| json!({"topic": "t", "delay": 0, "content": {"sn": "one", "url": "/", "n": n}}),
            )
            .collect();
        served.delayd.add_all(&tasks).await;
        let text = service("one", &receiver)
            + &format!("concurrency = {}\n[callback]\nconcurrency = {}\n", round + 1, 8 + round);
        served.save(&text);
        served.delayd.signal("HUP");
    }
    let seen = receiver.wait_for(200).await;
    let ids: std::collections::HashSet<u64> = seen.iter().map(|call| call.id).collect();
    assert_eq!((ids.len(), seen.len()), (200, 200));
    for id in ids {
        served.delayd.wait_for_state("t", id, "delivered").await;
    }
}
