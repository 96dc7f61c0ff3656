//! The environment of a scenario: a service that was started for it (or a running one), its store,
//! and the receiver.
//!
//! # Invariant
//!
//! - Everything created for a bench is removed with it: processes, files, keys, and topics on a
//!   running service.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use delayd_wire::{
    Count, Nothing, Purged, TopicListRequest, TopicPurgeRequest, TopicRequest, TopicShown, Topics,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::account::{Arrival, kept};
use crate::clock;
use crate::distance;
use crate::load::{self, Load, Pace};
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::redis::Redis;
use crate::server::Instance;
use crate::target::Target;
use crate::task::{Template, batch};
use crate::wire::{Peer, json};

/// The service that tasks name on a started server.
const SERVICE: &str = "bench.receiver";
/// Tasks per request when the store is filled, and the connections for it.
pub(crate) const FILL_BATCH: u64 = 500;
const FILL_CONNECTIONS: usize = 4;
/// How long without progress until missing tasks count as lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// The polling intervals; a look disturbs the service.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
pub(crate) const SELDOM: Duration = Duration::from_millis(50);

/// A free port for a receiver.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The environment. Fields are dropped in this order.
pub(crate) struct Stage {
    instances: Vec<Instance>,
    folder: Option<TempDir>,
    pub(crate) redis: Option<Redis>,
    pub(crate) peer: Peer,
    pub(crate) receiver: Receiver,
    /// The service that tasks name.
    service: String,
    run: String,
    bytes: u16,
    pub(crate) progress: Progress,
}

impl Stage {
    /// Creates the receiver, without a service.
    pub(crate) fn set(target: &Target) -> anyhow::Result<Self> {
        let bind = target.server.as_ref().map_or(ANY, |_| target.receiver);
        let running = target.service.clone().filter(|_| target.server.is_some());
        Ok(Self {
            instances: Vec::new(),
            folder: None,
            redis: None,
            peer: target.peer(),
            receiver: Receiver::bind(bind)
                .with_context(|| format!("cannot listen for callbacks on {bind}"))?,
            service: running.unwrap_or_else(|| SERVICE.to_owned()),
            run: format!("bench-{:08x}", rand::random::<u32>()),
            bytes: target.bytes,
            progress: Progress::new(),
        })
    }

    /// Starts instances of a service that share a store.
    pub(crate) async fn start(&mut self, target: &Target, instances: u8) -> anyhow::Result<()> {
        let mut arguments = target.settings();
        let mut set = |key: &str, value: String| {
            arguments.extend(["--set".to_owned(), format!("{key}={value}")])
        };
        set("http.bind", r#""127.0.0.1:0""#.into());
        // More than the maximum of an option, for the topics of trial runs.
        set("limits.topics", "20000".into());
        set("log.level", r#""warn,delayd::cli::serve=info""#.into());
        let endpoints = format!("services.\"{}\".endpoints", self.service);
        set(&endpoints, format!("[\"http://{}\"]", self.receiver.address));
        set("store.kind", format!("{:?}", target.store));
        if target.is_redis() {
            let url = distance::url(&target.redis, target.redis_round_trip.0)?;
            self.redis = Some(Redis::connect(&target.redis, &self.run).await?);
            set("store.redis.urls", format!("[{url:?}]"));
            set("store.redis.key_prefix", format!("{:?}", self.run));
        } else {
            let folder = tempfile::Builder::new().prefix("delayd-bench-").tempdir();
            let folder = folder.context("cannot make a temporary folder")?;
            set("store.embedded.path", format!("{:?}", folder.path().join("bench.db")));
            self.folder = Some(folder);
        }
        arguments.push("serve".into());
        for _ in 0..instances {
            self.instances.push(Instance::start(&target.program(), &arguments).await?);
        }
        if let Some(first) = self.instances.first() {
            self.peer.address.clone_from(&first.address);
        }
        Ok(())
    }

    /// Removes everything that was created.
    pub(crate) async fn clear(mut self) -> anyhow::Result<()> {
        self.progress.clear();
        // On a service that was running before.
        if self.instances.is_empty() && !self.peer.address.is_empty() {
            let listed: Topics = self.ask("/delay/topic/list", &TopicListRequest::ALL).await?;
            let names = listed.topics.iter().map(|topic| topic.topic.as_str());
            for topic in names.filter(|topic| topic.starts_with(&self.run)) {
                self.purge(topic).await?;
                let topic = TopicRequest { topic: topic.parse()? };
                let Nothing {} = self.ask("/delay/topic/delete", &topic).await?;
            }
        }
        for instance in self.instances.drain(..) {
            instance.end().await;
        }
        match &self.redis {
            Some(redis) => redis.clear().await,
            None => Ok(()),
        }
    }

    /// Removes all tasks of a topic.
    pub(crate) async fn purge(&self, topic: &str) -> anyhow::Result<()> {
        let all_of_it = TopicPurgeRequest { topic: topic.parse()?, confirm: topic.to_owned() };
        while let Purged { more: true, .. } = self.ask("/delay/topic/purge", &all_of_it).await? {}
        Ok(())
    }

    /// Returns the name of a topic of this run.
    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.run)
    }

    /// The names of many topics of this run.
    pub(crate) fn topics(&self, name: &str, count: u32) -> Vec<String> {
        (0..count).map(|n| self.topic(&format!("{name}.{n}"))).collect()
    }

    /// Tasks of a topic that are called back.
    pub(crate) fn template(&self, topic: &str) -> anyhow::Result<Template> {
        Template::push(topic, &self.service, self.bytes)
    }

    /// Tasks of a topic that are pulled.
    pub(crate) fn template_to_pull(&self, topic: &str) -> anyhow::Result<Template> {
        Template::pull(topic, self.bytes)
    }

    /// The process ids of the started instances.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.instances.iter().map(Instance::pid)
    }

    /// The size of the files of the embedded store.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        let entries = std::fs::read_dir(self.folder.as_ref()?.path()).ok()?.filter_map(Result::ok);
        // The ballast file does not count.
        let kept =
            entries.filter(|entry| !entry.file_name().to_string_lossy().ends_with("-ballast"));
        Some(kept.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum())
    }

    /// Sends a request that is not part of the load.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        // A new connection: services close idle ones.
        let mut connection = self.peer.connect().await?;
        let answer = connection.exchange(&self.peer.post(path, &json(body))).await?;
        if answer.status != 200 {
            return Err(answer.refused().into());
        }
        Ok(serde_json::from_slice(answer.body).map_err(|_| answer.refused())?)
    }

    pub(crate) async fn counts(&self, topic: &str) -> anyhow::Result<Count> {
        let shown: TopicShown =
            self.ask("/delay/topic/get", &TopicRequest { topic: topic.parse()? }).await?;
        Ok(shown.counts)
    }

    /// The number of scheduled tasks of these topics.
    pub(crate) async fn scheduled(&self, topics: &[String]) -> anyhow::Result<u64> {
        let mut scheduled = 0;
        for topic in topics {
            scheduled += self.counts(topic).await?.scheduled;
        }
        Ok(scheduled)
    }

    /// Sends adds; see [`load::adds`].
    pub(crate) async fn adds(
        &self,
        connections: usize,
        pace: Pace<'_>,
        request: impl Fn(u64) -> Bytes,
    ) -> anyhow::Result<Load> {
        load::adds(&self.peer, connections, pace, request, &self.progress).await
    }

    /// Adds `count` tasks in large batches; `write` appends task number n to a request. Unconfirmed
    /// batches are repeated: see [`Load::unconfirmed`].
    pub(crate) async fn fill(
        &self,
        count: u64,
        write: impl Fn(u64, &mut String),
    ) -> anyhow::Result<Load> {
        let batches = count.div_ceil(FILL_BATCH);
        self.progress.step("batches prefilled", batches);
        let request = |n: u64| {
            let body = batch(n * FILL_BATCH..count.min((n + 1) * FILL_BATCH), &write);
            Bytes::from(self.peer.post("/delay/task/add_batch", &body))
        };
        let load = self.adds(FILL_CONNECTIONS, Pace::Fill(batches), request).await?;
        let some = load.accepted.len() as u64;
        kept(some == count, || {
            format!("of {count} tasks that were to fill the store, {some} were accepted")
        })?;
        Ok(load)
    }

    /// Waits until `count` callbacks have arrived since `due_ms`, or none for a long time, and
    /// takes them.
    pub(crate) async fn arrivals(&self, count: usize, due_ms: i64) -> Vec<Arrival> {
        self.progress.step("callbacks", count as u64);
        clock::sleep_until(due_ms).await;
        let (mut seen, mut moved) = (self.receiver.count(), Instant::now());
        while seen < count && moved.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
            let now = self.receiver.count();
            if now > seen {
                (seen, moved) = (now, Instant::now());
                self.progress.set(now as u64);
            }
        }
        self.receiver.take()
    }

    /// Waits until the service counts `count` delivered tasks of a topic, and looks at this
    /// interval. Returns the time, in microseconds since 1970.
    ///
    /// # Errors
    /// If the count makes no progress for a long time.
    pub(crate) async fn settled(
        &self,
        topic: &str,
        count: u64,
        look: Duration,
    ) -> anyhow::Result<i64> {
        let (mut seen, mut moved) = (0, Instant::now());
        while moved.elapsed() < PATIENCE {
            let delivered = self.counts(topic).await?.delivered;
            if delivered == count {
                break;
            }
            if delivered > seen {
                (seen, moved) = (delivered, Instant::now());
            }
            tokio::time::sleep(look).await;
        }
        kept(moved.elapsed() < PATIENCE, || {
            format!("{seen} tasks are counted as delivered, which should be {count}")
        })?;
        Ok(clock::now_us())
    }
}
