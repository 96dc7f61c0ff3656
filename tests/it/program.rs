//! The real program: `delayd serve` as a process, and a client for it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::poll;
use crate::receiver::Receiver;

/// How the program is told which store to use.
#[derive(Clone, Debug)]
pub enum StoreAt {
    /// A folder for the embedded store's file.
    Embedded(std::path::PathBuf),
    /// A port and a key prefix.
    Redis(u16, String),
    /// Any settings.
    Set(Vec<String>),
}

impl StoreAt {
    pub fn sets(&self) -> Vec<String> {
        match self {
            Self::Embedded(folder) => {
                vec![format!("store.embedded.path={:?}", folder.join("delayd.db"))]
            }
            Self::Redis(port, prefix) => vec![
                "store.kind=\"redis\"".into(),
                format!("store.redis.urls=[\"redis://127.0.0.1:{port}/0\"]"),
                format!("store.redis.key_prefix={prefix:?}"),
            ],
            Self::Set(sets) => sets.clone(),
        }
    }
}

/// A started `delayd serve`. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
    pub address: SocketAddr,
    client: reqwest::Client,
    /// Whether the child is another program, and delayd is the child of that program.
    is_under: bool,
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn id(&self) -> u64 {
        self.body["task_id"].as_u64().unwrap_or_else(|| panic!("no task_id in {self:?}"))
    }

    pub fn ok(self) -> Self {
        assert_eq!((self.status, &self.body["dm_error"]), (200, &json!(0)), "{self:?}");
        self
    }
}

/// The program with settings that suit a test. The caller adds a command and more arguments.
pub fn command(sets: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delayd"));
    command.env_clear().stdin(Stdio::null());
    for set in sets {
        command.arg("--set").arg(set);
    }
    command
}

/// A command as the last arguments of another.
fn inside(mut outer: Command, inner: &Command) -> Command {
    outer.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    outer
}

/// The command that [`Program::start`] runs.
pub fn serve(store: &StoreAt, sets: &[String]) -> Command {
    serve_with(&[store.sets(), sets.to_vec()].concat())
}

/// `serve` with these settings, on a free port unless they name one.
pub fn serve_with(sets: &[String]) -> Command {
    let mut command = command(&["http.bind=\"127.0.0.1:0\"".into()]);
    command.args(sets.iter().flat_map(|set| ["--set", set])).arg("serve");
    command
}

/// The `--set` that makes the receiver a service.
pub fn service(name: &str, receiver: &Receiver) -> String {
    format!("services.\"{name}\".endpoints=[\"{}\"]", receiver.endpoint())
}

impl Program {
    /// Starts the program on a free port, with more settings, and waits until it listens.
    pub async fn start(store: &StoreAt, sets: &[String]) -> Self {
        Self::launch(serve(store, sets)).await
    }

    /// Starts the program with a configuration file, which it reads again when the file changes.
    #[allow(dead_code, reason = "tests/drills share this program")]
    pub async fn start_from(store: &StoreAt, file: &Path) -> Self {
        let mut serve = serve(store, &[]);
        serve.arg("--config").arg(file);
        Self::launch(serve).await
    }

    /// Starts the program as the child of another, such as strace, which gets the command line.
    pub async fn start_under(outer: Command, store: &StoreAt, sets: &[String]) -> Self {
        let mut program = Self::launch(inside(outer, &serve(store, sets))).await;
        program.is_under = true;
        program
    }

    /// Starts the program through a command that becomes it, such as one that first changes its
    /// environment.
    #[allow(dead_code, reason = "tests/drills share this program")]
    pub async fn start_by(
        store: &StoreAt,
        sets: &[String],
        by: impl FnOnce(Command) -> Command,
    ) -> Self {
        Self::launch(by(serve(store, sets))).await
    }

    /// Starts the command of [`serve`], perhaps with changes, and waits until the program listens.
    pub async fn launch(mut serve: Command) -> Self {
        delayd::install_crypto();
        let mut child = serve
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let address = watch::Sender::new(None);
        let mut found = address.subscribe();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some(at) = listening_at(&line) {
                    address.send_replace(Some(at));
                }
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let waited =
            tokio::time::timeout(Duration::from_secs(60), found.wait_for(Option::is_some)).await;
        let Ok(Ok(address)) =
            waited.map(|found| found.map(|address| address.expect("the address was just found")))
        else {
            let _ = child.kill();
            panic!("delayd does not listen:\n{}", log.lock().unwrap());
        };
        Self { child, log, address, client: client(), is_under: false }
    }

    /// The id of its process.
    #[allow(dead_code, reason = "tests/drills share this program")]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn post(&self, path: &str, body: impl Into<String>) -> Answer {
        let sent = self.client.post(self.url(path)).body(body.into()).send().await.unwrap();
        answer(sent).await
    }

    /// Like [`Self::post`]; `None` if nothing listens any more.
    pub async fn try_post(&self, path: &str, body: impl Into<String>) -> Option<Answer> {
        Some(answer(self.client.post(self.url(path)).body(body.into()).send().await.ok()?).await)
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    pub async fn add(&self, task: Value) -> Answer {
        self.post("/delay/task/add", task.to_string()).await.ok()
    }

    /// Adds many tasks, a hundred per call: a debug build on a busy machine needs a second for a
    /// thousand.
    pub async fn add_all(&self, tasks: &[Value]) -> Vec<u64> {
        let mut ids = Vec::new();
        for batch in tasks.chunks(100) {
            let answer =
                self.post("/delay/task/add_batch", json!({"tasks": batch}).to_string()).await.ok();
            assert_eq!(answer.body["failed"], 0, "{answer:?}");
            ids.extend(
                answer.body["results"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| one["task_id"].as_u64().unwrap()),
            );
        }
        ids
    }

    /// Posts until the store has confirmed, so the call must be repeatable. Where the disk or the
    /// processor stalls for a second, a call gets 503 (not confirmed). For tests whose store has no
    /// faults.
    pub async fn post_until_confirmed(&self, path: &str, body: &Value) -> Answer {
        let confirmed = async || {
            let answer = self.post(path, body.to_string()).await;
            Some(answer)
                .filter(|answer| (answer.status, &answer.body["dm_error"]) != (503, &json!(2003)))
        };
        poll::answer(confirmed)
            .await
            .unwrap_or_else(|| panic!("{path} {body} is not confirmed:\n{}", self.log()))
    }

    pub async fn task(&self, topic: &str, id: u64) -> Value {
        let answer = self
            .post_until_confirmed("/delay/task/get", &json!({"topic": topic, "task_id": id}))
            .await;
        answer.ok().body["task"].clone()
    }

    /// Asks until the task is in `state`; panics after a minute.
    pub async fn wait_for_state(&self, topic: &str, id: u64, state: &str) -> Value {
        let is_in = async || Some(self.task(topic, id).await).filter(|task| task["state"] == state);
        match poll::answer(is_in).await {
            Some(task) => task,
            None => panic!(
                "task {id} did not become {state}: {}\n{}",
                self.task(topic, id).await,
                self.log()
            ),
        }
    }

    /// Asks `/readyz` until it answers `status`.
    pub async fn wait_until_ready(&self, status: u16) {
        let answers = poll::until(async || self.get("/readyz").await.status == status).await;
        assert!(answers, "/readyz did not answer {status}:\n{}", self.log());
    }

    /// Reads the log until it contains `text`; panics after a minute.
    pub async fn wait_for_log(&self, text: &str) {
        self.wait_for_logs(text, 1).await;
    }

    /// Reads the log until it contains `text` this many times; panics after a minute.
    pub async fn wait_for_logs(&self, text: &str, times: usize) {
        let says = poll::until(async || self.log().matches(text).count() >= times).await;
        assert!(says, "the log does not say {text:?} {times} times:\n{}", self.log());
    }

    /// Waits until `span` has passed by the store's clock: a pull waits for a task that falls due
    /// then. Tests use it to show that something does not happen meanwhile.
    #[allow(dead_code, reason = "tests/drills share this program")]
    pub async fn lives_for(&self, span: Duration) {
        let delay = format!("{}ms", span.as_millis());
        self.add(json!({"topic": "span", "delay": delay, "mode": "pull", "content": {}})).await;
        let pulled = self.post("/delay/task/pull", r#"{"topic":"span","wait":"30s"}"#).await.ok();
        assert!(pulled.body["task_id"].is_u64(), "{pulled:?}");
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the process ends by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        match poll::answer(async || self.child.try_wait().unwrap()).await {
            Some(status) => status,
            None => panic!("delayd did not end:\n{}", self.log()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.is_under {
            // Killing a tracer detaches the traced process, which would run for ever.
            let _ =
                Command::new("pkill").args(["-KILL", "-P", &self.child.id().to_string()]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client for the service. The timeout is a bound: the service answers within seconds, whatever
/// happens.
pub fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_secs(90)).build().unwrap()
}

async fn answer(response: reqwest::Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

/// The address in the line that says where the program listens.
fn listening_at(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listens on http")?;
    let (_, rest) = rest.split_once("://")?;
    let address: String =
        rest.chars().take_while(|c| c.is_ascii_hexdigit() || ".:[]".contains(*c)).collect();
    address.trim_end_matches(['.', ':']).parse().ok()
}

/// Runs a command to its end. Returns exit code, standard output and standard error.
pub async fn run(mut command: Command) -> (i32, String, String) {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A folder that is removed with the test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn embedded(folder: &Path) -> StoreAt {
    StoreAt::Embedded(folder.to_owned())
}
