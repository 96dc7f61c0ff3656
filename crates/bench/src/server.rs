//! The measured service: `delayd serve` as a child process, separate from the bench.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::Error;

/// How long the start may take.
const START: Duration = Duration::from_secs(60);
/// The text before the address in the line about the start.
const LISTENS: &str = "listens on http://";

/// A listening child process; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    address: String,
}

impl Instance {
    /// Starts this program with these arguments.
    ///
    /// # Errors
    /// If it does not listen within a minute. Its output is on stderr.
    pub(crate) async fn start(arguments: &[String]) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::Child)?;
        let mut command = Command::new(program);
        // Settings of a production service must not apply here.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DELAYD"))
        {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Only the bench gets Ctrl-C, and then ends the child in order.
        let mut child = command.process_group(0).spawn().map_err(Error::Child)?;
        let said = child.stderr.take();
        let mut instance = Self { child, address: String::new() };
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || said.map(|said| read(said, tell)));
        match tokio::time::timeout(START, told).await {
            Ok(Ok(address)) => instance.address = address,
            _ => return Err(Error::NoStart),
        }
        Ok(instance)
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the address in the output, and passes the other lines on to stderr.
fn read(said: ChildStderr, tell: oneshot::Sender<String>) {
    let mut tell = Some(tell);
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        match line.split_once(LISTENS) {
            Some((_, rest)) => {
                let address =
                    rest.chars().take_while(|c| !c.is_whitespace() && *c != ',').collect();
                let _ = tell.take().map(|tell| tell.send(address));
            }
            None => eprintln!("{line}"),
        }
    }
}
