//! Commands that are confirmed to callers once replicas have them (`store.redis.wait_replicas`).
//!
//! `WAIT` covers the writes of its own connection, and blocks it. So these commands have their own
//! connection, and those that arrive during one wait share the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::Cmd;
use tokio::sync::oneshot;

use super::fault::silent;
use super::link::{Answers, Link, Repeat};
use crate::store::Result;

/// The confirming connection to one server.
#[derive(Debug)]
pub(crate) struct Confirming {
    pub(crate) link: Link,
    timeout: Duration,
    waiting: Mutex<Vec<Asked>>,
    /// Held while commands are with the server.
    turn: tokio::sync::Mutex<()>,
}

/// The commands of one caller.
#[derive(Debug)]
struct Asked {
    commands: Vec<Cmd>,
    answer: oneshot::Sender<Result<Answers>>,
}

impl Confirming {
    /// `link` waits for replicas after each pipeline.
    pub(crate) fn new(link: Link, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            link,
            timeout,
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Sends commands, which may be repeated, together with those of other callers.
    ///
    /// # Errors
    /// Those of [`Link::run`]. No caller waits longer than the timeout.
    pub(crate) async fn run(self: &Arc<Self>, commands: Vec<Cmd>) -> Result<Answers> {
        if let Some(refusal) = self.link.refusal() {
            return Err(refusal);
        }
        let (answer, answered) = oneshot::channel();
        self.waiting().push(Asked { commands, answer });
        let confirming = self.clone();
        // In a task of its own: a caller that disconnects must not cancel the commands of others.
        tokio::spawn(async move {
            let _turn = confirming.turn.lock().await;
            confirming.send().await;
        });
        match tokio::time::timeout(self.timeout, answered).await {
            Ok(Ok(answers)) => answers,
            _ => Err(silent()),
        }
    }

    /// Sends the waiting commands. Does nothing if they were sent with another caller's.
    async fn send(&self) {
        let mut asked = std::mem::take(&mut *self.waiting());
        // The other callers have already been told that nothing is confirmed.
        asked.retain(|asked| !asked.answer.is_closed());
        if asked.is_empty() {
            return;
        }
        let commands: Vec<Cmd> =
            asked.iter().flat_map(|asked| asked.commands.iter().cloned()).collect();
        let mut answers = self.link.run(&commands, Repeat::Once).await;
        for Asked { commands, answer } in asked {
            let theirs = match &mut answers {
                Ok(answers) => Ok(answers.drain(..commands.len()).collect()),
                Err(error) => Err(error.clone()),
            };
            // A caller that has disconnected needs no answer.
            let _ = answer.send(theirs);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
