//! The capacity model: the real workers in virtual time over a Redis that takes time for each
//! script and runs them one after the other. `docs/performance/capacity.md` has its results.
//!
//! - [`costs`]: how long each script takes. [`measure`]: how that is measured.
//! - [`fine_time`]: sleeps of microseconds. [`server`]: the queue of one server.
//! - [`lanes`]: the tasks in Redis. [`redis`]: all that instances share. [`store`]: the store of
//!   one instance.
//! - [`setup`]: what a run simulates. [`run`]: runs it. [`figures`]: what it measured.
//! - [`curves`]: all sizes of the documentation.

mod costs;
mod curves;
mod figures;
mod fine_time;
mod lanes;
mod measure;
mod redis;
mod run;
mod server;
mod setup;
mod store;
mod tests;
