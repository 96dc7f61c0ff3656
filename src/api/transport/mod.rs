//! Connections: accept, timeouts, drain, and the confirmation that an answer was written.

pub(crate) mod connection;
pub(crate) mod delivery_confirmation;
pub(crate) mod handshake;
pub(crate) mod io_timeouts;
pub(crate) mod listener;
pub(crate) mod tracked_io;
