//! The simulated Redis that all instances share: servers with queues, and the state behind them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{Lane, TaskId};
use delayd::store::{INSTANCE_TTL, Instance, Message, Registered, TopicEntry};
use tokio::sync::broadcast;

use super::fine_time::FineTime;
use super::lanes::Lanes;
use super::server::{Server, Work};
use super::setup::Setup;
use crate::plan::service_name;

/// The time of its clock at the beginning.
const START: UnixMillis = UnixMillis(1_800_000_000_000);

/// How many hints or messages an instance may fall behind, as in the Redis store.
pub(crate) const BACKLOG: usize = 1_024;

/// The servers, and what is in them.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) setup: Setup,
    pub(crate) time: Arc<FineTime>,
    pub(crate) clock: Clock,
    pub(crate) topics: Vec<Registered>,
    pub(crate) lanes: Mutex<Lanes>,
    servers: Vec<Server>,
    server_of: BTreeMap<Lane, usize>,
    /// The instances, with their last heartbeats.
    heartbeats: Mutex<BTreeMap<String, Instance>>,
    /// The channels on which the instances receive messages.
    listeners: Mutex<Vec<broadcast::Sender<Message>>>,
    ids: AtomicU64,
}

impl Redis {
    /// Empty servers with registered topics of one lane each.
    pub(crate) fn new(setup: Setup, time: Arc<FineTime>) -> Self {
        let topic = |n| TopicEntry {
            topic: format!("topic-{n}").parse().expect("the name of a topic"),
            shards: 1,
        };
        let topics: Vec<_> = (0..setup.lanes).map(|n| Registered::plain(topic(n))).collect();
        let lanes: Vec<Lane> = topics.iter().flat_map(|known| known.entry.lanes()).collect();
        let server_of =
            lanes.iter().enumerate().map(|(n, lane)| (lane.clone(), n % setup.servers)).collect();
        let destination = service_name(0).parse().expect("the name of a service");
        let content = format!(r#"{{"sn":"{}","url":"/due"}}"#, service_name(0));
        Self {
            servers: (0..setup.servers).map(|_| Server::new(time.clone(), &setup)).collect(),
            setup,
            time,
            clock: Clock::running(START),
            lanes: Mutex::new(Lanes::new(&lanes, destination, content)),
            topics,
            server_of,
            heartbeats: Mutex::default(),
            listeners: Mutex::default(),
            ids: AtomicU64::new(1),
        }
    }

    pub(crate) fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    pub(crate) fn server_of(&self, lane: &Lane) -> usize {
        self.server_of[lane]
    }

    /// The moment in microseconds, by the clock of the servers.
    pub(crate) fn now_micros(&self) -> i64 {
        START.0 * 1_000 + self.time.elapsed().as_micros() as i64
    }

    pub(crate) fn next_id(&self) -> TaskId {
        TaskId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// The time that a request or an answer is on its way.
    pub(crate) async fn travel(&self) {
        self.time.sleep(self.setup.round_trip / 2).await;
    }

    /// Stores a heartbeat, and returns those of all living instances, sorted by name.
    pub(crate) fn beat(&self, own: Option<Instance>) -> Vec<Instance> {
        let now = self.clock.now();
        let mut heartbeats = self.heartbeats.lock().unwrap();
        if let Some(own) = own {
            heartbeats.insert(own.id.clone(), Instance { seen: now, ..own });
        }
        let living = heartbeats.values().filter(|one| now.since(one.seen) < INSTANCE_TTL);
        let mut living: Vec<Instance> = living.cloned().collect();
        living.sort_unstable_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        living
    }

    /// A new channel on which an instance receives messages.
    pub(crate) fn listen(&self) -> broadcast::Sender<Message> {
        let sender = broadcast::Sender::new(BACKLOG);
        self.listeners.lock().unwrap().push(sender.clone());
        sender
    }

    /// Passes a message on to all instances but its sender.
    pub(crate) fn pass_on(&self, message: &Message, sender: &broadcast::Sender<Message>) {
        for listener in &*self.listeners.lock().unwrap() {
            if !listener.same_channel(sender) {
                // An instance that has not started does not receive it.
                let _ = listener.send(message.clone());
            }
        }
    }

    /// How many instances listen for messages.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.lock().unwrap().len()
    }

    /// What the servers did since the last call, and the longest time that one was busy.
    pub(crate) fn take_work(&self) -> (Work, Duration) {
        let (mut all, mut most) = (Work::default(), Duration::ZERO);
        for work in self.servers.iter().map(Server::take_work) {
            most = most.max(work.busy);
            all.add(work);
        }
        (all, most)
    }
}
