//! Reads what the scripts store of a task. `lua/lib/record.lua` and `lua/lib/entry.lua` describe
//! the formats.

use std::borrow::Cow;

use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Options, State};
use crate::store::{Error, LeaseKind, Result};

/// The version byte at the start of every record.
const VERSION: &str = "1";
/// How absent options are written.
const NO_OPTIONS: &str = "-";

/// A task as it was added: `1 <due_ms> <created_ms> <destination> <options>\n<content>`.
#[derive(Debug, PartialEq)]
pub(super) struct Record {
    pub(super) due: UnixMillis,
    pub(super) created: UnixMillis,
    pub(super) destination: Destination,
    pub(super) options: Options,
    pub(super) content: String,
}

/// The options as a record writes them.
pub(super) fn write_options(options: &Options) -> Cow<'static, str> {
    options.json().map_or(NO_OPTIONS.into(), Cow::Owned)
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that this version did not write.
    pub(super) fn read(mut bytes: Vec<u8>) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt(format!("a task's record has {what}"));
        let end = bytes.iter().position(|&b| b == b'\n').ok_or_else(|| corrupt("no head"))?;
        let content = bytes.split_off(end + 1);
        let head =
            std::str::from_utf8(&bytes[..end]).map_err(|_| corrupt("a head that is no text"))?;
        let mut fields = head.splitn(5, ' ');
        let mut field = || fields.next().ok_or_else(|| corrupt("too short a head"));
        if field()? != VERSION {
            return Err(corrupt("a version that is not ours"));
        }
        let due = read_millis(field()?)?;
        let created = read_millis(field()?)?;
        let destination = field()?.parse().map_err(|_| corrupt("no destination"))?;
        let options = match field()? {
            NO_OPTIONS => Options::default(),
            json => serde_json::from_str(json).map_err(|_| corrupt("unreadable options"))?,
        };
        let content =
            String::from_utf8(content).map_err(|_| corrupt("a content that is no text"))?;
        Ok(Self { due, created, destination, options, content })
    }
}

/// What is stored of a task that was claimed or has ended.
#[derive(Debug, PartialEq)]
pub(super) struct StoredEntry {
    pub(super) attempts: u32,
    /// The final state, if it has ended.
    pub(super) ended: Option<State>,
    /// Whether a cancel is pending until the lease ends.
    pub(super) cancelling: bool,
    /// The kind of its lease, or of its last lease until that was swept.
    pub(super) lease: Option<LeaseKind>,
    pub(super) outcome: String,
}

impl StoredEntry {
    /// Reads `<attempts> <expiries> <mark> <lease> <current> <past> <destination> <outcome>`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a text that the scripts do not write.
    pub(super) fn read(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.splitn(8, ' ').collect();
        let [attempts, _, mark, lease, _, _, _, outcome] = fields[..] else {
            return Err(Error::Corrupt("a task's entry is too short".into()));
        };
        let attempts = attempts
            .parse()
            .map_err(|_| Error::Corrupt("a task's entry has no attempts".into()))?;
        let ended = State::ALL.into_iter().find(|state| state.as_str() == mark);
        Ok(Self {
            attempts,
            ended,
            cancelling: mark == "!",
            lease: read_lease(lease)?,
            outcome: outcome.to_owned(),
        })
    }
}

fn read_lease(text: &str) -> Result<Option<LeaseKind>> {
    let corrupt = || Error::Corrupt(format!("a task's entry has the lease {text:?}"));
    match text {
        "-" => Ok(None),
        "w" => Ok(Some(LeaseKind::Worker)),
        "c" => Ok(Some(LeaseKind::Consumer)),
        "r" => Ok(Some(LeaseKind::Receiver)),
        _ => {
            let due = read_millis(text.strip_prefix('m').ok_or_else(corrupt)?)?;
            Ok(Some(LeaseKind::Mover { due }))
        }
    }
}

/// Reads a moment as the scripts write it.
///
/// # Errors
/// [`Error::Corrupt`] if it is not a number.
pub(super) fn read_millis(text: &str) -> Result<UnixMillis> {
    let number: f64 =
        text.parse().map_err(|_| Error::Corrupt(format!("a moment reads {text:?}")))?;
    // Scores are doubles; moments are whole milliseconds far below 2^53.
    Ok(UnixMillis(number as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use delayd_wire::Span;

    #[test]
    fn a_record_reads_back_its_head_and_its_content_byte_for_byte() {
        let options = Options { timeout: Some(Span::seconds(3)), ..Options::default() };
        let text = format!(
            "1 1795236367000 1795234567000 message.call {}\n{{\"sn\" : \"a b\"}}\n",
            write_options(&options)
        );
        let record = Record::read(text.into_bytes()).unwrap();
        assert_eq!(record.due, UnixMillis(1_795_236_367_000));
        assert_eq!(record.options, options);
        assert_eq!(record.content, "{\"sn\" : \"a b\"}\n");
        let plain = Record::read(b"1 5 4 @pull -\n".to_vec()).unwrap();
        assert_eq!((plain.options, plain.content.as_str()), (Options::default(), ""));
    }

    #[test]
    fn a_foreign_record_is_refused() {
        for bytes in [
            "",
            "1",
            "2 5 4 @pull -\nx",
            "1 5 4 @pull\nx",
            "1 a 4 @pull -\nx",
            "1 5 4 @@ -\n",
            "1 5 4 a {]\n",
        ] {
            assert!(matches!(Record::read(bytes.into()), Err(Error::Corrupt(_))), "{bytes:?}");
        }
    }

    #[test]
    fn an_entry_reads_its_attempts_end_and_outcome() {
        let live =
            StoredEntry::read("2 0 ! m7 abc def,ghi message.call 503 Service Unavailable").unwrap();
        let (lease, outcome) =
            (Some(LeaseKind::Mover { due: UnixMillis(7) }), "503 Service Unavailable".into());
        assert_eq!(
            live,
            StoredEntry { attempts: 2, ended: None, cancelling: true, lease, outcome }
        );
        let ended = StoredEntry::read("1 0 delivered - abc * @pull ").unwrap();
        let state = Some(State::Delivered);
        assert_eq!(
            ended,
            StoredEntry {
                attempts: 1,
                ended: state,
                cancelling: false,
                lease: None,
                outcome: String::new()
            }
        );
        assert!(StoredEntry::read("1 0 - x abc * @pull ").is_err());
    }
}
