//! `delayd store …`: changes the identity of the configured store.

use clap::Subcommand;

use super::{Code, audit, output};
use crate::app;
use crate::settings::{Settings, StoreKind};

/// Give a copy of a store a new id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd store new-id --yes --config /etc/delayd-staging.toml
  delayd store new-id --yes --set store.embedded.path=copy/delayd.db")]
pub(super) struct Args {
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

pub(super) async fn run(args: Args, settings: &Settings) -> anyhow::Result<Code> {
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
