//! The upper limit of the Redis store: bodies and due times over one connection, without delayd.

use std::time::Duration;

use redis::IntoConnectionInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::options;
use crate::error::Error;
use crate::figures::Figures;
use crate::stage::Stage;
use delayd_wire::Span;

/// Tasks per pipeline.
const BATCHES: [usize; 4] = [1, 16, 64, 256];

/// `HSET` of a body and `ZADD` of its due time, pipelined on one connection: the limit of Redis on
/// this machine.
///
/// Verifies that each command added an element, and that Redis has all bodies.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Duration per pipeline size
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "1s",
        value_parser = options::span
    )]
    span: Span,
    /// Bytes of each body
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let objection = || Error::Odd("needs a Redis: add --store redis".into());
    let (url, prefix) = stage.redis_place().ok_or_else(objection)?;
    let redis = stage.redis().ok_or_else(objection)?;
    let mut stream = connect(&url).await?;
    let mut figures = Figures::default();
    let mut first = 0;
    for batch in BATCHES {
        stage.progress.step("tasks", 0);
        let (sent, took) =
            pipelines(&mut stream, &prefix, params, batch, first).await.map_err(Error::Broken)?;
        first += sent;
        figures.put(format!("batch_{batch}_tasks_per_s"), sent as f64 / took.as_secs_f64());
    }
    match redis.length(&format!("{prefix}:bodies")).await? {
        kept if kept == first => Ok(figures),
        kept => Err(Error::Defect(format!("{first} bodies were sent to Redis, and it has {kept}"))),
    }
}

/// Opens a connection to a server without password.
async fn connect(url: &str) -> Result<TcpStream, Error> {
    let info = url.into_connection_info().map_err(Error::redis)?;
    let redis::ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err(Error::Odd("raw-redis takes a plain address, redis://host:port/db".into()));
    };
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.map_err(Error::Broken)?;
    stream.set_nodelay(true).map_err(Error::Broken)?;
    let db = info.redis_settings().db();
    stream.write_all(format!("SELECT {db}\r\n").as_bytes()).await.map_err(Error::Broken)?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.map_err(Error::Broken)?;
    if answer == *b"+OK\r\n" {
        Ok(stream)
    } else {
        Err(Error::Odd("raw-redis takes a Redis without password".into()))
    }
}

/// Sends pipelines, each after the answer to the last. Returns the number of tasks and the time.
async fn pipelines(
    stream: &mut TcpStream,
    prefix: &str,
    params: &Params,
    batch: usize,
    first: u64,
) -> std::io::Result<(u64, Duration)> {
    let body = "x".repeat(params.bytes.into());
    // Both commands answer that they added one element.
    let expected = b":1\r\n".repeat(2 * batch);
    let mut answers = vec![0; expected.len()];
    let (begun, mut sent) = (Instant::now(), 0);
    while begun.elapsed() < params.span.0 {
        let mut pipeline = String::new();
        for n in 0..batch as u64 {
            let id = 1_795_234_567_000_000 + first + sent + n;
            let due = 1_795_234_567_000 + n;
            command(&mut pipeline, &["HSET", &format!("{prefix}:bodies"), &id.to_string(), &body]);
            command(
                &mut pipeline,
                &["ZADD", &format!("{prefix}:schedule"), &due.to_string(), &id.to_string()],
            );
        }
        stream.write_all(pipeline.as_bytes()).await?;
        stream.read_exact(&mut answers).await?;
        if answers != expected {
            return Err(std::io::Error::other("Redis did not add what it was sent"));
        }
        sent += batch as u64;
    }
    Ok((sent, begun.elapsed()))
}

fn command(pipeline: &mut String, words: &[&str]) {
    pipeline.push_str(&format!("*{}\r\n", words.len()));
    for word in words {
        pipeline.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
}
