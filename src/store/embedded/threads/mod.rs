//! The threads that work on the file, and the queues to them.

pub(crate) mod confirmations;
pub(crate) mod inbox;
pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod syncer;
pub(crate) mod write_queue;
pub(crate) mod writer;
