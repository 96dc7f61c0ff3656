//! The upper limit for callbacks: calls by reqwest to a server that only answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options;
use crate::error::Error;
use crate::figures::Figures;
use crate::progress::Progress;
use crate::server::Instance;
use crate::stage::Stage;
use crate::task::{Template, When};
use delayd_wire::Span;

/// Send POSTs with reqwest to the bare axum server, without delayd (closed loop): the limit of HTTP
/// calls on this machine without a store.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Concurrent calls
    #[arg(long, value_name = "N", default_value = "256", value_parser = options::connections())]
    connections: usize,
    /// How long to measure
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "3s",
        value_parser = options::span
    )]
    span: Span,
    /// Bytes of each call's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let server = Instance::start(&["bench", "bare", "--serve"].map(str::to_owned)).await?;
    let broken = |error: reqwest::Error| Error::Broken(std::io::Error::other(error));
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().map_err(broken)?;
    let url = format!("http://{}/delay/task/add", server.address());
    let body = Bytes::from(
        Template::push("bench.calls", stage.service(), params.bytes)?.task(When::Tomorrow),
    );
    stage.progress.step("calls", 0);
    let stop = StopOnDrop::default();
    let load = Load { client, url, body, stop: stop.0.clone(), progress: stage.progress.clone() };
    let params = params.clone();
    // On all cores, like the calls of delayd; the thread of the bench waits.
    let made = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Error::Child)?;
        runtime.block_on(load.make(&params)).map_err(broken)
    });
    let (calls, took) = made.await.expect("a load does not panic")?;
    let mut figures = Figures::default();
    figures.put("calls", calls as f64);
    figures.put("calls_per_s", calls as f64 / took.as_secs_f64());
    Ok(figures)
}

/// Ends the load when it is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Load {
    client: reqwest::Client,
    url: String,
    body: Bytes,
    stop: Arc<AtomicBool>,
    progress: Progress,
}

impl Load {
    /// Calls until the time is over. Returns the number of calls after all connections were open,
    /// and their time.
    async fn make(self, params: &Params) -> reqwest::Result<(u64, Duration)> {
        let (span, open) = (params.span.0, Arc::new(Barrier::new(params.connections + 1)));
        let mut callers = JoinSet::new();
        for _ in 0..params.connections {
            let (load, open) = (self.clone(), open.clone());
            callers.spawn(async move {
                let first = load.call().await;
                open.wait().await;
                first?;
                let (begun, mut calls) = (Instant::now(), 0_u64);
                while begun.elapsed() < span && !load.stop.load(Ordering::Relaxed) {
                    load.call().await?;
                    calls += 1;
                }
                Ok::<_, reqwest::Error>(calls)
            });
        }
        open.wait().await;
        let (begun, mut calls) = (Instant::now(), 0);
        while let Some(ended) = callers.join_next().await {
            calls += ended.expect("a caller does not panic")?;
        }
        Ok((calls, begun.elapsed()))
    }

    async fn call(&self) -> reqwest::Result<()> {
        let answer =
            self.client.post(&self.url).body(self.body.clone()).send().await?.error_for_status()?;
        answer.bytes().await?;
        self.progress.add(1);
        Ok(())
    }
}
