//! The file and the disk: the schema, the id and the format of the store, the log, the room that is
//! left, and the meaning of failures.

pub(crate) mod ballast;
pub(crate) mod checkpoint;
pub(crate) mod fault;
pub(crate) mod format;
pub(crate) mod identity;
pub(crate) mod probe;
pub(crate) mod raise;
pub(crate) mod schema;
pub(crate) mod space;
pub(crate) mod wal_sync;
