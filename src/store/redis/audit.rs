//! The audit log: a stream in the registry's slot.

use deadpool_redis::redis::{FromRedisValue, cmd};

use super::answer::corrupt;
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use crate::store::{AuditCursor, AuditEntry, AuditLogged, MAX_AUDIT, Result};

/// The only field of an entry: its JSON.
const FIELD: &str = "entry";

/// Appends entries. Sent only once: a repetition after a lost answer would write them twice.
pub(super) async fn record(session: &Session, entries: &[AuditEntry]) -> Result<()> {
    let append = |entry: &AuditEntry| {
        let line = serde_json::to_string(entry).expect("texts and numbers are plain data");
        let mut add = cmd("XADD");
        add.arg(session.keys.audit()).arg("MAXLEN").arg("~").arg(MAX_AUDIT);
        add.arg("*").arg(FIELD).arg(line).take()
    };
    let appends: Vec<_> = entries.iter().map(append).collect();
    let answers = session.servers.run(Purpose::Working, &appends, Repeat::Never).await;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

pub(super) async fn audit(
    session: &Session,
    from: Option<AuditCursor>,
    limit: usize,
) -> Result<AuditLogged> {
    let end = from.map_or_else(|| "+".to_owned(), |from| format!("({from}"));
    let mut read = cmd("XREVRANGE");
    let read = read.arg(session.keys.audit()).arg(end).arg("-").arg("COUNT").arg(limit).take();
    let rows =
        Vec::<(String, Vec<Vec<u8>>)>::from_redis_value(session.working.run_one(read).await?)
            .map_err(corrupt)?;
    let next = rows.last().filter(|_| rows.len() == limit).and_then(|(id, _)| id.parse().ok());
    // A line that cannot be read hides no other.
    let entry = |(_, fields): (String, Vec<Vec<u8>>)| {
        serde_json::from_slice::<AuditEntry>(fields.get(1)?).ok()
    };
    Ok(AuditLogged { entries: rows.into_iter().filter_map(entry).collect(), next })
}
