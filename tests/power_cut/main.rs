//! Power cuts: the real program, cut off anywhere, keeps what it promised.
//!
//! A [recording](recording) has every write and sync of the program, and every answer of it, in one
//! order. A [cut](cuts) takes what a [disk](disk) may hold at a position: all that was synced, and
//! random pieces of the rest. The real store opens that, and a [judge](judge) compares it with the
//! [history](history): each answered promise is there, nothing was called or pulled that is not,
//! and no id is drawn twice. Checks of the file are `delayd fsck` and `PRAGMA integrity_check`.
//!
//! ```sh
//! cargo test --test power_cut                                    # 1,000 cuts
//! POWER_CUTS=20000 cargo test --test power_cut                   # more of them
//! POWER_CUT=FOLDER:POSITION:SEED cargo test --test power_cut     # this one; printed if it fails
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, a panic is the report")]
#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "a test crate has no API, and uses a part of what it shares with others"
)]

mod caller;
mod cuts;
mod disk;
mod history;
mod judge;
mod load;
mod outside;
mod record;
mod recording;
mod volume;

#[path = "../support/poll.rs"]
mod poll;
#[path = "../it/program.rs"]
mod program;
#[path = "../it/receiver.rs"]
mod receiver;

use std::path::Path;
use std::time::Instant;

use rand::seq::IndexedRandom;

use cuts::{Broken, Cut, Cuts};
use disk::Lie;
use record::Entry;
use recording::Recording;

/// The service that is called.
pub const SERVICE: &str = "message.call";

/// The cuts of one recording. Further ones find less than those of another recording.
const PER_RECORDING: u64 = 500;

/// The longest delay of a sync, in microseconds; and that of every other recording. With the long
/// one, the disk counts as slow.
const DELAY_US: u64 = 50_000;
const DELAYS_US: [u64; 2] = [5_000, 150_000];

/// The entries within which the first start makes the file, about.
const FIRST: u64 = 150;

/// The cuts within which a simulated defect must be found.
const ENOUGH: u64 = 2_000;
const GROUP: u64 = 50;

/// Panics after a minute.
pub async fn wait_until(mut is_so: impl FnMut() -> bool) {
    assert!(poll::until(async || is_so()).await, "the load stands still");
}

fn cuts() -> u64 {
    std::env::var("POWER_CUTS").map_or(1_000, |cuts| cuts.parse().expect("POWER_CUTS is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_promised_survives_a_power_cut() {
    if let Ok(cut) = std::env::var("POWER_CUT") {
        return repeat(&cut);
    }
    let mut left = cuts();
    while left > 0 {
        // Two at a time: the programs wait for their syncs most of the time.
        let other = DELAYS_US.choose(&mut rand::rng()).expect("there are some");
        let (one, other) = tokio::join!(Recording::make(DELAY_US), Recording::make(*other));
        for recording in [one, other] {
            let count = left.min(PER_RECORDING);
            if count > 0 {
                judge(&recording, count);
            }
            left -= count;
        }
    }
}

/// Carries out random cuts, and some within the first start, when the file is made.
fn judge(recording: &Recording, count: u64) {
    let began = Instant::now();
    let cuts = Cuts::of(recording, &recording.history, Lie::Nothing);
    let first = (0..count / 10).map(|cut| Cut { position: cut % FIRST, seed: rand::random() });
    let all = first.chain((count / 10..count).map(|_| cuts.random()));
    if let Err(Broken { cut, why }) = cuts.judge(all) {
        panic!(
            "a power cut at {} of {} broke a promise: {why}\n\nagain: POWER_CUT={}:{}:{} cargo \
             test --test power_cut promised",
            cut.position,
            recording.record.len(),
            recording.keep().display(),
            cut.position,
            cut.seed
        );
    }
    println!(
        "{count} cuts of {} entries, {} promises and {} starts of the log, in {:.1} s",
        recording.record.len(),
        recording.history.promises().len(),
        recording.restarts().len(),
        began.elapsed().as_secs_f32(),
    );
}

/// A cut that was printed: the folder of its recording, its position, and its seed.
fn repeat(cut: &str) {
    let parts: Vec<&str> = cut.rsplitn(3, ':').collect();
    let [seed, position, folder] = parts[..] else { panic!("POWER_CUT is FOLDER:POSITION:SEED") };
    let cut = Cut { position: position.parse().unwrap(), seed: seed.parse().unwrap() };
    let recording = Recording::kept(Path::new(folder));
    Cuts::of(&recording, &recording.history, Lie::Nothing).judge(std::iter::once(cut)).unwrap();
}

/// Defects that can be put into a recording of the right program. A test that does not find them
/// proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn defects_are_found() {
    let recording = Recording::make(DELAY_US).await;
    for lie in [Lie::SyncsOfTheLog, Lie::SyncsOfTheDatabase] {
        let cuts = Cuts::of(&recording, &recording.history, lie);
        is_found(&format!("{lie:?} are missing"), &cuts, Cuts::random);
    }
    let cuts = Cuts::of(&recording, &recording.history, Lie::SyncsOfTheHeader);
    is_found("the log begins without a sync of its header", &cuts, Cuts::where_the_log_begins);
    // Each answer comes when the sync before it begins, not when it ends.
    let mut early = recording.history.clone();
    let mut begun = 0;
    let begins: Vec<u64> = (0u64..)
        .zip(recording.record.entries())
        .map(|(position, entry)| {
            if matches!(entry, Entry::Sync { .. }) {
                begun = position;
            }
            begun
        })
        .collect();
    early.promise_earlier(|position| begins[position as usize - 1] + 1);
    is_found("answers before the sync", &Cuts::of(&recording, &early, Lie::Nothing), Cuts::random);
}

fn is_found<'a>(defect: &str, cuts: &Cuts<'a>, pick: impl Fn(&Cuts<'a>) -> Cut) {
    // A group is carried out in the order of the record.
    for group in 1..=ENOUGH / GROUP {
        if let Err(broken) = cuts.judge((0..GROUP).map(|_| pick(cuts))) {
            let why: String = broken.why.chars().take(300).collect();
            return println!("{defect}: found in {} cuts: {why}", group * GROUP);
        }
    }
    panic!("{defect}: not found in {ENOUGH} cuts");
}
