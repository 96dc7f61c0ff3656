//! The id of a store, and the `webhook-id` that it is part of.

use super::{InvalidName, TaskId};

/// The id of a store: 64 random bits, created once and kept with its tasks. Written as 16
/// hexadecimal digits.
///
/// Two stores that start in the same second use the same task ids. The id of the store
/// distinguishes their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

impl StoreId {
    /// Returns a new id.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The `webhook-id` of a task that this store accepted: `<store>-<task id>`.
    pub fn webhook_id(self, task: TaskId) -> String {
        format!("{self}-{task}")
    }
}

written_as_hex!(StoreId, "must be 16 characters out of 0-9 a-f, as a store is called");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_called_by_16_digits_and_its_tasks_by_its_name_and_their_number() {
        let store: StoreId = "00c0ffee00c0ffee".parse().unwrap();
        assert_eq!(store.to_string(), "00c0ffee00c0ffee");
        assert_eq!(
            store.webhook_id(TaskId(1_795_268_529_000_001)),
            "00c0ffee00c0ffee-1795268529000001"
        );
        assert_eq!(serde_json::to_string(&store).unwrap(), "\"00c0ffee00c0ffee\"");
        assert_eq!(serde_json::from_str::<StoreId>("\"00c0ffee00c0ffee\"").unwrap(), store);
        for wrong in [
            "",
            "c0ffee",
            "00C0FFEE00C0FFEE",
            "+0c0ffee00c0ffee",
            "00c0ffee00c0ffee0",
            "00c0ffee00c0ffeg",
        ] {
            assert!(wrong.parse::<StoreId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn two_stores_have_two_ids() {
        assert_ne!(StoreId::random(), StoreId::random());
    }
}
