//! Browsers that reach delayd through a proxy: a real nginx that rewrites `Host`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::program::{Program, StoreAt, command, folder, run};
use crate::{Kept, poll};

/// How many ports are tried: another process may take a free one first.
const TRIES: usize = 20;

/// An nginx before a server. Dropping it ends it.
struct Nginx {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Passes requests on with a `Host` that is not the one that the browser called.
    async fn before(delayd: &Program) -> Self {
        for _ in 0..TRIES {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let folder = folder();
            let configuration = format!(
                "daemon off;
                 master_process off;
                 pid {place}/pid;
                 error_log {place}/error.log;
                 events {{}}
                 http {{
                     access_log off;
                     client_body_temp_path {place}/client;
                     proxy_temp_path {place}/proxy;
                     fastcgi_temp_path {place}/fastcgi;
                     uwsgi_temp_path {place}/uwsgi;
                     scgi_temp_path {place}/scgi;
                     server {{
                         listen 127.0.0.1:{port};
                         location / {{
                             proxy_pass {delayd};
                             proxy_set_header Host delayd.internal;
                         }}
                     }}
                 }}",
                place = folder.path().display(),
                delayd = delayd.url(""),
            );
            let file = folder.path().join("nginx.conf");
            std::fs::write(&file, configuration).unwrap();
            let process = Command::new(program())
                .arg("-c")
                .arg(&file)
                .arg("-p")
                .arg(folder.path())
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut nginx = Self { process, port, _folder: folder };
            if nginx.answers().await {
                return nginx;
            }
        }
        panic!("nginx found no free port");
    }

    /// Waits until it answers; false if it has ended.
    async fn answers(&mut self) -> bool {
        let (url, client) = (self.url("/healthz"), reqwest::Client::new());
        let answered = poll::answer(async || {
            if self.process.try_wait().unwrap().is_some() {
                return Some(false);
            }
            client.get(&url).send().await.ok().map(|answer| answer.status() == 200)
        });
        answered.await.expect("nginx answers or ends")
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What a browser gets for a call by a page of this origin: status and message.
    async fn posted_by(&self, origin: &str) -> (u16, String) {
        let post = reqwest::Client::new().post(self.url("/delay/topic/list"));
        let answer = post.header("origin", origin).body("{}").send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        (status, body["error_msg"].as_str().unwrap().to_owned())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Debian keeps it outside the `PATH` of users.
fn program() -> &'static str {
    let debian = "/usr/sbin/nginx";
    if Path::new(debian).exists() { debian } else { "nginx" }
}

/// Such a page got 403 however delayd was configured.
#[tokio::test]
async fn a_public_origin_may_call_behind_a_proxy_that_rewrites_host() {
    let place = folder();
    let file = place.path().join("delayd.toml");
    let configure = |text: &str| std::fs::write(&file, text).unwrap();
    configure("[http]\npublic_origins = []\n");
    let kept = Kept::embedded();
    let delayd = start_from(&kept.store, &file).await;
    let nginx = Nginx::before(&delayd).await;
    let (ours, other) = (nginx.url(""), "https://evil.example");
    let refused = async |origin: &str| {
        let (status, message) = nginx.posted_by(origin).await;
        assert_eq!((status, message.split(':').next().unwrap()), (403, "Origin"), "{origin}");
    };
    refused(&ours).await;
    refused(other).await;

    configure(&format!("[http]\npublic_origins = [\"https://a.example\", \"{ours}\"]\n"));
    delayd.wait_for_log("changed: http.public_origins").await;
    assert_eq!(nginx.posted_by(&ours).await.0, 200);
    assert_eq!(nginx.posted_by("https://a.example:443").await.0, 200);
    refused(other).await;
    refused("http://a.example").await;
    refused("null").await;

    configure("[http]\npublic_origins = []\n# none any more\n");
    delayd.wait_for_logs("changed: http.public_origins", 2).await;
    refused(&ours).await;
}

#[tokio::test]
async fn what_is_no_origin_is_refused_with_an_example() {
    let mut check = command(&["http.public_origins=['https://delay.example/']".into()]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(code == 78 || code == 1, "{code}: {output}{error}");
    let said = format!("{output}{error}");
    assert!(
        said.contains("http.public_origins[0]") && said.contains("without a path, such as"),
        "{said}"
    );
}

/// Starts it with a configuration file, so that a change of the file is read.
async fn start_from(store: &StoreAt, file: &Path) -> Program {
    let mut serve = crate::program::serve(store, &[]);
    serve.arg("--config").arg(file);
    Program::launch(serve).await
}
