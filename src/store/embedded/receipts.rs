//! The receipts of one task's revision. Pure: the first table of docs/STORE.md as code.

use crate::model::task::Receipt;
use crate::store::MAX_RECEIPTS;

/// The receipt of the holder, or of the last holder if it was not superseded; and the earlier ones,
/// newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Receipts {
    pub(super) current: Option<Receipt>,
    pub(super) past: Vec<Receipt>,
}

impl Receipts {
    /// The receipts of a delivered task: only that of the delivery.
    pub(super) fn only(by: &Receipt) -> Self {
        Self { current: Some(by.clone()), past: Vec::new() }
    }

    pub(super) fn is_current(&self, receipt: &Receipt) -> bool {
        self.current.as_ref() == Some(receipt)
    }

    /// Whether a claim of this revision had the receipt, and it is still remembered.
    pub(super) fn knows(&self, receipt: &Receipt) -> bool {
        self.is_current(receipt) || self.past.contains(receipt)
    }

    /// Whether the task waits, and this receipt's settle may have put it on the schedule.
    pub(super) fn retried_last(&self, receipt: &Receipt) -> bool {
        self.current.is_none() && self.past.first() == Some(receipt)
    }

    /// After a claim.
    pub(super) fn claimed(&self, receipt: &Receipt) -> Self {
        let mut claimed = self.retried();
        claimed.past.truncate(MAX_RECEIPTS - 1);
        claimed.current = Some(receipt.clone());
        claimed
    }

    /// After a settle `Retry` by the current receipt.
    pub(super) fn retried(&self) -> Self {
        let past = self.current.iter().chain(&self.past).take(MAX_RECEIPTS).cloned().collect();
        Self { current: None, past }
    }

    /// After a settle `Release` by the current receipt, under which nothing was called.
    pub(super) fn released(&self) -> Self {
        Self { current: None, past: self.past.clone() }
    }

    /// The receipts that an ended task keeps, unless it is dead.
    pub(super) fn kept(&self) -> Self {
        Self { current: self.current.clone(), past: Vec::new() }
    }

    /// The past receipts as they are stored; `None` if there are none.
    pub(super) fn past_text(&self) -> Option<String> {
        let (first, others) = self.past.split_first()?;
        let mut text = first.to_string();
        for receipt in others {
            text.push(' ');
            text.push_str(receipt.as_str());
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(name: &str) -> Receipt {
        name.parse().unwrap()
    }

    fn receipts(current: &str, past: &str) -> Receipts {
        Receipts {
            current: (!current.is_empty()).then(|| receipt(current)),
            past: past.split_whitespace().map(receipt).collect(),
        }
    }

    #[test]
    fn each_verb_moves_receipts_as_the_table_says() {
        let check =
            |after: Receipts, current: &str, past: &str| assert_eq!(after, receipts(current, past));
        check(receipts("", "").claimed(&receipt("a")), "a", "");
        check(receipts("a", "").claimed(&receipt("b")), "b", "a");
        check(receipts("", "a").claimed(&receipt("b")), "b", "a");
        check(receipts("d", "c b a").claimed(&receipt("e")), "e", "d c b");
        check(receipts("", "d c b a").claimed(&receipt("e")), "e", "d c b");
        check(receipts("b", "a").retried(), "", "b a");
        check(receipts("d", "c b a").retried(), "", "d c b a");
        check(receipts("b", "a").released(), "", "a");
        check(receipts("b", "a").kept(), "b", "");
    }

    #[test]
    fn past_receipts_are_stored_as_words() {
        assert_eq!(receipts("c", "b a").past_text().as_deref(), Some("b a"));
        assert_eq!(receipts("c", "").past_text(), None);
    }
}
