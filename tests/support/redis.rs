//! A real redis-server for a test process, or for one test. The environment variable
//! `REDIS_SERVER` names another program to start, such as valkey-server.
//!
//! It runs under a shell, its keeper, that takes orders from its standard input. However the test
//! process ends, including abort and kill -9, that pipe closes. The keeper then kills the server
//! and removes its folder.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) mod ports;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// An environment variable with a process id: the server runs as long as that process, even if this
/// one ends.
pub(crate) const AS_LONG_AS: &str = "AS_LONG_AS";

/// The keeper: `$1` is the folder, `$2` the program, the rest are the server's options.
const KEEPER: &str = r#"
    folder=$1; program=$2; shift 2
    cd "$folder" || exit 1
    server=
    while read -r order; do
        case $order in
            start) "$program" "$@" >> log 2>&1 < /dev/null & server=$!; echo "$server" ;;
            kill) kill -9 "$server"; wait "$server"; echo killed ;;
        esac
    done
    while [ -n "$AS_LONG_AS" ] && kill -0 "$AS_LONG_AS" 2> /dev/null; do sleep 1; done
    kill -9 "$server" 2> /dev/null
    wait
    cd / || exit 1
    umount "$folder/disk" 2> /dev/null
    rm -rf "$folder"
"#;

/// Gives the command after it a file system of its own in memory. It needs no root, since it is
/// root of a user namespace.
const SMALL_DISK: &str = r#"mkdir disk && mount -t tmpfs -o size=16m drill disk && exec "$@""#;

/// Where a server runs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The server's address there.
    pub(crate) host: String,
    /// The command that starts its keeper; empty for none.
    pub(crate) by: Vec<String>,
    /// With it, the server has only a port with TLS, and uses TLS with other servers.
    pub(crate) tls: Option<Tls>,
}

/// The files of a server with TLS, and of its clients.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Tls {
    /// The server's options; clients need a certificate.
    fn options(&self) -> [(&'static str, String); 5] {
        let text = |path: &Path| path.display().to_string();
        [
            ("tls-cert-file", text(&self.certificate)),
            ("tls-key-file", text(&self.key)),
            ("tls-ca-cert-file", text(&self.ca)),
            ("tls-replication", "yes".into()),
            ("tls-auth-clients", "yes".into()),
        ]
    }
}

impl Place {
    /// On this machine's loopback interface.
    pub(crate) fn here() -> Self {
        Self { host: "127.0.0.1".into(), by: Vec::new(), tls: None }
    }

    fn is_here(&self) -> bool {
        self.host == "127.0.0.1"
    }
}

/// A running redis-server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
    place: Place,
    port: u16,
    pid: u32,
}

/// The program that the tests start as Redis.
fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The server that all tests of this process share, each with its own key prefix.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

impl Server {
    /// A server with AOF, `appendfsync everysec`.
    pub(crate) fn start() -> Self {
        Self::with_options(&[])
    }

    /// A server with further options, such as `["--maxmemory", "10mb"]`.
    pub(crate) fn with_options(options: &[&str]) -> Self {
        Self::in_surroundings(options, &[])
    }

    /// A server with further options, and variables in its environment.
    pub(crate) fn in_surroundings(options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::launched_in(&Place::here(), variables, |port, _| {
            Self::options_at(&Place::here(), port, options)
        })
    }

    /// A server with further options, in another place.
    pub(crate) fn at(place: &Place, options: &[&str]) -> Self {
        Self::launched_in(place, &[], |port, _| Self::options_at(place, port, options))
    }

    /// A server with further options whose files are on a file system of 16 MiB: see
    /// [`Server::disk`].
    pub(crate) fn on_small_disk(options: &[&str]) -> Self {
        let possible = Command::new("unshare")
            .args(["-Urm", "true"])
            .status()
            .is_ok_and(|status| status.success());
        assert!(
            possible,
            "this mounts a file system in a user namespace (unshare -Urm), \
             which this machine forbids"
        );
        let by =
            ["unshare", "-Urm", "sh", "-c", SMALL_DISK, "small-disk"].map(str::to_owned).to_vec();
        Self::at(&Place { by, ..Place::here() }, &[&["--dir", "disk"], options].concat())
    }

    /// The options of most servers, and further ones.
    fn options_at(place: &Place, port: u16, further: &[&str]) -> Vec<String> {
        let port = port.to_string();
        let of_tls: Vec<(String, String)> = place
            .tls
            .iter()
            .flat_map(Tls::options)
            .map(|(name, value)| (format!("--{name}"), value))
            .collect();
        let mut options = match place.tls {
            Some(_) => vec!["--port", "0", "--tls-port", &port],
            None => vec!["--port", &port],
        };
        options.extend(of_tls.iter().flat_map(|(name, value)| [name.as_str(), value]));
        options.extend(["--bind", &place.host, "--daemonize", "no"]);
        options.extend(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
        if !place.is_here() {
            // Only this machine can reach that place.
            options.extend(["--protected-mode", "no"]);
        }
        options.iter().chain(further).map(ToString::to_string).collect()
    }

    fn launched_in(
        place: &Place,
        variables: &[(&str, &str)],
        options: impl Fn(u16, &Path) -> Vec<String>,
    ) -> Self {
        let is_fast = std::env::var("NEXTEST_PROFILE").is_ok_and(|part| part == "fast");
        assert!(
            !is_fast,
            "a test of the part `fast` starts redis-server: see .config/nextest.toml"
        );
        let program = program();
        let found = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        assert!(
            found.is_ok(),
            "these tests need {program}; this installs it: apt-get install {program}"
        );
        let mut server = Self::keep(place, variables, &options);
        server.launch();
        server
    }

    /// A Sentinel that watches nothing yet.
    pub(crate) fn sentinel() -> Self {
        Self::sentinel_at(&Place::here())
    }

    /// A Sentinel with further lines of configuration.
    pub(crate) fn sentinel_with(lines: &str) -> Self {
        Self::sentinel_configured(&Place::here(), lines)
    }

    /// A Sentinel in another place.
    pub(crate) fn sentinel_at(place: &Place) -> Self {
        Self::sentinel_configured(place, "")
    }

    fn sentinel_configured(place: &Place, lines: &str) -> Self {
        Self::launched_in(place, &[], |port, folder| {
            // A Sentinel keeps its state in its configuration file, and must find it there.
            let file = folder.join("sentinel.conf");
            let mut text = format!("bind {}\n{lines}", place.host);
            match &place.tls {
                None => text += &format!("port {port}\n"),
                Some(tls) => {
                    text += &format!("port 0\ntls-port {port}\n");
                    tls.options().iter().for_each(|(name, value)| {
                        text += &format!("{name} {value}\n");
                    });
                }
            }
            std::fs::write(&file, text).unwrap();
            vec![file.display().to_string(), "--sentinel".into()]
        })
    }

    /// A node of a cluster that does not exist yet, with variables in its environment.
    pub(crate) fn cluster_node(variables: &[(&str, &str)]) -> Self {
        Self::cluster_node_at(&Place::here(), variables)
    }

    /// The same in another place.
    pub(crate) fn cluster_node_at(place: &Place, variables: &[(&str, &str)]) -> Self {
        Self::launched_in(place, variables, |port, _| {
            let bus = ports::take().to_string();
            let mut further = vec![
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "1500",
                "--cluster-port",
                &bus,
            ];
            further.extend([
                "--cluster-require-full-coverage",
                "no",
                "--repl-diskless-sync-delay",
                "0",
            ]);
            if place.tls.is_some() {
                further.extend(["--tls-cluster", "yes"]);
            }
            Self::options_at(place, port, &further)
        })
    }

    /// The port of the cluster's bus.
    pub(crate) fn bus_port(&self) -> u16 {
        self.command(&["CONFIG", "GET", "cluster-port"]).lines().nth(1).unwrap().parse().unwrap()
    }

    /// Starts the keeper alone.
    fn keep(
        place: &Place,
        variables: &[(&str, &str)],
        options: &impl Fn(u16, &Path) -> Vec<String>,
    ) -> Self {
        let port = ports::take();
        let folder = tempfile::Builder::new().prefix("redis-of-tests").tempdir().unwrap().keep();
        let words = ["sh", "-c", KEEPER, "redis-keeper"].map(str::to_owned);
        let words: Vec<&String> = place.by.iter().chain(&words).collect();
        let mut keeper = Command::new(words[0])
            .args(&words[1..])
            .arg(&folder)
            .arg(program())
            .args(options(port, &folder))
            .current_dir(&folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to the tests' process group must not stop it before it has removed the
            // folder.
            .process_group(0)
            .spawn()
            .unwrap();
        let orders = keeper.stdin.take();
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        Self { keeper, orders, answers, folder, place: place.clone(), port, pid: 0 }
    }

    /// Gives the keeper an order and reads its answer.
    fn order(&mut self, order: &str) -> String {
        let mut answer = String::new();
        writeln!(self.orders.as_ref().unwrap(), "{order}").unwrap();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// Starts the server and waits until it answers.
    fn launch(&mut self) {
        self.pid = self.order("start").parse().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.info() {
                Some(info) if !info.contains("loading:1\r\n") => return,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("{} does not answer on {}:{}; its log:\n{log}", program(), self.host(), self.port);
    }

    /// Its address, without the port.
    pub(crate) fn host(&self) -> &str {
        &self.place.host
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The URL of its database 0.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.place.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}:{}/0", self.host(), self.port)
    }

    /// The path by which other processes find the disk of a server with its own file system,
    /// whether it runs or not.
    pub(crate) fn disk(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.folder.strip_prefix("/").unwrap()).join("disk")
    }

    /// Whether its process is running.
    pub(crate) fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // An ended process waits for its keeper to notice.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// kill -9, unless it has ended by itself. Returns when it is gone.
    pub(crate) fn kill(&mut self) {
        assert_eq!(self.order("kill"), "killed");
    }

    /// Sends a signal by name, such as `STOP` and `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid.to_string())
            .status()
            .unwrap();
        assert!(sent.success(), "kill -{name} {}", self.pid);
    }

    /// After [`Server::kill`]: starts it again with the same port and files.
    pub(crate) fn restart(&mut self) {
        self.launch();
    }

    /// The output of `INFO`, if a server answers on the port.
    fn info(&self) -> Option<String> {
        match self.place.tls {
            Some(_) => self.command_unless_cut_off(&["INFO"]),
            None => info(self.host(), self.port),
        }
    }

    /// Runs one command. Returns its answer as `redis-cli` prints it to a pipe.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        self.command_unless_cut_off(words).unwrap_or_else(|| panic!("redis-cli {words:?}"))
    }

    /// Runs one command on a server that a Sentinel may be making a replica, which disconnects its
    /// clients.
    pub(crate) fn command_unless_cut_off(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-h", self.host(), "-p", &self.port.to_string()]);
        if let Some(Tls { ca, certificate, key }) = &self.place.tls {
            // A test may have given the server a certificate that has expired.
            command.args(["--tls", "--insecure"]).arg("--cacert").arg(ca);
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let output = command.args(words).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// A number from `INFO stats`.
    #[allow(dead_code, reason = "not every test program counts")]
    pub(crate) fn statistic(&self, name: &str) -> i64 {
        let stats = self.command(&["INFO", "stats"]);
        let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("Redis knows no {name}")).trim().parse().unwrap()
    }

    /// How many commands of this name, such as `evalsha`, the server has done.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let name = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// The output of `INFO replication`, unless the server disconnects its clients at that moment.
    pub(crate) fn replication(&self) -> String {
        self.command_unless_cut_off(&["INFO", "replication"]).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}

/// The output of `INFO` of the server on a port, if one answers.
fn info(host: &str, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((host, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"INFO\r\n").ok()?;
    let mut answer = BufReader::new(stream);
    let mut length = String::new();
    answer.read_line(&mut length).ok()?;
    let mut text = vec![0; length.trim().strip_prefix('$')?.parse().ok()?];
    answer.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}
