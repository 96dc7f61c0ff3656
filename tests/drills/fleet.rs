//! The instances of a drill, which start and stop, and the addresses that callers know.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, RwLock};

use crate::program::{self, Program, StoreAt};
use crate::redis_server::Server;

/// Where instances listen now; the address of an absent one is `None`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Endpoints(Arc<RwLock<Vec<Option<SocketAddr>>>>);

impl Endpoints {
    /// The `n`th of the known addresses, counted in rotation.
    pub fn pick(&self, n: u64) -> Option<SocketAddr> {
        let endpoints = self.0.read().unwrap();
        let open: Vec<SocketAddr> = endpoints.iter().flatten().copied().collect();
        open.get(usize::try_from(n).unwrap() % open.len().max(1)).copied()
    }

    fn get(&self, index: usize) -> Option<SocketAddr> {
        self.0.read().unwrap().get(index).copied().flatten()
    }

    fn set(&self, index: usize, address: Option<SocketAddr>) {
        let mut endpoints = self.0.write().unwrap();
        if endpoints.len() <= index {
            endpoints.resize(index + 1, None);
        }
        endpoints[index] = address;
    }
}

/// Changes a command so that it runs in another environment.
pub type By = Box<dyn Fn(Command) -> Command + Send + Sync>;

/// Some instances on one store.
pub struct Fleet {
    store: StoreAt,
    sets: Vec<String>,
    by: By,
    members: Vec<Option<Program>>,
    endpoints: Endpoints,
}

impl Fleet {
    /// Starts `count` instances.
    pub async fn start(store: StoreAt, sets: Vec<String>, count: usize) -> Self {
        Self::start_by(store, sets, count, Box::new(|command| command)).await
    }

    /// Starts `count` instances, each through a command that becomes it.
    pub async fn start_by(store: StoreAt, sets: Vec<String>, count: usize, by: By) -> Self {
        let mut fleet =
            Self { store, sets, by, members: Vec::new(), endpoints: Endpoints::default() };
        for index in 0..count {
            fleet.raise(index).await;
        }
        fleet
    }

    pub fn endpoints(&self) -> Endpoints {
        self.endpoints.clone()
    }

    /// Changes the command through which members are started from now on.
    pub fn start_others_by(&mut self, by: By) {
        self.by = by;
    }

    /// Starts the absent member.
    pub async fn raise(&mut self, index: usize) {
        let store = self.store.clone();
        self.raise_on(index, &store).await;
    }

    /// Starts the absent member, or a new last one, which reaches the store in another way.
    pub async fn raise_on(&mut self, index: usize, store: &StoreAt) {
        if self.members.len() <= index {
            self.members.resize_with(index + 1, || None);
        }
        let program = Program::start_by(store, &self.sets_of(index), &self.by).await;
        self.endpoints.set(index, Some(program.address));
        self.members[index] = Some(program);
    }

    /// A member that was killed listens where it did before, as under a supervisor. A loopback
    /// address of its own keeps the port free of the other connections.
    fn sets_of(&self, index: usize) -> Vec<String> {
        let bind = |address: SocketAddr| format!("http.bind=\"{address}\"");
        let first = bind(([127, 0, 1, index as u8 + 1], 0).into());
        let again = self.endpoints.get(index).map(bind);
        [first].into_iter().chain(self.sets.clone()).chain(again).collect()
    }

    /// kill -9. Callers still know its address, since a crash is not announced.
    pub fn kill(&mut self, index: usize) {
        self.members[index].take().expect("the member runs").kill();
    }

    /// SIGTERM. Waits until the member has ended, and returns its exit code and its log. Its
    /// address is known until the end.
    pub async fn retire(&mut self, index: usize) -> (Option<i32>, String) {
        let mut member = self.members[index].take().expect("the member runs");
        member.signal("TERM");
        let status = member.ended().await;
        self.endpoints.set(index, None);
        (status.code(), member.log())
    }

    /// Waits until the member has ended by itself. Returns its exit code and its log. Callers still
    /// know its address.
    pub async fn ended(&mut self, index: usize) -> (Option<i32>, String) {
        let mut member = self.members[index].take().expect("the member runs");
        let status = member.ended().await;
        (status.code(), member.log())
    }

    pub fn member(&self, index: usize) -> &Program {
        self.members[index].as_ref().expect("the member runs")
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
