//! Sends commands to the right server: `servers` (which node has the slot; redirections) → `node`
//! (one primary) → `link` (its connection, breaker, repeats) → `dial` (find, connect, inspect) →
//! `server` (is it fit for use?).

pub(crate) mod address;
pub(crate) mod connect;
pub(crate) mod dial;
pub(crate) mod fault;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod map;
pub(crate) mod node;
pub(crate) mod refusal;
pub(crate) mod round_trips;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod shared_link;
pub(crate) mod slot;
pub(crate) mod tls;
