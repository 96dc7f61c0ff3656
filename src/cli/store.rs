//! `delayd store …`: what concerns the configured store as a whole.

use clap::Subcommand;

use super::{Code, out};
use crate::app;
use crate::settings::{Settings, StoreKind};

/// Give a copy of a store an id of its own.
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

/// Draw another id for the configured store: for a copy that is to work beside its original.
///
/// The webhook-id of a callback is `<store>-<task id>`. A copy has the id of its original, so
/// receivers take the tasks of one for those of the other. After this, all tasks of the store have
/// other webhook-ids, except those that were moved here from another store: give another id to the
/// copy, not to the original, whose receivers may have seen its tasks already.
///
/// An embedded store must not be open: stop its delayd first. Instances on a Redis store take the
/// new id up within two seconds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd store new-id --yes --config /etc/delayd-staging.toml")]
struct NewIdArgs {
    /// Do it: receivers know no task of this store again that they have seen
    #[arg(long, required = true)]
    yes: bool,
}

pub(super) async fn run(args: Args, settings: &Settings) -> anyhow::Result<Code> {
    let Verb::NewId(NewIdArgs { yes: _ }) = args.verb;
    let (before, id) = app::replace_store_id(settings).await?;
    let before = before.map_or_else(|| "none".to_owned(), |before| before.to_string());
    out::line(&format!("The store's id is {id} now; it was {before}."))?;
    if settings.store.kind == StoreKind::Redis {
        eprintln!("Running instances take it up within two seconds.");
    }
    Ok(Code::Done)
}
