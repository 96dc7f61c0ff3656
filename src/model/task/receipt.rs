//! The proof of a lease.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{InvalidName, is_made_of};

/// The token of one claim, fresh and random, opaque to callers. Cheap to clone.
///
/// All tasks of a claim share it; together with the task's id it names one lease. The store keeps
/// it beside the deadline and refuses whoever brings another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(Arc<str>);

impl Receipt {
    /// A fresh one: 96 random bits, written as 24 hexadecimal digits.
    pub fn random() -> Self {
        let [a, b, c]: [u32; 3] = rand::random();
        Self(format!("{a:08x}{b:08x}{c:08x}").into())
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Receipt {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > 64 || !is_made_of(text, "_-") {
            return Err(InvalidName("must be the receipt of a lease, as it was handed out".into()));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
