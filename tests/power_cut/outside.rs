//! The receiver of the callbacks: notes each with its position, and answers by its path.

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::history::{Call, PUSHED, Step};
use crate::load;
use crate::receiver::{Answer, Receiver, Seen};

pub async fn receiver(caller: &Caller) -> Receiver {
    let caller = caller.clone();
    let runtime = tokio::runtime::Handle::current();
    Receiver::answering(move |seen| {
        let at = caller.position();
        let version = load::version(&seen.body);
        let call = Call { id: seen.id, topic: "pushed".to_owned(), at, version };
        caller.history().calls.push(call);
        match seen.path.as_str() {
            "/fails" => Answer::Status(500),
            "/later" => {
                runtime.spawn(acknowledge(caller.clone(), seen.clone()));
                Answer::With(202, vec![("delay-ack", "later"), ("delay-lease", "1h")], "")
            }
            "/both" => {
                runtime.spawn(acknowledge(caller.clone(), seen.clone()));
                Answer::Status(200)
            }
            _ => Answer::Status(200),
        }
    })
    .await
}

/// The receiver has done the work, and says so.
async fn acknowledge(caller: Caller, seen: Seen) {
    tokio::time::sleep(std::time::Duration::from_millis(rand::random_range(0..60))).await;
    let receipt = seen.headers["delay-receipt"].to_str().unwrap();
    let ack: Value = json!({"topic": "pushed", "task_id": seen.id, "receipt": receipt});
    let sent = caller.position();
    let answer = caller.call_twice("/delay/task/ack", &ack).await;
    let promised = answer.map(|(_, at)| at);
    let shows = if promised.is_some() { &["delivered"] } else { PUSHED };
    caller.history().step(seen.id, "pushed", Step::new(sent, promised, shows));
}
