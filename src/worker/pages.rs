//! Which page of a lane's due destinations a claim reads.
//!
//! ```text
//! earliest moment ──▶                                         now
//! │ read before            │ scan: to be read │ read before    │ new
//! └────────────────────────┴──────────────────┴────────────────┴─────
//!                                                            front
//! ```
//!
//! The list is ordered by the earliest due moment of each destination. Destinations whose tasks
//! wait for permits stay in it, and callers may name thousands of them. So a claim reads only what
//! fell due since the last one, behind the *front*. A *scan* reads the rest page by page, and the
//! claims in between read the front. Whatever the length of the list, every second claim reads the
//! front.
//!
//! What joins the list before the front is read when a hint names its moment. What no hint told is
//! found by the scan that follows a poll.

use crate::model::clock::UnixMillis;
use crate::store::Position;

/// The positions of one lane.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// All before it has been read, or is left to the scan. `None`: nothing has been read.
    front: Option<Position>,
    /// Where the scan goes on; `None` without a scan.
    scan: Option<Position>,
    /// Whether the scan reads the whole list.
    is_full: bool,
    /// A scan of the whole list is to begin, with this moment.
    scan_from: Option<UnixMillis>,
    /// The earliest moment that a hint told.
    hinted: Option<UnixMillis>,
    /// Whether the front is read next, because the last page ended before it.
    is_behind: bool,
    /// Whether the next page is one of the scan, if there is one.
    is_scans_turn: bool,
}

/// The page of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The page follows this position.
    pub(super) after: Option<Position>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Front,
    /// It also begins a scan of the whole list.
    FirstOfScan,
    Scan,
}

/// What a page has shown of the whole list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// A scan of the whole list has begun with this page.
    pub(super) begins: bool,
    /// Its last page is this one.
    pub(super) ends: bool,
}

/// What the supervisor has told a lane since its last claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The earliest due moment of new work.
    pub(super) hinted: Option<UnixMillis>,
    /// The earliest moment of the lane, as a poll found it.
    pub(super) polled: Option<UnixMillis>,
}

impl Pages {
    /// A hint told that something is due at this moment.
    pub(super) fn hint(&mut self, due: UnixMillis) {
        self.hinted = self.hinted.into_iter().chain([due]).min();
    }

    /// The store says that the list begins with this moment. If claims have read that, a scan of
    /// the whole list begins with the next claim, or the one after the current scan.
    pub(super) fn look(&mut self, earliest: UnixMillis) {
        match &self.front {
            Some(front) if front.moment >= earliest => {
                self.scan_from = self.scan_from.into_iter().chain([earliest]).min();
            }
            _ => {}
        }
    }

    /// A scan of the whole list begins soon, because the last answer is lost or old.
    pub(super) fn look_at_all(&mut self) {
        self.look(UnixMillis(i64::MIN));
    }

    /// Whether a page is to be read that was not read yet.
    pub(super) fn has_more(&self) -> bool {
        self.scan.is_some() || self.is_behind
    }

    /// The next page.
    pub(super) fn next(&self) -> Page {
        if let Some(scan) = self.scan.as_ref().filter(|_| self.is_scans_turn) {
            return Page { after: Some(scan.clone()), kind: Kind::Scan };
        }
        let Some(front) = &self.front else { return Page { after: None, kind: Kind::Front } };
        let begun = self.scan_from.filter(|_| self.scan.is_none());
        let from = self.hinted.into_iter().chain(begun).min();
        Page {
            after: match from.filter(|from| *from <= front.moment) {
                Some(UnixMillis(i64::MIN)) => None,
                Some(UnixMillis(from)) => {
                    Some(Position { moment: UnixMillis(from - 1), destination: None })
                }
                None => Some(front.clone()),
            },
            kind: if begun.is_some() { Kind::FirstOfScan } else { Kind::Front },
        }
    }

    /// The page was read at `now`, up to `end`, or to the end of the list.
    pub(super) fn read(&mut self, page: &Page, now: UnixMillis, end: Option<Position>) -> Progress {
        let mut progress = Progress::default();
        let all = Position { moment: now, destination: None };
        if page.kind == Kind::Scan {
            self.is_scans_turn = false;
            progress.ends = end.is_none() && self.is_full;
            if end.is_none() {
                self.front = Some(all);
            }
            self.scan = end;
            return progress;
        }
        (self.hinted, self.is_behind, self.is_scans_turn) = (None, false, true);
        if page.kind == Kind::FirstOfScan {
            (self.scan_from, self.is_full, self.scan) = (None, true, end.clone());
            (progress.begins, progress.ends) = (true, end.is_none());
        }
        match end {
            None => self.front = Some(all),
            // The front stays where it was, and is read first.
            Some(end) if self.front.as_ref().is_some_and(|front| end.moment <= front.moment) => {
                (self.is_behind, self.is_scans_turn) = (true, false);
            }
            Some(end) => {
                self.is_full &= self.scan.is_some();
                if self.scan.as_ref().is_none_or(|scan| end.moment < scan.moment) {
                    self.scan = Some(end);
                }
                self.front = Some(all);
            }
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(moment: i64) -> Option<Position> {
        Some(Position { moment: UnixMillis(moment), destination: None })
    }

    /// Reads the next page, which has to follow `from`, at `now` and up to `end`.
    fn read(pages: &mut Pages, from: Option<i64>, now: i64, end: Option<i64>) -> Progress {
        let page = pages.next();
        assert_eq!(page.after, from.and_then(after));
        pages.read(&page, UnixMillis(now), end.and_then(after))
    }

    const NOTHING: Progress = Progress { begins: false, ends: false };

    #[test]
    fn a_claim_reads_what_fell_due_since_the_last_one() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        assert!(!pages.has_more());
        read(&mut pages, Some(100), 130, None);
        read(&mut pages, Some(130), 140, None);
    }

    #[test]
    fn every_second_claim_reads_the_front_while_a_long_list_is_read() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, Some(20));
        assert!(pages.has_more());
        read(&mut pages, Some(20), 101, Some(40));
        read(&mut pages, Some(100), 102, None);
        read(&mut pages, Some(40), 103, Some(60));
        read(&mut pages, Some(102), 104, None);
        read(&mut pages, Some(60), 105, None);
        assert!(!pages.has_more());
        read(&mut pages, Some(105), 106, None);
    }

    #[test]
    fn more_than_a_page_behind_the_front_is_read_page_by_page() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        read(&mut pages, Some(100), 200, Some(150));
        assert!(pages.has_more());
        read(&mut pages, Some(150), 201, Some(180));
        read(&mut pages, Some(200), 202, None);
        assert_eq!(read(&mut pages, Some(180), 203, None), NOTHING);
        assert!(!pages.has_more());
    }

    #[test]
    fn a_hint_of_a_moment_before_the_front_has_it_read_without_a_scan() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        pages.hint(UnixMillis(101));
        read(&mut pages, Some(100), 110, None);
        pages.hint(UnixMillis(40));
        pages.hint(UnixMillis(70));
        read(&mut pages, Some(39), 120, Some(60));
        assert!(pages.has_more(), "the page ended before the front");
        read(&mut pages, Some(110), 121, None);
        assert!(!pages.has_more());
        pages.hint(UnixMillis(40));
        read(&mut pages, Some(39), 130, None);
        assert!(!pages.has_more());
        read(&mut pages, Some(130), 131, None);
    }

    #[test]
    fn a_poll_that_finds_something_before_the_front_begins_a_scan() {
        let mut pages = Pages::default();
        pages.look(UnixMillis(5));
        read(&mut pages, None, 100, None);
        pages.look(UnixMillis(101));
        assert_eq!(read(&mut pages, Some(100), 110, None), NOTHING);
        pages.look(UnixMillis(10));
        assert_eq!(
            read(&mut pages, Some(9), 120, None),
            Progress { begins: true, ends: true },
            "a short list is read at once"
        );
        pages.look(UnixMillis(10));
        assert_eq!(
            read(&mut pages, Some(9), 130, Some(20)),
            Progress { begins: true, ends: false }
        );
        // What fell due before the scan began is not behind all of it.
        read(&mut pages, Some(120), 131, None);
        pages.look(UnixMillis(10));
        read(&mut pages, Some(20), 132, Some(50));
        read(&mut pages, Some(131), 133, None);
        assert_eq!(read(&mut pages, Some(50), 134, None), Progress { begins: false, ends: true });
        assert!(!pages.has_more());
        assert!(read(&mut pages, Some(9), 140, None).begins, "the poll during the scan");
    }

    #[test]
    fn after_a_lost_answer_all_is_read_again() {
        let mut pages = Pages::default();
        pages.look_at_all();
        read(&mut pages, None, 100, None);
        pages.look_at_all();
        assert!(read(&mut pages, None, 110, None).ends);
        assert_eq!(read(&mut pages, Some(110), 120, None), NOTHING);
    }

    #[test]
    fn a_clock_that_was_set_back_sets_the_front_back() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        read(&mut pages, Some(100), 30, None);
        read(&mut pages, Some(30), 40, None);
    }
}
