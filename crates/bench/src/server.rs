//! The measured service: `delayd serve` as a child process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// How long the start may take.
const START: Duration = Duration::from_secs(60);
/// The text before the address in the line about the start.
const LISTENS: &str = "listens on http://";

/// A listening child process; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Instance {
    /// Starts the program with these arguments.
    ///
    /// # Errors
    /// If it does not listen within a minute. Its output is on stderr.
    pub(crate) async fn start(program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        // Settings of a production service must not apply here.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DELAYD") {
                command.env_remove(name);
            }
        }
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Only the bench gets Ctrl-C, and then ends the child in order.
        let mut child = command
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} (see --delayd)", program.display()))?;
        let said = child.stderr.take().expect("it is piped");
        let mut said = BufReader::new(said).lines();
        let Ok(Some(address)) = tokio::time::timeout(START, address_in(&mut said)).await else {
            bail!("the started delayd does not listen; its output is above");
        };
        tokio::spawn(async move { address_in(&mut said).await });
        Ok(Self { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills the process, and waits for its end.
    pub(crate) async fn end(mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill().await;
    }
}

/// Reads up to the line with the address, and passes the other lines on to stderr.
async fn address_in(said: &mut Lines<BufReader<ChildStderr>>) -> Option<String> {
    while let Ok(Some(line)) = said.next_line().await {
        match line.split_once(LISTENS) {
            Some((_, rest)) => return rest.split([' ', ',']).next().map(str::to_owned),
            None => eprintln!("{line}"),
        }
    }
    None
}
