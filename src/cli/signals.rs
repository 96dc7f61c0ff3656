//! SIGTERM and SIGINT, as a stream of names.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that end a command. Once this exists, they do not end the process by themselves.
#[derive(Debug)]
pub(super) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal, and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
