//! `delayd fsck`: checks the consistency of the store.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::{Code, output, table};
use crate::app;
use crate::settings::Settings;
use crate::store::{Admin, AnyStore, Audit, CheckCursor, Finding, Flaw, Store};

/// Check everything in the store for inconsistencies that no call leaves behind; with --repair,
/// repair them.
///
/// A check changes nothing. With a Redis store, both are safe while delayd runs. An embedded file
/// can be checked while delayd runs; stop delayd to repair it. No contents are printed.
///
/// Exit codes: 0 no findings, or all were repaired; 1 findings remain; 78 the configuration is
/// wrong, or a running delayd has the file open.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd fsck --config /etc/delayd.toml
  delayd fsck --set store.embedded.path=data/delayd.db
  DELAYD__STORE__KIND=redis delayd fsck --repair --json")]
pub(super) struct Args {
    /// Repair the findings, so that no accepted task is lost and no ended task is called again
    #[arg(long)]
    repair: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Time between two progress lines on stderr.
const SIGN: Duration = Duration::from_secs(5);

/// Subjects that are named for each flaw.
const NAMED: usize = 3;

/// The maximum length of a subject.
const LONGEST: usize = 80;

pub(super) async fn run(args: Args, settings: &Settings) -> anyhow::Result<Code> {
    let store = app::open_store_for_check(settings, args.repair).await?;
    let report = look(&store, args.repair).await;
    if args.repair
        && let Err(error) = store.record(vec![app::entry_of_command("store/repair")]).await
    {
        eprintln!("delayd: store/repair is not in the audit log: {error}");
    }
    store.close().await;
    let report = report?;
    output::line(&if args.json { report.json().to_string() } else { report.text() })?;
    Ok(if report.is_in_order() { Code::Done } else { Code::Failed })
}

/// Checks the complete store, and reports progress from time to time.
async fn look(store: &AnyStore, repair: bool) -> anyhow::Result<Report> {
    let mut report = Report { repair, ..Report::default() };
    let (mut next, mut last_sign) = (Some(CheckCursor::start()), Instant::now());
    while let Some(cursor) = next {
        let checked = store.check(cursor, repair).await?;
        report.tasks += checked.tasks;
        report.lanes += checked.lanes;
        for finding in checked.findings {
            report.add(&finding);
        }
        if last_sign.elapsed() >= SIGN {
            last_sign = Instant::now();
            eprintln!("delayd: checked {} tasks so far, {} findings", report.tasks, report.count());
        }
        next = checked.next;
    }
    Ok(report)
}

/// The result of a check.
#[derive(Debug, Default)]
struct Report {
    repair: bool,
    tasks: u64,
    lanes: u64,
    flaws: BTreeMap<Flaw, Findings>,
}

/// The findings of one kind.
#[derive(Debug, Default)]
struct Findings {
    count: u64,
    repaired: u64,
    /// The first few: lane and subject.
    first: Vec<(Option<String>, String)>,
}

impl Report {
    fn add(&mut self, finding: &Finding) {
        let found = self.flaws.entry(finding.flaw).or_default();
        found.count += 1;
        found.repaired += u64::from(finding.repaired);
        if found.first.len() < NAMED {
            let lane = finding.lane.as_ref().map(ToString::to_string);
            found.first.push((lane, output::plain(&finding.subject, LONGEST)));
        }
    }

    fn count(&self) -> u64 {
        self.flaws.values().map(|found| found.count).sum()
    }

    fn repaired(&self) -> u64 {
        self.flaws.values().map(|found| found.repaired).sum()
    }

    fn is_in_order(&self) -> bool {
        self.count() == self.repaired()
    }

    fn text(&self) -> String {
        let looked = format!(
            "checked {} and {}",
            output::many(self.tasks, "task"),
            output::many(self.lanes, "lane")
        );
        if self.flaws.is_empty() {
            return format!("{looked}: no findings");
        }
        let left = self.count() - self.repaired();
        let ending = match (left, self.repair) {
            (0, _) => ", all repaired".to_owned(),
            (_, true) => format!(", {} repaired, {left} not repaired", self.repaired()),
            (_, false) => "; repair with: delayd fsck --repair".to_owned(),
        };
        let rows: Vec<_> = self.flaws.iter().map(|(flaw, found)| found.row(*flaw)).collect();
        let table = table::columns(&["finding", "count", "repaired", "first"], &rows);
        let meanings: Vec<_> = self.flaws.keys().map(|flaw| meaning(*flaw)).collect();
        format!(
            "{table}\n\n{}\n\n{looked}: {}{ending}",
            meanings.join("\n"),
            output::many(self.count(), "finding")
        )
    }

    fn json(&self) -> Value {
        let findings: Vec<Value> =
            self.flaws.iter().map(|(flaw, found)| found.json(*flaw)).collect();
        json!({
            "tasks": self.tasks, "lanes": self.lanes, "found": self.count(),
            "repaired": self.repaired(),
            "findings": findings,
        })
    }
}

impl Findings {
    fn row(&self, flaw: Flaw) -> Vec<String> {
        let named = |(lane, subject): &(Option<String>, String)| match lane {
            Some(lane) => format!("{subject} in {lane}"),
            None => subject.clone(),
        };
        let more = if self.count > NAMED as u64 { ", …" } else { "" };
        let first = self.first.iter().map(named).collect::<Vec<_>>().join(", ") + more;
        vec![flaw.name().into(), self.count.to_string(), self.repaired.to_string(), first]
    }

    fn json(&self, flaw: Flaw) -> Value {
        let first: Vec<Value> = self
            .first
            .iter()
            .map(|(lane, subject)| json!({"lane": lane, "subject": subject}))
            .collect();
        json!({
            "finding": flaw.name(), "meaning": flaw.meaning(), "repair": flaw.remedy(),
            "count": self.count, "repaired": self.repaired, "first": first,
        })
    }
}

fn meaning(flaw: Flaw) -> String {
    let remedy = flaw.remedy().unwrap_or("It is not repaired.");
    format!("{}: {} Repair: {remedy}", flaw.name(), flaw.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(repair: bool, findings: &[(Flaw, &str, bool)]) -> Report {
        let mut report = Report { repair, tasks: 12_000, lanes: 1, ..Report::default() };
        for (flaw, subject, repaired) in findings {
            let lane = (*flaw != Flaw::StrayKey).then(|| "orders:0".parse().unwrap());
            report.add(&Finding {
                flaw: *flaw,
                lane,
                subject: (*subject).into(),
                repaired: *repaired,
            });
        }
        report
    }

    #[test]
    fn a_store_in_order_is_one_line() {
        let report = report(false, &[]);
        assert_eq!(report.text(), "checked 12000 tasks and 1 lane: no findings");
        assert!(report.is_in_order());
    }

    #[test]
    fn findings_are_counted_and_explained() {
        let body = |id| (Flaw::BodyWithoutPlace, id, true);
        let findings =
            [body("1"), body("2"), body("3"), body("4"), (Flaw::StrayKey, "p:\u{1b}[2J{x}", false)];
        let report = report(true, &findings);
        assert!(!report.is_in_order());
        let text = report.text().replace(" Repair:", "\n    Repair:").replace(": it", ":\n    it");
        insta::assert_snapshot!(text, @r#"
        FINDING             COUNT  REPAIRED  FIRST
        body-without-place  4      4         1 in orders:0, 2 in orders:0, 3 in orders:0, …
        stray-key           1      0         p:\u{1b}[2J{x}

        body-without-place: A task has content, but is not scheduled, leased or listed:
            it would never be called.
            Repair: The task is scheduled for its due time or for now, whichever is later.
        stray-key: A key looks like a lane's, but names no lane.
            Repair: It is not repaired.

        checked 12000 tasks and 1 lane: 5 findings, 4 repaired, 1 not repaired
        "#);
        assert_eq!(report.json()["findings"][0]["count"], 4);
        assert_eq!(report.json()["findings"][1]["repair"], Value::Null);
    }

    #[test]
    fn what_was_repaired_is_in_order() {
        let finding = (Flaw::EarliestWrong, "message.call");
        assert!(
            report(true, &[(finding.0, finding.1, true)])
                .text()
                .ends_with(": 1 finding, all repaired")
        );
        let look = report(false, &[(finding.0, finding.1, false)]);
        assert!(look.text().ends_with("repair with: delayd fsck --repair") && !look.is_in_order());
    }
}
