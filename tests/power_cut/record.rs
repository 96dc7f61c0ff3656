//! The record of [`recorder.c`](recorder.c): how a program is started with the recorder, and how
//! the record is read.
//!
//! A *position* is a number of entries. "At position k" means that the first k entries have
//! happened. A promise that was received at position k holds for every power cut at k or later.
//!
//! A *file* is a number from 1, given when the file is created; it outlives names and processes. 0
//! is the folder.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// Bytes before the first entry.
const HEAD: usize = 24;
/// Bytes of an entry before its data.
const ENTRY: usize = 24;
/// The largest record. The file is sparse.
const ROOM: u64 = 1 << 30;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A process began.
    Start,
    /// An existing file was opened for the first time by this process.
    Open,
    Create {
        file: usize,
        name: &'a str,
    },
    Write {
        file: usize,
        at: usize,
        data: &'a [u8],
    },
    Resize {
        file: usize,
        size: usize,
    },
    /// Room was allocated, which makes a shorter file longer.
    Grow {
        file: usize,
        size: usize,
    },
    /// A sync began.
    Sync {
        file: usize,
        number: u64,
    },
    /// A sync succeeded.
    Synced {
        file: usize,
        number: u64,
    },
    Unlink {
        name: &'a str,
    },
    Rename {
        from: &'a str,
        to: &'a str,
    },
}

/// A record in a file, while it is written. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    path: PathBuf,
    file: Arc<File>,
}

impl Recorder {
    pub fn create(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let file = file.unwrap();
        file.set_len(ROOM).unwrap();
        Self { path: path.to_owned(), file: Arc::new(file) }
    }

    /// The number of entries now.
    pub fn position(&self) -> u64 {
        self.read(0)
    }

    /// Kills the process that records, at its first write or sync from this position on.
    /// 0: not at all.
    pub fn kill_at(&self, position: u64) {
        self.file.write_all_at(&position.to_ne_bytes(), 16).unwrap();
    }

    fn read(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// Makes the command record what it does to the files of `folder`. Each sync takes up to
    /// `delay_us` longer.
    pub fn around(&self, mut command: Command, folder: &Path, delay_us: u64, seed: u64) -> Command {
        command
            .env("LD_PRELOAD", library())
            .env("RECORDER_FILE", &self.path)
            .env("RECORDER_FOLDER", folder)
            .env("RECORDER_DELAY", delay_us.to_string())
            .env("RECORDER_SEED", seed.to_string());
        command
    }

    /// Cuts the file to what was written.
    pub fn finish(&self) {
        self.file.set_len(HEAD as u64 + self.read(8)).unwrap();
    }
}

/// The compiled library, once for this process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power_cut/recorder.c");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Another test process may build it at the same time.
        let own = folder.join(format!("recorder-{}.so", std::process::id()));
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&own, &source])
            .args(["-ldl", "-lpthread"])
            .output()
            .expect("the power-cut tests need the C compiler that builds SQLite, as cc");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let library = folder.join("recorder.so");
        fs::rename(own, &library).unwrap();
        library
    })
}

/// A finished record in memory.
#[derive(Debug)]
pub struct Record {
    bytes: Vec<u8>,
    /// Where each entry begins, and the file that it concerns.
    entries: Vec<(usize, usize)>,
}

impl Record {
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let mut record = Self { bytes, entries: Vec::new() };
        let end = HEAD + record.number(8) as usize;
        // The file of each file, and of each number that the process gave.
        let (mut of_inode, mut of_number, mut created) = (HashMap::new(), vec![0], 0);
        let mut at = HEAD;
        while at < end {
            let (kind, number) = (record.word(at), record.word(at + 4) as usize);
            match kind {
                // A new process counts its files anew.
                0 => of_number.truncate(1),
                1 | 2 => {
                    let inode = record.number(at + 8);
                    if kind == 2 {
                        created += 1;
                        of_inode.insert(inode, created);
                    }
                    of_number.resize(of_number.len().max(number + 1), 0);
                    of_number[number] = of_inode[&inode];
                }
                _ => {}
            }
            record.entries.push((at, of_number[number]));
            at += ENTRY + (record.number(at + 16) as usize).next_multiple_of(8);
        }
        record
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn entry(&self, index: usize) -> Entry<'_> {
        let (at, file) = self.entries[index];
        let (number, length) = (self.number(at + 8), self.number(at + 16) as usize);
        let data = &self.bytes[at + ENTRY..at + ENTRY + length];
        let text = || std::str::from_utf8(data).unwrap();
        match self.word(at) {
            0 => Entry::Start,
            1 => Entry::Open,
            2 => Entry::Create { file, name: text() },
            3 => Entry::Write { file, at: number as usize, data },
            4 => Entry::Resize { file, size: number as usize },
            5 => Entry::Grow { file, size: number as usize },
            6 => Entry::Sync { file, number },
            7 => Entry::Synced { file, number },
            8 => Entry::Unlink { name: text() },
            9 => {
                let (from, to) = text().split_once('\0').unwrap();
                Entry::Rename { from, to }
            }
            kind => panic!("entry {index} has the kind {kind}"),
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.len()).map(|index| self.entry(index))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }
}
