//! After a power cut: the real store opens what is left, and everything promised is there.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{Destination, Options, State, TaskId};
use delayd::store::embedded::{Embedded, Params};
use delayd::store::{
    Admin, CheckCursor, Intake, ListQuery, Moment, NewTask, Reader, Registered, Store, TopicEntry,
    Topics,
};

use crate::history::{Chain, History, Step};
use crate::load;

/// How many contents are compared: those of the tasks that changed last.
const READ: usize = 60;
/// The bytes of the disk that the store leaves free.
const RESERVE: u64 = 1 << 20;

/// What the store shows.
#[derive(Debug, Default)]
struct Shown {
    /// State and moment, by id.
    tasks: HashMap<u64, (State, i64)>,
    settings: BTreeMap<String, String>,
}

/// Opens the files, and says what is wrong. `position` is where the power was cut.
pub async fn judge(folder: &Path, history: &History, position: u64) -> Result<(), String> {
    let clock = Clock::manual(UnixMillis(history.began_ms));
    let path = folder.join("delayd.db");
    let params = Params { path, reserve: RESERVE, clock };
    let store = Embedded::open(params).map_err(|error| format!("cannot be opened: {error}"))?;
    let found = look(&store, history, position).await;
    store.close().await;
    found
}

async fn look(store: &Embedded, history: &History, position: u64) -> Result<(), String> {
    check(store).await?;
    let shown = shown(store).await.map_err(|error| format!("cannot be read: {error}"))?;
    for (id, chain) in &history.tasks {
        let task = shown.tasks.get(id);
        let is_possible = |step: &Step| {
            task.is_some_and(|(state, moment)| {
                step.shows.iter().any(|name| name == state.as_str())
                    && step.from_ms.is_none_or(|from_ms| from_ms <= *moment)
            })
        };
        compare(chain, position, task.is_none(), is_possible)
            .map_err(|why| format!("task {id} of {}: {task:?}; {why}", chain.topic))?;
    }
    for (setting, chain) in &history.settings {
        let value = shown.settings.get(setting);
        let is_possible = |step: &Step| value.is_some_and(|value| step.shows.contains(value));
        compare(chain, position, value.is_none(), is_possible)
            .map_err(|why| format!("{setting}: {value:?}; {why}"))?;
    }
    read_contents(store, history, position).await?;
    draw(store, history, position).await
}

fn compare(
    chain: &Chain,
    position: u64,
    is_missing: bool,
    is_possible: impl Fn(&Step) -> bool,
) -> Result<(), String> {
    let (steps, may_be_missing) = chain.possible(position);
    if is_missing && may_be_missing || chain.steps[steps.clone()].iter().any(is_possible) {
        return Ok(());
    }
    Err(format!("expected one of the steps {steps:?} of {:?}", chain.steps))
}

/// `delayd fsck`, which includes SQLite's `integrity_check`.
async fn check(store: &Embedded) -> Result<(), String> {
    let mut next = Some(CheckCursor::start());
    while let Some(cursor) = next {
        let checked = store.check(cursor, false).await.map_err(|error| format!("fsck: {error}"))?;
        if !checked.findings.is_empty() {
            return Err(format!("fsck finds {:?}", checked.findings));
        }
        next = checked.next;
    }
    Ok(())
}

async fn shown(store: &Embedded) -> delayd::store::Result<Shown> {
    let mut shown = Shown::default();
    for Registered { entry, policy, paused, .. } in store.topics().await? {
        let name = entry.topic.to_string();
        let attempts = policy.retry.max_attempts.map(|attempts| attempts.to_string());
        shown.settings.extend(attempts.map(|attempts| (format!("policy of {name}"), attempts)));
        let pause = if paused.is_some() { "on" } else { "off" };
        shown.settings.insert(format!("pause of {name}"), pause.to_owned());
        for state in State::ALL {
            for lane in entry.lanes() {
                let all = ListQuery {
                    lane,
                    state,
                    from: UnixMillis(0),
                    to: UnixMillis(i64::MAX),
                    after: None,
                    limit: 100_000,
                };
                let listed = store.list(all).await?;
                shown
                    .tasks
                    .extend(listed.into_iter().map(|task| (task.id.0, (state, task.moment.0))));
            }
        }
    }
    Ok(shown)
}

/// Compares the contents of the tasks that changed last before the cut.
async fn read_contents(store: &Embedded, history: &History, position: u64) -> Result<(), String> {
    let mut last: Vec<_> = history.tasks.iter().collect();
    last.sort_by_cached_key(|(_, chain)| std::cmp::Reverse(chain.last_event(position)));
    for (id, chain) in last.into_iter().take(READ) {
        let entry = entry(&chain.topic);
        let task = store.get(Reader::Worker, &entry.lane_of(TaskId(*id)), TaskId(*id)).await;
        let Some(task) = task.map_err(|error| format!("task {id}: {error}"))? else { continue };
        let version = load::version(&task.content);
        let (mut steps, _) = chain.possible(position);
        if !steps.any(|step| chain.version(step) == version) {
            return Err(format!("task {id} has version {version}: {:?}", chain.steps));
        }
    }
    Ok(())
}

fn entry(topic: &str) -> TopicEntry {
    TopicEntry { topic: topic.parse().unwrap(), shards: 1 }
}

/// The next id is higher than all that somebody has seen.
async fn draw(store: &Embedded, history: &History, position: u64) -> Result<(), String> {
    let topic = store.create(entry("after"), None).await.map_err(|error| error.to_string())?;
    let task = NewTask {
        topic,
        destination: Destination::pull(),
        moment: Moment::At(UnixMillis(history.began_ms)),
        options: Options::default(),
        content: "{}".to_owned(),
        idempotency: None,
        quota: None,
    };
    let added = store.add(vec![task]).await.remove(0).map_err(|error| error.to_string())?;
    let highest = history.highest_id(position);
    if added.id.0 <= highest {
        return Err(format!("{} was drawn although {highest} was known", added.id));
    }
    Ok(())
}
