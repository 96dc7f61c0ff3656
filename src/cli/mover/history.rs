//! What has ended: the dead, and the history.

use serde_json::Value;
use serde_json::json;

use super::super::client::fields;
use super::{ENDED, Mover, array, id_of, tasks};

impl Mover {
    /// Copies what has ended: the dead, and the history if that was asked for. They stay at the old service, too.
    pub(super) async fn ended(&mut self, topic: &str) -> anyhow::Result<()> {
        let states = if self.args.history { &ENDED[..] } else { &[] };
        for state in ["dead"].iter().chain(states) {
            let mut cursor = Value::Null;
            loop {
                let page = self.page(&self.old, topic, state, cursor).await?;
                let ids: Vec<u64> = tasks(&page).filter_map(id_of).collect();
                for batch in ids.chunks(self.args.batch.into()) {
                    self.copy(topic, state, batch).await?;
                }
                cursor = page["cursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn copy(&mut self, topic: &str, state: &str, ids: &[u64]) -> anyhow::Result<()> {
        let mut rest = json!(ids);
        while rest.as_array().is_some_and(|ids| !ids.is_empty()) {
            let body = fields([("topic", Some(json!(topic))), ("task_ids", Some(rest))]);
            let answer = self.old.call("/delay/task/records", &body).await?;
            rest = answer["rest"].clone();
            let records: Vec<Value> =
                array(&answer["records"]).filter(|record| record["state"] == state).cloned().collect();
            if records.is_empty() {
                continue;
            }
            let ids: Vec<u64> = records.iter().filter_map(id_of).collect();
            let adopted = self.adopt(records, None).await?;
            for (id, adopted) in ids.iter().zip(adopted) {
                match adopted {
                    Ok(_) => {
                        let tally = self.tallies.of(topic);
                        *(if state == "dead" { &mut tally.dead } else { &mut tally.ended }) += 1;
                    }
                    Err(why) => {
                        self.tell(topic, *id, &why.sentence);
                        self.tallies.of(topic).refused += 1;
                    }
                }
            }
            self.pace(ids.len() as u64).await;
        }
        Ok(())
    }
}
