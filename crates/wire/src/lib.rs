//! What delayd's HTTP interface speaks of, once for all who speak it: the service, its command line
//! and its benchmark.

mod code;

pub use code::ErrorCode;
