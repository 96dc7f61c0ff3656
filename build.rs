//! Build script: migrations are embedded, so a new one must rebuild the crate. `scripts/dist` sets
//! the commit in the environment: to ask git would rebuild the crate after each commit.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
    println!("cargo::rerun-if-env-changed=DELAYD_COMMIT");
    let commit = std::env::var("DELAYD_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=DELAYD_COMMIT={commit}");
}
