//! A real redis-server for a test process, or for one test.
//!
//! It runs under a shell, its keeper, that takes orders from its standard input. However the test process ends, abort and
//! kill -9 included, that pipe closes, and the keeper kills the server and removes its folder.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ports tried before giving up: another process may take a free one first.
const TRIES: usize = 20;

/// The keeper: `$1` is the folder, the rest are the server's options.
const KEEPER: &str = r#"
    folder=$1; shift
    cd "$folder" || exit 1
    server=
    while read -r order; do
        case $order in
            start) redis-server "$@" >> log 2>&1 < /dev/null & server=$!; echo "$server" ;;
            kill) kill -9 "$server"; wait "$server"; echo killed ;;
        esac
    done
    kill -9 "$server" 2> /dev/null
    wait
    cd / && rm -rf "$folder"
"#;

/// A running redis-server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
    port: u16,
    pid: u32,
}

/// The one that all tests of this process share, each under a key prefix of its own.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

impl Server {
    /// One with AOF, `appendfsync everysec`.
    pub(crate) fn start() -> Self {
        Self::with_options(&[])
    }

    /// One with further options, such as `["--maxmemory", "10mb"]`.
    pub(crate) fn with_options(options: &[&str]) -> Self {
        Self::in_surroundings(options, &[])
    }

    /// One with further options, and variables in its environment.
    pub(crate) fn in_surroundings(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let further =
            |port, _: &Path| [Self::options(port), options.iter().map(ToString::to_string).collect()].concat();
        Self::launched_in(variables, further)
    }

    /// What most servers are started with.
    fn options(port: u16) -> Vec<String> {
        let port = port.to_string();
        let options = ["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"].into_iter();
        let options = options.chain(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
        options.map(str::to_owned).collect()
    }

    /// One with the options that go with its port and folder.
    fn launched(options: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        Self::launched_in(&[], options)
    }

    fn launched_in(variables: &[(&str, &str)], options: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        assert!(found.is_ok(), "these tests need redis-server; this installs it: apt-get install redis-server");
        for _ in 0..TRIES {
            let mut server = Self::keep(free_port(), variables, &options);
            if server.launch() {
                return server;
            }
        }
        panic!("redis-server does not start, on {TRIES} ports");
    }

    /// One in sentinel mode, which watches nothing yet.
    pub(crate) fn sentinel() -> Self {
        Self::sentinel_with("")
    }

    /// One in sentinel mode, with further lines of configuration.
    pub(crate) fn sentinel_with(lines: &str) -> Self {
        Self::launched(|port, folder| {
            // A sentinel keeps its state in its configuration file, and must find it there.
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\n{lines}")).unwrap();
            vec![file.display().to_string(), "--sentinel".into()]
        })
    }

    /// A node of a cluster that does not exist yet.
    pub(crate) fn cluster_node() -> Self {
        Self::launched(|port, _| {
            let mut options = Self::options(port);
            let bus = free_port().to_string();
            let further = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-port", &bus]
                .into_iter()
                .chain(["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]);
            options.extend(further.map(str::to_owned));
            options
        })
    }

    /// The port of the cluster's bus.
    pub(crate) fn bus_port(&self) -> u16 {
        self.command(&["CONFIG", "GET", "cluster-port"]).lines().nth(1).unwrap().parse().unwrap()
    }

    /// Starts the keeper alone.
    fn keep(port: u16, variables: &[(&str, &str)], options: &impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new().prefix("redis-of-tests").tempdir().unwrap().keep();
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "redis-keeper"])
            .arg(&folder)
            .args(options(port, &folder))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to the tests' process group must not keep it from clearing up.
            .process_group(0)
            .spawn()
            .unwrap();
        let orders = keeper.stdin.take();
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        Self { keeper, orders, answers, folder, port, pid: 0 }
    }

    /// Gives the keeper an order and reads its answer.
    fn order(&mut self, order: &str) -> String {
        let mut answer = String::new();
        writeln!(self.orders.as_ref().unwrap(), "{order}").unwrap();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// Has the server started and waits until it answers; false if another one has its port.
    fn launch(&mut self) -> bool {
        self.pid = self.order("start").parse().unwrap();
        let is_ours = format!("process_id:{}\r\n", self.pid);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match info(self.port) {
                Some(info) if !info.contains(&is_ours) => return false,
                Some(info) if !info.contains("loading:1\r\n") => return true,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("redis-server does not answer on port {}; its log:\n{log}", self.port);
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The URL of its database 0.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// kill -9; returns when it is gone.
    pub(crate) fn kill(&mut self) {
        assert_eq!(self.order("kill"), "killed");
    }

    /// Sends a signal by name, such as `STOP` and `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid.to_string()).status().unwrap();
        assert!(sent.success(), "kill -{name} {}", self.pid);
    }

    /// After [`Server::kill`]: starts it again on the same port and files.
    pub(crate) fn restart(&mut self) {
        assert!(self.launch(), "another server has taken port {}", self.port);
    }

    /// One command, its answer as `redis-cli` prints it to a pipe.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(words).output().unwrap();
        assert!(output.status.success(), "redis-cli {words:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}

/// What the server on a port says of itself, if one answers.
fn info(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"INFO\r\n").ok()?;
    let mut answer = BufReader::new(stream);
    let mut length = String::new();
    answer.read_line(&mut length).ok()?;
    let mut text = vec![0; length.trim().strip_prefix('$')?.parse().ok()?];
    answer.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// A port that is free right now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
