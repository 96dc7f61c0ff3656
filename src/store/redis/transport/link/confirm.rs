//! Confirms what replicas have (`store.redis.wait_replicas`).
//!
//! Since Redis 7.2, and in Valkey, `WAIT` covers what the server wrote until the last write of this
//! connection. A command that finds its work done by another connection, or by itself before it was
//! repeated, writes nothing. So each confirmation writes something itself (`lua/confirm.lua`).

use std::sync::Arc;

use deadpool_redis::redis::{self, Cmd, FromRedisValue};

use super::{Answers, Link, LiveConnection, Lost, Params};
use crate::store::Error;
use crate::store::redis::transport::fault::is_forgotten;
use crate::store::redis::transport::refusal::CommandRefusal;
use crate::store::redis::transport::slot;
use crate::store::redis::{keys, script};

impl Link {
    /// Waits until enough replicas have what the answers tell of. If they do not, none of it counts
    /// as done.
    pub(super) async fn confirm(
        &self,
        live: &Arc<LiveConnection>,
        commands: &[Cmd],
        answers: Answers,
    ) -> std::result::Result<Answers, Lost> {
        let Params { replicas, timeout, .. } = self.params;
        if replicas == 0 {
            return Ok(answers);
        }
        let mut done = commands.iter().zip(&answers).enumerate();
        let done = done.find_map(|(i, (command, answer))| {
            answer.is_ok().then(|| slot::key_of(command)).flatten().map(|key| (i, key))
        });
        let Some((i, key)) = done else { return Ok(answers) };
        let mark = self.params.marks.as_deref().map(|prefix| {
            let key = keys::confirmation(prefix, key);
            redis::cmd("EVALSHA").arg(&script::CONFIRM.sha).arg(1).arg(key).take()
        });
        // The server serves the slot only to those that ask.
        let asking = i
            .checked_sub(1)
            .map(|before| &commands[before])
            .filter(|command| slot::is_asking(command));
        // Shorter than the connection's own timeout, which would mistake the wait for silence.
        let patience = timeout / 2;
        let wait = redis::cmd("WAIT").arg(replicas).arg(patience.as_millis().max(1) as u64).take();
        let pipeline: Vec<Cmd> = asking.cloned().into_iter().chain(mark).chain([wait]).collect();
        let mut told = self.send(live, &pipeline, None).await?;
        if told.iter().any(is_forgotten) {
            self.load_scripts(live).await?;
            told = self.send(live, &pipeline, None).await?;
        }
        let have = told.pop().and_then(|have| usize::from_redis_value(have.ok()?).ok());
        let error = match (told.into_iter().find_map(std::result::Result::err), have) {
            (None, Some(have)) if have >= replicas => return Ok(answers),
            (None, have) => Error::Unavailable(format!(
                "{} of {replicas} replicas have it after {patience:?}",
                have.unwrap_or_default()
            )),
            // The commands are not sent to another server: this one has executed them.
            (Some(error), _) => CommandRefusal::of(&error, live.at()).into_error(),
        };
        Ok(answers
            .into_iter()
            .map(|answer| answer.and(Err(CommandRefusal::Failed(error.clone()))))
            .collect())
    }
}
