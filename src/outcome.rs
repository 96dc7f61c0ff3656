//! Outcome: what an answer means for its task. Pure: policy, attempt, answer and randomness in,
//! transition out.
//!
//! ```text
//! Delivered ────────────────────────────▶ delivered
//! Accepted ─────────────────────────────▶ stays leased, until the receiver acknowledges it
//! Failed, attempts left ────────────────▶ retry after max(backoff, Retry-After)
//! Failed, attempts spent ───────────────▶ dead
//! Final ────────────────────────────────▶ dead
//! NoToken ──────────────────────────────▶ given back, without an attempt
//! ```
//!
//! The store counts the wait from its own now, so nothing here reads a clock.

use std::time::Duration;

use crate::callback::Answer;
use crate::model::task::{Options, TopicPolicy};
use crate::store::{Moment, Transition};
use delayd_wire::Backoff;

/// How often a task is attempted, and how long it waits in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The most attempts, from 1. After the last one the task is dead.
    pub max_attempts: u32,
    /// The wait between two attempts.
    pub backoff: Backoff,
}

impl Policy {
    /// This policy, with the topic's own values where it has some.
    pub fn for_topic(&self, topic: &TopicPolicy) -> Self {
        Self {
            max_attempts: topic.retry.max_attempts.unwrap_or(self.max_attempts),
            backoff: topic.retry.backoff.as_ref().unwrap_or(&self.backoff).clone(),
        }
    }

    /// This policy, with the task's own options where it has some.
    pub fn for_task(&self, options: &Options) -> Self {
        Self {
            max_attempts: options.max_attempts.unwrap_or(self.max_attempts),
            backoff: options.backoff.as_ref().unwrap_or(&self.backoff).clone(),
        }
    }

    /// Whether attempt number `attempt` (from 1) is the last. The number may be larger than the
    /// maximum, because expired leases count.
    fn is_last(&self, attempt: u32) -> bool {
        attempt >= self.max_attempts
    }
}

/// The transition of a task after the callback of its attempt number `attempt` (from 1). `lease` is
/// for a receiver that acknowledges later and does not say when. `random`, 0 to 1, is for the
/// jitter.
pub fn of(
    policy: &Policy,
    lease: Duration,
    attempt: u32,
    answer: &Answer,
    random: f64,
) -> Transition {
    match answer {
        Answer::Delivered { outcome, .. } => Transition::Delivered { outcome: outcome.clone() },
        // Its service is not called until it has a token, so the task waits without an attempt.
        Answer::NoToken => Transition::Release,
        Answer::Accepted { lease: own } => Transition::Keep { lease: own.unwrap_or(lease) },
        Answer::Final { outcome } => Transition::Dead { outcome: outcome.clone() },
        Answer::Failed { outcome, .. } if policy.is_last(attempt) => {
            Transition::Dead { outcome: outcome.clone() }
        }
        Answer::Failed { outcome, retry_after, .. } => {
            let backoff = policy.backoff.wait(attempt, random);
            let wait = backoff.max(retry_after.unwrap_or_default());
            Transition::Retry { due: Moment::After(wait), outcome: outcome.clone() }
        }
    }
}

/// The transition of a pulled task after a nack. `due` is when the consumer wants it again.
pub fn nacked(policy: &Policy, attempt: u32, due: Option<Moment>, random: f64) -> Transition {
    let outcome = "nacked".to_owned();
    if policy.is_last(attempt) {
        return Transition::Dead { outcome };
    }
    let due = due.unwrap_or_else(|| Moment::After(policy.backoff.wait(attempt, random)));
    Transition::Retry { due, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callback::Fault;
    use crate::model::clock::UnixMillis;
    use crate::model::task::TopicRetry;
    use delayd_wire::Span;

    fn policy() -> Policy {
        Policy { max_attempts: 3, backoff: Backoff::Fixed { every: Span::seconds(30) } }
    }

    fn failed(retry_after: Option<u64>) -> Answer {
        let retry_after = retry_after.map(Duration::from_secs);
        Answer::Failed { outcome: "why".into(), retry_after, hold: None, fault: Fault::Task }
    }

    fn retry(seconds: u64, outcome: &str) -> Transition {
        let due = Moment::After(Duration::from_secs(seconds));
        Transition::Retry { due, outcome: outcome.into() }
    }

    fn dead(outcome: &str) -> Transition {
        Transition::Dead { outcome: outcome.into() }
    }

    #[test]
    fn an_answer_moves_its_task() {
        let check = |attempt: u32, answer: Answer, expected: Transition| {
            let lease = Duration::from_secs(30);
            assert_eq!(
                of(&policy(), lease, attempt, &answer, 0.5),
                expected,
                "attempt {attempt}: {answer:?}"
            );
        };
        let delivered = || Answer::delivered("200 OK");
        check(1, delivered(), Transition::Delivered { outcome: "200 OK".into() });
        check(9, delivered(), Transition::Delivered { outcome: "200 OK".into() });
        check(
            1,
            Answer::Accepted { lease: None },
            Transition::Keep { lease: Duration::from_secs(30) },
        );
        let own = Duration::from_secs(7);
        check(9, Answer::Accepted { lease: Some(own) }, Transition::Keep { lease: own });
        check(1, Answer::Final { outcome: "410 Gone".into() }, dead("410 Gone"));
        check(9, Answer::NoToken, Transition::Release);
        check(1, failed(None), retry(30, "why"));
        check(2, failed(None), retry(30, "why"));
        check(3, failed(None), dead("why"));
        check(4, failed(None), dead("why"));
        check(1, failed(Some(10)), retry(30, "why"));
        check(1, failed(Some(3600)), retry(3600, "why"));
        check(3, failed(Some(3600)), dead("why"));
    }

    #[test]
    fn a_nack_waits_as_its_consumer_wishes_and_dies_like_any_failure() {
        let check = |attempt: u32, delay: Option<u64>, expected: Transition| {
            let due = delay.map(|delay| Moment::After(Duration::from_secs(delay)));
            assert_eq!(nacked(&policy(), attempt, due, 0.5), expected, "attempt {attempt}");
        };
        check(1, None, retry(30, "nacked"));
        check(1, Some(0), retry(0, "nacked"));
        check(2, Some(90), retry(90, "nacked"));
        check(3, Some(90), dead("nacked"));
        check(3, None, dead("nacked"));
        let due = Moment::At(UnixMillis(1_795_234_567_000));
        let retry = Transition::Retry { due, outcome: "nacked".into() };
        assert_eq!(nacked(&policy(), 2, Some(due), 0.5), retry);
        assert_eq!(nacked(&policy(), 3, Some(due), 0.5), dead("nacked"));
    }

    #[test]
    fn a_tasks_own_options_go_before_its_topics_and_those_before_the_configuration() {
        let retry = TopicRetry { max_attempts: Some(7), ..TopicRetry::default() };
        let topic = TopicPolicy { retry, ..TopicPolicy::default() };
        assert_eq!(policy().for_topic(&topic), Policy { max_attempts: 7, ..policy() });
        assert_eq!(policy().for_topic(&TopicPolicy::default()), policy());
        assert_eq!(policy().for_task(&Options::default()), policy());
        let backoff = Backoff::Fixed { every: Span::seconds(1) };
        let options =
            Options { max_attempts: Some(9), backoff: Some(backoff.clone()), ..Options::default() };
        assert_eq!(policy().for_task(&options), Policy { max_attempts: 9, backoff });
    }
}
