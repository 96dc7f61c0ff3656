//! Room on the disk: adds are refused before it is full, so that claims and settles can continue.
//!
//! ```text
//!               room under the reserve                 a write found no room
//!      ample ─────────────────────────▶ short ─────────────────────────▶ spent
//!   adds accepted,                   adds refused,                   adds refused,
//!   ballast held ◀──────────────────  ballast held                  ballast released
//!        ▲          a margin above                                        │
//!        └────────────────────────────────────────────────────────────────┘
//!          a margin above, and an add that found room; the ballast is taken again
//! ```
//!
//! A file system may report room and have none (for metadata, for example). So after a write that
//! found no room, the first add is a trial, and only its success ends the state.
//!
//! *Room* is the free space of the file system, plus the log (it can be truncated), plus the free
//! pages within the file (of purged tasks), minus the growth of the file that its log will cause.
//! Since the log needs room of its own, a quarter of the reserve must be outside of the file,
//! however empty the file is. And the fuller the disk, the sooner the log is restarted and
//! truncated ([`Space::log_cap`]).
//!
//! The ballast is for the case that another program fills the disk. Settles free no bytes on the
//! disk, because what they delete leaves free pages within the file. The released ballast gives
//! them at least its room.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::ballast::Ballast;
use crate::metrics::DiskMetrics;
use crate::store::{Error, Result};

/// The interval between two looks at the disk.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The shortest time that adds stay refused after a write found no room, whatever the file system
/// reports.
const HOLD: Duration = Duration::from_secs(5);

/// The smallest volume: on a smaller one, not even the log would fit beside a reserve.
const LEAST_VOLUME: u64 = 4 << 20;

/// The assumed free space of a volume that reports nothing.
const UNKNOWN: u64 = 1 << 60;

/// Bounds of the log's size before it is restarted. The upper one is for a disk with room.
const LEAST_LOG: u64 = 1 << 20;
const MOST_LOG: u64 = 256 << 20;

/// The most that a log takes while the disk is too slow to restart it.
const MOST_SLOW_LOG: u64 = 4 << 30;

/// The size and the free space of a file system, for an ordinary user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    pub(crate) free: u64,
    /// 0 if it reports nothing (some FUSE file systems).
    pub(crate) total: u64,
}

impl Volume {
    /// If nothing is known, there is room until a write finds none.
    fn known(self) -> Self {
        if self.total == 0 { Self { free: UNKNOWN, total: UNKNOWN } } else { self }
    }
}

/// Returns the volume of a path. Tests have a disk of their own.
pub(crate) type Gauge = Arc<dyn Fn(&Path) -> std::io::Result<Volume> + Send + Sync>;

/// The gauge of real disks.
pub(crate) fn statvfs() -> Gauge {
    Arc::new(|path| {
        let volume = rustix::fs::statvfs(path)?;
        Ok(Volume {
            free: volume.f_bavail * volume.f_frsize,
            total: volume.f_blocks * volume.f_frsize,
        })
    })
}

/// The settings of a [`Space`].
#[derive(Clone)]
pub(crate) struct Params {
    /// The database.
    pub(crate) path: PathBuf,
    /// Room that adds leave to claims and settles, on a volume that is large enough.
    pub(crate) reserve: u64,
    pub(crate) gauge: Gauge,
    pub(crate) look_every: Duration,
    pub(crate) hold: Duration,
}

impl Params {
    pub(crate) fn of(path: &Path, reserve: u64) -> Self {
        Self {
            path: path.to_owned(),
            reserve,
            gauge: statvfs(),
            look_every: LOOK_EVERY,
            hold: HOLD,
        }
    }

    /// The volume of a folder, and the reserve on it.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a volume that is too small for a reserve.
    fn survey(&self, folder: &Path) -> Result<(Volume, u64)> {
        let name = self.path.display();
        let volume = (self.gauge)(folder).map(Volume::known).map_err(|error| {
            Error::Misconfigured(format!("cannot look at the disk of {name}: {error}"))
        })?;
        if volume.total < LEAST_VOLUME {
            return Err(Error::Misconfigured(format!(
                "the volume of {name} has {} in all, and the store needs one of {} or more",
                in_words(volume.total),
                in_words(LEAST_VOLUME)
            )));
        }
        Ok((volume, self.reserve.min(volume.total / 4)))
    }

    /// A warning about the volume of a folder, before a file is opened on it.
    ///
    /// # Errors
    /// Those of a start.
    pub(crate) fn warning(&self, folder: &Path) -> Result<Option<String>> {
        let (volume, reserve) = self.survey(folder)?;
        Ok((volume.free < reserve).then(|| short(&self.path, volume.free, reserve)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SpaceState {
    Ample,
    Short,
    Spent {
        since: Instant,
    },
    /// Adds are accepted on trial; the next commit decides.
    Trying,
}

/// Measures the disk for the metrics.
#[derive(Clone)]
pub(crate) struct Meter {
    gauge: Gauge,
    folder: PathBuf,
    metrics: DiskMetrics,
}

impl Meter {
    /// Measures the free space. Waits for a disk that does not answer.
    pub(crate) fn measure(&self) {
        // If the disk cannot be looked at, it is taken to be unchanged.
        if let Ok(volume) = (self.gauge)(&self.folder) {
            self.metrics.is_free(volume.known().free);
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

/// The writer's view of the disk.
pub(crate) struct Space {
    params: Params,
    folder: PathBuf,
    log: PathBuf,
    reserve: u64,
    ballast: Ballast,
    /// Whether the ballast could not be set up, which is logged once.
    gave_up: bool,
    state: SpaceState,
    /// When the disk was last looked at, its room then, and what adds have taken since.
    looked: Option<Instant>,
    seen: DiskRoom,
    taken: u64,
}

/// The room to write to, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct DiskRoom {
    /// On the disk, once the file has taken in its log.
    outside: u64,
    /// Free pages of the file.
    inside: u64,
    /// The size of the log; a part of `outside`.
    log: u64,
}

impl DiskRoom {
    /// Whether this many bytes can be added without touching the reserve.
    fn holds(self, reserve: u64, bytes: u64) -> bool {
        // A task is in the log first and in the file later: for a while it takes its room twice.
        self.outside.saturating_add(self.inside) >= reserve.saturating_add(bytes.saturating_mul(2))
            && self.outside >= (reserve / 4).saturating_add(bytes)
    }
}

impl Space {
    /// Looks at the volume before the file is opened. If almost nothing is left, the ballast is
    /// released at once, because opening needs some room.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a volume that is too small for a reserve.
    pub(crate) fn new(params: Params) -> Result<Self> {
        let path = std::path::absolute(&params.path).unwrap_or_else(|_| params.path.clone());
        let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let (volume, reserve) = params.survey(&folder)?;
        if reserve < params.reserve {
            let name = params.path.display();
            tracing::info!(
                "The volume of {name} is small: the store keeps {} in reserve",
                in_words(reserve)
            );
        }
        let mut log = path.into_os_string();
        log.push("-wal");
        let mut space = Self {
            folder,
            log: log.into(),
            reserve,
            ballast: Ballast::beside(&params.path, reserve / 4),
            gave_up: false,
            state: SpaceState::Ample,
            looked: None,
            seen: DiskRoom::default(),
            taken: 0,
            params,
        };
        if volume.free < space.ballast.bytes() {
            space.ran_out();
        }
        Ok(space)
    }

    /// Checks that there is room for adds of this many bytes. Looks at the disk if that is due.
    ///
    /// # Errors
    /// [`Error::Full`] if there is not.
    pub(crate) fn admit(&mut self, db: &Connection, bytes: u64) -> Result<()> {
        self.look_if_due(db);
        if self.takes_adds() && !self.seen.holds(self.reserve, self.taken.saturating_add(bytes)) {
            self.look(db);
        }
        let has_room = self.seen.holds(self.reserve, self.taken.saturating_add(bytes));
        // A large batch that does not fit says nothing about the tasks after it.
        if self.state == SpaceState::Ample && !has_room && bytes <= self.reserve / 8 {
            self.run_short();
        }
        if !self.takes_adds() || !has_room {
            return Err(Error::Full(format!(
                "the disk of {} has no room for more",
                self.params.path.display()
            )));
        }
        self.taken = self.taken.saturating_add(bytes);
        Ok(())
    }

    /// Called when a write found no room: adds are refused, and the ballast is released. Returns
    /// whether that made room.
    pub(crate) fn ran_out(&mut self) -> bool {
        if !matches!(self.state, SpaceState::Spent { .. } | SpaceState::Trying) {
            tracing::warn!(
                "The disk of {} is full: adds are refused, and the ballast is released so that \
                    what is kept goes on",
                self.params.path.display()
            );
        }
        self.state = SpaceState::Spent { since: Instant::now() };
        self.looked = None;
        self.gave_up = false;
        self.ballast.release()
    }

    /// Called when adds were committed.
    pub(crate) fn found_room(&mut self) {
        if self.state == SpaceState::Trying {
            self.recover();
        }
    }

    /// Measures the same disk for the metrics.
    pub(crate) fn meter(&self, metrics: DiskMetrics) -> Meter {
        metrics.reserves(self.reserve);
        let meter =
            Meter { gauge: Arc::clone(&self.params.gauge), folder: self.folder.clone(), metrics };
        meter.measure();
        meter
    }

    /// Whether a write found no room, and no sign of room has followed.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(self.state, SpaceState::Spent { .. })
    }

    fn takes_adds(&self) -> bool {
        matches!(self.state, SpaceState::Ample | SpaceState::Trying)
    }

    /// How large the log may grow before it is restarted, in bytes.
    pub(crate) fn log_cap(&self) -> u64 {
        self.log_share().min(MOST_LOG)
    }

    /// The log's share of the disk, in bytes: how large it may grow before it is restarted at any
    /// cost. At most a quarter of the free space.
    pub(crate) fn log_share(&self) -> u64 {
        match self.state {
            SpaceState::Spent { .. } | SpaceState::Trying => LEAST_LOG,
            SpaceState::Ample if self.looked.is_none() => MOST_LOG,
            _ => (self.seen.outside / 4).clamp(LEAST_LOG, MOST_SLOW_LOG),
        }
    }

    /// Whether the log takes clearly more than its share of the disk, because the disk has become
    /// fuller. Only truncating it gives that room back.
    pub(crate) fn log_is_overgrown(&self) -> bool {
        self.seen.log > self.log_share() / 4 * 5
    }

    /// The size of a log that grew beyond its cap while the disk was slow.
    pub(crate) fn log_to_trim(&self) -> Option<u64> {
        (self.seen.log > self.log_cap() / 4 * 5).then_some(self.seen.log)
    }

    /// Called when the log was truncated: what was seen of the disk is out of date.
    pub(crate) fn log_was_cut(&mut self) {
        (self.looked, self.seen.log) = (None, 0);
    }

    /// Looks at the disk, unless it did so a moment ago.
    pub(crate) fn look_if_due(&mut self, db: &Connection) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= self.params.look_every) {
            self.look(db);
        }
    }

    fn look(&mut self, db: &Connection) {
        // If the disk cannot be looked at, it is taken to be unchanged.
        let Some(room) = self.measure(db) else { return };
        (self.looked, self.seen, self.taken) = (Some(Instant::now()), room, 0);
        let margin = self.reserve / 4;
        match self.state {
            SpaceState::Ample if !room.holds(self.reserve, 0) => self.run_short(),
            SpaceState::Ample if room.holds(self.reserve + margin + self.missing_ballast(), 0) => {
                self.take_ballast()
            }
            SpaceState::Short if room.holds(self.reserve + margin, 0) => self.recover(),
            SpaceState::Spent { since }
                if since.elapsed() >= self.params.hold
                    && room.holds(self.reserve + margin + self.missing_ballast(), 0) =>
            {
                self.state = SpaceState::Trying;
            }
            _ => {}
        }
    }

    /// `None` if it cannot be known.
    fn measure(&self, db: &Connection) -> Option<DiskRoom> {
        let number = |pragma: &str| {
            let number: i64 = db.prepare_cached(pragma)?.query_row([], |row| row.get(0))?;
            Ok::<_, rusqlite::Error>(number.unsigned_abs())
        };
        let free = (self.params.gauge)(&self.folder).ok()?.known().free;
        let log = std::fs::metadata(&self.log).map_or(0, |file| file.len());
        let length = std::fs::metadata(&self.params.path).ok()?.len();
        let page = number("PRAGMA page_size").ok()?;
        let owed = (number("PRAGMA page_count").ok()? * page).saturating_sub(length);
        let inside = number("PRAGMA freelist_count").ok()? * page;
        Some(DiskRoom { outside: (free + log).saturating_sub(owed), inside, log })
    }

    fn run_short(&mut self) {
        self.state = SpaceState::Short;
        tracing::warn!(
            "{}",
            short(&self.params.path, self.seen.outside + self.seen.inside, self.reserve)
        );
    }

    fn recover(&mut self) {
        self.state = SpaceState::Ample;
        tracing::info!("The disk of {} has room again: adds are taken", self.params.path.display());
    }

    fn missing_ballast(&self) -> u64 {
        if self.ballast.is_held() { 0 } else { self.ballast.bytes() }
    }

    fn take_ballast(&mut self) {
        if self.ballast.is_held() || self.gave_up {
            return;
        }
        if let Err(error) = self.ballast.take() {
            self.gave_up = true;
            tracing::warn!(
                "Cannot set up the ballast beside {}: {error}",
                self.params.path.display()
            );
        }
        // It was part of the free space that was seen.
        self.looked = None;
    }
}

fn short(path: &Path, left: u64, reserve: u64) -> String {
    format!(
        "The disk of {} has {} left, and {} are kept in reserve: adds are refused, \
            and what is kept goes on",
        path.display(),
        in_words(left),
        in_words(reserve)
    )
}

fn in_words(bytes: u64) -> String {
    if bytes >= 10 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}
