//! The outbox of `docs/OUTBOX.md`: its SQL, and the program in `docs/samples`.

use std::time::Duration;

use delayd::model::clock::Clock;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::Kept;
use crate::client_samples::{Front, LOST, sample};
use crate::documentation::page;
use crate::program::{folder, run};

/// The SQL blocks of the page.
fn statements() -> Vec<String> {
    let page = page("docs/OUTBOX.md");
    let blocks = page.split("```sql\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_of_the_page_adds_and_cancels_the_timer_of_an_order() {
    let delayd = Kept::embedded().start(&[]).await;
    let db = Connection::open_in_memory().unwrap();
    let [table, order, paid, open, mark, delete] = &statements()[..] else {
        panic!("the page has other SQL");
    };
    db.execute_batch("CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(16))").unwrap();
    db.execute_batch(&[table.as_str(), order, paid].concat()).unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    };
    let rows = || -> Vec<(i64, String, String)> {
        db.prepare(open).unwrap().query_map((), read).unwrap().map(Result::unwrap).collect()
    };
    let waiting = rows();
    assert_eq!(waiting.len(), 2);
    let mut ids = Vec::new();
    for (id, path, request) in waiting {
        // The moment of the example is in the past for some readers of the page.
        let mut request: Value = serde_json::from_str(&request).unwrap();
        if path.ends_with("/add") {
            let in_an_hour = Clock::system().now() + Duration::from_secs(3600);
            request["timing_moment"] = json!(in_an_hour.0 / 1000);
        }
        // Sent twice, as after a crash of the relay.
        for _ in 0..2 {
            ids.push(delayd.post(&path, request.to_string()).await.ok().id());
        }
        db.execute_batch(&mark.replace("id = 1", &format!("id = {id}"))).unwrap();
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(delayd.task("order.close", ids[0]).await["state"], "cancelled");
    assert_eq!(rows(), []);
    db.execute_batch(delete).unwrap();
}

/// The program and the page must not differ.
#[test]
fn the_program_uses_the_sql_of_the_page() {
    let program = in_one_line(&page("docs/samples/outbox.py"));
    let [table, _, _, open, mark, _] = &statements()[..] else { panic!() };
    let columns = in_one_line(table.split_once('(').unwrap().1.split_once(");").unwrap().0);
    let mark =
        in_one_line(mark).replace("refused = NULL WHERE id = 1;", "refused = ? WHERE id = ?");
    for part in [columns, in_one_line(open).replace(';', ""), mark] {
        assert!(program.contains(&part), "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relay_sends_each_request_although_answers_are_lost() {
    let delayd = Kept::embedded().start(&[]).await;
    let front = Front::before(&delayd).await;
    let folder = folder();
    let file = folder.path().join("shop.db");
    let outbox = async |words: &[&str]| {
        let mut command = sample("python3", "outbox.py", file.to_str().unwrap(), &front.url);
        let (code, output, error) = run({
            command.args(words);
            command
        })
        .await;
        assert_eq!(code, 0, "{words:?}: {output}{error}");
    };
    outbox(&["order", "42"]).await;
    outbox(&["order", "43"]).await;
    outbox(&["pay", "42"]).await;
    outbox(&["relay"]).await;
    assert_eq!(front.statuses("/delay/task/add"), [503, LOST, 200, 200]);
    assert_eq!(front.statuses("/delay/task/cancel"), [503, LOST, 200]);
    for (state, order) in [("cancelled", 42), ("scheduled", 43)] {
        let listed = json!({"topic": "order.close", "state": state}).to_string();
        let listed = delayd.post("/delay/task/list", listed).await.ok().body;
        assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "{order}: {listed}");
    }
    // A cancel of what nobody added is refused, and does not stop the relay.
    outbox(&["pay", "44"]).await;
    outbox(&["order", "45"]).await;
    outbox(&["relay"]).await;
    let db = Connection::open(&file).unwrap();
    let count = |condition: &str| -> i64 {
        let count = format!("SELECT count(*) FROM delay_outbox WHERE {condition}");
        db.query_row(&count, (), |row| row.get(0)).unwrap()
    };
    assert_eq!((count("sent_at IS NULL"), count("refused IS NOT NULL"), count("true")), (0, 1, 5));
}
