//! A server that reads an add, answers like delayd and stores nothing, to measure the cost of axum
//! and serde.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::clock;

#[derive(Deserialize)]
struct Add<'a> {
    topic: &'a str,
    #[serde(borrow)]
    content: &'a RawValue,
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

/// Serves on a free port until the process is killed. Prints its address to stderr.
///
/// # Errors
/// If it cannot listen.
pub async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    eprintln!("the bare server listens on http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/delay/task/add", post(add))).await
}

async fn add(body: Bytes) -> Result<Json<Added>, StatusCode> {
    static NEXT: AtomicU64 = AtomicU64::new(1_795_234_567_000_000);
    let add: Add<'_> = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let content: Content<'_> =
        serde_json::from_str(add.content.get()).map_err(|_| StatusCode::BAD_REQUEST)?;
    if add.topic.is_empty() || content.sn.is_empty() || !content.url.starts_with('/') {
        return Err(StatusCode::BAD_REQUEST);
    }
    let (task_id, due_ms) = (NEXT.fetch_add(1, Ordering::Relaxed), clock::now_ms());
    Ok(Json(Added {
        dm_error: 0,
        error_msg: "操作成功",
        task_id,
        due_ms,
        mode: "push",
        durability: "fsynced",
    }))
}
