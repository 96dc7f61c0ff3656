//! What a claim says of the tasks and leases that it ended.

use delayd::store::{Claim, MAX_EXPIRIES, Misfire, Misfired, Store, Swept};

use crate::bench::{Bench, at, claim_of, expiring, lane};

/// Claims with a misfire for what fell due at `moment`.
async fn swept(
    bench: &Bench<impl Store>,
    pairs: &[(&str, usize)],
    moment: Option<(i64, Misfired)>,
) -> Swept {
    let misfires = moment
        .map(|(moment, becomes)| Misfire { from: at(moment), to: at(moment), becomes })
        .into_iter()
        .collect();
    bench.grant(Claim { misfires, ..claim_of(pairs) }).await.swept
}

pub(crate) async fn a_claim_says_which_leases_ran_out(bench: Bench<impl Store>) {
    bench.add("@pull", 0).await;
    bench.add("message.call", 0).await;
    bench.add("message.call", 0).await;
    let wants = [("@pull", 1), ("message.call", 2)];
    assert_eq!(swept(&bench, &wants, None).await, Swept::default());
    bench.let_lease_run_out();
    let expected = Swept { push_leases: 2, pull_leases: 1, ..Swept::default() };
    assert_eq!(swept(&bench, &[], None).await, expected);
    assert_eq!(swept(&bench, &[], None).await, Swept::default(), "it said so twice");
}

pub(crate) async fn a_claim_says_which_tasks_it_ended(bench: Bench<impl Store>) {
    bench.add_task(expiring("message.call", 10, 0)).await;
    bench.add("message.call", 20).await;
    bench.add("message.call", 30).await;
    bench.advance(50);
    let wants = [("message.call", 9)];
    let skipped = swept(&bench, &wants[..], Some((20, Misfired::Expired))).await;
    assert_eq!(skipped, Swept { expired: 1, misfired_expired: 1, ..Swept::default() });
    bench.add("message.call", 0).await;
    let dead = swept(&bench, &wants[..], Some((50, Misfired::Dead))).await;
    assert_eq!(dead, Swept { misfired_dead: 1, ..Swept::default() });
}

pub(crate) async fn a_claim_says_which_tasks_end_with_their_leases(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    bench.store.cancel(&lane(), held.id, None).await.unwrap();
    bench.let_lease_run_out();
    let expected = Swept { push_leases: 1, cancelled: 1, ..Swept::default() };
    assert_eq!(swept(&bench, &[], None).await, expected);
    bench.add("message.call", 0).await;
    for _ in 1..MAX_EXPIRIES {
        bench.hold().await;
        bench.let_lease_run_out();
    }
    bench.hold().await;
    bench.let_lease_run_out();
    let expected = Swept { push_leases: 1, leases_ran_out: 1, ..Swept::default() };
    assert_eq!(swept(&bench, &[], None).await, expected);
}
