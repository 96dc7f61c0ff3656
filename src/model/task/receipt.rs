//! The receipt of a lease.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{InvalidName, is_made_of};

/// The token of one claim: random and opaque to callers. Cheap to clone.
///
/// All tasks of a claim share it; with the id of a task it names one lease. The store keeps it with
/// the deadline, and refuses settles with another receipt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(Arc<str>);

impl Receipt {
    /// Returns a new receipt: 96 random bits as 24 hexadecimal digits.
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
