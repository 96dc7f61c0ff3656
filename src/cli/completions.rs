//! `delayd completions`: prints shell completions.

use clap_complete::Shell;

use super::{Code, command, out};

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(delayd completions bash)
  delayd completions zsh > ~/.zfunc/_delayd
  delayd completions fish > ~/.config/fish/completions/delayd.fish")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    // Written to memory first: the generator panics if stdout is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "delayd", &mut script);
    out::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Code::Done)
}
