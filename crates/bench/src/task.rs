//! The JSON of the tasks of a bench. Common parts are created once.

use anyhow::ensure;

/// The minimum content, with service and path.
pub(crate) const LEAST_CONTENT: u16 = 100;

/// When a task is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// After a day, so not during the bench.
    Tomorrow,
    /// At this time, in Unix milliseconds.
    At(i64),
}

/// Creates tasks of one topic with the same content.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    head: String,
    tail: String,
}

impl Template {
    /// Tasks that are called back at a service.
    pub(crate) fn push(topic: &str, service: &str, bytes: u16) -> anyhow::Result<Self> {
        Self::new(topic, &format!(r#""sn":"{service}","url":"/bench","#), bytes, "")
    }

    /// Tasks that are pulled.
    pub(crate) fn pull(topic: &str, bytes: u16) -> anyhow::Result<Self> {
        Self::new(topic, "", bytes, r#","mode":"pull""#)
    }

    fn new(topic: &str, fields: &str, bytes: u16, options: &str) -> anyhow::Result<Self> {
        let used = fields.len() + r#"{"pad":""}"#.len();
        let bytes = usize::from(bytes);
        ensure!(bytes >= used, "a content of {bytes} bytes is too short for the service's name");
        let content = format!(r#"{{{fields}"pad":"{}"}}"#, "x".repeat(bytes - used));
        Ok(Self {
            head: format!(r#"{{"topic":"{topic}","#),
            tail: format!(r#","content":{content}{options}}}"#),
        })
    }

    pub(crate) fn task(&self, when: When) -> String {
        let mut task = String::with_capacity(self.head.len() + self.tail.len() + 40);
        self.write(when, &mut task);
        task
    }

    pub(crate) fn write(&self, when: When, into: &mut String) {
        into.push_str(&self.head);
        match when {
            When::Tomorrow => into.push_str(r#""delay":"24h""#),
            When::At(ms) => {
                into.push_str(r#""timing_moment":"#);
                into.push_str(&format!("{}.{:03}", ms.div_euclid(1_000), ms.rem_euclid(1_000)));
            }
        }
        into.push_str(&self.tail);
    }
}

/// The body of a batch; `write` appends each task.
pub(crate) fn batch(numbers: std::ops::Range<u64>, write: impl Fn(u64, &mut String)) -> String {
    let mut body = String::from(r#"{"tasks":["#);
    for (i, number) in numbers.enumerate() {
        if i > 0 {
            body.push(',');
        }
        write(number, &mut body);
    }
    body.push_str("]}");
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_json_with_contents_of_the_wanted_length() {
        let template = Template::push("bench.t", "bench.receiver", 200).unwrap();
        let body =
            batch(0..2, |n, body| template.write(When::At(1_795_234_567_007 + n as i64), body));
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(read["tasks"][0]["timing_moment"], 1_795_234_567.007);
        assert_eq!(read["tasks"][1]["content"].to_string().len(), 200);
        let pull: serde_json::Value =
            serde_json::from_str(&Template::pull("t", 100).unwrap().task(When::Tomorrow)).unwrap();
        assert_eq!((pull["mode"].as_str(), pull["content"].to_string().len()), (Some("pull"), 100));
        assert!(Template::push("t", "message.call", 30).is_err());
    }
}
