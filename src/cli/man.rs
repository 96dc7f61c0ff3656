//! `delayd man`: writes the manual pages.

use std::path::PathBuf;

use anyhow::Context;

use super::{Code, command};

/// Write the manual pages, one for each command, into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd man /usr/local/share/man/man1")]
pub(super) struct Args {
    /// The folder; it must exist
    folder: PathBuf,
}

pub(super) fn run(Args { folder }: &Args) -> anyhow::Result<Code> {
    clap_mangen::generate_to(command(), folder)
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(Code::Done)
}
