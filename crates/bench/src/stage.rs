//! The environment of a scenario: a service that was started for it (or a running one), its store,
//! and the receiver.
//!
//! # Invariant
//!
//! - Everything created for a bench is removed with it: processes, files, keys, and topics on a
//!   running service.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayd_wire::{Count, Nothing, Purged, TopicShown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

use crate::account::Arrival;
use crate::clock;
use crate::distance;
use crate::error::Error;
use crate::load::{self, Load, Pace};
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::redis::Redis;
use crate::server::Instance;
use crate::target::{Store, Target};
use crate::task::batch;
use crate::wire::{self, Peer};

/// The service that tasks name on a started server, and a second one that shares nothing with it.
const SERVICE: &str = "bench.receiver";
const OTHER_SERVICE: &str = "bench.other";
/// Tasks per request when the store is filled, and the connections for it.
pub(crate) const FILL_BATCH: u64 = 500;
const FILL_CONNECTIONS: usize = 4;
/// How long without progress until missing tasks count as lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// The polling intervals.
const LOOK: Duration = Duration::from_millis(2);
const SELDOM: Duration = Duration::from_millis(50);

/// A free port for a receiver.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The requirements of a scenario for a started service.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Instances that share the store.
    pub(crate) instances: usize,
    /// Additional services, each with its own port of the receiver.
    pub(crate) own_ports: usize,
    /// Settings that override all others.
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// The environment. Fields are dropped in this order.
pub(crate) struct Stage {
    instances: Vec<Instance>,
    folder: Option<TempDir>,
    redis: Option<Redis>,
    /// The URL at which the service reaches Redis.
    redis_url: Option<String>,
    peer: Peer,
    receiver: Receiver,
    services: [String; 2],
    /// Services with their own port of the receiver.
    own_ports: Vec<String>,
    run: String,
    topics: Mutex<Vec<String>>,
    /// Whether the service was running before.
    is_guest: bool,
    pub(crate) progress: Progress,
}

impl Stage {
    /// Creates the receiver, without a service.
    pub(crate) fn set(target: &Target, progress: Progress) -> Result<Self, Error> {
        let run = format!("bench-{:08x}", rand::random::<u32>());
        let bind = target.running.as_ref().map_or(ANY, |running| running.receiver);
        let receiver = Receiver::bind(bind).map_err(|source| Error::Bind(bind, source))?;
        let services = match &target.running {
            Some(running) => [running.service.clone(), running.service.clone()],
            None => [SERVICE.to_owned(), OTHER_SERVICE.to_owned()],
        };
        let peer = match &target.running {
            Some(running) => Peer {
                address: running.address.clone(),
                base: running.base.clone(),
                token: running.token.clone(),
            },
            None => Peer::at(""),
        };
        let redis_url = match &target.store {
            Store::Redis(url) if target.running.is_none() => {
                Some(distance::url(url, target.round_trip)?)
            }
            _ => None,
        };
        let (topics, is_guest) = (Mutex::default(), target.running.is_some());
        Ok(Self {
            instances: Vec::new(),
            folder: None,
            redis: None,
            redis_url,
            peer,
            receiver,
            services,
            own_ports: Vec::new(),
            run,
            topics,
            is_guest,
            progress,
        })
    }

    /// Starts a service.
    pub(crate) async fn start(&mut self, target: &Target, needs: Needs) -> Result<(), Error> {
        let mut arguments = target.configuration.clone();
        let mut set = |key: &str, value: String| {
            arguments.extend(["--set".to_owned(), format!("{key}={value}")])
        };
        set("http.bind", r#""127.0.0.1:0""#.into());
        // More than the maximum of an option, for the topics of trial runs.
        set("limits.topics", "20000".into());
        set("log.level", r#""warn,delayd::cli::serve=info""#.into());
        for service in &self.services {
            set(&endpoints(service), format!("[\"http://{}\"]", self.receiver.local_addr()));
        }
        for number in 0..needs.own_ports {
            let service = format!("{SERVICE}-{number}");
            let address = self.receiver.listen(ANY).map_err(|source| Error::Bind(ANY, source))?;
            set(&endpoints(&service), format!("[\"http://{address}\"]"));
            self.own_ports.push(service);
        }
        match &target.store {
            Store::Embedded => {
                let folder = tempfile::Builder::new()
                    .prefix("delayd-bench-")
                    .tempdir()
                    .map_err(Error::Folder)?;
                set("store.kind", r#""embedded""#.into());
                set("store.embedded.path", format!("{:?}", folder.path().join("bench.db")));
                self.folder = Some(folder);
            }
            Store::Redis(url) => {
                self.redis = Some(Redis::connect(url, &self.run).await?);
                set("store.kind", r#""redis""#.into());
                set("store.redis.urls", format!("[{:?}]", self.redis_url.as_ref().unwrap_or(url)));
                set("store.redis.key_prefix", format!("{:?}", self.run));
            }
        }
        for (key, value) in needs.settings {
            set(key, value);
        }
        arguments.push("serve".into());
        for _ in 0..needs.instances {
            self.instances.push(Instance::start(&arguments).await?);
        }
        if let Some(first) = self.instances.first() {
            self.peer.address = first.address().to_owned();
        }
        Ok(())
    }

    /// Removes everything that was created.
    pub(crate) async fn clear(mut self) -> Result<(), Error> {
        if self.is_guest {
            let topics =
                std::mem::take(&mut *self.topics.lock().unwrap_or_else(PoisonError::into_inner));
            for topic in topics {
                self.remove(&topic).await?;
            }
        }
        self.instances.clear();
        match &self.redis {
            Some(redis) => redis.clear().await,
            None => Ok(()),
        }
    }

    /// Removes a topic from a running service, if it was created.
    async fn remove(&self, topic: &str) -> Result<(), Error> {
        match self.purge(topic).await {
            Err(Error::Refused { status: 404, .. }) => return Ok(()),
            purged => purged?,
        }
        self.ask("/delay/topic/delete", &json!({ "topic": topic })).await.map(|Nothing {}| ())
    }

    /// Removes all tasks of a topic.
    pub(crate) async fn purge(&self, topic: &str) -> Result<(), Error> {
        let all_of_it = json!({ "topic": topic, "confirm": topic });
        while let Purged { more: true, .. } = self.ask("/delay/topic/purge", &all_of_it).await? {}
        Ok(())
    }

    /// Returns the name of a topic of this run.
    pub(crate) fn topic(&self, name: &str) -> String {
        let topic = format!("{}.{name}", self.run);
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).push(topic.clone());
        topic
    }

    pub(crate) fn service(&self) -> &str {
        &self.services[0]
    }

    /// Services with their own port of the receiver, as many as the scenario needs.
    pub(crate) fn services_on_own_ports(&self) -> &[String] {
        &self.own_ports
    }

    /// A service that shares nothing with the other on a started server.
    pub(crate) fn other_service(&self) -> &str {
        &self.services[1]
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The URL of Redis, and the key prefix of the bench.
    pub(crate) fn redis_place(&self) -> Option<(String, String)> {
        Some((self.redis_url.clone()?, self.run.clone()))
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
    ) -> Result<A, Error> {
        // A new connection: services close idle ones.
        let mut connection = self.peer.connect().await.map_err(Error::Broken)?;
        let request = self.peer.post(path, &wire::json(body));
        let answer = connection.exchange(&request).await.map_err(Error::Broken)?;
        if answer.status != 200 {
            return Err(Error::refused(&answer));
        }
        serde_json::from_slice(answer.body).map_err(|_| Error::refused(&answer))
    }

    pub(crate) async fn counts(&self, topic: &str) -> Result<Count, Error> {
        let shown: TopicShown = self.ask("/delay/topic/get", &json!({ "topic": topic })).await?;
        Ok(shown.counts)
    }

    /// Sends adds; see [`load::adds`].
    pub(crate) async fn adds(
        &self,
        connections: usize,
        pace: Pace,
        request: impl Fn(u64) -> Bytes + Clone + Send + 'static,
    ) -> Result<Load, Error> {
        load::adds(&self.peer, connections, pace, request, &self.progress).await
    }

    /// Adds `count` tasks in large batches; `write` appends task number n to a request. Unconfirmed
    /// batches are repeated: see [`Load::unconfirmed`].
    pub(crate) async fn fill(
        &self,
        count: u64,
        write: impl Fn(u64, &mut String) + Clone + Send + 'static,
    ) -> Result<Load, Error> {
        self.progress.step("batches prefilled", count.div_ceil(FILL_BATCH));
        let peer = self.peer.clone();
        let request = move |n: u64| {
            let body = batch(n * FILL_BATCH..count.min((n + 1) * FILL_BATCH), &write);
            Bytes::from(peer.post("/delay/task/add_batch", &body))
        };
        let load =
            self.adds(FILL_CONNECTIONS, Pace::Fill(count.div_ceil(FILL_BATCH)), request).await?;
        match load.accepted.len() as u64 {
            all if all == count => Ok(load),
            some => Err(Error::Defect(format!(
                "of {count} tasks that were to fill the store, {some} were accepted"
            ))),
        }
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Waits until `count` callbacks have arrived since `due_ms`, or none for a long time, and
    /// takes them.
    pub(crate) async fn arrivals(&self, count: usize, due_ms: i64) -> Vec<Arrival> {
        self.progress.step("callbacks", count as u64);
        clock::sleep_until(due_ms).await;
        let (mut seen, mut moved) = (self.receiver.count(), tokio::time::Instant::now());
        while seen < count && moved.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
            let now = self.receiver.count();
            if now > seen {
                (seen, moved) = (now, tokio::time::Instant::now());
                self.progress.set(now as u64);
            }
        }
        self.receiver.take()
    }

    /// Like [`Stage::settled`] for many tasks that are due at `due_ms`. It polls less often, to
    /// disturb them less.
    pub(crate) async fn settled_after(
        &self,
        topic: &str,
        count: u64,
        due_ms: i64,
    ) -> Result<i64, Error> {
        clock::sleep_until(due_ms).await;
        self.settled_looking_every(SELDOM, topic, count).await
    }

    /// Waits until the service counts `count` delivered tasks of a topic. Returns the time, in
    /// microseconds since 1970.
    ///
    /// # Errors
    /// If the count makes no progress for a long time.
    pub(crate) async fn settled(&self, topic: &str, count: u64) -> Result<i64, Error> {
        self.settled_looking_every(LOOK, topic, count).await
    }

    async fn settled_looking_every(
        &self,
        look: Duration,
        topic: &str,
        count: u64,
    ) -> Result<i64, Error> {
        let (mut seen, mut moved) = (0, tokio::time::Instant::now());
        while moved.elapsed() < PATIENCE {
            let delivered = self.counts(topic).await?.delivered;
            if delivered == count {
                return Ok(clock::now_us());
            }
            if delivered > seen {
                (seen, moved) = (delivered, tokio::time::Instant::now());
            }
            tokio::time::sleep(look).await;
        }
        Err(Error::Defect(format!(
            "{seen} tasks are counted as delivered, which should be {count}"
        )))
    }
}

/// The setting with the endpoints of a service.
fn endpoints(service: &str) -> String {
    format!("services.\"{service}\".endpoints")
}
