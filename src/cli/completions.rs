//! `delayd completions`: what a shell needs to complete delayd's commands.

use clap_complete::Shell;

use super::{Code, command, out};

/// Print the completions for a shell.
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
    // Into memory first: the generator panics if the reader of stdout goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "delayd", &mut script);
    out::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Code::Done)
}
