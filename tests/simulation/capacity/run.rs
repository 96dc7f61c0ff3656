//! Runs the model: instances with the real workers, producers, receivers, and one simulated Redis.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayd::callback::{Answer, Call, CallClient, LONGEST_RETRY_AFTER, Services};
use delayd::instances::{self, Instances};
use delayd::limits::{DestinationLimits, LimitParams};
use delayd::metrics::Metrics;
use delayd::model::breaker;
use delayd::model::clock::UnixMillis;
use delayd::model::task::Lane;
use delayd::outcome::Policy;
use delayd::topic::{self, Registry};
use delayd::worker::{self, Worker};
use delayd_wire::{Backoff, Span};

use super::figures::Figures;
use super::fine_time;
use super::redis::Redis;
use super::setup::Setup;
use super::store::Access;
use crate::dice::{Dice, Throw};
use crate::schedule::services;

/// The shortest time between two batches of adds of an instance, as in the Redis store.
const BETWEEN_BATCHES: Duration = Duration::from_micros(500);

/// The lateness of the calls so far, in microseconds.
type Lateness = Arc<Mutex<Vec<i64>>>;

/// Runs a setup, and returns what was measured after the warm-up.
pub(crate) fn run(setup: &Setup) -> Figures {
    fine_time::run(async |time| {
        let redis = Arc::new(Redis::new(setup.clone(), time.clone()));
        let (dice, lateness) = (Dice::new(setup.seed), Lateness::default());
        for number in 0..setup.instances {
            let access = Arc::new(Access::new(redis.clone(), number));
            let mut throw = dice.throw(("instance", number));
            // Instances start, and so poll, at different moments of a second.
            let start = Duration::from_micros(throw.between(0, 1_000_000));
            let lateness = lateness.clone();
            let instance = Instance { number, redis: redis.clone(), access, lateness };
            tokio::spawn(instance.live(start, throw));
        }
        time.until(setup.warm_up).await;
        redis.take_work();
        lateness.lock().unwrap().clear();
        time.until(setup.warm_up + setup.span).await;
        let (work, busiest) = redis.take_work();
        let lateness = std::mem::take(&mut *lateness.lock().unwrap());
        Figures::new(setup.clone(), work, busiest, lateness)
    })
}

/// One instance, with a share of the producers.
struct Instance {
    number: usize,
    redis: Arc<Redis>,
    access: Arc<Access>,
    lateness: Lateness,
}

impl Instance {
    async fn live(self, start: Duration, throw: Throw) {
        self.redis.time.until(start).await;
        let worker = Worker::start(self.parts(), params());
        tokio::spawn(self.access.clone().sample_each_second());
        self.produce(throw).await;
        drop(worker);
    }

    fn parts(&self) -> worker::Parts<Access, Receiver> {
        let topics = Registry::new(self.access.clone(), topic::Params { max_topics: 1_000_000 });
        worker::Parts {
            topics: Arc::new(topics),
            store: self.access.clone(),
            client: Receiver { redis: self.redis.clone(), lateness: self.lateness.clone() },
            services: Arc::new(Services::new(services(1, |_| true)).expect("the service is valid")),
            topic_limits: Default::default(),
            limits: DestinationLimits::new(limits(self.redis.setup.concurrency)),
            instances: Arc::new(Instances::with_id(
                self.number as u64,
                instances::Params { has_workers: true, ..instances::Params::default() },
            )),
            metrics: Metrics::new([]),
            clock: self.redis.clock.clone(),
            tracer: Default::default(),
        }
    }

    /// Adds tasks for ever, at random moments: its share of the rate.
    async fn produce(&self, mut throw: Throw) {
        let Setup { rate, instances, .. } = self.redis.setup;
        let gap = instances as f64 / rate;
        let mut next = self.redis.time.elapsed();
        loop {
            next += Duration::from_secs_f64(gap * throw.exponential());
            self.redis.time.until(next.max(self.redis.time.elapsed())).await;
            let mut batch = vec![self.task(&mut throw)];
            while next <= self.redis.time.elapsed() {
                batch.push(self.task(&mut throw));
                next += Duration::from_secs_f64(gap * throw.exponential());
            }
            let access = self.access.clone();
            tokio::spawn(async move { access.add(batch).await });
            self.redis.time.sleep(BETWEEN_BATCHES).await;
        }
    }

    /// A task: its lane, and when it falls due.
    fn task(&self, throw: &mut Throw) -> (Lane, UnixMillis) {
        let topic = &self.redis.topics[throw.number() as usize % self.redis.topics.len()];
        let (least, most) = self.redis.setup.delays;
        let delay = throw.millis(least.as_millis() as u64, most.as_millis() as u64);
        (Lane { topic: topic.entry.topic.clone(), shard: 0 }, self.redis.clock.now() + delay)
    }
}

/// Answers calls with success after a fixed time, and notes how late they came.
#[derive(Debug)]
struct Receiver {
    redis: Arc<Redis>,
    lateness: Lateness,
}

impl CallClient for Receiver {
    async fn call(&self, call: &Call<'_>) -> Answer {
        let late = self.redis.now_micros() - call.due.0 * 1_000;
        self.lateness.lock().unwrap().push(late);
        self.redis.time.sleep(self.redis.setup.call).await;
        Answer::delivered("200 OK")
    }
}

/// The defaults of `config/default.toml`.
fn params() -> worker::Params {
    worker::Params {
        enabled: true,
        lease: Duration::from_secs(30),
        idle_stop: Duration::from_secs(60),
        claim_batch: 64,
        policy: Policy {
            max_attempts: 3,
            backoff: Backoff::List { steps: vec![Span::seconds(1)] },
        },
        timeout: Duration::from_secs(15),
        noted: worker::NotedAttempts::Failures,
        poll_every: Duration::from_secs(1),
    }
}

fn limits(concurrency_per_service: usize) -> LimitParams {
    LimitParams {
        concurrency: 16_384,
        concurrency_per_service,
        breaker: breaker::Params {
            failure_ratio: 0.5,
            min_calls: 20,
            window: Duration::from_secs(10),
            consecutive_failures: 5,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            half_open_probes: 3,
        },
        retry_after_max: LONGEST_RETRY_AFTER,
    }
}
