//! The upper limit for adds: the same requests and answers without delayd.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::options::Closed;
use crate::clock;
use crate::figures::Figures;
use crate::stage::Stage;
use crate::task::When;
use crate::wire::Peer;

/// Send the same adds to a bare axum server that reads each and answers like delayd, but stores
/// nothing (closed loop): the limit of HTTP and JSON on this machine.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    #[command(flatten)]
    #[serde(flatten)]
    closed: Closed,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let peer = Peer::at(server()?);
    let task = stage.template("bench.bare")?.task(When::Tomorrow);
    let request = Bytes::from(peer.post("/delay/task/add", &task));
    let begin = async || Ok(());
    let (_, (), load) =
        params.closed.run(&peer, &stage.progress, |_| request.clone(), begin).await?;
    let mut figures = Figures::default();
    figures.put_load("requests", &load);
    Ok(figures)
}

#[derive(Deserialize)]
struct Add<'a> {
    topic: &'a str,
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    sn: &'a str,
    url: &'a str,
}

#[derive(Serialize)]
struct Added {
    dm_error: i64,
    error_msg: &'static str,
    task_id: u64,
    due_ms: i64,
    mode: &'static str,
    durability: &'static str,
}

/// Starts the server on threads of its own, which run until the process ends. Returns its address.
pub(super) fn server() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            axum::serve(listener, Router::new().route("/delay/task/add", post(add))).await
        })
    });
    Ok(address)
}

async fn add(body: Bytes) -> Result<Json<Added>, StatusCode> {
    static NEXT: AtomicU64 = AtomicU64::new(1_795_234_567_000_000);
    let add: Add<'_> = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    if add.topic.is_empty() || add.content.sn.is_empty() || !add.content.url.starts_with('/') {
        return Err(StatusCode::BAD_REQUEST);
    }
    let (task_id, due_ms) = (NEXT.fetch_add(1, Ordering::Relaxed), clock::now_ms());
    let (dm_error, error_msg) = (0, "操作成功");
    Ok(Json(Added { dm_error, error_msg, task_id, due_ms, mode: "push", durability: "fsynced" }))
}
