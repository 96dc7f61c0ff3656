//! The upper limit for callbacks: calls by reqwest to a server that only answers.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::bare;
use super::options::Closed;
use crate::figures::Figures;
use crate::progress::Progress;
use crate::stage::Stage;
use crate::task::When;

/// Send POSTs with reqwest to the bare axum server, without delayd (closed loop): the limit of HTTP
/// calls on this machine without a store.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    #[command(flatten)]
    #[serde(flatten)]
    closed: Closed,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let calls = Calls {
        client: reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?,
        url: format!("http://{}/delay/task/add", bare::server()?),
        body: Bytes::from(stage.template("bench.calls")?.task(When::Tomorrow)),
        progress: stage.progress.clone(),
    };
    stage.progress.step("calls", 0);
    // On all cores, like the calls of delayd; the thread of the bench waits.
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let span = params.closed.span.get();
    let made = runtime.spawn(calls.make(params.closed.connections, span)).await;
    runtime.shutdown_background();
    let calls_made = made.context("the calls ended early")?? as f64;
    let mut figures = Figures::default();
    figures.put("calls", calls_made);
    figures.put("calls_per_s", calls_made / span.as_secs_f64());
    Ok(figures)
}

#[derive(Clone)]
struct Calls {
    client: reqwest::Client,
    url: String,
    body: Bytes,
    progress: Progress,
}

impl Calls {
    /// Calls for this time. Returns the number of calls.
    async fn make(self, connections: usize, span: Duration) -> reqwest::Result<u64> {
        let (end, mut callers) = (Instant::now() + span, JoinSet::new());
        for _ in 0..connections {
            let calls = self.clone();
            callers.spawn(async move {
                let mut made = 0;
                while Instant::now() < end {
                    calls.call().await?;
                    made += 1;
                }
                Ok(made)
            });
        }
        let mut made = 0;
        while let Some(ended) = callers.join_next().await {
            made += ended.expect("a caller does not panic")?;
        }
        Ok(made)
    }

    async fn call(&self) -> reqwest::Result<()> {
        let call = self.client.post(&self.url).body(self.body.clone());
        call.send().await?.error_for_status()?.bytes().await?;
        self.progress.add(1);
        Ok(())
    }
}
