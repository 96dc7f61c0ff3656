//! A real nginx before the program.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::poll;
use crate::program::{Program, client, folder};
use crate::redis_server::ports;

/// An nginx before a server. Dropping it ends it.
pub struct Nginx {
    process: Child,
    pub port: u16,
    prefix: String,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Passes requests below `prefix` on, over HTTP/1.1 and through its buffers, with a `Host` that
    /// is not the one that the browser called.
    pub async fn before(delayd: &Program, prefix: &str) -> Self {
        let port = ports::take();
        let server = format!(
            "server {{
                 listen 127.0.0.1:{port};
                 location {prefix}/ {{
                     proxy_pass {delayd};
                     proxy_http_version 1.1;
                     proxy_buffering on;
                     proxy_set_header Host delayd.internal;
                 }}
             }}",
            delayd = delayd.url("/"),
        );
        Self::start(port, prefix, &server).await
    }

    /// Passes requests on as `http` says, which listens on `port`.
    pub async fn start(port: u16, prefix: &str, http: &str) -> Self {
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
                 {http}
             }}",
            place = folder.path().display(),
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
        let mut nginx = Self { process, port, prefix: prefix.into(), _folder: folder };
        nginx.answers().await;
        nginx
    }

    /// Waits until it answers, whether or not the server behind it does.
    async fn answers(&mut self) {
        let (url, client) = (self.url("/healthz"), client());
        let answers = poll::until(async || {
            assert!(self.process.try_wait().unwrap().is_none(), "nginx has ended");
            client.get(&url).send().await.is_ok()
        });
        assert!(answers.await, "nginx does not answer");
    }

    /// The address of a path below the prefix.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{}{path}", self.port, self.prefix)
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
