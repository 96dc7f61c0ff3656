//! The service on trial: `delayd serve` as a child process, so that nothing of the bench runs in
//! it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::Error;

/// How long it may take until it listens.
const START: Duration = Duration::from_secs(60);
/// What stands before the address in the line that says where a service listens.
const LISTENS: &str = "listens on http://";

/// A child that listens; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    address: String,
}

impl Instance {
    /// This very program with those arguments.
    ///
    /// # Errors
    /// If it does not listen within a minute; what it said is on stderr.
    pub(crate) async fn start(arguments: &[String]) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::Child)?;
        let mut command = Command::new(program);
        // Settings for a service that is served in earnest are none for this one.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DELAYD"))
        {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C is the bench's, which then ends this one in order.
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
        // An error only says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the address, and passes on to stderr whatever else is said.
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
