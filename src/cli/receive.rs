//! `delayd receive`: a receiver that prints callbacks.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::http::StatusCode;
use serde_json::json;
use tokio::sync::oneshot;

use super::receiver::{self, Params, ReceivedCall, Receiver};
use super::secret::SecretArg;
use super::signals::EndSignals;
use super::{Code, output, time};
use delayd_wire::Span;

/// How long the last answers may take in addition to --delay.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Receive callbacks and print one line for each.
///
/// A line has the time of arrival, the task id, the attempt, the topic, the path, the milliseconds
/// since the due time, and the body. Ends with SIGINT or SIGTERM.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd receive                          answers every callback with success
  delayd receive --fail-first 2           the first two attempts fail, then all succeed
  delayd receive --status 503 --delay 1s  a service in trouble
  delayd receive --json --stop-after 10   ten callbacks as NDJSON, then the end
  DELAYD_RECEIVE_SECRET=whsec_… delayd receive   check signatures")]
pub(super) struct Args {
    /// The address to listen on; port 0 uses a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    bind: SocketAddr,
    /// The status of the answers
    #[arg(
        long,
        value_name = "STATUS",
        default_value = "200",
        value_parser = clap::value_parser!(u16).range(200..=599)
    )]
    status: u16,
    /// Answer the first N callbacks with 500
    #[arg(long, value_name = "N", default_value = "0")]
    fail_first: u64,
    /// Wait this long before each answer
    #[arg(long, value_name = "DURATION", default_value = "0")]
    delay: Span,
    /// The body of the answers
    #[arg(long, value_name = "TEXT", default_value = receiver::OK)]
    body: String,
    /// Answer 401 to callbacks that are not signed with this secret (whsec_…); may be given several
    /// times
    #[arg(
        long,
        value_name = "SECRET",
        env = "DELAYD_RECEIVE_SECRET",
        hide_env_values = true,
        value_delimiter = ','
    )]
    secret: Vec<SecretArg>,
    /// End after N callbacks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stop_after: Option<u64>,
    /// Print only the number of callbacks at the end
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Print one JSON object per line, with the complete body
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let mut signals = EndSignals::listen().context("cannot listen for signals")?;
    let status = StatusCode::from_u16(args.status).context("no HTTP status")?;
    let secrets =
        args.secret.iter().map(|secret| secret.expose().parse()).collect::<Result<_, _>>();
    let secrets = secrets.map_err(|error| {
        anyhow::anyhow!("the secret (--secret or DELAYD_RECEIVE_SECRET) {error}")
    })?;
    let params = Params {
        status,
        fail_first: args.fail_first,
        delay: args.delay.0,
        body: args.body,
        secrets,
    };
    let (receiver, mut arrivals) = Receiver::bind(args.bind, params)
        .await
        .with_context(|| format!("cannot listen on {}", args.bind))?;
    eprintln!("receiving callbacks on http://{}", receiver.local_addr());
    let (stop, stopped) = oneshot::channel::<()>();
    let answering = tokio::spawn(receiver.run(async { drop(stopped.await) }));
    let mut count = 0;
    while args.stop_after != Some(count) {
        let callback = tokio::select! {
            callback = arrivals.recv() => callback,
            _ = signals.next() => break,
        };
        let Some(callback) = callback else { break };
        count += 1;
        if args.json {
            output::line(&ndjson(&callback))?;
        } else if !args.quiet {
            output::line(&line(&callback))?;
        }
    }
    drop(arrivals);
    drop(stop);
    // The last callback still has to be answered, but a peer that hangs must not block the exit.
    if let Ok(answered) = tokio::time::timeout(args.delay.0 + LAST_ANSWERS, answering).await {
        answered.context("the receiver failed")?.context("the receiver failed")?;
    }
    eprintln!("{count} callbacks");
    Ok(Code::Done)
}

fn line(callback: &ReceivedCall) -> String {
    let late = callback
        .due
        .map_or_else(|| "-".into(), |due| format!("{:+}", callback.at.0.saturating_sub(due.0)));
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let mut line = format!(
        "{} task={} attempt={} topic={} path={} late_ms={late} body={}",
        time::rfc3339(callback.at),
        or_dash(&callback.task_id),
        or_dash(&callback.attempt),
        or_dash(&callback.topic),
        callback.path,
        output::plain(&callback.body, 200),
    );
    if !callback.status.is_success() {
        line.push_str(&format!(" answered={}", callback.status.as_u16()));
    }
    if let Some(signature) = callback.signature {
        line.push_str(
            &signature.map_or_else(|why| format!(" refused={why:?}"), |()| " signature=ok".into()),
        );
    }
    line
}

fn ndjson(callback: &ReceivedCall) -> String {
    json!({
        "at_ms": callback.at,
        "task_id": callback.task_id.parse::<u64>().ok(),
        "webhook_id": callback.webhook_id,
        "attempt": callback.attempt.parse::<u64>().ok(),
        "topic": callback.topic,
        "path": callback.path,
        "due_ms": callback.due,
        "late_ms": callback.due.map(|due| callback.at.0.saturating_sub(due.0)),
        "status": callback.status.as_u16(),
        "signature": callback.signature.map(|signature| signature.is_ok()),
        "body": callback.body,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callback::Unverified;
    use crate::model::clock::UnixMillis;

    fn callback(status: StatusCode) -> ReceivedCall {
        ReceivedCall {
            at: UnixMillis(1_795_234_567_044),
            task_id: "1795234567000042".into(),
            webhook_id: "00c0ffee00c0ffee-1795234567000042".into(),
            attempt: "1".into(),
            topic: "orders".into(),
            due: Some(UnixMillis(1_795_234_567_042)),
            path: "/order/cancel".into(),
            body: "{\n}".into(),
            status,
            signature: None,
        }
    }

    #[test]
    fn a_callback_is_one_line() {
        let said = "2026-11-21T04:16:07.044Z task=1795234567000042 attempt=1 topic=orders \
                    path=/order/cancel late_ms=+2 body={\\n}";
        assert_eq!(line(&callback(StatusCode::OK)), said);
        let stray =
            ReceivedCall { task_id: String::new(), due: None, ..callback(StatusCode::BAD_GATEWAY) };
        let said = "2026-11-21T04:16:07.044Z task=- attempt=1 topic=orders \
                    path=/order/cancel late_ms=- body={\\n} answered=502";
        assert_eq!(line(&stray), said);
        let forged = ReceivedCall {
            signature: Some(Err(Unverified::Wrong)),
            ..callback(StatusCode::UNAUTHORIZED)
        };
        assert!(line(&forged).ends_with(" answered=401 refused=Wrong"), "{}", line(&forged));
        let signed = ReceivedCall { signature: Some(Ok(())), ..callback(StatusCode::OK) };
        assert!(line(&signed).ends_with(" signature=ok"), "{}", line(&signed));
    }

    #[test]
    fn a_callback_is_one_object() {
        let line = ndjson(&callback(StatusCode::OK));
        assert!(!line.contains('\n'), "{line}");
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "at_ms": 1_795_234_567_044_i64, "attempt": 1, "body": "{\n}",
            "due_ms": 1_795_234_567_042_i64, "late_ms": 2, "path": "/order/cancel",
            "signature": null, "status": 200, "task_id": 1_795_234_567_000_042_u64,
            "topic": "orders", "webhook_id": "00c0ffee00c0ffee-1795234567000042",
        });
        assert_eq!(object, expected);
    }
}
