//! A receiver in a process of its own, so that it can be stopped: `delayd receive`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::receiver::Seen;

/// The process. Dropping it kills it.
#[derive(Debug)]
pub struct Outside {
    child: Child,
    pub endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Outside {
    /// Starts the process. Every callback is answered with success.
    pub fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_delayd"))
            .args(["receive", "--json", "--bind", "127.0.0.1:0"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
        let endpoint =
            first.trim().rsplit(' ').next().expect("the line ends with the address").to_owned();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (notes, callbacks) = (seen.clone(), BufReader::new(child.stdout.take().unwrap()));
        std::thread::spawn(move || {
            for line in callbacks.lines().map_while(Result::ok) {
                notes.lock().unwrap().push(read(&line));
            }
        });
        Self { child, endpoint, seen }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(line: &str) -> Seen {
    let callback: Value = serde_json::from_str(line).unwrap();
    Seen {
        path: callback["path"].as_str().unwrap().to_owned(),
        id: callback["task_id"].as_u64().unwrap_or_default(),
        attempt: callback["attempt"].as_u64().unwrap_or_default() as u32,
        due_ms: callback["due_ms"].as_i64().unwrap_or_default(),
        arrived_ms: callback["at_ms"].as_i64().unwrap(),
        headers: Default::default(),
        body: callback["body"].as_str().unwrap().to_owned(),
    }
}
