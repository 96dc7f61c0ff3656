//! Runs the rows of a table. The stored data is written as one line for each member:
//!
//! | line | meaning |
//! |---|---|
//! | `entries 7 = 1 0 - w r * shop ` | a field of a hash |
//! | `leased 7 @ 2000` | a member of a sorted set |
//! | `schedule:shop 7 @ 500` | the same, in the schedule of a destination |
//! | `lock = token` | a string |
//! | `audit entry = {}` | an entry of a stream, and its only field; only read |
//!
//! `<run>` stands for `<run_id>-<replid>`, which the server reports, and `|` for a line break. `…`
//! at the end of a line or an answer stands for any text, since it comes from the server's own
//! clock.

use std::fmt::Write as _;

use deadpool_redis::redis::{self, Connection, Value};

use crate::bench::fresh_prefix;
use crate::redis_server;

/// Now, in each row.
const NOW: i64 = 1_000;

/// One case of a script.
pub(super) struct Row {
    /// What is special about the case.
    pub(super) case: &'static str,
    /// The stored data.
    pub(super) before: &'static [&'static [&'static str]],
    /// The arguments after now.
    pub(super) args: &'static [&'static str],
    pub(super) answer: &'static str,
    /// The removed lines (`-`) and the new lines (`+`).
    pub(super) after: &'static [&'static str],
}

/// The keys that a script gets.
pub(super) enum Keys {
    Add,
    Lane,
    LaneAndAside,
    /// Of one lane, the destinations.
    Lanes,
    Registry,
    LastId,
    Store,
    Instances,
    Audit,
    Confirmation,
}

/// The name of a key in the rows, and its name in Redis. The keys of a lane are in the order in
/// which its scripts get them.
const NAMES: [(&str, &str); 32] = [
    ("bodies", "DELAY_REALL_TOPIC_TASK-{orders:0}"),
    ("offsets", "DELAY_TOPIC_OFFSET-{orders:0}"),
    ("destinations", "DELAY_TOPIC_DESTINATIONS-{orders:0}"),
    ("schedule:", "DELAY_SIMPLE_TOPIC_TASK-{orders:0}:"),
    ("entries", "DELAY_ATTEMPTS_TOPIC_TASK-{orders:0}"),
    ("leased", "DELAY_LEASED_TOPIC_TASK-{orders:0}"),
    ("lock", "DELAY_TOPIC_RELOAD_LOCK-{orders:0}"),
    ("delivered", "DELAY_DELIVERED_TOPIC_TASK-{orders:0}"),
    ("dead", "DELAY_DEAD_TOPIC_TASK-{orders:0}"),
    ("cancelled", "DELAY_CANCELLED_TOPIC_TASK-{orders:0}"),
    ("expired", "DELAY_EXPIRED_TOPIC_TASK-{orders:0}"),
    ("expiries", "DELAY_EXPIRIES_TOPIC_TASK-{orders:0}"),
    ("owners", "DELAY_KEYS_TOPIC_TASK-{orders:0}"),
    ("used", "DELAY_IDEMPOTENCY_TOPIC_TASK-{orders:0}"),
    ("windows", "DELAY_WINDOWS_TOPIC_TASK-{orders:0}"),
    ("notes", "DELAY_NOTES_TOPIC_TASK-{orders:0}"),
    ("recurring", "DELAY_RECURRING_TOPIC_TASK-{orders:0}"),
    ("plans", "DELAY_PLANS_TOPIC_TASK-{orders:0}"),
    ("aside", "DELAY_ASIDE_TOPIC_TASK-{orders:0}"),
    ("topics", "DELAY_TOPIC_LIST"),
    ("policies", "DELAY_TOPIC_POLICY"),
    ("pauses", "DELAY_TOPIC_PAUSES"),
    ("departures", "DELAY_TOPIC_LEAVING"),
    ("revision", "DELAY_TOPIC_REVISION"),
    ("scheduled", "DELAY_TOPIC_SCHEDULED"),
    ("created", "DELAY_TOPIC_CREATED"),
    ("last_id", "DELAY_TASK_ID"),
    ("id_run", "DELAY_TASK_ID_RUN"),
    ("store", "DELAY_STORE"),
    ("instances", "DELAY_INSTANCES"),
    ("audit", "DELAY_AUDIT"),
    ("confirmation", "DELAY_CONFIRMATION-{orders:0}"),
];
const LANE: usize = 18;

impl Keys {
    pub(super) fn names(&self) -> Vec<&'static str> {
        let names = match self {
            Self::Add => &NAMES[..4],
            Self::Lane => &NAMES[..LANE],
            Self::LaneAndAside => &NAMES[..=LANE],
            Self::Lanes => &NAMES[2..3],
            Self::Registry => &NAMES[19..26],
            Self::LastId => &NAMES[26..28],
            Self::Store => &NAMES[28..29],
            Self::Instances => &NAMES[29..30],
            Self::Audit => &NAMES[30..31],
            Self::Confirmation => &NAMES[31..],
        };
        names.iter().map(|(_, name)| *name).collect()
    }
}

/// The keys of one row.
struct Stored {
    prefix: String,
    connection: Connection,
}

impl Stored {
    fn key(&self, shown: &str) -> String {
        let (shown, further) = match shown.split_once(':') {
            Some((_, destination)) => ("schedule:", destination),
            None => (shown, ""),
        };
        let (_, name) = NAMES
            .iter()
            .find(|(other, _)| *other == shown)
            .unwrap_or_else(|| panic!("no key {shown}"));
        format!("{}:{name}{further}", self.prefix)
    }

    fn shown(&self, key: &str) -> String {
        let name = &key[self.prefix.len() + 1..];
        let (shown, further) = NAMES
            .iter()
            .find_map(|(shown, full)| match shown.ends_with(':') {
                true => Some((shown, name.strip_prefix(full)?)),
                false => (name == *full).then_some((shown, "")),
            })
            .unwrap_or_else(|| panic!("no name for {key}"));
        format!("{shown}{further}")
    }

    fn ask<T: redis::FromRedisValue>(&mut self, command: &str, words: &[&str]) -> T {
        redis::cmd(command).arg(words).query(&mut self.connection).unwrap()
    }

    fn write(&mut self, line: &str) {
        let (place, is_scored, value) = match (line.split_once(" = "), line.split_once(" @ ")) {
            (Some((place, value)), _) => (place, false, value.replace('|', "\n")),
            (None, Some((place, score))) => (place, true, score.to_owned()),
            (None, None) => panic!("what is {line}?"),
        };
        let (shown, member) = place.split_once(' ').unwrap_or((place, ""));
        let key = self.key(shown);
        match (is_scored, member) {
            (true, member) => self.ask("ZADD", &[&key, &value, member]),
            // As long as a claim keeps it.
            (false, "") if shown == "lock" => self.ask("SET", &[&key, &value, "EX", "2"]),
            (false, "") => self.ask("SET", &[&key, &value]),
            (false, field) => self.ask("HSET", &[&key, field, &value]),
        }
    }

    /// The run and the replication id of the server.
    fn run(&mut self) -> [String; 2] {
        let info: String = self.ask("INFO", &["server", "replication"]);
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        ["run_id:", "master_replid:"].map(|name| field(name).to_owned())
    }

    /// All stored data, sorted.
    fn read(&mut self) -> Vec<String> {
        let keys: Vec<String> = self.ask("KEYS", &[&format!("{}:*", self.prefix)]);
        let mut lines = Vec::new();
        for key in &keys {
            let shown = self.shown(key);
            let (sign, pairs): (_, Vec<String>) = match self.ask::<String>("TYPE", &[key]).as_str()
            {
                "hash" => ('=', self.ask("HGETALL", &[key])),
                "zset" => ('@', self.ask("ZRANGE", &[key, "0", "-1", "WITHSCORES"])),
                "stream" => {
                    let entries: Vec<(String, Vec<String>)> = self.ask("XRANGE", &[key, "-", "+"]);
                    ('=', entries.into_iter().flat_map(|(_, fields)| fields).collect())
                }
                _ => ('=', vec![String::new(), self.ask("GET", &[key])]),
            };
            for pair in pairs.chunks(2) {
                let member =
                    if pair[0].is_empty() { String::new() } else { format!(" {}", pair[0]) };
                lines.push(format!("{shown}{member} {sign} {}", pair[1]).replace('\n', "|"));
            }
        }
        lines.sort();
        lines
    }
}

/// The text of a script, as Redis gets it.
pub(super) fn text_of(name: &str) -> &'static str {
    let mut sent = delayd::store::redis::script::sent().into_iter();
    sent.find(|(other, _)| *other == name).unwrap().1
}

/// Runs the rows of a script and reports all that differ.
pub(super) fn check(name: &str, keys: Keys, rows: &[Row]) {
    let script = text_of(name);
    let mut report = String::new();
    for row in rows {
        let connection =
            redis::Client::open(redis_server::shared().url()).unwrap().get_connection().unwrap();
        let mut stored = Stored { prefix: fresh_prefix(), connection };
        let [run_id, replid] = stored.run();
        let with_run = |line: &str| {
            let line = line.replace("<run>", "<run_id>-<replid>");
            line.replace("<run_id>", &run_id).replace("<replid>", &replid)
        };
        row.before.concat().into_iter().for_each(|line| stored.write(&with_run(line)));
        let before = stored.read();
        let names: Vec<String> =
            keys.names().iter().map(|name| format!("{}:{name}", stored.prefix)).collect();
        let args: Vec<String> = row.args.iter().map(|arg| arg.replace('|', "\n")).collect();
        let mut call = redis::cmd("EVAL");
        call.arg(script).arg(names.len()).arg(&names).arg(NOW).arg(&args);
        let answer = match call.query::<Value>(&mut stored.connection) {
            Ok(answer) => show(&answer),
            Err(error) => format!("{error}"),
        };
        let after = stored.read();
        let gone =
            before.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}"));
        let new =
            after.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
        let changes: Vec<String> = gone.chain(new).collect();
        let is_same = changes.len() == row.after.len()
            && changes
                .iter()
                .zip(row.after)
                .all(|(line, expected)| is_as(line, &with_run(expected)));
        if !is_same || !is_as(&answer, row.answer) {
            writeln!(report, "{name}: {}\nanswer: {answer}", row.case).unwrap();
            changes.iter().for_each(|line| writeln!(report, "{line}").unwrap());
        }
    }
    assert!(report.is_empty(), "these rows differ:\n{report}");
}

fn is_as(text: &str, expected: &str) -> bool {
    match expected.split_once('…') {
        Some((begin, end)) => text.starts_with(begin) && text.ends_with(end),
        None => text == expected,
    }
}

pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).replace('\n', "|"),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}
