//! Checks that each topic is registered with all its lanes.

use std::collections::BTreeMap;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::{CheckPage, Repair, read_text};
use crate::model::task::{Topic, TopicPolicy};
use crate::store::embedded::schedules;
use crate::store::embedded::sql::lane::last;
use crate::store::embedded::sql::topic::checked;
use crate::store::embedded::sql::{recurring, topic};
use crate::store::{Flaw, TopicEntry};

pub(super) fn look(db: &Connection) -> rusqlite::Result<CheckPage> {
    let mut page = CheckPage::default();
    // The registered number of lanes, and the number that the rows show.
    let mut topics: BTreeMap<String, (Option<i64>, i64)> = BTreeMap::new();
    let mut select = db.prepare_cached(checked::SQL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let name = read_text(row, checked::name)?.unwrap_or_default();
        let policy = read_text(row, checked::policy)?;
        if policy.is_some_and(|policy| serde_json::from_str::<TopicPolicy>(&policy).is_err()) {
            page.find(Flaw::UnreadablePolicy, None, &name, false);
        }
        topics.insert(name, (Some(row.get(checked::shards)?), 1));
    }
    let most = i64::from(TopicEntry::MAX_SHARDS);
    let of_schedules = schedules::exist(db)?.then_some(recurring::last::SQL);
    for select in [last::SQL].into_iter().chain(of_schedules) {
        let mut select = db.prepare_cached(select)?;
        let mut found = select.query([])?;
        while let Some(row) = found.next()? {
            let name = read_text(row, last::topic)?.unwrap_or_default();
            let (_, seen) = topics.entry(name).or_insert((None, 1));
            *seen = row.get::<_, i64>(last::shard)?.saturating_add(1).max(*seen);
        }
    }
    for (name, (registered, seen)) in topics {
        let is_name = name.parse::<Topic>().is_ok();
        let flaw = match registered {
            Some(shards) if !is_name || !(1..=most).contains(&shards) => Flaw::UnreadableTopic,
            Some(shards) if seen > shards => Flaw::LaneOutsideTopic,
            Some(_) => continue,
            None if is_name => Flaw::UnregisteredTopic,
            None => Flaw::UnreadableTopic,
        };
        let shards = seen.min(most);
        let is_repaired = is_name && registered != Some(shards);
        page.find(flaw, None, &name, is_repaired);
        if is_repaired {
            let values = vec![Value::from(name), shards.into()];
            page.repairs.push(Repair::Row(topic::SET_SHARDS, values));
        }
    }
    Ok(page)
}
