//! Tests of one gate. They pass the time, so nothing waits.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn gate(rate: &str, now: Instant) -> Gate {
    Gate::new(rate.parse().ok(), Some(&breaker::Params::default()), now)
}

/// Makes one call, which ends at once.
fn call(gate: &mut Gate, ending: Option<CallEnding>, now: Instant) {
    let mut ticket = gate.reserve(1, now);
    ticket.iter_mut().for_each(|ticket| gate.begin(ticket, SECOND, now));
    gate.end(ticket, ending, 100, now);
}

fn fail(gate: &mut Gate, now: Instant) {
    call(gate, Some(CallEnding::Failed("503".into())), now);
}

#[test]
fn a_gate_admits_what_the_strictest_of_its_parts_does() {
    type Steps = fn(&mut Gate, Instant);
    let check =
        |what: &str, rate: &str, steps: Steps, admits: usize, retry_in: Option<Duration>| {
            let now = Instant::now();
            let mut gate = gate(rate, now);
            steps(&mut gate, now);
            assert_eq!((gate.admits(now), gate.retry_in(now)), (admits, retry_in), "{what}");
        };
    const MAX: usize = usize::MAX;
    let probe = Duration::from_millis(1);
    check("new", "", |_, _| {}, MAX, None);
    check("new, with a rate", "30/s", |_, _| {}, 3, None);
    let reserve: Steps = |gate, now| {
        gate.reserve(1, now);
    };
    check("without a token", "10/s", reserve, 0, Some(SECOND / 10));
    check("four failures", "", |gate, now| (0..4).for_each(|_| fail(gate, now)), MAX, None);
    check(
        "five failures",
        "",
        |gate, now| (0..5).for_each(|_| fail(gate, now)),
        0,
        Some(5 * SECOND + probe),
    );
    check(
        "successes",
        "",
        |gate, now| (0..9).for_each(|_| call(gate, Some(CallEnding::Succeeded), now)),
        MAX,
        None,
    );
    check(
        "calls without an ending",
        "",
        |gate, now| (0..9).for_each(|_| call(gate, None, now)),
        MAX,
        None,
    );
    check("Retry-After", "", |gate, now| gate.retry_after(now + 7 * SECOND), 0, Some(7 * SECOND));
    check("held by an operator", "", |gate, _| gate.set_held(true), 0, None);
    let held_and_open: Steps = |gate, now| {
        (0..5).for_each(|_| fail(gate, now));
        gate.set_held(true);
    };
    check("held by an operator, and its breaker is open", "", held_and_open, 0, None);
    let all: Steps = |gate, now| {
        (0..5).for_each(|_| fail(gate, now));
        gate.retry_after(now + 30 * SECOND);
    };
    check("the longest wait counts", "10/s", all, 0, Some(30 * SECOND));
    let ended: Steps = |gate, now| {
        gate.retry_after(now + 30 * SECOND);
        gate.retry_after(now + SECOND);
        gate.set_held(true);
        gate.set_held(false);
        gate.end_retry_after();
    };
    check("both holds ended", "", ended, MAX, None);
    let shorter: Steps = |gate, now| {
        gate.retry_after(now + 30 * SECOND);
        assert!(
            gate.shorten_retry_after(now + 4 * SECOND)
                && !gate.shorten_retry_after(now + 9 * SECOND)
        );
    };
    check("a shorter maximum", "", shorter, 0, Some(4 * SECOND));
}

#[test]
fn a_closed_gate_has_a_culprit() {
    type Steps = fn(&mut Gate, Instant);
    let check = |what: &str, rate: &str, steps: Steps, culprit: Option<Culprit>| {
        let now = Instant::now();
        let mut gate = gate(rate, now);
        steps(&mut gate, now);
        assert_eq!(gate.blocked_by(now), culprit, "{what}");
    };
    let fail: Steps = |gate, now| (0..5).for_each(|_| fail(gate, now));
    let spend: Steps = |gate, now| {
        gate.reserve(1, now);
    };
    check("new", "10/s", |_, _| {}, None);
    check("without a token", "10/s", spend, Some(Culprit::Operator));
    check("open", "", fail, Some(Culprit::Receiver));
    let wait: Steps = |gate, now| gate.retry_after(now + SECOND);
    check("Retry-After", "", wait, Some(Culprit::Receiver));
    check("held", "", |gate, _| gate.set_held(true), Some(Culprit::Operator));
}

#[test]
fn a_half_open_gate_admits_probes_whatever_still_hangs() {
    let now = Instant::now();
    let mut gate = gate("", now);
    (0..5).for_each(|_| fail(&mut gate, now));
    assert_eq!(gate.window(now), 16);
    let back = now + gate.retry_in(now).unwrap();
    assert_eq!((gate.admits(back), gate.window(back)), (3, usize::MAX));
    let ticket = gate.reserve(3, back);
    assert_eq!(gate.admits(back), 0);
    gate.give_back(2, ticket, back);
    assert_eq!(gate.admits(back), 2, "probes that were not made");
    gate.give_back(1, ticket, back);
    (0..3).for_each(|_| call(&mut gate, Some(CallEnding::Succeeded), back));
    assert_eq!((gate.breaker(back), gate.admits(back)), (State::Closed, usize::MAX));
}

#[test]
fn tokens_of_calls_that_did_not_begin_come_back() {
    let now = Instant::now();
    let mut gate = gate("30/s", now);
    let ticket = gate.reserve(3, now);
    assert_eq!((gate.admits(now), gate.is_idle(now)), (0, false));
    gate.give_back(2, ticket, now);
    assert_eq!(gate.admits(now), 2);
    gate.set_rate("30/s".parse().ok(), now);
    assert_eq!(gate.admits(now), 2, "the same rate fills no bucket");
    gate.set_rate(None, now);
    assert_eq!((gate.admits(now), gate.is_idle(now)), (usize::MAX, true));
}

proptest! {
    /// Steps: some calls are reserved, and one of them begins and ends or is given back; a
    /// `Retry-After` comes; or time passes.
    #[test]
    fn a_gate_that_nobody_holds_opens_by_itself(
        rate in prop::sample::select(vec!["", "20/s", "600/m"]),
        steps in prop::collection::vec((0_u8..6, 1_usize..5, 0_u64..3_000), 0..100),
    ) {
        let mut now = Instant::now();
        let mut gate = gate(rate, now);
        let mut reserved = Vec::new();
        for (step, amount, millis) in steps {
            match step {
                0 => {
                    let count = amount.min(gate.admits(now));
                    let ticket = gate.reserve(count, now);
                    prop_assert!(count == 0 || ticket.is_some(), "it grants what it admits");
                    reserved.extend((0..count).map(|_| ticket));
                }
                1 => reserved.pop().into_iter().for_each(|ticket| gate.give_back(1, ticket, now)),
                2 | 3 => if let Some(mut ticket) = reserved.pop() {
                    ticket.iter_mut().for_each(|ticket| gate.begin(ticket, SECOND, now));
                    let failed = CallEnding::Failed("503".into());
                    let ending = if amount > 1 { failed } else { CallEnding::Succeeded };
                    gate.end(ticket, Some(ending), 100, now);
                },
                4 => gate.retry_after(now + Duration::from_millis(millis)),
                _ => now += Duration::from_millis(millis),
            }
            if gate.breaker(now) == State::HalfOpen {
                prop_assert!(gate.admits(now) <= 3);
            }
            prop_assert_eq!(gate.admits(now) == 0, gate.retry_in(now).is_some());
        }
        // Reserved probes that never begin count for 30 s.
        for _ in 0..20 {
            let Some(wait) = gate.retry_in(now) else { break };
            now += wait;
        }
        prop_assert!(gate.admits(now) > 0, "time alone does not open it");
    }
}
