//! What ends at the old service while it is on its way ends at the new one, too.

use std::collections::HashSet;

use delayd_wire::ErrorCode;
use serde_json::{Value, json};

use super::super::adopting::Adopted;
use super::super::client::fields;
use super::super::out;
use super::{Mover, array, id_of};

impl Mover {
    /// Looks what became of tasks that the new service keeps and that could not be ended here:
    /// those that were cancelled, were pushed back by
    /// their key, succeeded or expired meanwhile must not fire at the new service.
    pub(super) async fn follow(&mut self, topic: &str, ids: Vec<u64>) -> anyhow::Result<()> {
        let (mut ended, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = json!(ids);
        while rest.as_array().is_some_and(|ids| !ids.is_empty()) {
            let answer = self.old.call("/delay/task/records", &self.lending(topic, &rest)).await?;
            for record in array(&answer["records"]) {
                seen.extend(id_of(record));
                match record["state"].as_str() {
                    // The lease had run out, and it is lent again: the next pass moves it.
                    Some("scheduled") if !is_cancelling(record) => {}
                    // It may be replayed here, and is to be called there.
                    Some("dead") => {}
                    _ => ended.push(record.clone()),
                }
            }
            rest = answer["rest"].clone();
        }
        self.withdraw(topic, ended).await?;
        for id in ids.into_iter().filter(|id| !seen.contains(id)) {
            let body = fields([("topic", Some(json!(topic))), ("task_id", Some(json!(id)))]);
            if self.old.find("/delay/task/get", &body).await?.is_some() {
                self.held.entry(topic.to_owned()).or_default().push(id);
            }
        }
        Ok(())
    }

    /// Ends tasks at the new service that have ended here, or are about to: a pending cancel is
    /// carried out after that.
    pub(super) async fn withdraw(&mut self, topic: &str, records: Vec<Value>) -> anyhow::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let cancelling: Vec<u64> = records.iter().filter(|record| is_cancelling(record)).filter_map(id_of).collect();
        let ids: Vec<u64> = records.iter().filter_map(id_of).collect();
        let adopted = self.adopt(records, Some(topic)).await?;
        for (id, adopted) in ids.into_iter().zip(adopted) {
            match adopted {
                Ok(Adopted::Held) => self.say(&format!(
                    "task {id} of {topic} ended here, and is in someone's hands at the new service: it is not tried again there"
                )),
                Ok(_) => self.tallies.of(topic).withdrawn += 1,
                // With the same store at both ends, its end is its end.
                Err(why) if why.code == ErrorCode::OwnTask => {}
                Err(why) => self.say(&format!(
                    "task {id} of {topic} ended here, and what has its id at the new service goes on: {}",
                    out::plain(&why.sentence, 300)
                )),
            }
        }
        self.end(topic, &cancelling, true).await?;
        Ok(())
    }
}

/// Whether a cancel is pending: a lent task is not to be delivered then.
pub(super) fn is_cancelling(record: &Value) -> bool {
    record["cancelling"] == true
}
