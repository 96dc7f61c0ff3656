//! Connections: taken, timed, served and drained; and whether an answer was written to its socket.

pub(crate) mod connection;
pub(crate) mod delivery_confirmation;
pub(crate) mod io_timeouts;
pub(crate) mod listener;
pub(crate) mod tracked_io;
