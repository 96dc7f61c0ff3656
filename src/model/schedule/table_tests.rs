//! Nominal moments compared with a table that `table/generate.py` made with other zone data.

use sha2::{Digest, Sha256};

use super::{Nominal, Recurrence, Rule};
use crate::model::clock::UnixMillis;

const TABLE: &str = include_str!("table/table.txt");

/// A rule in a zone, and its moments from `begin` until before `end`.
struct Section<'a> {
    zone: &'a str,
    begin: UnixMillis,
    end: UnixMillis,
    rule: &'a str,
    count: usize,
    digest: &'a str,
    /// The moments near clock changes.
    rows: Vec<&'a str>,
}

impl<'a> Section<'a> {
    fn read(head: &'a str, rows: Vec<&'a str>) -> Self {
        let [zone, span, rule, sum] = head.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{head}")
        };
        let midnight = |date: &str| {
            let moment: jiff::Timestamp = format!("{date}T00:00:00Z").parse().unwrap();
            UnixMillis(moment.as_millisecond())
        };
        let (begin, end) = span.split_once(' ').unwrap();
        let (count, digest) = sum.split_once(' ').unwrap();
        let (begin, end) = (midnight(begin), midnight(end));
        Self { zone, begin, end, rule, count: count.parse().unwrap(), digest, rows }
    }

    fn recurrence(&self) -> Recurrence {
        cron(self.rule, self.zone)
    }
}

fn cron(cron: &str, zone: &str) -> Recurrence {
    Recurrence::parse(&Rule {
        cron: Some(cron),
        every: None,
        zone,
        start: None,
        end: None,
        anchor: UnixMillis(0),
    })
    .unwrap()
}

fn sections() -> Vec<Section<'static>> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(head) => sections.push((head, Vec::new())),
            None => sections.last_mut().unwrap().1.push(line),
        }
    }
    sections.into_iter().map(|(head, rows)| Section::read(head, rows)).collect()
}

fn line(nominal: &Nominal) -> String {
    assert_eq!(nominal.moment.0 % 1000, 0);
    format!("{} {}", nominal.cursor, nominal.moment.0 / 1000)
}

#[test]
fn the_nominal_moments_are_those_of_the_table() {
    let sections = sections();
    assert!(sections.len() > 150, "{} sections", sections.len());
    for section in &sections {
        let recurrence = section.recurrence();
        let name = format!("{} in {}", section.rule, section.zone);
        let mut lines = Vec::new();
        let mut next = recurrence.first_after(UnixMillis(section.begin.0 - 1));
        while let Some(nominal) = next.filter(|nominal| nominal.moment < section.end) {
            lines.push(line(&nominal));
            next = recurrence.next_after(&nominal.cursor);
            // A planner that knows the moment only finds the same one.
            assert_eq!(recurrence.first_after(nominal.moment), next, "{name}");
            assert_eq!(recurrence.resolve(&nominal.cursor), nominal.moment, "{name}");
        }
        for row in &section.rows {
            assert!(lines.iter().any(|line| line == row), "{name}: {row} is missing");
        }
        assert_eq!(lines.len(), section.count, "{name}");
        let digest =
            Sha256::digest(lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, section.digest, "{name}");
    }
}

/// The counts of the table, from one step over the whole span.
#[test]
fn missed_moments_are_counted_as_the_table_counts_them() {
    for section in sections() {
        let recurrence = section.recurrence();
        let name = format!("{} in {}", section.rule, section.zone);
        let Some(first) = recurrence.first_after(UnixMillis(section.begin.0 - 1)) else { continue };
        let last = UnixMillis(section.end.0 - 1);
        let count = section.count as u64;
        assert_eq!(recurrence.missed(&first.cursor, last) + 1, count, "{name}");
        let backlog = recurrence.backlog(&first.cursor, last, 3);
        let kept = count.saturating_sub(1).min(3);
        assert_eq!(backlog.map_or(0, |backlog| backlog.count), kept, "{name}");
        if let Some(backlog) = backlog {
            assert_eq!(backlog.dropped + kept + 1, count, "{name}");
            let rest = recurrence.missed(&backlog.first.cursor, last);
            assert_eq!(rest + 1, kept, "{name}");
        }
    }
}
