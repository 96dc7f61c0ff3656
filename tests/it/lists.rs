//! Lists and lookups over many topics, as the dashboard makes them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::program::{Program, StoreAt};
use crate::receiver::now_ms;
use crate::{Kept, on_both_stores, poll, redis_server};

on_both_stores!(
    topics_are_listed_by_pages_with_counts,
    topics_are_found_by_a_part_of_their_name,
    the_next_due_moment_is_known_while_tasks_are_overdue,
    a_topic_says_whether_it_is_overdue,
    a_task_is_found_in_all_topics_by_its_id_and_its_keys,
    causes_are_grouped_over_all_topics,
    a_list_goes_back_in_time_and_has_filters,
    tasks_are_found_by_a_text_in_their_contents,
    an_unreadable_task_does_not_stop_a_search,
    tasks_are_cancelled_and_moved_by_a_filter,
);

async fn call(delayd: &Program, path: &str, body: Value) -> Value {
    delayd.post(path, body.to_string()).await.ok().body
}

/// The names of all pages, in order.
async fn all_pages(delayd: &Program, sort: &str, limit: usize) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let body = json!({"match": "page*", "sort": sort, "limit": limit, "cursor": cursor});
        let page = call(delayd, "/delay/topic/list", body).await;
        let topics = page["topics"].as_array().unwrap();
        assert!(topics.len() <= limit, "{page}");
        names.extend(topics.iter().map(|topic| topic["topic"].as_str().unwrap().to_owned()));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            return names;
        }
        assert_eq!(topics.len(), limit, "{page}");
    }
}

/// Pages by a count repeat and omit no topic, though most have the same count.
async fn topics_are_listed_by_pages_with_counts(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let topic = |n: usize| format!("page-{n:02}");
    let task = |topic: &str, delay: &str| json!({"topic": topic, "delay": delay, "content": {}});
    let mut tasks: Vec<Value> = (0..23).map(|n| task(&topic(n), "1h")).collect();
    tasks.extend([task(&topic(17), "1h"), task(&topic(17), "2h"), task(&topic(5), "1m")]);
    tasks.extend([task(&topic(9), "0s"), task("other", "1h")]);
    delayd.add_all(&tasks).await;
    // The order by counts is that of the last sample.
    let first = |sort: &str| json!({"match": "page", "sort": sort, "limit": 1});
    let leads = async |sort: &str, name: &str| {
        let leads = async || {
            let page = call(&delayd, "/delay/topic/list", first(sort)).await;
            page["topics"][0]["topic"] == name && page["sorted_as_of_ms"] != 0
        };
        assert!(poll::until(leads).await, "{name} does not lead by {sort}");
    };
    leads("pending", &topic(17)).await;
    leads("next_due", &topic(9)).await;
    leads("oldest_overdue", &topic(9)).await;
    let_die(&delayd, &topic(13), 1).await;
    leads("dead", &topic(13)).await;
    for sort in ["name", "next_due", "oldest_overdue", "pending", "dead"] {
        for limit in [1, 4, 23, 100] {
            let names = all_pages(&delayd, sort, limit).await;
            let distinct: BTreeSet<&String> = names.iter().collect();
            assert_eq!((names.len(), distinct.len()), (23, 23), "{sort} {limit}: {names:?}");
        }
    }
    let pending = all_pages(&delayd, "pending", 4).await;
    assert_eq!(pending[..3], [topic(17), topic(5), topic(9)], "equal counts follow by name");
    let page = call(&delayd, "/delay/topic/list", first("pending")).await;
    assert_eq!(
        (&page["total"], &page["topics"][0]["counts"]["scheduled"]),
        (&json!(23), &json!(3))
    );
    let page = call(&delayd, "/delay/topic/list", first("oldest_overdue")).await;
    let overdue = &page["topics"][0];
    assert!(overdue["oldest_overdue_ms"].is_i64() && overdue["next_due_ms"].is_i64(), "{page}");
}

/// Nobody pulls the first task, and a service that is down is no reason to hide what comes next.
async fn the_next_due_moment_is_known_while_tasks_are_overdue(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let add = async |delay: &str| {
        let task = json!({"topic": "t", "mode": "pull", "delay": delay, "content": {}});
        delayd.add(task).await.ok().body["due_ms"].clone()
    };
    let (overdue, next) = (add("0s").await, add("1h").await);
    add("2h").await;
    let shown = call(&delayd, "/delay/topic/get", json!({"topic": "t"})).await;
    let listed = call(&delayd, "/delay/topic/list", json!({"match": "t"})).await;
    for topic in [&shown, &listed["topics"][0]] {
        assert_eq!((&topic["oldest_overdue_ms"], &topic["next_due_ms"]), (&overdue, &next));
    }
}

/// A pause hid that tasks were overdue, and each client had a rule of its own.
async fn a_topic_says_whether_it_is_overdue(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let now = now_ms();
    let record = |topic: &str, due_ms: i64| {
        json!({"topic": topic, "task_id": due_ms, "mode": "pull", "state": "scheduled",
            "content": "{}", "created_ms": now - 90_000, "due_ms": due_ms, "attempts": 0})
    };
    let records = [record("late", now - 60_000), record("calm", now + 3_600_000)];
    call(&delayd, "/delay/task/adopt", json!({"records": records})).await;
    call(&delayd, "/delay/topic/pause", json!({"topic": "late"})).await;
    let state = |topic: &Value| (topic["paused"].clone(), topic["overdue"].clone());
    for (topic, expected) in [("late", json!(true)), ("calm", json!(false))] {
        let shown = call(&delayd, "/delay/topic/get", json!({"topic": topic})).await;
        let page = call(&delayd, "/delay/topic/list", json!({"match": topic})).await;
        for topic in [&shown, &page["topics"][0]] {
            assert_eq!(state(topic), (expected.clone(), expected.clone()), "{topic}");
        }
    }
    // Without counts, it is as the last sample says.
    let names = async || call(&delayd, "/delay/topic/list", json!({})).await;
    let is_sampled = async || {
        let names = names().await;
        let states: Vec<_> = names["topics"].as_array().unwrap().iter().map(state).collect();
        states == [(json!(false), json!(false)), (json!(true), json!(true))]
    };
    assert!(poll::until(is_sampled).await, "{}", names().await);
}

async fn topics_are_found_by_a_part_of_their_name(kept: Kept) {
    let delayd = kept.start(&[]).await;
    for topic in ["order.cancel", "order.remind", "Reorder", "mail"] {
        call(&delayd, "/delay/topic/set", json!({"topic": topic, "shards": 3})).await;
    }
    let check = async |pattern: &str, expected: &[&str]| {
        let page = call(&delayd, "/delay/topic/list", json!({"match": pattern})).await;
        let topics = page["topics"].as_array().unwrap();
        let names: Vec<&str> =
            topics.iter().map(|topic| topic["topic"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{pattern}: {page}");
        assert_eq!(page["total"], expected.len(), "{page}");
    };
    check("order", &["Reorder", "order.cancel", "order.remind"]).await;
    check("order*", &["order.cancel", "order.remind"]).await;
    check("ORDER.R*", &["order.remind"]).await;
    check("nobody", &[]).await;
}

async fn a_task_is_found_in_all_topics_by_its_id_and_its_keys(kept: Kept) {
    let delayd = kept.start(&[]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "wide", "shards": 7})).await;
    let task = |topic: &str, fields: Value| {
        let mut task = json!({"topic": topic, "delay": "1h", "content": {}});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        task
    };
    let plain = delayd.add(task("a", json!({}))).await.id();
    let once = delayd.add(task("wide", json!({"idempotency_key": "order-7"}))).await.id();
    let keyed = delayd.add(task("wide", json!({"key": "device-7"}))).await.id();
    let other = delayd.add(task("z", json!({"key": "device-7"}))).await.id();
    let both = delayd.add(task("z", json!({"key": "k", "idempotency_key": "order-7"}))).await.id();
    let check = async |name: Value, expected: &[(&str, u64)]| {
        let found = call(&delayd, "/delay/task/find", name.clone()).await;
        let tasks = found["tasks"].as_array().unwrap().iter();
        let tasks: Vec<(&str, u64)> = tasks
            .map(|found| {
                (found["topic"].as_str().unwrap(), found["task"]["task_id"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(tasks, expected, "{name}: {found}");
        assert_eq!((&found["topics_seen"], &found["cursor"]), (&json!(3), &Value::Null));
    };
    check(json!({"task_id": plain}), &[("a", plain)]).await;
    check(json!({"task_id": once.to_string()}), &[("wide", once)]).await;
    check(json!({"key": "device-7"}), &[("wide", keyed), ("z", other)]).await;
    check(json!({"idempotency_key": "order-7"}), &[("wide", once)]).await;
    check(json!({"key": "k", "idempotency_key": "order-7"}), &[("z", both)]).await;
    check(json!({"task_id": 1}), &[]).await;
    let rest = json!({"key": "device-7", "cursor": "wide"});
    let found = call(&delayd, "/delay/task/find", rest).await;
    assert_eq!((&found["tasks"][0]["topic"], &found["topics_seen"]), (&json!("z"), &json!(1)));
    let get = async |name: Value| delayd.post("/delay/task/get", name.to_string()).await;
    let found = get(json!({"topic": "wide", "key": "device-7"})).await.ok();
    assert_eq!(found.body["task"]["task_id"], keyed);
    let found = get(json!({"topic": "wide", "idempotency_key": "order-7"})).await.ok();
    assert_eq!(found.body["task"]["task_id"], once);
    let unknown = get(json!({"topic": "a", "key": "device-7"})).await;
    assert_eq!((unknown.status, &unknown.body["dm_error"]), (404, &json!(1004)), "{unknown:?}");
}

/// Makes tasks of a topic die by pulls that are refused.
async fn let_die(delayd: &Program, topic: &str, count: usize) {
    let task = json!({"topic": topic, "delay": 0, "content": {}, "max_attempts": 1});
    delayd.add_all(&vec![task; count]).await;
    let mut left = count;
    while left > 0 {
        let pull = json!({"topic": topic, "lease": "30s", "count": count, "wait": "10s"});
        let pulled = call(delayd, "/delay/task/pull", pull).await;
        for task in pulled["tasks"].as_array().unwrap() {
            let (id, receipt) = (&task["task_id"], &task["receipt"]);
            let nack = json!({"topic": topic, "task_id": id, "receipt": receipt});
            call(delayd, "/delay/task/nack", nack).await;
            left -= 1;
        }
    }
}

async fn causes_are_grouped_over_all_topics(kept: Kept) {
    let delayd = kept.start(&[]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "wide", "shards": 3})).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "empty"})).await;
    let_die(&delayd, "a", 2).await;
    let_die(&delayd, "wide", 5).await;
    let all = call(&delayd, "/delay/dead/causes", json!({})).await;
    let cause = &all["causes"][0];
    assert_eq!((&cause["reason"], &cause["count"]), (&json!("nacked"), &json!(7)), "{all}");
    let topics = json!([{"topic": "wide", "count": 5}, {"topic": "a", "count": 2}]);
    assert_eq!((&cause["topics"], &cause["topic"]), (&topics, &json!("a")), "{all}");
    assert_eq!(cause["sn"], Value::Null, "they are pulled");
    assert_eq!((&all["topics_seen"], &all["more"]), (&json!(3), &json!(false)), "{all}");
    assert_eq!((&cause["more_topics"], &all["cursor"]), (&json!(0), &Value::Null), "{all}");
    let rest = call(&delayd, "/delay/dead/causes", json!({"cursor": "empty"})).await;
    assert_eq!(rest["causes"][0]["count"], 5, "{rest}");
    let one = call(&delayd, "/delay/dead/causes", json!({"topic": "wide"})).await;
    assert_eq!(
        (&one["causes"][0]["count"], &one["causes"][0]["topics"]),
        (&json!(5), &Value::Null)
    );
    let both = json!({"topic": "a", "cursor": "a"}).to_string();
    assert_eq!(delayd.post("/delay/dead/causes", both).await.status, 400);
}

fn ids_of(page: &Value) -> Vec<u64> {
    page["tasks"].as_array().unwrap().iter().map(|t| t["task_id"].as_u64().unwrap()).collect()
}

async fn a_list_goes_back_in_time_and_has_filters(kept: Kept) {
    let delayd = kept.start(&["services.s.endpoints=[\"http://127.0.0.1:1\"]".into()]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "shards": 3})).await;
    let task = |n: usize| {
        let content =
            if n.is_multiple_of(2) { json!({"sn": "s", "url": "/"}) } else { json!({"n": n}) };
        json!({"topic": "t", "delay": format!("{}m", 60 + n), "content": content})
    };
    let ids = delayd.add_all(&(0..40).map(task).collect::<Vec<_>>()).await;
    let list = async |more: Value| {
        let mut body = json!({"topic": "t", "state": "scheduled"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&delayd, "/delay/task/list", body).await
    };
    // Without a filter, and with one, in pages.
    for filter in [json!({}), json!({"sn": "s"}), json!({"sn": "@pull"})] {
        let expected: Vec<u64> = match filter["sn"].as_str() {
            None => ids.iter().rev().copied().collect(),
            Some("s") => ids.iter().step_by(2).rev().copied().collect(),
            Some(_) => ids.iter().skip(1).step_by(2).rev().copied().collect(),
        };
        let (mut found, mut seen, mut cursor) = (Vec::new(), 0, Value::Null);
        loop {
            let mut more = json!({"order": "newest", "limit": 7, "cursor": cursor});
            more.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
            let page = list(more).await;
            found.extend(ids_of(&page));
            seen += page["seen"].as_u64().unwrap_or_default();
            cursor = page["cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(found, expected, "{filter}");
        assert_eq!(seen, if filter == json!({}) { 0 } else { 40 }, "{filter}");
    }
    let due_ms = async |id: u64| delayd.task("t", id).await["due_ms"].as_f64().unwrap() / 1000.0;
    let (from, to) = (due_ms(ids[10]).await, due_ms(ids[12]).await);
    let between = list(json!({"due_from": from, "due_to": to})).await;
    assert_eq!(ids_of(&between), ids[10..=12], "{between}");
    assert_eq!(between["seen"], 3, "tasks that are due at other times were looked at");
    let_die(&delayd, "u", 3).await;
    let dead = |outcome: &str| json!({"topic": "u", "state": "dead", "outcome": outcome});
    assert_eq!(ids_of(&call(&delayd, "/delay/task/list", dead("nacked")).await).len(), 3);
    let none = call(&delayd, "/delay/task/list", dead("nack")).await;
    assert_eq!((ids_of(&none), &none["seen"]), (Vec::new(), &json!(3)));
}

async fn tasks_are_found_by_a_text_in_their_contents(kept: Kept) {
    let delayd = kept.start(&[]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "shards": 2})).await;
    let task = |n: usize| {
        let (delay, content) = (format!("{}m", 60 + n), format!("{{\"订单\":{n}}}"));
        json!({"topic": "t", "delay": delay, "content": content})
    };
    let ids = delayd.add_all(&(0..100).map(task).collect::<Vec<_>>()).await;
    let search = async |more: Value| {
        let mut body = json!({"topic": "t", "state": "scheduled"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&delayd, "/delay/task/search", body).await
    };
    let found = search(json!({"text": "\"订单\":7"})).await;
    let expected: Vec<u64> = (70..80).rev().chain([7]).map(|n| ids[n]).collect();
    assert_eq!((ids_of(&found), &found["seen"]), (expected.clone(), &json!(100)), "{found}");
    assert_eq!(found["cursor"], Value::Null);
    let (mut pages, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = search(json!({"text": "\"订单\":7", "limit": 4, "cursor": cursor})).await;
        pages.extend(ids_of(&page));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(pages, expected);
    let oldest = search(json!({"text": ":7", "order": "oldest", "limit": 1})).await;
    assert_eq!(ids_of(&oldest), [ids[7]]);
    assert!(ids_of(&search(json!({"text": "nowhere"})).await).is_empty());
}

/// Makes the content of a task of the topic `t` unreadable, with a direct change in the store.
fn garble(kept: &Kept, id: u64) {
    match &kept.store {
        StoreAt::Embedded(folder) => {
            let db = rusqlite::Connection::open(folder.join("delayd.db")).unwrap();
            db.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
            let garbled = "UPDATE task SET content = CAST(x'ff20fe' AS TEXT) WHERE id = ?";
            assert_eq!(db.execute(garbled, [id as i64]).unwrap(), 1);
        }
        StoreAt::Set(_) => panic!("this test runs on a store of its own"),
        StoreAt::Redis(_, prefix) => {
            let bodies = format!("{prefix}:DELAY_REALL_TOPIC_TASK-{{t:0}}");
            let garbled = ["HSET", &bodies, &id.to_string(), "9 of another version"];
            assert_eq!(redis_server::shared().command(&garbled).trim(), "0");
        }
    }
}

async fn an_unreadable_task_does_not_stop_a_search(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let task = |n: usize| {
        let delay = format!("{}m", 60 + n);
        json!({"topic": "t", "delay": delay, "content": {"text": "needle"}})
    };
    let ids = delayd.add_all(&(0..3).map(task).collect::<Vec<_>>()).await;
    garble(&kept, ids[1]);
    let search = json!({"topic": "t", "state": "scheduled", "text": "needle", "order": "oldest"});
    let found = call(&delayd, "/delay/task/search", search).await;
    assert_eq!(ids_of(&found), [ids[0], ids[2]], "{found}");
    assert_eq!((&found["seen"], &found["cursor"]), (&json!(3), &Value::Null), "{found}");
}

async fn tasks_are_cancelled_and_moved_by_a_filter(kept: Kept) {
    let delayd = kept.start(&["services.s.endpoints=[\"http://127.0.0.1:1\"]".into()]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "shards": 3})).await;
    let task = |n: usize| {
        let content =
            if n.is_multiple_of(2) { json!({"sn": "s", "url": "/"}) } else { json!({"n": n}) };
        json!({"topic": "t", "delay": format!("{}m", 60 + n), "content": content})
    };
    let ids = delayd.add_all(&(0..40).map(task).collect::<Vec<_>>()).await;
    let scheduled = async || {
        let shown = call(&delayd, "/delay/topic/get", json!({"topic": "t"})).await;
        shown["counts"]["scheduled"].as_u64().unwrap()
    };
    let mut pulled = json!({"topic": "t", "state": "scheduled", "sn": "@pull", "limit": 7});
    pulled["dry_run"] = json!(true);
    let dry = call(&delayd, "/delay/task/cancel_many", pulled.clone()).await;
    assert_eq!((&dry["count"], &dry["seen"]), (&json!(3), &json!(7)), "{dry}");
    assert_eq!(dry["sample"][0]["task_id"], ids[1], "{dry}");
    assert_eq!(scheduled().await, 40, "a dry run cancelled tasks");
    pulled["dry_run"] = json!(false);
    let (mut count, mut seen) = (0, 0);
    loop {
        let done = call(&delayd, "/delay/task/cancel_many", pulled.clone()).await;
        count += done["count"].as_u64().unwrap();
        seen += done["seen"].as_u64().unwrap();
        pulled["cursor"] = done["cursor"].clone();
        if done["cursor"].is_null() {
            break;
        }
    }
    assert_eq!((count, seen, scheduled().await), (20, 40, 20));
    assert_eq!(delayd.task("t", ids[1]).await["state"], "cancelled");

    // Of many tasks, only those of the period are looked at.
    let first = delayd.task("t", ids[0]).await["due_ms"].as_f64().unwrap() / 1000.0;
    let period = json!({"topic": "t", "state": "scheduled", "due_to": first, "dry_run": true});
    let due = call(&delayd, "/delay/task/cancel_many", period).await;
    assert_eq!((&due["count"], &due["seen"]), (&json!(1), &json!(1)), "{due}");

    // Tasks that were moved behind the cursor are not moved again.
    let at = delayd.task("t", ids[20]).await["due_ms"].as_i64().unwrap() / 1000;
    let moving = json!({"topic": "t", "timing_moment": at, "all": true});
    let moved = call(&delayd, "/delay/task/update_many", moving.clone()).await;
    assert!(moved["count"].as_u64().unwrap() >= 19, "{moved}");
    assert_eq!(moved["sample"].as_array().unwrap().len(), 10);
    assert_eq!(delayd.task("t", ids[38]).await["due_ms"], at * 1000);
    let again = call(&delayd, "/delay/task/update_many", moving).await;
    assert_eq!((&again["count"], &again["cursor"]), (&json!(0), &Value::Null), "{again}");

    // Ids in place of a filter: tasks of another state and unknown ones are left alone.
    let some = json!({"topic": "t", "state": "scheduled", "task_ids": [ids[2], ids[2], ids[1], 7]});
    let mut dry = some.clone();
    dry["dry_run"] = json!(true);
    let dry = call(&delayd, "/delay/task/cancel_many", dry).await;
    assert_eq!((&dry["count"], &dry["cursor"]), (&json!(1), &Value::Null), "{dry}");
    assert_eq!(delayd.task("t", ids[2]).await["state"], "scheduled");
    // A limit below their number: the cursor continues after the first.
    let mut half = json!({"topic": "t", "state": "scheduled", "task_ids": [ids[4], ids[6]],
        "limit": 1, "dry_run": true});
    let first = call(&delayd, "/delay/task/cancel_many", half.clone()).await;
    half["cursor"] = first["cursor"].clone();
    let second = call(&delayd, "/delay/task/cancel_many", half).await;
    assert_eq!((&first["sample"][0]["task_id"], &first["seen"]), (&json!(ids[4]), &json!(1)));
    assert_eq!(second["sample"][0]["task_id"], ids[6], "{second}");
    let moving = json!({"topic": "t", "timing_moment": at + 60, "task_ids": [ids[2], ids[1]]});
    assert_eq!(call(&delayd, "/delay/task/update_many", moving).await["count"], 1);
    assert_eq!(delayd.task("t", ids[2]).await["due_ms"], (at + 60) * 1000);
    let local = json!({"topic": "t", "at": "2035-11-23 20:00", "zone": "Asia/Shanghai",
        "task_ids": [ids[2]]});
    assert_eq!(call(&delayd, "/delay/task/update_many", local).await["count"], 1);
    assert_eq!(delayd.task("t", ids[2]).await["due_ms"], 2_079_432_000_000_i64);
    let done = call(&delayd, "/delay/task/cancel_many", some).await;
    assert_eq!((&done["count"], scheduled().await), (&json!(1), 19), "{done}");
    let both = json!({"topic": "t", "state": "scheduled", "task_ids": [ids[4]], "all": true});
    let refused = delayd.post("/delay/task/cancel_many", &both.to_string()).await;
    assert_eq!((refused.status, scheduled().await), (400, 19), "{refused:?}");

    let_die(&delayd, "u", 3).await;
    let dead = json!({"topic": "u", "state": "dead", "outcome": "nacked"});
    assert_eq!(call(&delayd, "/delay/task/cancel_many", dead).await["count"], 3);
    let audit = async || {
        let log = call(&delayd, "/delay/audit/list", json!({})).await;
        let entries = log["entries"].as_array().unwrap().clone();
        let is_one = |entry: &&Value| entry["action"] == "task/cancel_many";
        let found: Vec<Value> = entries.iter().filter(is_one).cloned().collect();
        (found.len() >= 8).then_some(found)
    };
    let entries = poll::answer(audit).await.expect("each call is in the audit log");
    assert_eq!(entries.last().unwrap()["dry_run"], true, "{entries:?}");
}
