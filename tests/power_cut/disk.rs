//! What a disk may hold after a power cut.
//!
//! A write is durable when a sync of its file ends that began after the write. Of the later writes,
//! each sector of 512 bytes may be there or not, in any combination, and so may each change of
//! length. Names (new, removed, renamed files) are durable when a sync of the folder ends; of the
//! later changes, the disk has the first few.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::record::{Entry, Record};

const SECTOR: usize = 512;
const PAGE: usize = 4_096;

/// A defect of the program that the disk simulates, to test the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    Nothing,
    /// The program syncs another file instead of the log.
    SyncsOfTheLog,
    /// The program copies the log into the database, and restarts the log without a sync of the
    /// database.
    SyncsOfTheDatabase,
    /// The program restarts the log without a sync of its new header.
    SyncsOfTheHeader,
}

/// A change of a file that is not durable.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write { at: usize, entry: usize },
    Resize(usize),
    Grow(usize),
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    /// With their positions.
    pending: Vec<(usize, Change)>,
    /// Running syncs, and the positions at which they began.
    syncs: HashMap<u64, usize>,
    /// Whether the last change was a write to the beginning.
    has_new_header: bool,
}

/// The disk, as the record goes on.
pub struct Disk<'a> {
    record: &'a Record,
    lie: Lie,
    position: usize,
    /// By number; 0 is the folder, which has no content.
    files: Vec<File>,
    names: BTreeMap<&'a str, usize>,
    /// Changes of the names that are not durable: a name, and its file if it has one then.
    pending_names: Vec<(usize, &'a str, Option<usize>)>,
    /// All names, durable or not.
    known: BTreeMap<&'a str, usize>,
}

impl<'a> Disk<'a> {
    pub fn new(record: &'a Record, lie: Lie) -> Self {
        Self {
            record,
            lie,
            position: 0,
            files: vec![File::default()],
            names: BTreeMap::new(),
            pending_names: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// Goes on to a position, which is not behind the present one.
    pub fn go_to(&mut self, position: usize) {
        while self.position < position {
            self.step(self.record.entry(self.position));
            self.position += 1;
        }
    }

    fn step(&mut self, entry: Entry<'a>) {
        let now = self.position;
        match entry {
            Entry::Start => self.files.iter_mut().for_each(|file| file.syncs.clear()),
            Entry::Open => {}
            Entry::Create { file, name } => {
                self.files.resize_with(file + 1, File::default);
                self.rename(name, Some(file));
            }
            Entry::Unlink { name } => self.rename(name, None),
            Entry::Rename { from, to } => {
                let file = self.known.get(from).copied();
                self.rename(to, file);
                self.rename(from, None);
            }
            Entry::Write { file, at, .. } => {
                self.files[file].has_new_header = at == 0;
                self.files[file].pending.push((now, Change::Write { at, entry: now }));
            }
            Entry::Resize { file, size } => {
                self.files[file].pending.push((now, Change::Resize(size)));
            }
            Entry::Grow { file, size } => self.files[file].pending.push((now, Change::Grow(size))),
            Entry::Sync { file, number } => {
                if !self.is_lie(file) {
                    self.files[file].syncs.insert(number, now);
                }
            }
            Entry::Synced { file, number } => {
                if let Some(began) = self.files[file].syncs.remove(&number) {
                    self.make_durable(file, began);
                }
            }
        }
    }

    fn is_lie(&self, file: usize) -> bool {
        let is = |end| self.known.iter().any(|(name, of)| *of == file && name.ends_with(end));
        match self.lie {
            Lie::Nothing => false,
            Lie::SyncsOfTheLog => is("-wal"),
            Lie::SyncsOfTheDatabase => is(".db"),
            Lie::SyncsOfTheHeader => is("-wal") && self.files[file].has_new_header,
        }
    }

    fn rename(&mut self, name: &'a str, file: Option<usize>) {
        match file {
            Some(file) => self.known.insert(name, file),
            None => self.known.remove(name),
        };
        self.pending_names.push((self.position, name, file));
    }

    /// All changes before `began` are durable.
    fn make_durable(&mut self, file: usize, began: usize) {
        if file == 0 {
            let count = self.pending_names.partition_point(|(at, ..)| *at < began);
            for (_, name, file) in self.pending_names.drain(..count) {
                match file {
                    Some(file) => self.names.insert(name, file),
                    None => self.names.remove(name),
                };
            }
            return;
        }
        let record = self.record;
        let File { durable, pending, .. } = &mut self.files[file];
        let count = pending.partition_point(|(at, _)| *at < began);
        for (_, change) in pending.drain(..count) {
            apply(durable, change, record, |_| true);
        }
    }

    /// The files after a power cut now. `dice` decides what is left of the changes that are not
    /// durable.
    pub fn cut(&self, dice: &mut StdRng) -> BTreeMap<&'a str, Vec<u8>> {
        let mut names = self.names.clone();
        let count = dice.random_range(0..=self.pending_names.len());
        for (_, name, file) in &self.pending_names[..count] {
            match file {
                Some(file) => names.insert(name, *file),
                None => names.remove(name),
            };
        }
        names.into_iter().map(|(name, file)| (name, self.survivor(file, dice))).collect()
    }

    fn survivor(&self, file: usize, dice: &mut StdRng) -> Vec<u8> {
        let File { durable, pending, .. } = &self.files[file];
        let mut bytes = durable.clone();
        let fate = Fate::random(dice, pending.len());
        let mut most = bytes.len();
        for (index, (_, change)) in pending.iter().enumerate() {
            let mut left = fate.of(index, dice);
            apply(&mut bytes, *change, self.record, &mut left);
            if let Change::Write { at, entry } = change {
                most = most.max(at + data(self.record, *entry).len());
            }
        }
        // The new length may be on disk without the data.
        if dice.random_bool(0.3) && bytes.len() < most {
            bytes.resize(most, 0);
        }
        bytes
    }

    /// The files as the program sees them.
    pub fn uncut(&self) -> BTreeMap<&'a str, Vec<u8>> {
        let whole = |file: usize| {
            let mut bytes = self.files[file].durable.clone();
            for (_, change) in &self.files[file].pending {
                apply(&mut bytes, *change, self.record, |_| true);
            }
            bytes
        };
        self.known.iter().map(|(name, file)| (*name, whole(*file))).collect()
    }
}

fn data(record: &Record, entry: usize) -> &[u8] {
    match record.entry(entry) {
        Entry::Write { data, .. } => data,
        other => panic!("entry {entry} is no write: {other:?}"),
    }
}

/// Carries out those sectors of a change that `left` says are left of it. `left` gets the offset of
/// each sector.
fn apply(
    bytes: &mut Vec<u8>,
    change: Change,
    record: &Record,
    mut left: impl FnMut(usize) -> bool,
) {
    match change {
        Change::Write { at, entry } => {
            let data = data(record, entry);
            let mut from = at;
            while from < at + data.len() {
                let to = (at + data.len()).min((from / SECTOR + 1) * SECTOR);
                if left(from) {
                    if bytes.len() < to {
                        bytes.resize(to, 0);
                    }
                    bytes[from..to].copy_from_slice(&data[from - at..to - at]);
                }
                from = to;
            }
        }
        Change::Resize(size) => {
            if left(0) {
                bytes.resize(size, 0);
            }
        }
        Change::Grow(size) => {
            if left(0) && bytes.len() < size {
                bytes.resize(size, 0);
            }
        }
    }
}

/// Which of a file's changes are left.
#[derive(Debug)]
enum Fate {
    Nothing,
    Everything,
    /// Each sector with this probability.
    Sectors(f64),
    /// Each page of the file with this probability: all of its changes, or none.
    Pages(u64, f64),
    /// Each change with this probability, as a whole.
    Changes(f64),
    /// The first so many changes.
    First(usize),
    /// All but the first so many.
    Last(usize),
}

impl Fate {
    fn random(dice: &mut StdRng, changes: usize) -> Self {
        match dice.random_range(0..8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 => Self::Sectors(0.5),
            3 => Self::Sectors(dice.random()),
            4 => Self::Pages(dice.random(), dice.random()),
            5 => Self::Changes(dice.random()),
            6 => Self::First(dice.random_range(0..=changes)),
            _ => Self::Last(dice.random_range(0..=changes)),
        }
    }

    /// Decides about the sectors of one change.
    fn of<'d>(&self, index: usize, dice: &'d mut StdRng) -> Box<dyn FnMut(usize) -> bool + 'd> {
        match *self {
            Self::Nothing => Box::new(|_| false),
            Self::Everything => Box::new(|_| true),
            Self::Sectors(share) => Box::new(move |_| dice.random_bool(share)),
            Self::Pages(seed, share) => Box::new(move |at| {
                let page = seed ^ (at / PAGE) as u64;
                StdRng::seed_from_u64(page).random_bool(share)
            }),
            Self::Changes(share) => {
                let is_left = dice.random_bool(share);
                Box::new(move |_| is_left)
            }
            Self::First(count) => Box::new(move |_| index < count),
            Self::Last(count) => Box::new(move |_| index >= count),
        }
    }
}

/// Writes the files into a folder. Memory that processes shared is not on the disk: SQLite must
/// build `-shm` anew, whatever is in it.
pub fn write(files: &BTreeMap<&str, Vec<u8>>, folder: &Path, dice: &mut StdRng) {
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with("-shm")) {
        fs::write(folder.join(name), bytes).unwrap();
    }
    if dice.random_bool(0.5) {
        let mut garbage = vec![0; 32_768];
        dice.fill(&mut garbage[..]);
        fs::write(folder.join("delayd.db-shm"), garbage).unwrap();
    }
}
