//! A caller that sends the same request again and again, and records each answer's status and time.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    pub asked: Instant,
    /// 0 if there was none.
    pub status: u16,
    pub took: Duration,
}

/// The running caller.
#[derive(Debug)]
pub struct Probe {
    stop: watch::Sender<bool>,
    asking: JoinHandle<Vec<Probed>>,
}

impl Probe {
    /// Posts `body` to `url` every `every`, whether or not earlier answers have come.
    pub fn start(url: String, body: String, every: Duration) -> Self {
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let asking = tokio::spawn(async move {
            let client = crate::load::client();
            let mut questions = tokio::task::JoinSet::new();
            let mut ticks = tokio::time::interval(every);
            while !*stopped.borrow_and_update() {
                questions.spawn(ask(client.clone(), url.clone(), body.clone()));
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = stopped.changed() => {}
                }
            }
            questions.join_all().await
        });
        Self { stop, asking }
    }

    /// All answers, in the order of the requests.
    pub async fn stop(self) -> Vec<Probed> {
        self.stop.send_replace(true);
        let mut answers = self.asking.await.unwrap();
        answers.sort_by_key(|answer| answer.asked);
        answers
    }
}

async fn ask(client: reqwest::Client, url: String, body: String) -> Probed {
    let asked = Instant::now();
    let status = match client.post(url).body(body).send().await {
        Ok(answer) => {
            let status = answer.status().as_u16();
            answer.bytes().await.map_or(0, |_| status)
        }
        Err(_) => 0,
    };
    Probed { asked, status, took: asked.elapsed() }
}
