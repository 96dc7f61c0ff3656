//! What one run of the model simulates.

use std::time::Duration;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) instances: usize,
    /// Topics of one lane each. Each task goes to one of them at random.
    pub(crate) lanes: usize,
    /// Tasks added, and due, per second.
    pub(crate) rate: f64,
    /// Redis servers, with the same number of lanes each. Several are a cluster.
    pub(crate) servers: usize,
    /// How many times longer than measured the scripts take: a small run has the load of a large
    /// one.
    pub(crate) slowness: u32,
    /// The servers do nothing for this time, in the middle of the warm-up.
    pub(crate) stall: Duration,
    /// The most lanes that an instance samples in a second.
    pub(crate) sampled: usize,
    /// The round trip between an instance and a server.
    pub(crate) round_trip: Duration,
    /// How many calls of the service an instance makes at a time.
    pub(crate) concurrency: usize,
    /// How long a receiver takes to answer a call.
    pub(crate) call: Duration,
    /// The shortest and the longest delay of a task.
    pub(crate) delays: (Duration, Duration),
    /// How long the instances run before the figures begin.
    pub(crate) warm_up: Duration,
    /// The time of the figures.
    pub(crate) span: Duration,
    pub(crate) seed: u64,
}

impl Setup {
    /// A run with the usual distances and delays. At low rates it is longer: a lane without work
    /// stops after a minute (`worker.idle_stop`), so only then the number of running lanes stays.
    /// At high rates it is shorter, since a second has enough tasks.
    pub(crate) fn new(instances: usize, lanes: usize, rate: f64) -> Self {
        let seconds = Duration::from_secs;
        let (delays, warm_up, span) = match rate {
            50_000.0.. => ((seconds(1), seconds(3)), seconds(5), seconds(2)),
            5_000.0.. => ((seconds(5), seconds(15)), seconds(20), seconds(5)),
            _ if rate / (lanes as f64) < 0.1 => {
                ((seconds(5), seconds(15)), seconds(90), seconds(60))
            }
            _ => ((seconds(5), seconds(15)), seconds(20), seconds(10)),
        };
        Self {
            instances,
            lanes,
            rate,
            servers: 1,
            slowness: 1,
            stall: Duration::ZERO,
            sampled: 512,
            round_trip: Duration::from_micros(150),
            concurrency: 256,
            call: Duration::from_millis(2),
            delays,
            warm_up,
            span,
            seed: 1,
        }
    }

    /// The most lanes of one script of a poll. In a cluster each lane has a slot of its own.
    pub(crate) fn lanes_a_script(&self, of_one_server: usize) -> usize {
        if self.servers == 1 { of_one_server } else { 1 }
    }
}
