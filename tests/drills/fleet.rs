//! The instances of a drill, which come and go, and the doors that callers find them by.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, RwLock};

use crate::program::{self, Program, StoreAt};
use crate::redis_server::Server;

/// Where instances listen just now; an absent one is `None`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Doors(Arc<RwLock<Vec<Option<SocketAddr>>>>);

impl Doors {
    /// The `n`th of the doors that are open, counted round and round.
    pub fn pick(&self, n: u64) -> Option<SocketAddr> {
        let doors = self.0.read().unwrap();
        let open: Vec<SocketAddr> = doors.iter().flatten().copied().collect();
        open.get(usize::try_from(n).unwrap() % open.len().max(1)).copied()
    }

    fn set(&self, index: usize, address: Option<SocketAddr>) {
        let mut doors = self.0.write().unwrap();
        if doors.len() <= index {
            doors.resize(index + 1, None);
        }
        doors[index] = address;
    }
}

/// What makes a command run in other surroundings.
pub type By = Box<dyn Fn(Command) -> Command + Send + Sync>;

/// Some instances on one store.
pub struct Fleet {
    store: StoreAt,
    sets: Vec<String>,
    by: By,
    members: Vec<Option<Program>>,
    doors: Doors,
}

impl Fleet {
    /// Starts `count` instances.
    pub async fn start(store: StoreAt, sets: Vec<String>, count: usize) -> Self {
        Self::start_by(store, sets, count, Box::new(|command| command)).await
    }

    /// Starts `count` instances, each by a command that ends up as it.
    pub async fn start_by(store: StoreAt, sets: Vec<String>, count: usize, by: By) -> Self {
        let mut fleet = Self { store, sets, by, members: Vec::new(), doors: Doors::default() };
        for index in 0..count {
            fleet.members.push(None);
            fleet.raise(index).await;
        }
        fleet
    }

    pub fn doors(&self) -> Doors {
        self.doors.clone()
    }

    /// Starts the absent member.
    pub async fn raise(&mut self, index: usize) {
        let program = Program::start_by(&self.store, &self.sets, &self.by).await;
        self.doors.set(index, Some(program.address));
        self.members[index] = Some(program);
    }

    /// kill -9. Callers still know its door: nobody tells them of a crash.
    pub fn kill(&mut self, index: usize) {
        self.members[index].take().expect("a member that runs").kill();
    }

    /// SIGTERM, and waits until it has ended; returns its exit code and its log. Its door is known
    /// until the end.
    pub async fn retire(&mut self, index: usize) -> (Option<i32>, String) {
        let mut member = self.members[index].take().expect("a member that runs");
        member.signal("TERM");
        let status = member.ended().await;
        self.doors.set(index, None);
        (status.code(), member.log())
    }

    /// Waits until it has ended by itself; returns its exit code and its log. Nobody tells the
    /// callers.
    pub async fn ended(&mut self, index: usize) -> (Option<i32>, String) {
        let mut member = self.members[index].take().expect("a member that runs");
        let status = member.ended().await;
        (status.code(), member.log())
    }

    pub fn member(&self, index: usize) -> &Program {
        self.members[index].as_ref().expect("a member that runs")
    }
}

/// An embedded store in a folder.
pub fn embedded(folder: &Path) -> StoreAt {
    program::embedded(folder)
}

/// A key prefix of its own on a Redis.
pub fn redis(server: &Server) -> StoreAt {
    StoreAt::Redis(server.port(), format!("drill{:08x}", rand::random::<u32>()))
}
