//! `delayd destination …`: shows, holds and releases destinations.

use clap::Subcommand;
use delayd_wire::{DestinationListRequest, DestinationShown, Destinations, Held, HoldRequest};

use super::cell::Cell;
use super::client::ServerArgs;
use super::{Code, table};
use crate::model::task::Destination;

/// Show the state of destinations, hold calls to one, or release it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd destination list
  delayd destination hold message.call
  delayd destination release message.call")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List each service that is configured or has waiting tasks
    List(ListArgs),
    /// Stop calls to a service on every instance: its tasks wait and use no attempts
    Hold(OneArgs),
    /// End a hold on every instance, whether set by hand or by a Retry-After of the service
    Release(OneArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The service, or a host with its port
    sn: Destination,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::List(ListArgs { server }) => {
            server.ask("/delay/destination/list", &DestinationListRequest {}, shown).await?
        }
        Verb::Hold(OneArgs { sn, server }) => {
            server
                .ask("/delay/destination/hold", &of(&sn), |_: Held| format!("{sn} is held"))
                .await?;
        }
        Verb::Release(OneArgs { sn, server }) => {
            server
                .ask("/delay/destination/release", &of(&sn), |_: Held| format!("{sn} is released"))
                .await?;
        }
    }
    Ok(Code::Done)
}

fn of(sn: &Destination) -> HoldRequest<&Destination> {
    HoldRequest { sn: Some(sn) }
}

fn shown(Destinations { destinations: all }: Destinations) -> String {
    if all.is_empty() {
        return "no destinations".into();
    }
    let row = |one: &DestinationShown| {
        vec![
            one.sn.cell(),
            one.configured.cell(),
            one.held.cell(),
            one.waiting.cell(),
            one.breaker.cell(),
            format!("{}/{}", one.in_flight, one.concurrency),
            one.rate.cell(),
            one.retry_after_ms.map_or("-".into(), |left| format!("{}s", left.div_ceil(1_000))),
            one.last_error_ms.cell(),
            one.last_error.cell(),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let head = [
        "sn",
        "configured",
        "held",
        "waiting",
        "breaker",
        "calls",
        "rate",
        "retry_after",
        "last_error_at",
        "last_error",
    ];
    table::columns(&head, &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn destinations_are_a_table() {
        let shown = |answer| shown(serde_json::from_value(answer).unwrap());
        assert_eq!(shown(json!({"destinations": []})), "no destinations");
        let answer = json!({"destinations": [{
            "sn": "shop", "configured": true, "held": false, "waiting": 12,
            "breaker": "open", "in_flight": 0,
            "concurrency": 16, "rate": null, "retry_after_ms": 89_500,
            "last_error": "down", "last_error_ms": 0,
        }]});
        let table = shown(answer);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let head =
            "SN CONFIGURED HELD WAITING BREAKER CALLS RATE RETRY_AFTER LAST_ERROR_AT LAST_ERROR";
        assert_eq!(rows[0].join(" "), head);
        let row = "shop yes no 12 open 0/16 - 90s 1970-01-01T00:00:00.000Z down";
        assert_eq!(rows[1].join(" "), row);
    }
}
