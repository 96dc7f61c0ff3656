//! Rates such as `"100/s"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Events per unit of time: `"100/s"`, `"6000/m"`, `"500/h"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

/// The text is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a number from 1 to 1000000 with a unit of time, such as \"100/s\", \"6000/m\" or \
     \"500/h\""
)]
pub struct InvalidRate;

impl Rate {
    /// Events per second.
    pub fn per_second(self) -> f64 {
        let seconds = match self.unit {
            Unit::Second => 1.0,
            Unit::Minute => 60.0,
            Unit::Hour => 3600.0,
        };
        f64::from(self.count) / seconds
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (count, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let unit = match unit.trim() {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            "h" => Unit::Hour,
            _ => return Err(InvalidRate),
        };
        let count = count.trim().parse().ok().filter(|count| (1..=1_000_000).contains(count));
        Ok(Self { count: count.ok_or(InvalidRate)?, unit })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Second => "s",
            Unit::Minute => "m",
            Unit::Hour => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_what_it_writes_and_refuses_the_rest() {
        let check = |text: &str, per_second: Option<f64>| {
            let rate = text.parse::<Rate>();
            assert_eq!(rate.clone().map(Rate::per_second).ok(), per_second, "{text}");
            assert_eq!(rate.map_or(text.into(), |rate| rate.to_string()), text);
        };
        check("100/s", Some(100.0));
        check("6000/m", Some(100.0));
        check("3600/h", Some(1.0));
        check("0/s", None);
        check("-1/s", None);
        check("1.5/s", None);
        check("100", None);
        check("100/d", None);
        check("/s", None);
        check("", None);
        check("1000001/s", None);
    }
}
