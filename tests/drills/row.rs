//! One row of the table: the results of a drill, and whether a promise was broken.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::verdict::Verdict;

/// The first few of the findings.
fn first(found: &[String]) -> String {
    found.iter().take(5).cloned().collect::<Vec<_>>().join("; ")
}

/// A drill's row. [`Row::finish`] prints it, and panics if a promise was broken.
#[derive(Debug)]
pub struct Row {
    drill: String,
    began: Instant,
    verdict: Option<Verdict>,
    notes: Vec<String>,
    broken: Vec<String>,
}

impl Row {
    /// Names the drill, such as "kill -9 of delayd ×3, embedded".
    pub fn new(drill: impl Into<String>) -> Self {
        Self {
            drill: drill.into(),
            began: Instant::now(),
            verdict: None,
            notes: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// A figure without a column of its own.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// A condition that must hold in both forms of the drill. `otherwise` is the message if it does
    /// not.
    pub fn promise(&mut self, kept: bool, otherwise: impl Into<String>) {
        if !kept {
            self.broken.push(otherwise.into());
        }
    }

    /// A condition about time. A busy machine may not meet it, so the short form ignores it.
    pub fn promise_in_time(&mut self, kept: bool, otherwise: impl Into<String>) {
        self.promise(kept || !crate::is_long(), otherwise);
    }

    /// The redelivery after a crash takes at most the lease and a second.
    pub fn promise_redelivery(&mut self, lease: Duration) {
        let most = lease.as_millis() as i64 + 1_000;
        let slowest = self.verdict.as_ref().and_then(|verdict| verdict.redelivery_ms);
        let otherwise =
            format!("redelivery took {} ms, lease + 1 s is {most} ms", slowest.unwrap_or_default());
        self.promise_in_time(slowest.is_none_or(|slowest| slowest <= most), otherwise);
        self.note(format!("lease + 1 s is {most} ms"));
    }

    /// Takes the result of the account, and checks the promises of every drill.
    pub fn settle(&mut self, verdict: Verdict) {
        self.promise(
            verdict.lost.is_empty(),
            format!("{} lost: {}", verdict.lost.len(), first(&verdict.lost)),
        );
        self.settle_counting_losses(verdict);
    }

    /// Like [`Row::settle`], but losses are only counted: the drill itself says how many are
    /// allowed.
    pub fn settle_counting_losses(&mut self, verdict: Verdict) {
        let (early, odd) = (first(&verdict.early), first(&verdict.unexplained));
        self.promise(early.is_empty(), format!("{} early: {early}", verdict.early.len()));
        self.promise(
            odd.is_empty(),
            format!("{} duplicates without a cause: {odd}", verdict.unexplained.len()),
        );
        self.promise(verdict.accepted > 0, "no add was accepted, so nothing was tested");
        self.verdict = Some(verdict);
    }

    /// How many callbacks were duplicates, whatever the cause.
    pub fn duplicates(&self) -> usize {
        self.verdict.as_ref().map_or(0, Verdict::duplicates)
    }

    /// Prints the row and adds it to the table.
    ///
    /// # Panics
    ///
    /// If a promise was broken.
    pub fn finish(self) {
        let row = self.markdown();
        println!("{row}");
        if let Some(table) = std::env::var_os("DRILL_TABLE") {
            let mut table = OpenOptions::new().create(true).append(true).open(table).unwrap();
            writeln!(table, "{row}").unwrap();
        }
        assert!(self.broken.is_empty(), "{}: {}", self.drill, self.broken.join("\n"));
    }

    fn markdown(&self) -> String {
        let found = self.verdict.as_ref();
        let figure = |of: fn(&Verdict) -> String| found.map_or_else(|| "–".to_owned(), of);
        let mut notes = self.notes.clone();
        notes.extend(
            self.broken.iter().map(|broken| format!("**BROKEN**: {}", broken.replace('|', "/"))),
        );
        [
            self.drill.clone(),
            figure(|verdict| verdict.accepted.to_string()),
            figure(|verdict| verdict.delivered.to_string()),
            figure(|verdict| verdict.lost.len().to_string()),
            figure(|verdict| verdict.early.len().to_string()),
            figure(Verdict::causes),
            figure(|verdict| {
                verdict.redelivery_ms.map_or_else(|| "–".to_owned(), |slowest| slowest.to_string())
            }),
            figure(|verdict| format!("{} / {}", verdict.lateness_ms(50), verdict.lateness_ms(99))),
            format!("{:.1}", self.began.elapsed().as_secs_f64()),
            notes.join("; "),
            // Set if one drill runs at a time.
            std::env::var("DRILL_NAME")
                .map_or_else(|_| "–".to_owned(), |name| format!("`scripts/drills {name}`")),
        ]
        .iter()
        .fold("|".to_owned(), |row, cell| format!("{row} {cell} |"))
    }
}
