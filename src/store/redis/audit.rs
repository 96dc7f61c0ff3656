//! The audit log: a stream in the registry's slot.

use deadpool_redis::redis::{FromRedisValue, cmd};

use super::answer::corrupt;
use super::script;
use super::session::Session;
use crate::store::{AuditCursor, AuditEntry, AuditLogged, MAX_AUDIT, Result};

impl Session {
    /// Appends entries with one script, so that the memory limit refuses all of them or none. Sent
    /// only once: a repetition after a lost answer would write them twice.
    pub(crate) async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut append = self.call(&script::AUDIT, &[self.keys.audit()]);
        append.arg(MAX_AUDIT);
        for entry in entries {
            append.arg(serde_json::to_string(&entry).expect("texts and numbers are plain data"));
        }
        self.working.run_once(append).await.map(drop)
    }

    pub(crate) async fn audit(
        &self,
        before: Option<AuditCursor>,
        limit: usize,
    ) -> Result<AuditLogged> {
        let end = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
        let mut read = cmd("XREVRANGE");
        let read = read.arg(self.keys.audit()).arg(end).arg("-").arg("COUNT").arg(limit).take();
        let rows =
            Vec::<(String, Vec<Vec<u8>>)>::from_redis_value(self.reading.run_one(read).await?)
                .map_err(corrupt)?;
        let next = rows.last().filter(|_| rows.len() == limit).and_then(|(id, _)| id.parse().ok());
        // A line that cannot be read hides no other.
        let entry = |(_, fields): (String, Vec<Vec<u8>>)| {
            serde_json::from_slice::<AuditEntry>(fields.get(1)?).ok()
        };
        Ok(AuditLogged { entries: rows.into_iter().filter_map(entry).collect(), next })
    }
}
