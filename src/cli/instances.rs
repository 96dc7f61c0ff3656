//! `delayd instances`: shows the instances that are alive.

use delayd_wire::{InstanceListRequest, InstanceShown, Instances};

use super::cell::Cell;
use super::client::ServerArgs;
use super::table::Column;
use super::{Code, table};

/// Show the instances that share the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd instances")]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(Args { server }: Args) -> anyhow::Result<Code> {
    server.ask("/delay/instance/list", &InstanceListRequest {}, shown).await?;
    Ok(Code::Done)
}

fn shown(Instances { instances }: Instances) -> String {
    if instances.is_empty() {
        return "no heartbeat is known yet".into();
    }
    let columns: [Column<InstanceShown>; 10] = [
        ("name", |one| one.name.cell()),
        ("address", |one| one.address.cell()),
        ("version", |one| one.version.cell()),
        ("started", |one| one.started_ms.cell()),
        ("workers", |one| one.workers.cell()),
        ("calls", |one| one.in_flight.cell()),
        ("failing", |one| one.failing.cell()),
        ("cpu", |one| format!("{:.0}%", one.cpu * 100.0)),
        ("memory", |one| format!("{} MiB", one.memory_bytes >> 20)),
        ("seen", |one| one.seen_ms.cell()),
    ];
    table::of(&instances, &columns)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn instances_are_a_table() {
        let shown = |answer| shown(serde_json::from_value(answer).unwrap());
        assert_eq!(shown(json!({"instances": []})), "no heartbeat is known yet");
        let answer = json!({"instances": [{
            "id": "1", "name": "host", "version": "0.1.0", "started_ms": 0,
            "address": "127.0.0.1:7799", "cpu": 0.256, "memory_bytes": 20 << 20, "in_flight": 3,
            "workers": true, "failing": 2, "seen_ms": 1000, "answers": true,
        }]});
        let table = shown(answer);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let head = "NAME ADDRESS VERSION STARTED WORKERS CALLS FAILING CPU MEMORY SEEN";
        assert_eq!(rows[0].join(" "), head);
        assert_eq!(
            rows[1].join(" "),
            "host 127.0.0.1:7799 0.1.0 1970-01-01T00:00:00.000Z yes 3 2 26% 20 MiB \
             1970-01-01T00:00:01.000Z"
        );
    }
}
