//! `delayd format`: shows or raises the format of the configured store.

use super::{Code, audit, output};
use crate::app;
use crate::settings::Settings;
use crate::store::Formats;

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
pub(super) struct Args {
    /// Give the store the newest format that this version knows
    #[arg(long)]
    raise: bool,
}

pub(super) async fn run(args: Args, settings: &Settings) -> anyhow::Result<Code> {
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
