//! `delayd store`, `delayd format` and `delayd backup`: what concerns the store as a whole.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Subcommand;
use tokio::time::Instant;

use super::{Code, audit, output, time};
use crate::app;
use crate::settings::{Settings, StoreKind};
use crate::store::Formats;

/// Give a copy of a store a new id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd store new-id --yes --config /etc/delayd-staging.toml
  delayd store new-id --yes --set store.embedded.path=copy/delayd.db")]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    NewId(NewIdArgs),
}

/// Give the configured store a new id: for a copy that is to run beside its original.
///
/// The webhook-id of a callback is `<store>-<task id>`. A copy has the id of its original, so
/// receivers take tasks of one for duplicates of the other. This command changes the webhook-ids of
/// all tasks, except those that were moved here from another store. Run it on the copy, not on the
/// original, whose receivers may already know its tasks.
///
/// Stop delayd before you change the id of an embedded store. Instances on a Redis store use the
/// new id within two seconds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd store new-id --yes --config /etc/delayd-staging.toml")]
struct NewIdArgs {
    /// Confirm: receivers no longer recognize tasks of this store
    #[arg(long, required = true)]
    yes: bool,
}

pub(super) async fn run(args: StoreArgs, settings: &Settings) -> anyhow::Result<Code> {
    let Verb::NewId(NewIdArgs { yes: _ }) = args.verb;
    let (before, id) = app::replace_store_id(settings).await?;
    let before = before.map_or_else(|| "none".to_owned(), |before| before.to_string());
    audit::record(settings, "store/new-id").await;
    output::line(&format!("The store's id is now {id}; it was {before}."))?;
    if settings.store.kind == StoreKind::Redis {
        eprintln!("Running instances use it within two seconds.");
    }
    Ok(Code::Done)
}

/// Show the format of the configured store, or raise it after an upgrade.
///
/// Some features of a new version store data that older versions would damage. They are refused
/// until the store has the new format. Raise it when no instance of an older version uses the
/// store: older versions then refuse the store, and this cannot be undone.
///
/// Stop delayd before you raise the format of an embedded store. Instances on a Redis store
/// continue to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd format --config /etc/delayd.toml
  delayd format --raise --config /etc/delayd.toml")]
pub(super) struct FormatArgs {
    /// Give the store the newest format that this version knows
    #[arg(long)]
    raise: bool,
}

pub(super) async fn format(args: FormatArgs, settings: &Settings) -> anyhow::Result<Code> {
    let formats = if args.raise {
        let before = app::raise_format(settings).await?;
        audit::record(settings, "store/format").await;
        before
    } else {
        app::formats(settings).await?
    };
    output::line(&said(formats, args.raise))?;
    Ok(Code::Done)
}

fn said(formats: Formats, was_raised: bool) -> String {
    let Formats { stored, newest } = formats;
    match (formats.can_rise(), was_raised) {
        (true, true) => format!("The store now has format {newest}; it had {stored}."),
        (true, false) => format!(
            "The store has format {stored}. This version knows {newest}: raise it with --raise."
        ),
        (false, _) => format!("The store has format {stored}, the newest that this version knows."),
    }
}

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
pub(super) struct BackupArgs {
    /// The file of the copy. It is there only once it is complete
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(super) async fn back_up(
    BackupArgs { to, force }: BackupArgs,
    settings: &Settings,
) -> anyhow::Result<Code> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_can_be_done_and_what_was() {
        let old = Formats { stored: 1, newest: 2 };
        assert!(said(old, false).contains("format 1. This version knows 2: raise it with --raise"));
        assert_eq!(said(old, true), "The store now has format 2; it had 1.");
        let new = Formats { stored: 2, newest: 2 };
        for was_raised in [false, true] {
            assert_eq!(
                said(new, was_raised),
                "The store has format 2, the newest that this version knows."
            );
        }
    }
}
