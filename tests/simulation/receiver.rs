//! The receiver that is called: it accepts tasks, fails, hangs, and sometimes answers differently
//! from what it did.

use std::sync::Arc;
use std::time::Duration;

use delayd::callback::{Answer, Call, CallClient, Fault};
use tokio::time::{sleep, timeout};

use crate::history::{CallId, CalledOccurrence, Heard, What};
use crate::life::Life;
use crate::plan::Ailment;
use crate::sabotage::Sabotage;
use crate::world::World;

/// How one call goes.
#[derive(Clone, Copy, Debug)]
enum Conduct {
    Takes,
    Fails,
    DislikesIt,
    IsBusy {
        retry_after: Duration,
    },
    IsGone,
    Hangs,
    /// Accepts the task, and then the connection breaks.
    TakesAndBreaks,
    /// Accepts the task and never answers.
    TakesAndHangs,
    /// Accepts the task and answers 500.
    TakesAndLies,
}

impl Conduct {
    fn takes(self) -> bool {
        matches!(
            self,
            Self::Takes | Self::TakesAndBreaks | Self::TakesAndHangs | Self::TakesAndLies
        )
    }
}

/// Makes the calls of one life.
#[derive(Debug)]
pub(crate) struct Postman {
    world: Arc<World>,
    life: Arc<Life>,
}

impl Postman {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>) -> Self {
        Self { world, life }
    }

    /// What the receiver does, and when it answers.
    async fn deliver(&self, call: CallId, conduct: Conduct, works: Duration) -> Answer {
        sleep(works).await;
        if conduct.takes() {
            self.world.write(What::Processed { call });
        }
        let failed = |outcome: &str, hold: Option<Duration>, fault: Fault| Answer::Failed {
            outcome: outcome.into(),
            retry_after: hold,
            hold,
            fault,
        };
        match conduct {
            Conduct::Takes => Answer::delivered("200 OK"),
            Conduct::Fails | Conduct::TakesAndLies => {
                failed("500 Internal Server Error", None, Fault::Destination)
            }
            Conduct::DislikesIt => failed("400 Bad Request", None, Fault::Task),
            Conduct::IsBusy { retry_after } => {
                failed("503 Service Unavailable", Some(retry_after), Fault::Destination)
            }
            Conduct::IsGone => Answer::Final { outcome: "410 Gone".into() },
            Conduct::TakesAndBreaks => failed("connection reset", None, Fault::Destination),
            Conduct::Hangs | Conduct::TakesAndHangs => std::future::pending().await,
        }
    }

    fn occurrence(&self, call: &Call<'_>) -> Option<CalledOccurrence> {
        let occurrence = call.occurrence.filter(|occurrence| !occurrence.cursor.is_empty())?;
        // An id holds the moment at which it was drawn: that of the plan.
        let is_by_plan = self.world.is_sabotaged(Sabotage::IdOfThePlan);
        let webhook_id = if is_by_plan { call.id.to_string() } else { call.webhook_id.to_owned() };
        let (name, moment) = (occurrence.name.clone(), occurrence.moment);
        Some(CalledOccurrence { webhook_id, name, moment, missed: occurrence.missed })
    }

    fn draw(&self, call: &Call<'_>) -> (Conduct, Duration) {
        let mut throw = self.world.dice.throw(("call", self.life.id, call.id));
        let works = throw.millis(0, self.world.plan.call_ms);
        match self.world.ailment_of(&self.life) {
            Some(Ailment::SaturatedSlots) => return (Conduct::Takes, throw.millis(1_500, 1_900)),
            Some(Ailment::OpenBreaker) => return (Conduct::Fails, works),
            Some(Ailment::RetryAfter) => {
                let retry_after = throw.millis(2_000, 6_000);
                return (Conduct::IsBusy { retry_after }, works);
            }
            _ => {}
        }
        if self.world.is_healed() || !throw.per_mille(self.world.plan.bad_calls) {
            return (Conduct::Takes, works);
        }
        let conduct = match throw.between(0, 11) {
            0 | 1 => Conduct::Fails,
            2 => Conduct::DislikesIt,
            3 => Conduct::IsBusy { retry_after: throw.millis(500, 4_000) },
            4 => Conduct::IsGone,
            5 => Conduct::Hangs,
            6 | 7 => Conduct::TakesAndBreaks,
            8 => Conduct::TakesAndHangs,
            9 => Conduct::TakesAndLies,
            // Slow and correct.
            _ => Conduct::Takes,
        };
        (conduct, throw.millis(0, 2_400))
    }
}

impl CallClient for Postman {
    async fn call(&self, call: &Call<'_>) -> Answer {
        let number = CallId(self.world.number());
        let (conduct, works) = self.draw(call);
        self.world.write(What::CallBegan {
            call: number,
            by: self.life.id,
            id: call.id,
            receipt: call.receipt.clone(),
            timeout: call.timeout,
            content: String::from_utf8_lossy(&call.body).into_owned(),
            occurrence: self.occurrence(call),
        });
        let mut log = Log { world: &self.world, call: number, has_ended: false };
        self.life.runs().await;
        let answer = timeout(call.timeout, self.deliver(number, conduct, works)).await;
        self.life.runs().await;
        let timed_out = |_| Answer::Failed {
            outcome: "timed out".into(),
            retry_after: None,
            hold: None,
            fault: Fault::Destination,
        };
        let answer = answer.unwrap_or_else(timed_out);
        log.ended(&answer);
        if self.world.is_sabotaged(Sabotage::FailureCalledSuccess) {
            return Answer::delivered("200 OK");
        }
        answer
    }
}

/// Records how a call ended, even if it was cut off.
struct Log<'a> {
    world: &'a World,
    call: CallId,
    has_ended: bool,
}

impl Log<'_> {
    fn ended(&mut self, answer: &Answer) {
        self.has_ended = true;
        let heard = match answer {
            Answer::Delivered { .. } | Answer::Accepted { .. } => Heard::Success,
            Answer::Failed { .. } | Answer::NoToken => Heard::Failure,
            Answer::Final { .. } => Heard::Final,
        };
        self.world.write(What::CallEnded { call: self.call, heard });
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.world.write(What::CallDropped { call: self.call });
        }
    }
}
