//! The limit of the way out: calls by the very client that callbacks go by, to a server that only answers.

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options;
use crate::bench::Error;
use crate::bench::figures::Figures;
use crate::bench::server::Instance;
use crate::bench::stage::Stage;
use crate::bench::task::{Template, When};
use crate::span::Span;

/// POSTs by the HTTP client of the callbacks (reqwest), without delayd, to the bare axum server (closed loop): what is possible on this machine
/// where nothing has to be stored.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// How many calls are under way at a time
    #[arg(long, value_name = "N", default_value = "256", value_parser = options::connections())]
    connections: usize,
    /// How long
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = options::span)]
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
    let body = bytes::Bytes::from(Template::push("bench.calls", stage.service(), params.bytes)?.task(When::Tomorrow));
    stage.progress.step("calls", 0);
    let (begun, mut callers) = (Instant::now(), JoinSet::new());
    for _ in 0..params.connections {
        let (client, url, body, span, progress) =
            (client.clone(), url.clone(), body.clone(), params.span.0, stage.progress.clone());
        callers.spawn(async move {
            let mut calls = 0_u64;
            while begun.elapsed() < span {
                let answer = client.post(&url).body(body.clone()).send().await?.error_for_status()?;
                answer.bytes().await?;
                calls += 1;
                progress.add(1);
            }
            Ok::<_, reqwest::Error>(calls)
        });
    }
    let mut calls = 0;
    while let Some(ended) = callers.join_next().await {
        calls += ended.expect("a caller does not panic").map_err(broken)?;
    }
    let mut figures = Figures::default();
    figures.put("calls", calls as f64);
    figures.put("calls_per_s", calls as f64 / begun.elapsed().as_secs_f64());
    Ok(figures)
}
