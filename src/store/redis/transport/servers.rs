//! The servers of a deployment: one server, or the primaries of a cluster. A command goes to the
//! node that has its slot.
//!
//! # A cluster
//!
//! Each primary has its own links, breaker and timeouts, so an unreachable one affects only its own
//! slots. The map of slots is read from all primaries that answer, and the one with the greatest
//! epoch counts. It is read again periodically, and when a node is in trouble or reports that a
//! slot has moved.
//!
//! | a node answers | it did nothing, and then |
//! |---|---|
//! | `MOVED` | the slot's new owner is noted, and asked |
//! | `ASK` | the other node is asked this once (`ASKING`) |
//! | `TRYAGAIN` | the slot is half moved: asked again within the timeout ¹ |
//! | `CLUSTERDOWN`, or a slot has no owner | the command fails at once |
//!
//! ¹ An add is asked again only a few times, because others wait behind it.
//!
//! A lane's script names one key that never exists (the prefix of its schedules). So while its slot
//! moves, the script never runs over half of the lane: it gets `TRYAGAIN` until the other half has
//! arrived.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use deadpool_redis::redis::aio::PubSub;
use deadpool_redis::redis::{self, Cmd, FromRedisValue, Value};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::address::Address;
use super::connect::{connect, subscriber};
use super::dial::DialTarget;
use super::fault::of_redis;
use super::link::{Answers, Repeat};
use super::map::Map;
use super::node::{self, Node, Purpose};
use super::refusal::CommandRefusal;
use super::slot;
use crate::metrics::ServerFigures;
use crate::model::breaker::State;
use crate::model::task::Lane;
use crate::store::redis::keys::Keys;
use crate::store::{Durability, Error, Result};

/// The delay before a moving slot is asked for again.
const PAUSE: Duration = Duration::from_millis(20);
/// How many redirections are followed without a delay.
const QUICK_HOPS: u32 = 3;
/// The interval between two reads of the map: while all is well, and the shortest one otherwise.
const LOOK: Duration = Duration::from_secs(10);
const HASTE: Duration = Duration::from_millis(250);

/// All servers.
#[derive(Debug)]
pub(crate) struct Servers {
    map: RwLock<Arc<Map>>,
    params: node::Params,
    /// Nodes that are asked for the map while no known node answers; empty without a cluster.
    seeds: Vec<Address>,
    /// Why nothing is sent any more.
    refused: OnceLock<Error>,
}

/// Where a command goes next.
#[derive(Clone)]
enum Stop {
    /// The owner of its slot.
    Owner,
    /// This node, which is about to get the slot.
    Asking(Address),
}

/// The commands of one pipeline to one node.
struct CommandGroup {
    node: Arc<Node>,
    asking: bool,
    members: Vec<usize>,
}

impl Servers {
    /// One server.
    pub(crate) fn one(target: DialTarget, params: node::Params) -> Self {
        Self {
            map: RwLock::new(Arc::new(Map::of_one(Node::new(target, &params)))),
            params,
            seeds: Vec::new(),
            refused: OnceLock::new(),
        }
    }

    /// A cluster with some known addresses.
    pub(crate) fn cluster(seeds: Vec<Address>, params: node::Params) -> Self {
        Self { map: RwLock::new(Arc::new(Map::unknown())), params, seeds, refused: OnceLock::new() }
    }

    /// Connects for the first time.
    ///
    /// # Errors
    /// Of all errors, the first [`Error::Misconfigured`], otherwise any: of the map or of a node.
    pub(crate) async fn connect(&self) -> Result<()> {
        if self.is_cluster() {
            self.read_map().await?;
        }
        let map = self.map();
        let attempts =
            join_all(map.nodes().iter().map(|node| node.link(Purpose::Working).live())).await;
        let mut errors: Vec<Error> =
            attempts.into_iter().filter_map(std::result::Result::err).collect();
        errors.sort_by_key(|error| !matches!(error, Error::Misconfigured(_)));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Fails each further call with this error, and sends nothing.
    pub(crate) fn refuse(&self, error: &Error) {
        if self.refused.set(error.clone()).is_ok() {
            tracing::error!("The store sends no more commands: {error}");
        }
    }

    /// Whether [`Self::refuse`] was called.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.get().is_some()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !self.seeds.is_empty()
    }

    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&Map) -> Map) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        *map = Arc::new(change(&map));
    }

    /// A connection to one of the servers that can subscribe.
    ///
    /// # Errors
    /// Those of [`subscriber`].
    pub(crate) async fn subscriber(&self, at: &Address) -> Result<PubSub> {
        subscriber(at, &self.params.access, self.params.timeout).await
    }

    /// The number of the server that has the lane now.
    pub(crate) fn number_of(&self, lane: &Lane) -> u64 {
        let owner = || self.map().owner(Some(Keys::slot_of(lane))).map(|node| node.number);
        self.the_only().or_else(owner).unwrap_or(u64::MAX)
    }

    /// The number of the only server; `None` in a cluster.
    pub(crate) fn the_only(&self) -> Option<u64> {
        if self.is_cluster() {
            return None;
        }
        self.map().nodes().first().map(|node| node.number)
    }

    /// Why a server refuses all adds now, if it does.
    pub(crate) fn refuses_adds(&self, number: u64) -> Option<Error> {
        self.map().numbered(number)?.link(Purpose::Adding).refusal()
    }

    /// The round trip of adds to a server; zero if it is unknown.
    pub(crate) fn round_trip(&self, number: u64) -> Duration {
        let map = self.map();
        map.numbered(number).map_or(Duration::ZERO, |node| node.link(Purpose::Adding).round_trip())
    }

    /// The lowest durability of the servers.
    pub(crate) fn durability(&self) -> Durability {
        let map = self.map();
        let kept = map.nodes().iter().filter_map(|node| node.durability());
        kept.max_by_key(|kept| *kept as u8).unwrap_or(Durability::Volatile)
    }

    /// The worst state of the breakers.
    pub(crate) fn breaker(&self) -> State {
        let map = self.map();
        map.nodes().iter().map(|node| node.breaker()).max().unwrap_or(State::Closed)
    }

    /// The figures of each server.
    pub(crate) fn figures(&self) -> Vec<ServerFigures> {
        let map = self.map();
        let figures = |node: &Arc<Node>| ServerFigures {
            name: node.name.clone(),
            is_away: node.breaker() == State::Open,
            said: node.said(),
        };
        map.nodes().iter().map(figures).collect()
    }

    /// A description of the servers, for people.
    pub(crate) fn describe(&self) -> String {
        let map = self.map();
        let names: Vec<String> = map
            .nodes()
            .iter()
            .map(|node| match node.link(Purpose::Working).current() {
                Some(live) => live.at().to_string(),
                None => format!("{} (out of reach)", node.name),
            })
            .collect();
        let holes = if map.has_holes() { ", some slots have no owner" } else { "" };
        let primaries = if names.len() == 1 { "primary" } else { "primaries" };
        format!("{} {primaries}: {}{holes}", names.len(), names.join(", "))
    }

    /// Sends all commands at once, each to the owner of its key, and answers each separately.
    pub(crate) async fn run(
        &self,
        purpose: Purpose,
        commands: &[Cmd],
        repeat: Repeat<'_>,
    ) -> Vec<Result<Value>> {
        if let Some(refusal) = self.refused.get() {
            return vec![Err(refusal.clone()); commands.len()];
        }
        let slot = |command| self.is_cluster().then(|| slot::of_command(command)).flatten();
        let slots: Vec<Option<u16>> = commands.iter().map(slot).collect();
        let mut answers: Vec<Option<Result<Value>>> = vec![None; commands.len()];
        let mut open: Vec<(usize, Stop)> = (0..commands.len()).map(|i| (i, Stop::Owner)).collect();
        let deadline = Instant::now() + self.params.timeout;
        for hop in 0_u32.. {
            let is_last = Instant::now() + PAUSE >= deadline
                || (purpose == Purpose::Adding && hop >= QUICK_HOPS);
            let groups = self.group(&open, &slots, &mut answers);
            let replies =
                join_all(groups.iter().map(|group| group.send(purpose, commands, repeat))).await;
            open.clear();
            let mut waits = hop >= QUICK_HOPS;
            for (group, replies) in groups.iter().zip(replies) {
                let replies =
                    replies.unwrap_or_else(|e| vec![Err(group.failed(e)); group.members.len()]);
                for (&i, reply) in group.members.iter().zip(replies) {
                    match reply {
                        Ok(value) => answers[i] = Some(Ok(value)),
                        Err(refusal @ CommandRefusal::Failed(_)) => {
                            answers[i] = Some(Err(refusal.into_error()))
                        }
                        Err(refusal) if is_last => answers[i] = Some(Err(refusal.into_error())),
                        Err(refusal) => {
                            waits |= matches!(refusal, CommandRefusal::TryAgain);
                            open.push((i, self.redirect(refusal, slots[i])));
                        }
                    }
                }
            }
            if open.is_empty() {
                break;
            }
            if waits {
                tokio::time::sleep(PAUSE).await;
            }
        }
        let unanswered = || Err(Error::Corrupt("Redis left a command unanswered".into()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Groups commands by node. A command that no node can take is answered.
    fn group(
        &self,
        open: &[(usize, Stop)],
        slots: &[Option<u16>],
        answers: &mut [Option<Result<Value>>],
    ) -> Vec<CommandGroup> {
        let map = self.map();
        let mut groups: Vec<CommandGroup> = Vec::new();
        for (i, stop) in open {
            let (node, asking) = match stop {
                Stop::Owner => (map.owner(slots[*i]), false),
                Stop::Asking(address) => (map.at(address), true),
            };
            let Some(node) = node else {
                self.params.trouble.notify_one();
                answers[*i] = Some(Err(self.no_owner(&map)));
                continue;
            };
            let same = |group: &&mut CommandGroup| {
                group.node.number == node.number && group.asking == asking
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.members.push(*i),
                None => groups.push(CommandGroup { node: node.clone(), asking, members: vec![*i] }),
            }
        }
        groups
    }

    /// The error of a command that no node can take.
    fn no_owner(&self, map: &Map) -> Error {
        if map.nodes().is_empty() {
            let seeds: Vec<_> = self.seeds.iter().map(ToString::to_string).collect();
            return Error::Unavailable(format!(
                "no node of the cluster answers: {}",
                seeds.join(", ")
            ));
        }
        Error::Unavailable("no server has this part of the cluster".into())
    }

    fn redirect(&self, refusal: CommandRefusal, slot: Option<u16>) -> Stop {
        match (refusal, slot) {
            (CommandRefusal::Moved(address), Some(slot)) => {
                self.know(&address);
                self.change(|map| map.with_owner(slot, &address));
                self.params.trouble.notify_one();
                Stop::Owner
            }
            (CommandRefusal::Ask(address), _) => {
                self.know(&address);
                Stop::Asking(address)
            }
            _ => Stop::Owner,
        }
    }

    fn know(&self, address: &Address) {
        if self.map().at(address).is_none() {
            self.change(|map| match map.at(address) {
                Some(_) => map.clone(),
                None => map.with(Node::new(DialTarget::Server(address.clone()), &self.params)),
            });
        }
    }

    /// Follows the map of a cluster for as long as it is polled. Does nothing without a cluster.
    pub(crate) async fn look_after(&self) {
        if !self.is_cluster() {
            return;
        }
        let mut failed = false;
        loop {
            match self.read_map().await {
                Ok(()) if failed => {
                    tracing::info!("The cluster's map is known again: {}", self.describe());
                    failed = false;
                }
                Err(error) if !failed => {
                    tracing::warn!(%error, "No node of the cluster reports its map; retrying");
                    failed = true;
                }
                _ => {}
            }
            tokio::time::sleep(HASTE).await;
            let map = self.map();
            let is_well =
                !failed && !map.has_holes() && map.nodes().iter().all(|node| node.is_up());
            let rest = if is_well { LOOK } else { HASTE };
            // Notified or timed out, the map is read.
            let _ = tokio::time::timeout(rest, self.params.trouble.notified()).await;
        }
    }

    async fn read_map(&self) -> Result<()> {
        let (asked, slots) = self.ask_for_map().await?;
        let told = self.map().told(slots, &asked, &self.params)?;
        if !told.is_like(&self.map()) {
            self.change(|_| told);
            tracing::debug!("The cluster's map has changed: {}", self.describe());
        }
        Ok(())
    }

    /// The map with the greatest epoch that the nodes report. A node that was cut off reports an
    /// old one.
    async fn ask_for_map(&self) -> Result<(Address, Value)> {
        let map = self.map();
        let known = map.nodes().iter().filter_map(|node| {
            let address = node.address.clone()?;
            Some(async move {
                let answers =
                    node.link(Purpose::Working).run(&map_commands(), Repeat::Never).await.ok()?;
                newest(address, answers.into_iter().map(std::result::Result::ok))
            })
        });
        if let Some((_, asked, slots)) = greatest(join_all(known).await) {
            return Ok((asked, slots));
        }
        let mut last = Error::Unavailable("no node of the cluster answers".into());
        for seed in &self.seeds {
            match self.ask_seed(seed).await {
                Ok((_, asked, slots)) => return Ok((asked, slots)),
                // For an operator, a setup that cannot work is more useful to know than a node that
                // does not answer.
                Err(error) if !matches!(last, Error::Misconfigured(_)) => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn ask_seed(&self, seed: &Address) -> Result<(u64, Address, Value)> {
        let mut connection = connect(seed, &self.params.access, self.params.timeout).await?;
        let mut answers = Vec::new();
        for command in map_commands() {
            let answer: std::result::Result<Value, _> = command.query_async(&mut *connection).await;
            answers.push(answer.map_err(|error| match error.detail() {
                Some(detail) if detail.contains("cluster support disabled") => {
                    Error::Misconfigured(format!(
                        "the Redis at {seed} is no node of a cluster: set store.redis.topology \
                         to \"standalone\""
                    ))
                }
                _ => of_redis(&error),
            })?);
        }
        newest(seed.clone(), answers.into_iter().map(Some))
            .ok_or_else(|| Error::Unavailable(format!("the node {seed} does not know its cluster")))
    }
}

impl CommandGroup {
    /// The refusal for a node that did not answer. A node that is about to get a slot speaks only
    /// for that slot, not for its owner.
    fn failed(&self, error: Error) -> CommandRefusal {
        CommandRefusal::Failed(match error {
            Error::Unavailable(text) if self.asking => Error::Moving(text),
            error => error,
        })
    }

    async fn send(&self, purpose: Purpose, commands: &[Cmd], how: Repeat<'_>) -> Result<Answers> {
        if self.members.len() == commands.len() && !self.asking {
            return self.node.run(purpose, commands, how).await;
        }
        if !self.asking {
            let commands: Vec<Cmd> = self.members.iter().map(|&i| commands[i].clone()).collect();
            return self.node.run(purpose, &commands, how).await;
        }
        let asking = || redis::cmd("ASKING");
        let commands: Vec<Cmd> =
            self.members.iter().flat_map(|&i| [asking(), commands[i].clone()]).collect();
        Ok(self.node.run(purpose, &commands, how).await?.into_iter().skip(1).step_by(2).collect())
    }
}

fn map_commands() -> [Cmd; 2] {
    [redis::cmd("CLUSTER").arg("INFO").take(), redis::cmd("CLUSTER").arg("SLOTS").take()]
}

/// The epoch and the slots, if the node knows any.
fn newest(
    asked: Address,
    mut answers: impl Iterator<Item = Option<Value>>,
) -> Option<(u64, Address, Value)> {
    let info = String::from_redis_value(answers.next()??).ok()?;
    let slots = answers.next()??;
    let epoch = info
        .lines()
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"))?
        .trim()
        .parse()
        .ok()?;
    matches!(&slots, Value::Array(ranges) if !ranges.is_empty()).then_some((epoch, asked, slots))
}

fn greatest(told: Vec<Option<(u64, Address, Value)>>) -> Option<(u64, Address, Value)> {
    told.into_iter().flatten().max_by_key(|(epoch, ..)| *epoch)
}

/// The route to the servers for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct ServerRoute {
    pub(crate) servers: Arc<Servers>,
    pub(crate) purpose: Purpose,
}

impl ServerRoute {
    /// One command, sent once.
    pub(crate) async fn run_once(&self, command: Cmd) -> Result<Value> {
        one(self.servers.run(self.purpose, &[command], Repeat::Never).await)
    }

    /// Commands that may be repeated.
    pub(crate) async fn run_repeatable(&self, commands: &[Cmd]) -> Vec<Result<Value>> {
        self.servers.run(self.purpose, commands, Repeat::Once).await
    }

    /// One command that may be repeated.
    pub(crate) async fn run_one(&self, command: Cmd) -> Result<Value> {
        one(self.run_repeatable(&[command]).await)
    }
}

/// The only answer of a pipeline of one.
pub(crate) fn one(answers: Vec<Result<Value>>) -> Result<Value> {
    answers
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(Error::Corrupt("Redis left a command unanswered".into())))
}
