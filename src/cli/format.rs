//! `delayd format`: the format of the configured store.

use super::{Code, out};
use crate::app;
use crate::settings::Settings;
use crate::store::Formats;

/// Show the format of the configured store, or raise it after an upgrade.
///
/// Some changes of a new version store what older versions would damage. They are refused until the
/// store has the format of the new version. Raise it once no instance of an older version runs on
/// the store: an older version refuses the store from then on, and there is no way back.
///
/// To raise it, an embedded store must not be open: stop its delayd first. Instances on a Redis
/// store go on.
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
        app::raise_format(settings).await?
    } else {
        app::formats(settings).await?
    };
    out::line(&said(formats, args.raise))?;
    Ok(Code::Done)
}

fn said(formats: Formats, was_raised: bool) -> String {
    let Formats { stored, newest } = formats;
    match (formats.can_rise(), was_raised) {
        (true, true) => format!("The store has format {newest} now; it had {stored}."),
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
        assert_eq!(said(old, true), "The store has format 2 now; it had 1.");
        let new = Formats { stored: 2, newest: 2 };
        for was_raised in [false, true] {
            assert_eq!(
                said(new, was_raised),
                "The store has format 2, the newest that this version knows."
            );
        }
    }
}
