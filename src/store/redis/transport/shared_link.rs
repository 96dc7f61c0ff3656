//! A link that sends one pipeline at a time. Callers that wait meanwhile share the next one.
//!
//! There are two kinds. Confirmations (`store.redis.wait_replicas`): `WAIT` covers the writes of
//! its own connection, and blocks it. Reads for viewers: a list of a wide topic takes hundreds of
//! scripts. Between two short pipelines, and within them, the server serves the other connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::Cmd;
use tokio::sync::oneshot;

use super::fault::silent;
use super::link::{Answers, Link, Repeat};
use crate::store::Result;

/// The link, and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct SharedLink {
    pub(crate) link: Link,
    timeout: Duration,
    /// The most commands of one pipeline.
    most: usize,
    waiting: Mutex<VecDeque<QueuedCommands>>,
    /// Held while commands are with the server.
    turn: tokio::sync::Mutex<()>,
}

/// The commands of one caller.
#[derive(Debug)]
struct QueuedCommands {
    commands: Vec<Cmd>,
    answer: oneshot::Sender<Result<Answers>>,
}

impl SharedLink {
    pub(crate) fn new(link: Link, timeout: Duration, most: usize) -> Arc<Self> {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { link, timeout, most, waiting, turn })
    }

    /// Sends commands, which may be repeated, together with those of other callers; more than one
    /// pipeline may hold in several turns.
    ///
    /// # Errors
    /// Those of [`Link::run`]. No turn takes longer than the timeout.
    pub(crate) async fn run(self: &Arc<Self>, commands: &[Cmd]) -> Result<Answers> {
        let mut answers = Vec::with_capacity(commands.len());
        for commands in commands.chunks(self.most) {
            answers.extend(self.take_turn(commands.to_vec()).await?);
        }
        Ok(answers)
    }

    async fn take_turn(self: &Arc<Self>, commands: Vec<Cmd>) -> Result<Answers> {
        if let Some(refusal) = self.link.refusal() {
            return Err(refusal);
        }
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting();
            waiting.push_back(QueuedCommands { commands, answer });
            waiting.len() == 1
        };
        if is_first {
            let shared = self.clone();
            // In a task of its own: a caller that disconnects must not cancel the commands of
            // others.
            tokio::spawn(async move {
                let _turn = shared.turn.lock().await;
                while let Some(asked) = shared.next() {
                    shared.send(asked).await;
                }
            });
        }
        match tokio::time::timeout(self.timeout, answered).await {
            Ok(Ok(answers)) => answers,
            _ => Err(silent()),
        }
    }

    /// The callers of the next pipeline; `None` if nobody waits.
    fn next(&self) -> Option<Vec<QueuedCommands>> {
        let mut waiting = self.waiting();
        let (mut callers, mut count) = (Vec::new(), 0);
        while let Some(asked) = waiting.front() {
            count += asked.commands.len();
            if count > self.most && !callers.is_empty() {
                break;
            }
            callers.extend(waiting.pop_front());
        }
        Some(callers).filter(|callers| !callers.is_empty())
    }

    async fn send(&self, mut asked: Vec<QueuedCommands>) {
        // The other callers have left, or have been told that nothing is confirmed.
        asked.retain(|asked| !asked.answer.is_closed());
        if asked.is_empty() {
            return;
        }
        let commands: Vec<Cmd> =
            asked.iter().flat_map(|asked| asked.commands.iter().cloned()).collect();
        let mut answers = self.link.run(&commands, Repeat::Once).await;
        for QueuedCommands { commands, answer } in asked {
            let theirs = match &mut answers {
                Ok(answers) => Ok(answers.drain(..commands.len()).collect()),
                Err(error) => Err(error.clone()),
            };
            // A caller that has disconnected needs no answer.
            let _ = answer.send(theirs);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<QueuedCommands>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
