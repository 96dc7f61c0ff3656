//! Which page of a lane's due destinations a claim reads.
//!
//! The list is ordered by the earliest due moment of each destination. Destinations whose tasks
//! wait for permits stay in it, and callers may name thousands of them. So a claim reads only what
//! fell due since the last one, behind the *front*.
//!
//! What joins the list before the front is read when a hint names its moment. What no hint told is
//! found by the *scan*: after each poll a claim reads its next page, and at the end of the list it
//! begins again.

use crate::model::clock::UnixMillis;
use crate::store::Position;

/// The positions of one lane.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// All before it has been read. `None`: nothing has.
    front: Option<Position>,
    /// Where the scan goes on. `None`: at the beginning.
    scan: Option<Position>,
    /// What no page has answered yet.
    news: News,
    has_more: bool,
}

/// The page of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DuePage {
    /// The page follows this position.
    pub(super) after: Option<Position>,
    /// Whether it is the next page of the scan.
    pub(super) is_of_scan: bool,
}

/// What the supervisor has told a lane since its last claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The earliest due moment of new work.
    pub(super) hinted: Option<UnixMillis>,
    /// Whether a poll has found the lane.
    pub(super) polled: bool,
}

impl Pages {
    pub(super) fn take_in(&mut self, News { hinted, polled }: News) {
        self.news.hinted = self.news.hinted.into_iter().chain(hinted).min();
        self.news.polled |= polled;
    }

    /// All pages are read again, because something that was read may have changed.
    pub(super) fn begin_again(&mut self) {
        *self = Self { news: self.news, has_more: true, ..Self::default() };
    }

    /// Whether a page is to be read at once.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The next page.
    pub(super) fn next(&self) -> DuePage {
        let after = match (&self.front, self.news) {
            (Some(_), News { polled: true, .. }) => {
                return DuePage { after: self.scan.clone(), is_of_scan: true };
            }
            (Some(front), News { hinted: Some(due), .. }) if due <= front.moment => {
                Some(Position { moment: UnixMillis(due.0 - 1), destination: None })
            }
            (front, _) => (*front).clone(),
        };
        DuePage { after, is_of_scan: false }
    }

    /// The page was read at `now`, up to `end`, or to the end of the list.
    pub(super) fn read(&mut self, page: &DuePage, now: UnixMillis, end: Option<Position>) {
        let reaches = |due: UnixMillis| {
            end.is_none() && page.after.as_ref().is_none_or(|after| after.moment < due)
        };
        self.news.hinted.take_if(|due| !page.is_of_scan || reaches(*due));
        if page.is_of_scan {
            self.news.polled = false;
            self.scan.clone_from(&end);
        }
        if page.is_of_scan && self.is_beyond_front(page) {
            // What is between them is read next.
            self.has_more = true;
            return;
        }
        self.has_more = end.is_some() || self.news.hinted.is_some();
        match end {
            None => self.front = Some(Position { moment: now, destination: None }),
            // A hint may be of more than one page, so it sets the front back.
            Some(end) if !page.is_of_scan => self.front = Some(end),
            Some(end) if self.front.as_ref().is_some_and(|front| end.moment > front.moment) => {
                self.front = Some(end);
            }
            // The scan is before the front, which is read next.
            Some(_) => {}
        }
    }

    fn is_beyond_front(&self, page: &DuePage) -> bool {
        let Some((front, after)) = self.front.as_ref().zip(page.after.as_ref()) else {
            return false;
        };
        after.moment >= front.moment && after != front
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(moment: i64) -> Option<Position> {
        Some(Position { moment: UnixMillis(moment), destination: None })
    }

    /// Reads the next page, which has to follow `from`, at `now` and up to `end`. Returns whether
    /// more is to be read at once.
    fn read(pages: &mut Pages, from: Option<i64>, now: i64, end: Option<i64>) -> bool {
        let page = pages.next();
        assert_eq!(page.after, from.and_then(after));
        pages.read(&page, UnixMillis(now), end.and_then(after));
        pages.has_more()
    }

    fn hint(pages: &mut Pages, due: i64) {
        pages.take_in(News { hinted: Some(UnixMillis(due)), polled: false });
    }

    fn poll(pages: &mut Pages) {
        pages.take_in(News { hinted: None, polled: true });
    }

    #[test]
    fn a_claim_reads_what_fell_due_since_the_last_one() {
        let mut pages = Pages::default();
        assert!(read(&mut pages, None, 100, Some(40)));
        assert!(!read(&mut pages, Some(40), 101, None));
        assert!(!read(&mut pages, Some(101), 130, None));
        hint(&mut pages, 131);
        assert!(read(&mut pages, Some(130), 140, Some(135)));
        assert!(!read(&mut pages, Some(135), 141, None));
    }

    #[test]
    fn a_hint_of_a_moment_before_the_front_has_that_read() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        hint(&mut pages, 70);
        hint(&mut pages, 40);
        assert!(read(&mut pages, Some(39), 120, Some(60)), "the page ended before the front");
        assert!(!read(&mut pages, Some(60), 121, None), "what follows may have been hinted, too");
        hint(&mut pages, 40);
        assert!(!read(&mut pages, Some(39), 130, None));
        assert!(!read(&mut pages, Some(130), 131, None));
    }

    #[test]
    fn each_poll_has_one_page_of_the_list_read_again_and_then_the_front() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        for (from, end) in [(None, Some(20)), (Some(20), Some(50)), (Some(50), None), (None, None)]
        {
            poll(&mut pages);
            assert!(pages.next().is_of_scan);
            let is_cut = end.is_some();
            assert_eq!(read(&mut pages, from, 100, end), is_cut);
            if is_cut {
                assert!(!read(&mut pages, Some(100), 100, None));
            }
        }
    }

    /// Adds that became durable together were hinted together: more than a page of them. Those
    /// behind the first page were found by the scan, seconds later.
    #[test]
    fn a_hint_of_more_than_a_page_sets_the_front_back() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        poll(&mut pages);
        read(&mut pages, None, 100, Some(80));
        hint(&mut pages, 40);
        assert!(read(&mut pages, Some(39), 101, Some(60)));
        poll(&mut pages);
        assert!(read(&mut pages, Some(80), 102, None), "the scan is beyond the front");
        assert!(!read(&mut pages, Some(60), 103, None));
        assert!(!read(&mut pages, Some(103), 104, None));
    }

    /// Else the page after it would read the same again.
    #[test]
    fn a_page_of_the_scan_that_passes_the_front_moves_it() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        poll(&mut pages);
        assert!(read(&mut pages, None, 150, Some(130)));
        assert!(!read(&mut pages, Some(130), 151, None));
    }

    #[test]
    fn a_hint_is_not_lost_behind_a_page_of_the_scan() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        poll(&mut pages);
        read(&mut pages, None, 100, Some(80));
        poll(&mut pages);
        hint(&mut pages, 40);
        assert!(read(&mut pages, Some(80), 110, None));
        assert!(!read(&mut pages, Some(39), 111, None));
    }

    #[test]
    fn after_a_lost_answer_all_is_read_again() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        poll(&mut pages);
        pages.begin_again();
        assert!(read(&mut pages, None, 110, Some(50)));
        assert!(pages.next().is_of_scan);
        assert!(!read(&mut pages, None, 111, None));
    }

    #[test]
    fn a_clock_that_was_set_back_sets_the_front_back() {
        let mut pages = Pages::default();
        read(&mut pages, None, 100, None);
        read(&mut pages, Some(100), 30, None);
        read(&mut pages, Some(30), 40, None);
    }
}
