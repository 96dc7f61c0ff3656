//! Many power cuts of one recording.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::disk::{self, Disk, Lie};
use crate::history::History;
use crate::judge;
use crate::recording::{Recording, memory};

/// A position, and the seed that decides what is left of the changes that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    pub position: u64,
    pub seed: u64,
}

/// A cut that broke a promise.
#[derive(Debug)]
pub struct Broken {
    pub cut: Cut,
    pub why: String,
}

/// How a recording is cut.
pub struct Cuts<'a> {
    recording: &'a Recording,
    history: &'a History,
    lie: Lie,
    promises: Vec<u64>,
    restarts: Vec<u64>,
}

impl<'a> Cuts<'a> {
    pub fn of(recording: &'a Recording, history: &'a History, lie: Lie) -> Self {
        let (promises, restarts) = (history.promises(), recording.restarts());
        Self { recording, history, lie, promises, restarts }
    }

    /// Carries out the cuts, on all processors, until a promise is broken.
    pub fn judge(&self, cuts: impl Iterator<Item = Cut>) -> Result<(), Broken> {
        let mut cuts: Vec<_> = cuts.collect();
        cuts.sort_unstable();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let is_over = AtomicBool::new(false);
        // Each thread goes through the record once.
        let share = cuts.len().div_ceil(threads);
        let broken = std::thread::scope(|scope| {
            let is_over = &is_over;
            let work = |cuts| scope.spawn(move || self.judge_in_order(cuts, is_over));
            let threads: Vec<_> = cuts.chunks(share).map(work).collect();
            let broken = threads.into_iter().filter_map(|thread| thread.join().unwrap().err());
            broken.min_by_key(|broken| broken.cut)
        });
        broken.map_or(Ok(()), Err)
    }

    /// A cut anywhere, just after a promise, or where the log begins anew.
    pub fn random(&self) -> Cut {
        let mut dice = rand::rng();
        match dice.random_range(0..4) {
            0 => self.at(dice.random_range(0..=self.recording.record.len() as u64)),
            1 => self.where_the_log_begins(),
            _ => {
                let promise = self.promises.choose(&mut dice).copied().unwrap_or_default();
                self.at(promise + dice.random_range(0..3))
            }
        }
    }

    pub fn where_the_log_begins(&self) -> Cut {
        let mut dice = rand::rng();
        let start = self.restarts.choose(&mut dice).copied().unwrap_or_default();
        self.at(start + dice.random_range(0..100))
    }

    fn at(&self, position: u64) -> Cut {
        let last = self.recording.record.len() as u64;
        Cut { position: position.min(last), seed: rand::random() }
    }

    fn judge_in_order(&self, cuts: &[Cut], is_over: &AtomicBool) -> Result<(), Broken> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut disk = Disk::new(&self.recording.record, self.lie);
        let folder = memory();
        for &cut in cuts {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            disk.go_to(cut.position as usize);
            let mut dice = StdRng::seed_from_u64(cut.seed);
            let place = folder.path().join("cut");
            fs::create_dir(&place).unwrap();
            disk::write(&disk.cut(&mut dice), &place, &mut dice);
            let judged = runtime.block_on(judge::judge(&place, self.history, cut.position));
            fs::remove_dir_all(&place).unwrap();
            if let Err(why) = judged {
                is_over.store(true, Ordering::Relaxed);
                return Err(Broken { cut, why });
            }
        }
        Ok(())
    }
}
