//! One recording: the real program under load, killed once and restarted twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::sync::watch;

use crate::caller::Caller;
use crate::disk::{Disk, Lie};
use crate::history::History;
use crate::program::{self, Program};
use crate::receiver::now_ms;
use crate::record::{Entry, Record, Recorder};
use crate::volume::Volume;
use crate::{SERVICE, load, outside};

/// The entries of each of the three processes: two for each page in the log.
const ENTRIES: u64 = 16_000;

const RECORD: &str = "record";
const HISTORY: &str = "history.json";

/// What happened, and what was promised.
pub struct Recording {
    pub record: Record,
    pub history: History,
    folder: TempDir,
}

/// A folder in memory if there is any: a disk would add its own delays, and wear out.
pub fn memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

impl Recording {
    /// Records a program whose syncs take up to so many microseconds longer.
    pub async fn make(delay_us: u64) -> Self {
        let folder = memory();
        let store = folder.path().canonicalize().unwrap().join("store");
        fs::create_dir(&store).unwrap();
        let volume = Volume::on(&store);
        let recorder = Recorder::create(&folder.path().join(RECORD));
        let address = watch::Sender::new(None);
        let is_over = watch::Sender::new(false);
        let caller = Caller::new(recorder.clone(), address.subscribe(), is_over.subscribe());
        caller.history().began_ms = now_ms();
        let receiver = outside::receiver(&caller).await;
        let sets = [
            program::service(SERVICE, &receiver),
            "store.embedded.reserve=\"1MiB\"".to_owned(),
            "log.level=\"warn,delayd::cli=info\"".to_owned(),
        ];
        let start = async || {
            let around = |command| {
                recorder.around(volume.inside(&command), &store, delay_us, rand::random())
            };
            Program::start_by(&program::embedded(&store), &sets, around).await
        };

        let mut delayd = start().await;
        address.send_replace(Some(delayd.address));
        let callers = load::start(&caller);
        recorder.kill_at(ENTRIES);
        delayd.ended().await;
        address.send_replace(None);
        recorder.kill_at(0);

        let mut delayd = start().await;
        address.send_replace(Some(delayd.address));
        crate::wait_until(|| recorder.position() > 2 * ENTRIES).await;
        address.send_replace(None);
        delayd.signal("TERM");
        assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());

        let mut delayd = start().await;
        address.send_replace(Some(delayd.address));
        crate::wait_until(|| recorder.position() > 3 * ENTRIES).await;
        is_over.send_replace(true);
        callers.join_all().await;
        delayd.signal("TERM");
        assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());

        recorder.finish();
        let mut history = std::mem::take(&mut *caller.history());
        history.finish();
        let record = Record::read(&folder.path().join(RECORD));
        let recording = Self { record, history, folder };
        recording.check(&volume);
        recording
    }

    /// The record names each change of the files: carried out, it gives the files themselves.
    fn check(&self, volume: &Volume) {
        let mut disk = Disk::new(&self.record, Lie::Nothing);
        disk.go_to(self.record.len());
        let files = disk.uncut();
        for name in ["delayd.db", "delayd.db-wal"] {
            let real = fs::read(volume.path(name)).unwrap();
            assert!(files[name] == real, "the record of {name} is incomplete");
        }
        let restarts = self.restarts().len();
        assert!(restarts > 4, "the log was restarted {restarts} times, which is not enough");
        assert!(self.history.promises().len() > 500, "too little was promised");
    }

    /// The positions at which the log begins anew.
    pub fn restarts(&self) -> Vec<u64> {
        let mut logs = BTreeMap::new();
        let mut restarts = Vec::new();
        for (position, entry) in self.record.entries().enumerate() {
            match entry {
                Entry::Create { file, name } => {
                    logs.insert(file, name.ends_with("-wal"));
                }
                Entry::Write { file, at: 0, .. } if logs[&file] => restarts.push(position as u64),
                _ => {}
            }
        }
        restarts
    }

    /// Keeps it for another look. Returns the folder.
    pub fn keep(&self) -> PathBuf {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("power-cut-{}", std::process::id()));
        fs::create_dir_all(&kept).unwrap();
        fs::copy(self.folder.path().join(RECORD), kept.join(RECORD)).unwrap();
        fs::write(kept.join(HISTORY), serde_json::to_vec(&self.history).unwrap()).unwrap();
        kept
    }

    /// Reads one that was kept.
    pub fn kept(folder: &Path) -> Self {
        let history = fs::read(folder.join(HISTORY)).unwrap();
        Self {
            record: Record::read(&folder.join(RECORD)),
            history: serde_json::from_slice(&history).unwrap(),
            folder: memory(),
        }
    }
}
