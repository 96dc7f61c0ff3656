//! One primary and its links. Adds have their own link, so that a large batch does not delay a
//! claim. So have polls, whose pipelines are long, and reads for viewers, of which there may be
//! very many. With `wait_replicas`, so do commands that are confirmed to callers, because a wait
//! blocks its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::Cmd;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::address::Address;
use super::connect::ConnectParams;
use super::dial::{DialTarget, Dialer};
use super::link::{self, Answers, Link, Repeat};
use super::server::ServerMode;
use super::shared_link::SharedLink;
use crate::metrics::ServerSaid;
use crate::model::breaker::{self, SharedBreaker, State};
use crate::store::{Durability, Result};

/// The most commands of one pipeline of reads: one or two milliseconds of a server's time.
const READS: usize = 64;

/// The settings of all nodes.
#[derive(Debug)]
pub(crate) struct Params {
    pub(crate) access: ConnectParams,
    pub(crate) mode: ServerMode,
    pub(crate) timeout: Duration,
    pub(crate) breaker: breaker::Params,
    /// How many replicas must have a write before a caller is told that it is done.
    pub(crate) wait_replicas: usize,
    /// See [`link::Params::marks`].
    pub(crate) marks: Option<Arc<str>>,
    /// Notified when a node is in trouble.
    pub(crate) trouble: Arc<Notify>,
}

/// What a command is for, which determines its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Adding tasks.
    Adding,
    /// Reading many lanes at once, for the workers.
    Polling,
    /// Reading for viewers.
    Reading,
    /// Everything else.
    Working,
    /// As `Working`, and confirmed to a caller once enough replicas have it.
    Confirming,
}

impl Purpose {
    /// The purpose of commands whose link would be that of adds, if a wait for replicas did not
    /// block it.
    pub(crate) fn beside_adds(wait_replicas: usize) -> Self {
        if wait_replicas > 0 { Self::Confirming } else { Self::Adding }
    }
}

/// One primary. Its links are kept healthy for as long as it lives.
#[derive(Debug)]
pub(crate) struct Node {
    /// Unique among the nodes of this process.
    pub(crate) number: u64,
    /// The name for the log.
    pub(crate) name: Arc<str>,
    /// The address, unless sentinels name it.
    pub(crate) address: Option<Address>,
    links: Arc<Links>,
    keeper: AbortHandle,
}

#[derive(Debug)]
struct Links {
    adding: Link,
    polling: Link,
    reading: Arc<SharedLink>,
    working: Link,
    /// `None` without `wait_replicas`.
    confirming: Option<Arc<SharedLink>>,
}

impl Node {
    /// A node that begins to connect at once. Must be called within a runtime.
    pub(crate) fn new(target: DialTarget, params: &Params) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (name, address): (Arc<str>, _) = match &target {
            DialTarget::Server(address) => (address.to_string().into(), Some(address.clone())),
            DialTarget::Primary(sentinels) => (sentinels.name().into(), None),
        };
        let dialer = Dialer {
            target,
            access: params.access.clone(),
            mode: params.mode,
            timeout: params.timeout,
        };
        let working = link::Params {
            name: "work",
            server: name.clone(),
            pool: dialer.pool(),
            timeout: params.timeout,
            gate: Arc::new(SharedBreaker::new(params.breaker.clone())),
            is_judged: true,
            trouble: params.trouble.clone(),
            replicas: 0,
            marks: params.marks.clone(),
        };
        let adding =
            link::Params { name: "adds", replicas: params.wait_replicas, ..working.clone() };
        let confirming = link::Params { name: "confirmations", ..adding.clone() };
        let confirming = (params.wait_replicas > 0)
            .then(|| SharedLink::new(Link::new(confirming), params.timeout, usize::MAX));
        let reading = link::Params { name: "reads", is_judged: false, ..working.clone() };
        let reading = SharedLink::new(Link::new(reading), params.timeout, READS);
        let polling = Link::new(link::Params { name: "polls", ..working.clone() });
        let (adding, working) = (Link::new(adding), Link::new(working));
        let links = Arc::new(Links { adding, polling, reading, working, confirming });
        let kept = links.clone();
        let keeper = tokio::spawn(async move {
            let confirming = async {
                if let Some(confirming) = &kept.confirming {
                    confirming.link.look_after(None).await;
                }
            };
            let (adding, working) = (kept.adding.look_after(None), kept.working.look_after(None));
            let polling = kept.polling.look_after(Some(&kept.working));
            tokio::join!(adding, polling, working, confirming);
        });
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, name, address, links, keeper: keeper.abort_handle() }
    }

    pub(crate) fn link(&self, purpose: Purpose) -> &Link {
        match purpose {
            Purpose::Adding => &self.links.adding,
            Purpose::Polling => &self.links.polling,
            Purpose::Reading => &self.links.reading.link,
            Purpose::Working => &self.links.working,
            Purpose::Confirming => self
                .links
                .confirming
                .as_ref()
                .map_or(&self.links.working, |confirming| &confirming.link),
        }
    }

    /// Sends commands over the link for their purpose: see [`Link::run`].
    ///
    /// # Errors
    /// Those of the link.
    pub(crate) async fn run(
        &self,
        purpose: Purpose,
        commands: &[Cmd],
        repeat: Repeat<'_>,
    ) -> Result<Answers> {
        match (purpose, &self.links.confirming) {
            (Purpose::Confirming, Some(confirming)) => confirming.run(commands).await,
            (Purpose::Reading, _) => {
                self.links.reading.link.follow(&self.links.working);
                self.links.reading.run(commands).await
            }
            _ => self.link(purpose).run(commands, repeat).await,
        }
    }

    /// The state of its breaker.
    pub(crate) fn breaker(&self) -> State {
        self.links.working.breaker()
    }

    /// Whether its working link is connected.
    pub(crate) fn is_up(&self) -> bool {
        self.links.working.current().is_some()
    }

    /// Its durability, if it was ever connected.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let links = [&self.links.adding, &self.links.working];
        links
            .into_iter()
            .filter(|link| link.has_been_up())
            .map(Link::durability)
            .max_by_key(|kept| *kept as u8)
    }

    /// What it said of itself last, if it was ever connected.
    pub(crate) fn said(&self) -> Option<ServerSaid> {
        let working = Some(&self.links.working).filter(|link| link.has_been_up())?;
        let (memory, memory_limit) = working.memory();
        let is_volatile = working.durability() == Durability::Volatile;
        Some(ServerSaid { is_volatile, memory, memory_limit })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
