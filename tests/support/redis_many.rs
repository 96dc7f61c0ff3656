//! Several real redis-servers together: a primary with replicas and Sentinels, or a cluster.
//! Dropping it ends all its servers.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::redis_server::{AS_LONG_AS, Place, Server};

/// How long a set of servers may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// The Sentinels' name for the primary.
pub(crate) const MASTER: &str = "main";

/// Asks until the condition holds; panics after half a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until this many replicas receive all that their primary writes.
///
/// A replica that has just loaded the data is called online, but receives nothing more until it has
/// confirmed, which it does once a second. If its primary dies before, it misses what was written
/// meanwhile.
#[track_caller]
pub(crate) fn until_followed(primary: &Server, replicas: usize) {
    let number = |text: &str, name: &str| {
        let (_, rest) = text.split_once(name)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let mut written = None;
    until("the replicas follow", || {
        let about = primary.replication();
        let online: Vec<&str> =
            about.lines().filter(|line| line.contains("state=online")).collect();
        if online.len() != replicas {
            return false;
        }
        let written =
            *written.get_or_insert_with(|| number(&about, "master_repl_offset:").unwrap());
        online.iter().all(|replica| number(replica, ",offset=").is_some_and(|has| has >= written))
    });
}

/// A primary, two replicas, and three Sentinels that find the primary down after a second.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<Server>,
    /// A fourth Sentinel beside a primary that may be cut off. It is not asked for the others'
    /// view.
    pub(crate) insider: Option<Server>,
}

impl Watched {
    /// Starts all servers, and waits until they know each other.
    pub(crate) fn start() -> Self {
        Self::with_options(&[])
    }

    /// The servers (not the Sentinels) have further options.
    pub(crate) fn with_options(options: &[&str]) -> Self {
        let here = Place::here();
        Self::assembled(&here, &here, false, options)
    }

    /// All servers are in one place.
    pub(crate) fn at(place: &Place) -> Self {
        Self::assembled(place, place, false, &[])
    }

    /// The primary and a fourth Sentinel are in one place, all others in another.
    pub(crate) fn apart(primary: &Place, others: &Place, options: &[&str]) -> Self {
        Self::assembled(primary, others, true, options)
    }

    fn assembled(place: &Place, others: &Place, insider: bool, options: &[&str]) -> Self {
        let primary = Server::at(place, options);
        let (host, port) = (primary.host().to_owned(), primary.port().to_string());
        let mut servers = vec![primary];
        for _ in 0..2 {
            let quick = ["--replicaof", &host, &port, "--repl-diskless-sync-delay", "0"];
            servers.push(Server::at(others, &[&quick, options].concat()));
        }
        until_followed(&servers[0], 2);
        let sentinels: Vec<Server> = (0..3).map(|_| Server::sentinel_at(others)).collect();
        let watched =
            Self { servers, sentinels, insider: insider.then(|| Server::sentinel_at(place)) };
        for sentinel in watched.all_sentinels() {
            sentinel.command(&["SENTINEL", "MONITOR", MASTER, &host, &port, "2"]);
            for (option, value) in
                [("down-after-milliseconds", "1000"), ("failover-timeout", "5000")]
            {
                sentinel.command(&["SENTINEL", "SET", MASTER, option, value]);
            }
        }
        let knows = |sentinel: &Server, field: &str, count: &str| {
            let about = sentinel.command(&["SENTINEL", "MASTER", MASTER]);
            about.lines().skip_while(|line| *line != field).nth(1) == Some(count)
        };
        let others = (watched.all_sentinels().count() - 1).to_string();
        until("the sentinels know each other and the replicas", || {
            let all = |sentinel| {
                knows(sentinel, "num-slaves", "2")
                    && knows(sentinel, "num-other-sentinels", &others)
            };
            watched.all_sentinels().all(all)
        });
        watched
    }

    /// Includes the fourth one.
    pub(crate) fn all_sentinels(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().chain(&self.insider)
    }

    /// The Sentinels' addresses.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.all_sentinels().map(Server::url).collect()
    }

    /// The port of the primary, as the first Sentinel knows it.
    pub(crate) fn primary(&self) -> u16 {
        let answer = self.sentinels[0].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
        answer.lines().nth(1).unwrap().parse().unwrap()
    }

    /// Whether the Sentinels may find the primary down; if so, after two seconds without an answer.
    ///
    /// A drill allows it from its fault to the election. At any other moment a stall of the machine
    /// would depose a primary. So would a Sentinel that has just learned of a new primary, and
    /// connects to it a second later. The fourth Sentinel may be cut off and is not told; alone it
    /// cannot depose a primary.
    pub(crate) fn may_depose(&self, may: bool) {
        let silence = if may { "2000" } else { "600000" };
        for sentinel in &self.sentinels {
            sentinel.command(&["SENTINEL", "SET", MASTER, "down-after-milliseconds", silence]);
        }
    }

    /// How many elections there were so far.
    pub(crate) fn elections(&self) -> usize {
        let epoch = |sentinel: &Server| {
            let about = sentinel.command(&["SENTINEL", "MASTER", MASTER]);
            about
                .lines()
                .skip_while(|line| *line != "config-epoch")
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        };
        self.sentinels.iter().map(epoch).max().unwrap()
    }

    /// The port of the new primary, once a Sentinel names another than `old`. They do not all learn
    /// of it at the same moment.
    pub(crate) fn successor_of(&self, old: u16) -> u16 {
        let mut named = old;
        until("another primary is elected", || {
            let ports = self.sentinels.iter().map(|sentinel| {
                let answer = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
                answer.lines().nth(1).unwrap().parse().unwrap()
            });
            named = ports.into_iter().find(|&port| port != old).unwrap_or(old);
            named != old
        });
        named
    }

    /// All servers except the one on a port.
    pub(crate) fn others(&self, port: u16) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.port() != port)
    }

    /// Waits until all others follow the primary on a port.
    pub(crate) fn all_follow(&mut self, port: u16) {
        until_followed(self.on(port), 2);
    }

    /// The server on a port.
    pub(crate) fn on(&mut self, port: u16) -> &mut Server {
        self.servers.iter_mut().find(|server| server.port() == port).unwrap()
    }
}

/// Three primaries and three replicas that find a node down after a second and a half, and serve
/// the slots that they have.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The first three are the primaries at first, in the order of their slots.
    pub(crate) nodes: Vec<Server>,
}

/// The addresses of the cluster that all tests of a run share, each with its own key prefix.
///
/// A cluster takes seconds to start, and nextest gives each test a process of its own. With
/// nextest, the first test of a run starts the cluster and leaves its addresses in a file for the
/// others. Otherwise the tests of a run are one process.
pub(crate) fn shared_cluster() -> Vec<String> {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    let Ok(run) = std::env::var("NEXTEST_RUN_ID") else {
        return SHARED.get_or_init(Cluster::start).urls();
    };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{run}"));
    let mut file = File::options().read(true).append(true).create(true).open(path).unwrap();
    file.lock().unwrap();
    let mut urls = String::new();
    file.read_to_string(&mut urls).unwrap();
    if urls.is_empty() {
        // nextest is the parent of this process.
        let cluster = Cluster::as_long_as(parent_id());
        urls = cluster.urls().join("\n");
        file.write_all(urls.as_bytes()).unwrap();
        // Its drop would wait for the end of the run.
        std::mem::forget(cluster);
    }
    urls.lines().map(str::to_owned).collect()
}

impl Cluster {
    /// Starts all nodes, and waits until all slots are covered.
    pub(crate) fn start() -> Self {
        Self::of((0..6).map(|_| Server::cluster_node(&[])).collect())
    }

    /// The same in another place.
    pub(crate) fn at(place: &Place) -> Self {
        Self::of((0..6).map(|_| Server::cluster_node_at(place, &[])).collect())
    }

    /// A cluster that runs as long as another process, even if this one ends.
    fn as_long_as(process: u32) -> Self {
        let process = process.to_string();
        let cluster =
            Self::of((0..6).map(|_| Server::cluster_node(&[(AS_LONG_AS, &process)])).collect());
        for node in &cluster.nodes {
            // The tests beside it take the processor from a node for seconds.
            node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]);
        }
        cluster
    }

    fn of(nodes: Vec<Server>) -> Self {
        let cluster = Self { nodes };
        for node in &cluster.nodes[1..] {
            let (port, bus) = (node.port().to_string(), node.bus_port().to_string());
            cluster.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let known = |node: &Server| {
            node.command(&["CLUSTER", "NODES"]).lines().filter(|l| !l.contains("handshake")).count()
        };
        until("the nodes have met", || cluster.nodes.iter().all(|node| known(node) == 6));
        for (n, range) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
            let (first, last) = range.split_once(' ').unwrap();
            cluster.nodes[n].command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            cluster.nodes[n].command(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
        }
        for n in 0..3 {
            let primary = cluster.id_of(n);
            until("a replica follows", || {
                cluster.nodes[n + 3].command(&["CLUSTER", "REPLICATE", &primary]).trim() == "OK"
            });
        }
        until("the cluster is well", || {
            // A node reports the state ok although it has not heard of all slots yet.
            let well = |node: &Server| {
                let info = node.command(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
            };
            cluster.nodes.iter().all(well)
        });
        for primary in &cluster.nodes[..3] {
            until_followed(primary, 1);
        }
        cluster
    }

    /// A node's own name.
    pub(crate) fn id_of(&self, n: usize) -> String {
        self.nodes[n].command(&["CLUSTER", "MYID"]).trim().to_owned()
    }

    /// The addresses of two nodes; the others are found.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes[1..3].iter().map(Server::url).collect()
    }

    /// Which of the first three nodes has the key's slot at first, and the slot.
    pub(crate) fn first_owner(&self, key: &str) -> (usize, u16) {
        let slot: u16 = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).trim().parse().unwrap();
        (
            match slot {
                0..=5_460 => 0,
                5_461..=10_922 => 1,
                _ => 2,
            },
            slot,
        )
    }

    /// A key prefix whose registry and id counter are on the first primary.
    pub(crate) fn prefix_on_first(&self) -> String {
        let is_first = |key: String| self.first_owner(&key).0 == 0;
        let fits = |prefix: &String| {
            is_first(format!("{prefix}:DELAY_TOPIC_LIST"))
                && is_first(format!("{prefix}:DELAY_TASK_ID"))
        };
        (0..).map(|n| format!("p{n}")).find(fits).unwrap()
    }

    /// The port of the primary that has the slot, as the first node sees it; `None` if that node
    /// finds the primary down.
    pub(crate) fn owner_of(&self, slot: u16) -> Option<u16> {
        let nodes = self.nodes[0].command(&["CLUSTER", "NODES"]);
        let has_it = |line: &&str| {
            line.split(' ').skip(8).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
                bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
            })
        };
        let line = nodes.lines().filter(|line| !line.contains("fail")).find(has_it)?;
        let address = line.split(' ').nth(1)?.split('@').next()?;
        address.rsplit(':').next()?.parse().ok()
    }

    /// Moves a slot from one node to another, key by key. Calls back while some of its keys are on
    /// each node.
    pub(crate) fn move_slot(&self, slot: &str, from: usize, to: usize, half_way: impl FnOnce()) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (source_id, target_id) = (self.id_of(from), self.id_of(to));
        target.command(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &source_id]);
        source.command(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &target_id]);
        let (port, mut half_way) = (target.port().to_string(), Some(half_way));
        for moved in 0.. {
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]);
            let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { break };
            source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            if moved == 2 {
                half_way.take().into_iter().for_each(|call| call());
            }
        }
        for node in [target, source].into_iter().chain(&self.nodes[..3]) {
            node.command(&["CLUSTER", "SETSLOT", slot, "NODE", &target_id]);
        }
    }

    /// A topic whose only lane is on the `n`th primary at first.
    pub(crate) fn topic_on(&self, n: usize) -> String {
        (0..)
            .map(|i| format!("t{i}"))
            .find(|topic| self.first_owner(&format!("{{{topic}:0}}")).0 == n)
            .unwrap()
    }
}
