//! The version of this program, and the commit from which it was built.

/// The version, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that `scripts/dist` was run on, or `unknown`.
pub const COMMIT: &str = env!("DELAYD_COMMIT");

/// Both, as `delayd --version` prints them.
pub const VERSION_AND_COMMIT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("DELAYD_COMMIT"), ")");
