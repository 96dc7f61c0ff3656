//! `delayd backup`: copies the embedded store into a file, while delayd runs.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use tokio::time::Instant;

use super::{Code, output, time};
use crate::app;
use crate::settings::Settings;

/// Copy the embedded store into one file, while delayd runs.
///
/// The copy is one state of the store, and is itself a store: start delayd with it to restore it.
/// It holds every task that was confirmed before the command, with its content. Run it as the user
/// that runs delayd. docs/operations/backup.md says what happens after a restore, and how Redis is
/// backed up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd backup /backup/delayd-monday.db --config /etc/delayd.toml
  delayd backup delayd-backup.db --set store.embedded.path=data/delayd.db --force
  docker exec delayd delayd backup /var/lib/delayd/backup.db")]
pub(super) struct Args {
    /// The file of the copy. It is there only once it is complete
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(Args { to, force }: Args, settings: &Settings) -> anyhow::Result<Code> {
    ensure_writable(&settings.store.embedded.path, &to, force)?;
    let (start, shown) = (Instant::now(), to.display().to_string());
    let bytes = app::back_up(settings, to).await?;
    let took = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    output::line(&format!("{shown}: {bytes} bytes in {}", time::lasting(took)))?;
    Ok(Code::Done)
}

/// Refuses to replace a file, unless forced, and always to replace a store that may be open.
fn ensure_writable(store: &Path, to: &Path, force: bool) -> anyhow::Result<()> {
    let shown = to.display();
    let beside = |end: &str| {
        let mut name = to.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let is_the_store = to.canonicalize().is_ok_and(|to| store.canonicalize().ok() == Some(to));
    ensure!(!to.is_dir(), "{shown}: expected a file, got a folder");
    ensure!(
        !is_the_store && !beside("-wal").exists() && !beside(".lock").exists(),
        "{shown} is a store that may be in use: name another file"
    );
    ensure!(
        force || to.symlink_metadata().is_err(),
        "{shown} exists: name another file, or replace it with --force"
    );
    Ok(())
}
