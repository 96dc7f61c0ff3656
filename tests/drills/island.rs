//! A part of the network that can be cut off: a network namespace of its own, joined to this
//! machine by a switch that can be turned off.
//!
//! ```text
//!  this machine               the wire                the island
//!  outside ──── veth ──── switch (a bridge) ──── veth ──── inside
//!  outside_bypass ─────────── veth ─────────── inside_bypass
//! ```
//!
//! The switch is turned off in a partition. The bypass is for the drill's own callers and
//! receivers.
//!
//! While the switch is off, both ends are up and packets between them are lost without an error.
//! Programs know what runs inside only by its address on the switch, so they do not use the bypass.
//!
//! The namespaces have no names: each lives as long as its keeper, a shell that ends with its
//! standard input, at the latest with this process. Its links are removed with it, so nothing is
//! left behind, however a drill ends.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fleet::By;
use crate::redis_server::Place;

/// The message where a partition cannot be made.
const NEEDS: &str = "this drill makes a partition in the network: it needs the program ip \
                     (iproute2), network namespaces, veth pairs and a bridge, so it has to run \
                     as root with CAP_NET_ADMIN and CAP_SYS_ADMIN (in a container: --privileged)";

/// Runs each line that it reads, and answers in one line.
const KEEPER: &str = r#"
    echo done
    while read -r order; do
        said=$($order 2>&1) && echo done || echo $order: $said
    done
    ip -brief link show | while read -r link _; do ip link delete "${link%@*}" 2> /dev/null; done
"#;

/// A network namespace.
#[derive(Debug)]
struct Namespace {
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Namespace {
    fn new() -> Self {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{NEEDS}; unshare: {error}"));
        let orders = keeper.stdin.take();
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut namespace = Self { keeper, orders, answers };
        namespace.is_done();
        namespace
    }

    fn pid(&self) -> u32 {
        self.keeper.id()
    }

    fn is_done(&mut self) {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.trim() == "done", "{NEEDS}; it answered {answer:?}");
    }

    /// Runs `ip` inside the namespace.
    fn ip(&mut self, words: &str) {
        writeln!(self.orders.as_ref().unwrap(), "ip {words}").unwrap();
        self.is_done();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}

/// Runs `ip` on this machine.
fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("{NEEDS}; ip: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{NEEDS}; ip {words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The island. Dropping it removes everything.
#[derive(Debug)]
pub struct Island {
    wire: Namespace,
    inside: Namespace,
    addresses: Addresses,
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    outside: Ipv4Addr,
    inside: Ipv4Addr,
    outside_bypass: Ipv4Addr,
    inside_bypass: Ipv4Addr,
}

impl Addresses {
    /// Addresses that this machine does not use, from the range for network tests (RFC 2544).
    fn free() -> Self {
        loop {
            let first =
                u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 16 * rand::random_range(0..1 << 13);
            let at = |n| Ipv4Addr::from(first + n);
            if ip(&format!("-4 -o address show to {}/28", at(0))).is_empty() {
                return Self {
                    outside: at(1),
                    inside: at(2),
                    outside_bypass: at(9),
                    inside_bypass: at(10),
                };
            }
        }
    }
}

impl Island {
    /// Makes the island, with the switch on.
    ///
    /// # Panics
    ///
    /// If this machine forbids it, with a message that says what is needed.
    pub fn raise() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (wire, inside) = (Namespace::new(), Namespace::new());
        let mut island = Self { wire, inside, addresses: Addresses::free() };
        let Self { wire, inside, addresses } = &mut island;
        let Addresses { outside, inside: there, outside_bypass, inside_bypass } = *addresses;
        let (wire_pid, inside_pid) = (wire.pid(), inside.pid());
        // Such names are unique, since no two processes have the same id.
        let name = format!("i{}n{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));

        wire.ip("link add switch type bridge");
        wire.ip(&format!("link add port type veth peer name data netns {inside_pid}"));
        wire.ip("link set port master switch up");
        ip(&format!("link add {name}d type veth peer name here netns {wire_pid}"));
        wire.ip("link set here master switch up");
        wire.ip("link set switch up");
        ip(&format!("address add {outside}/29 dev {name}d"));
        ip(&format!("link set {name}d up"));
        inside.ip("link set lo up");
        inside.ip(&format!("address add {there}/29 dev data"));
        inside.ip("link set data up");

        ip(&format!("link add {name}c type veth peer name bypass netns {inside_pid}"));
        ip(&format!("address add {outside_bypass}/29 dev {name}c"));
        ip(&format!("link set {name}c up"));
        inside.ip(&format!("address add {inside_bypass}/29 dev bypass"));
        inside.ip("link set bypass up");
        island
    }

    /// Turns the switch off: from now on, no packet gets from one side to the other.
    pub fn cut_off(&mut self) {
        self.wire.ip("link set switch down");
    }

    /// Turns it on again.
    pub fn rejoin(&mut self) {
        self.wire.ip("link set switch up");
    }

    /// Where servers run inside.
    pub fn inside(&self) -> Place {
        Place { host: self.addresses.inside.to_string(), by: self.enter(), ..Place::here() }
    }

    /// Where servers run that reach those inside through the switch.
    pub fn outside(&self) -> Place {
        Place { host: self.addresses.outside.to_string(), ..Place::here() }
    }

    /// Where all instances find the receivers, whether or not the switch is on.
    pub fn outside_bypass(&self) -> Ipv4Addr {
        self.addresses.outside_bypass
    }

    /// Where callers find an instance that listens inside, whether or not the switch is on.
    pub fn inside_bypass(&self) -> Ipv4Addr {
        self.addresses.inside_bypass
    }

    fn enter(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.inside.pid())]
    }

    /// Runs a program inside.
    pub fn by(&self) -> By {
        let words = self.enter();
        Box::new(move |serve| {
            let mut command = Command::new(&words[0]);
            command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command.args(&words[1..]).arg(serve.get_program()).args(serve.get_args());
            command
        })
    }
}
