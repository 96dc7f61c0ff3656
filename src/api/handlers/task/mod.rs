//! The calls under `/delay/task/`: producing, consuming, managing and showing tasks.

pub(crate) mod add;
pub(crate) mod due;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod manage;
pub(crate) mod many;
mod named;
pub(crate) mod new_task;
pub(crate) mod placing;
pub(crate) mod pull;
pub(crate) mod scan;
pub(crate) mod search;
pub(crate) mod settle;
