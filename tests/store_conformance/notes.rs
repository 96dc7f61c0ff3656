//! Notes of attempts.

use delayd::model::task::{Lane, State, TaskId};
use delayd::store::{
    AttemptNote, MAX_ANSWER, MAX_NOTES, MAX_OUTCOME, Moment, NewTask, Spread, Store,
};

use crate::bench::{Bench, at, dead, lamented, lane, ms, new_task, topic_of};

fn note_of(lane: Lane, id: TaskId, attempt: u32) -> AttemptNote {
    AttemptNote {
        lane,
        id,
        attempt,
        started: at(i64::from(attempt) * 10),
        took: ms(u64::from(attempt)),
        wait: (attempt > 1).then(|| ms(u64::from(attempt - 2))),
        outcome: format!("503 Service Unavailable ({attempt})"),
        answer: "{\"dm_error\": 1, \"订\": \"\\\"\u{0}\u{7f}\"}\r\n".into(),
    }
}

fn note(id: TaskId, attempt: u32) -> AttemptNote {
    note_of(lane(), id, attempt)
}

async fn notes(bench: &Bench<impl Store>, id: TaskId) -> Vec<AttemptNote> {
    bench.store.notes(&lane(), id).await.unwrap()
}

pub(crate) async fn notes_are_kept_as_they_were_written(bench: Bench<impl Store>) {
    let (first, second) = (bench.add("message.call", 0).await, bench.add("@pull", 0).await);
    let others = bench
        .add_task(NewTask { topic: topic_of("others", 1), ..new_task("message.call", 0) })
        .await;
    assert_eq!(notes(&bench, first).await, []);
    let elsewhere = note_of("others:0".parse().unwrap(), others, 1);
    let empty = AttemptNote {
        outcome: String::new(),
        answer: String::new(),
        took: ms(0),
        ..note(first, 2)
    };
    bench
        .store
        .note(vec![note(first, 1), elsewhere.clone(), note(second, 1), empty.clone()])
        .await
        .unwrap();
    assert_eq!(notes(&bench, first).await, [note(first, 1), empty]);
    assert_eq!(notes(&bench, second).await, [note(second, 1)]);
    assert_eq!(bench.store.notes(&elsewhere.lane, others).await.unwrap(), [elsewhere]);
    assert_eq!(
        bench.store.notes(&"others:0".parse().unwrap(), first).await.unwrap(),
        [],
        "a note was found in another lane"
    );
    bench.store.note(vec![]).await.unwrap();
}

pub(crate) async fn the_newest_notes_are_kept(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    for attempt in 1..=5 {
        bench.store.note(vec![note(id, attempt)]).await.unwrap();
    }
    let last = u32::try_from(MAX_NOTES).unwrap() + 7;
    bench.store.note((6..=last).map(|attempt| note(id, attempt)).collect()).await.unwrap();
    let kept: Vec<u32> = notes(&bench, id).await.iter().map(|note| note.attempt).collect();
    assert_eq!(kept, (8..=last).collect::<Vec<_>>());
}

pub(crate) async fn a_note_is_cut_between_characters(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    let check = async |written: (&str, &str), kept: (&str, &str)| {
        let long =
            AttemptNote { outcome: written.0.into(), answer: written.1.into(), ..note(id, 1) };
        bench.store.note(vec![long]).await.unwrap();
        let found = notes(&bench, id).await.pop().unwrap();
        assert_eq!((&*found.outcome, &*found.answer), kept);
    };
    let (outcome, answer) = ("o".repeat(MAX_OUTCOME), "a".repeat(MAX_ANSWER));
    check((&outcome, &answer), (&outcome, &answer)).await;
    check((&format!("{outcome}!"), &format!("{answer}!")), (&outcome, &answer)).await;
    let (outcome, answer) = (&outcome[..MAX_OUTCOME - 1], &answer[..MAX_ANSWER - 1]);
    check((&format!("{outcome}订单"), &format!("{answer}订单")), (outcome, answer)).await;
}

pub(crate) async fn notes_of_removed_tasks_are_skipped(bench: Bench<impl Store>) {
    let (kept, gone) =
        (bench.add("message.call", 99_000).await, bench.add("message.call", 99_000).await);
    bench.store.note(vec![note(gone, 1)]).await.unwrap();
    bench.store.cancel(&lane(), gone, None).await.unwrap();
    assert_eq!(notes(&bench, gone).await.len(), 1, "the notes must outlast the end of the task");
    bench.advance(1);
    assert_eq!(bench.store.purge(&lane(), 0, State::Cancelled, bench.now(), 1).await.unwrap(), 1);
    assert_eq!(notes(&bench, gone).await, []);
    let stranger = note_of("orders:7".parse().unwrap(), kept, 3);
    bench
        .store
        .note(vec![note(gone, 2), note(kept, 1), note(TaskId(1), 1), stranger, note(kept, 2)])
        .await
        .unwrap();
    assert_eq!(notes(&bench, gone).await, []);
    assert_eq!(notes(&bench, TaskId(1)).await, []);
    assert_eq!(notes(&bench, kept).await, [note(kept, 1), note(kept, 2)]);
}

pub(crate) async fn notes_outlast_the_admin_verbs(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    bench.store.note(vec![note(held.id, 1)]).await.unwrap();
    bench.settle(&held, dead()).await;
    bench.store.replay(&lane(), vec![held.id], None, Spread::default()).await.unwrap();
    bench.store.reschedule(&lane(), held.id, None, Moment::After(ms(1)), None).await.unwrap();
    assert_eq!(notes(&bench, held.id).await, [note(held.id, 1)]);
}

/// The id of a dead-letter callback may be used again after the first callback was removed.
pub(crate) async fn removing_a_task_removes_its_notes(bench: Bench<impl Store>) {
    let id = bench.add_task(lamented(0)).await;
    let call = bench.get(id).await.options.on_dead.unwrap().task_id.unwrap();
    for how in ["purge", "discard", "clear"] {
        bench.settle(&bench.hold().await, dead()).await;
        assert_eq!(notes(&bench, call).await, [], "before {how}");
        bench.store.note(vec![note(call, 1)]).await.unwrap();
        assert_eq!(notes(&bench, call).await.len(), 1);
        // Replayed first and leased, so that the clear leaves the dead task itself.
        bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap();
        let held = bench.hold().await;
        if how != "clear" {
            bench.store.cancel(&lane(), call, None).await.unwrap();
        }
        bench.advance(1);
        let count = match how {
            "purge" => {
                bench.store.purge(&lane(), 0, State::Cancelled, bench.now(), 10).await.unwrap()
            }
            "discard" => {
                bench.store.discard(&lane(), State::Cancelled, vec![call], None).await.unwrap()
            }
            _ => bench.store.clear(&lane(), 10).await.unwrap().removed,
        };
        assert_eq!(count, 1, "{how}");
        assert_eq!(notes(&bench, call).await, [], "{how}");
        bench.settle(&held, delayd::store::Transition::Release).await;
    }
    // The clear has cancelled the leased task.
    assert_eq!(bench.state(id).await, State::Cancelled);
}
