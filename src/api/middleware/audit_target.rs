//! What an administrative call is about, read from its body: names and counts, never contents.
//!
//! The handler reads the body again, and strictly. Here, a field that is absent or wrong is left
//! out.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use delayd_wire::AuditEntry;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::api::wire::long_body::reading;
use crate::model::task::{Destination, ScheduleName, TaskId, Topic};

/// What a call is about. It is known once the body has been read, and the handler adds what it
/// found. The default belongs to a call that is not recorded, and stays empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownTarget(Option<Arc<Mutex<AuditTarget>>>);

impl KnownTarget {
    pub(crate) fn of_a_record() -> Self {
        Self(Some(Arc::default()))
    }

    /// Sets what the body names.
    pub(crate) async fn read(&self, body: &Bytes) {
        if self.0.is_some() {
            let target = reading(body.clone(), AuditTarget::read).await;
            self.change(|known| *known = target);
        }
    }

    /// The call changed so many tasks, or would in a dry run. `reason` is the cause by which they
    /// were selected; it is only recorded if some tasks have it, because a request can name any
    /// text.
    pub(crate) fn changed(&self, tasks: usize, reason: Option<&str>) {
        self.change(|known| {
            known.tasks = Some(tasks as u64);
            known.reason = reason.filter(|_| tasks > 0).map(str::to_owned);
        });
    }

    /// What is known.
    pub(crate) fn get(&self) -> AuditTarget {
        let lock = |target: &Arc<Mutex<AuditTarget>>| {
            target.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        self.0.as_ref().map(lock).unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut AuditTarget)) {
        if let Some(target) = &self.0 {
            change(&mut target.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// The topic, destination, schedule and tasks that a request names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AuditTarget {
    topic: Option<Topic>,
    destination: Option<Destination>,
    schedule: Option<ScheduleName>,
    task_id: Option<TaskId>,
    tasks: Option<u64>,
    reason: Option<String>,
    dry_run: bool,
}

/// The fields of all administrative calls.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AuditedFields<'a> {
    #[serde(borrow)]
    topic: Option<&'a RawValue>,
    #[serde(borrow)]
    sn: Option<&'a RawValue>,
    #[serde(borrow)]
    schedule: Option<&'a RawValue>,
    #[serde(borrow)]
    task_id: Option<&'a RawValue>,
    #[serde(borrow)]
    task_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    records: Option<&'a RawValue>,
    #[serde(borrow)]
    dry_run: Option<&'a RawValue>,
}

/// A record of an adopt.
#[derive(Deserialize)]
struct AdoptRecord<'a> {
    #[serde(borrow, default)]
    topic: Option<Cow<'a, str>>,
}

impl AuditTarget {
    /// What a body names.
    pub(crate) fn read(body: &[u8]) -> Self {
        let fields: AuditedFields<'_> = serde_json::from_slice(body).unwrap_or_default();
        let records: Option<Vec<AdoptRecord<'_>>> = value(fields.records);
        let ids: Option<Vec<IgnoredAny>> = value(fields.task_ids);
        Self {
            topic: name(fields.topic).or_else(|| records.as_deref().and_then(common_topic)),
            destination: name(fields.sn),
            schedule: name(fields.schedule),
            task_id: value(fields.task_id).map(TaskId),
            tasks: ids.map(|ids| ids.len()).or(records.map(|all| all.len())).map(|n| n as u64),
            reason: None,
            dry_run: value(fields.dry_run).unwrap_or_default(),
        }
    }

    /// The entry with this target.
    pub(crate) fn of(self, entry: AuditEntry) -> AuditEntry {
        AuditEntry {
            topic: self.topic,
            sn: self.destination,
            schedule: self.schedule.map(Into::into),
            task_id: self.task_id.map(Into::into),
            tasks: self.tasks,
            reason: self.reason,
            dry_run: self.dry_run,
            ..entry
        }
    }
}

fn value<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A valid name, so that no other text gets into the log.
fn name<T: std::str::FromStr>(raw: Option<&RawValue>) -> Option<T> {
    value::<String>(raw)?.parse().ok()
}

/// The topic of all records, if they have one in common.
fn common_topic(records: &[AdoptRecord<'_>]) -> Option<Topic> {
    let first = records.first()?.topic.as_deref()?;
    let is_common = records.iter().all(|record| record.topic.as_deref() == Some(first));
    is_common.then(|| first.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_names_and_counts_and_no_other_text() {
        let check = |body: &str, topic: Option<&str>, tasks: Option<u64>| {
            let target = AuditTarget::read(body.as_bytes());
            let expected = topic.map(|topic| topic.parse().unwrap());
            assert_eq!((target.topic, target.tasks), (expected, tasks), "{body}");
        };
        check(r#"{"topic":"t","task_ids":[1,2]}"#, Some("t"), Some(2));
        check(r#"{"records":[{"topic":"t","content":"x"},{"topic":"t"}]}"#, Some("t"), Some(2));
        check(r#"{"records":[{"topic":"t"},{"topic":"u"}]}"#, None, Some(2));
        check(r#"{"records":[]}"#, None, Some(0));
        check(r#"{"topic":"not a name","reason":"x"}"#, None, None);
        check(r#"{"topic":["t"],"task_ids":"x"}"#, None, None);
        check(r#"{"topic":"t","topic":"u"}"#, None, None);
        check("no json", None, None);
        check("[1]", None, None);
        let target = AuditTarget::read(br#"{"sn":"a.b","dry_run":true,"task_id":7}"#);
        let (destination, task_id) = (Some("a.b".parse().unwrap()), Some(TaskId(7)));
        let expected =
            AuditTarget { destination, task_id, dry_run: true, ..AuditTarget::default() };
        assert_eq!(target, expected);
        let schedule = |body: &str| AuditTarget::read(body.as_bytes()).schedule;
        assert_eq!(schedule(r#"{"schedule":"nightly"}"#), Some("nightly".parse().unwrap()));
        assert_eq!(schedule(r#"{"schedule":"not a name"}"#), None);
    }
}
