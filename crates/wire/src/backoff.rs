//! Backoff: the wait between attempts. Pure: the caller passes the random number.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::AtMost;
use crate::span::{Span, Wait};
use crate::value::Object;

/// The longest wait that a backoff may have: 365 days.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most steps of a list.
const MOST_STEPS: usize = 100;

/// The wait before the next attempt.
///
/// - `exponential`: `base × factor^(attempt−1)`, at most `max`. `jitter` then adds or subtracts a
///   random share of the wait, from 0 to 1, so that tasks that failed together are not retried
///   together.
/// - `fixed`: always `every`.
/// - `list`: the step with the number of the attempt. The last step repeats.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Backoff {
    /// Each wait is a multiple of the one before, up to `max`.
    Exponential {
        /// The first wait.
        base: Span,
        /// The factor between two waits, 1 to 100.
        #[serde(default = "default_factor")]
        factor: f64,
        /// The longest wait, before jitter.
        #[serde(default = "default_max")]
        max: Span,
        /// The random share of the wait, 0 to 1.
        #[serde(default)]
        jitter: f64,
    },
    /// Every wait is the same.
    Fixed {
        /// The wait.
        every: Span,
    },
    /// A list of waits.
    List {
        /// 1 to 100 waits.
        steps: Vec<Span>,
    },
}

fn default_factor() -> f64 {
    2.0
}

fn default_max() -> Span {
    Span::seconds(3 * 3600)
}

words! {

/// The name of a kind of backoff.
enum Kind "lowercase" {
    Exponential,
    Fixed,
    List,
}

}

/// The fields of every kind, in one struct, so that an error names the inner field. serde would
/// read a tagged enum from a copy of its fields, and its errors would name only the enum.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename = "backoff")]
struct Fields {
    kind: Kind,
    base: Option<Wait>,
    factor: Option<f64>,
    max: Option<Wait>,
    jitter: Option<f64>,
    every: Option<Wait>,
    steps: Option<AtMost<Wait, MOST_STEPS>>,
}

impl Fields {
    /// The first given field that `kind` does not take.
    fn stray(&self, kind: Kind) -> Option<&'static str> {
        let exponential = matches!(kind, Kind::Exponential);
        let fields = [
            ("base", self.base.is_some(), exponential),
            ("factor", self.factor.is_some(), exponential),
            ("max", self.max.is_some(), exponential),
            ("jitter", self.jitter.is_some(), exponential),
            ("every", self.every.is_some(), matches!(kind, Kind::Fixed)),
            ("steps", self.steps.is_some(), matches!(kind, Kind::List)),
        ];
        fields.into_iter().find(|(_, given, fits)| *given && !fits).map(|(name, ..)| name)
    }
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        let Object(fields) = Object::<Fields>::deserialize(from)?;
        let missing = D::Error::missing_field;
        let kind = fields.kind;
        if let Some(name) = fields.stray(kind) {
            let takes: &[_] = match kind {
                Kind::Exponential => &["base", "factor", "max", "jitter"],
                Kind::Fixed => &["every"],
                Kind::List => &["steps"],
            };
            return Err(D::Error::unknown_field(name, takes));
        }
        Ok(match kind {
            Kind::Exponential => Self::Exponential {
                base: fields.base.ok_or_else(|| missing("base"))?.0,
                factor: fields.factor.unwrap_or_else(default_factor),
                max: fields.max.map_or_else(default_max, |max| max.0),
                jitter: fields.jitter.unwrap_or_default(),
            },
            Kind::Fixed => Self::Fixed { every: fields.every.ok_or_else(|| missing("every"))?.0 },
            Kind::List => {
                let AtMost(steps) = fields.steps.ok_or_else(|| missing("steps"))?;
                Self::List { steps: steps.into_iter().map(|step| step.0).collect() }
            }
        })
    }
}

/// A field of a backoff that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}, not {given}")]
pub struct InvalidBackoff {
    /// The field's name.
    pub field: &'static str,
    /// The expected range; begins with a verb.
    pub reason: String,
    /// The value in the request.
    pub given: String,
}

impl InvalidBackoff {
    fn of(field: &'static str, reason: impl Into<String>, given: impl Display) -> Self {
        Self { field, reason: reason.into(), given: given.to_string() }
    }
}

impl Backoff {
    /// Checks that every field is in its range.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), InvalidBackoff> {
        let wait = |field: &'static str, span: Span, reason: &str| {
            let in_range = span.0 >= Duration::from_millis(1) && span.0 <= LONGEST;
            if in_range { Ok(()) } else { Err(InvalidBackoff::of(field, reason, span)) }
        };
        const RANGE: &str = "must be from 1ms to 365d";
        match self {
            Self::Exponential { base, factor, max, jitter } => {
                wait("base", *base, RANGE)?;
                wait("max", *max, RANGE)?;
                if base > max {
                    return Err(InvalidBackoff::of(
                        "base",
                        format!("must be at most max, {max}"),
                        base,
                    ));
                }
                if !(1.0..=100.0).contains(factor) {
                    return Err(InvalidBackoff::of("factor", "must be from 1 to 100", factor));
                }
                if !(0.0..=1.0).contains(jitter) {
                    return Err(InvalidBackoff::of("jitter", "must be from 0 to 1", jitter));
                }
                Ok(())
            }
            Self::Fixed { every } => wait("every", *every, RANGE),
            Self::List { steps } if steps.is_empty() || steps.len() > MOST_STEPS => {
                Err(InvalidBackoff::of(
                    "steps",
                    format!("must hold 1 to {MOST_STEPS} durations"),
                    steps.len(),
                ))
            }
            Self::List { steps } => steps
                .iter()
                .try_for_each(|step| wait("steps", *step, "must each be from 1ms to 365d")),
        }
    }

    /// The wait after failed attempt number `attempt` (from 1). `random`, from 0 to 1, decides the
    /// jitter.
    pub fn wait(&self, attempt: u32, random: f64) -> Duration {
        let past = attempt.saturating_sub(1);
        match self {
            Self::Exponential { base, factor, max, jitter } => {
                let power = factor.powi(i32::try_from(past).unwrap_or(i32::MAX));
                let longest = max.0.as_secs_f64();
                // The power may be infinite but is never NaN, because base and factor are checked.
                let unspread = (base.0.as_secs_f64() * power).min(longest);
                let spread = unspread * (1.0 + jitter * (2.0 * random - 1.0));
                Duration::try_from_secs_f64(spread.max(0.001)).unwrap_or(LONGEST)
            }
            Self::Fixed { every } => every.0,
            Self::List { steps } => {
                let step = steps.get(past as usize).or(steps.last());
                step.map_or(Duration::from_secs(1), |step| step.0)
            }
        }
    }
}

impl Default for Backoff {
    /// 1 s, doubling up to 3 h, with a jitter of 0.2. 22 attempts take about a day.
    fn default() -> Self {
        Self::Exponential { base: Span::seconds(1), factor: 2.0, max: default_max(), jitter: 0.2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(json: &str) -> Backoff {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn each_kind_waits_as_its_formula_says() {
        let check = |json: &str, attempt: u32, random: f64, millis: u128| {
            assert_eq!(
                backoff(json).wait(attempt, random).as_millis(),
                millis,
                "{json} after attempt {attempt}"
            );
        };
        let plain = r#"{"kind":"exponential","base":"1s","factor":2,"max":"1h"}"#;
        check(plain, 1, 0.0, 1_000);
        check(plain, 2, 0.9, 2_000);
        check(plain, 5, 0.0, 16_000);
        check(plain, 13, 0.0, 3_600_000);
        check(plain, u32::MAX, 0.0, 3_600_000);
        let spread = r#"{"kind":"exponential","base":"10s","jitter":0.2}"#;
        check(spread, 1, 0.0, 8_000);
        check(spread, 1, 0.5, 10_000);
        check(spread, 1, 1.0, 12_000);
        check(r#"{"kind":"fixed","every":"30s"}"#, 7, 0.3, 30_000);
        let list = r#"{"kind":"list","steps":["5s","5m","30m"]}"#;
        check(list, 1, 0.0, 5_000);
        check(list, 3, 0.0, 1_800_000);
        check(list, 9, 0.0, 1_800_000);
    }

    #[test]
    fn the_default_lasts_about_a_day() {
        let total: Duration = (1..22).map(|attempt| Backoff::default().wait(attempt, 0.5)).sum();
        assert!((20..30).contains(&(total.as_secs() / 3600)), "{total:?}");
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let check = |json: &str| assert!(backoff(json).check().is_err(), "{json}");
        check(r#"{"kind":"exponential","base":0}"#);
        check(r#"{"kind":"exponential","base":1,"factor":0.5}"#);
        check(r#"{"kind":"exponential","base":1,"jitter":1.5}"#);
        check(r#"{"kind":"exponential","base":1,"max":"366d"}"#);
        check(r#"{"kind":"exponential","base":"2h","max":"1h"}"#);
        check(r#"{"kind":"fixed","every":0}"#);
        check(r#"{"kind":"list","steps":[]}"#);
        assert!(serde_json::from_str::<Backoff>(r#"{"kind":"fixed","every":1,"evry":2}"#).is_err());
    }
}
