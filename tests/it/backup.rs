//! `delayd backup`.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::sync::watch;

use crate::program::{Program, StoreAt, client, command, run};
use crate::{Kept, program};

async fn back_up(store: &StoreAt, to: &Path, words: &[&str]) -> (i32, String) {
    let mut backup = command(&store.sets());
    backup.arg("backup").arg(to).args(words);
    let (code, output, error) = run(backup).await;
    (code, output + &error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_beside_adds_is_a_store_with_every_task_confirmed_before() {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    let task = json!({"topic": "t", "delay": "1h", "content": {"a": "x".repeat(500)}});
    let delivered = delayd.add(json!({"topic": "u", "delay": 0, "content": {}})).await.id();
    delayd.post("/delay/task/pull", r#"{"topic":"u"}"#).await.ok();
    let mut before = delayd.add_all(&vec![task.clone(); 1_000]).await;

    let (stop, added) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(Vec::new()));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (stop, added, task) = (stop.clone(), added.clone(), task.clone());
            let (client, url) = (client(), delayd.url("/delay/task/add"));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.post(&url).json(&task).send().await.unwrap();
                    let answer: serde_json::Value = answer.json().await.unwrap();
                    let id = answer["task_id"].as_u64().unwrap();
                    added.send_modify(|added| added.push(id));
                }
            })
        })
        .collect();
    let mut seen = added.subscribe();
    seen.wait_for(|added| added.len() >= 200).await.unwrap();
    before.extend(added.borrow().iter());

    let folder = program::folder();
    let copy = folder.path().join("copy.db");
    let (code, said) = back_up(&kept.store, &copy, &[]).await;
    assert!(code == 0 && said.contains("copy.db: ") && said.contains(" bytes in "), "{said}");
    let until = added.borrow().len() + 10;
    seen.wait_for(|added| added.len() >= until).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }

    let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["copy.db"]);
    let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "contents are readable by others");
    let store = StoreAt::Set(vec![format!("store.embedded.path={copy:?}")]);
    let mut fsck = command(&store.sets());
    fsck.arg("fsck");
    let (code, output, error) = run(fsck).await;
    assert_eq!(code, 0, "{output}{error}");
    let restored = Program::start(&store, &[]).await;
    assert_eq!(restored.task("u", delivered).await["state"], "delivered");
    for id in &before {
        assert_eq!(restored.task("t", *id).await["state"], "scheduled", "{id}");
    }
    // Its ids go on behind those of the backup.
    let next = restored.add(task).await.id();
    assert!(before.iter().copied().collect::<HashSet<u64>>().insert(next));
}

#[tokio::test]
async fn a_backup_replaces_no_file_unless_forced_and_never_a_store() {
    let kept = Kept::embedded();
    let StoreAt::Embedded(folder) = &kept.store else { unreachable!() };
    let (file, own) = (folder.join("backup.db"), folder.join("delayd.db"));
    let (code, said) = back_up(&kept.store, &file, &[]).await;
    assert!(code == 78 && said.contains("there is no store at"), "{said}");
    let delayd = kept.start(&[]).await;
    let id = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.id();
    std::fs::write(&file, "mine").unwrap();
    let refused = async |to: &Path, words: &[&str], why: &str| {
        let (code, said) = back_up(&kept.store, to, words).await;
        assert!(code == 1 && said.contains(why), "{said}");
    };
    refused(&file, &[], "exists: name another file, or replace it with --force").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    refused(&own, &["--force"], "a store that may be in use").await;
    refused(folder, &["--force"], "expected a file, got a folder").await;
    refused(&folder.join("none/backup.db"), &[], "cannot write the backup").await;
    let (code, said) = back_up(&kept.store, &file, &["--force"]).await;
    assert_eq!(code, 0, "{said}");
    let copy = StoreAt::Set(vec![format!("store.embedded.path={file:?}")]);
    assert_eq!(Program::start(&copy, &[]).await.task("t", id).await["state"], "scheduled");
    // That was a store, too.
    refused(&file, &["--force"], "a store that may be in use").await;

    let redis = StoreAt::Set(vec!["store.kind=\"redis\"".into()]);
    let (code, said) = back_up(&redis, &folder.join("b.db"), &[]).await;
    assert!(code == 78 && said.contains("docs/operations/backup.md"), "{said}");
}
