//! Stub.
#![allow(unused_variables)]
use super::*;
/// Stub.
#[derive(Debug)]
pub struct Redis;
impl Store for Redis {
    fn durability(&self) -> Durability {
        unreachable!()
    }
    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        unreachable!()
    }
    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        unreachable!()
    }
    async fn settle(&self, settles: Vec<Settle>) -> Result<Vec<Settled>> {
        unreachable!()
    }
    async fn extend(&self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Result<Settled> {
        unreachable!()
    }
    async fn cancel(&self, lane: &Lane, id: TaskId) -> Result<Cancelled> {
        unreachable!()
    }
    async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        unreachable!()
    }
    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        unreachable!()
    }
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        unreachable!()
    }
    async fn replay(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<usize> {
        unreachable!()
    }
    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        unreachable!()
    }
    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        unreachable!()
    }
    async fn purge(&self, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> Result<usize> {
        unreachable!()
    }
    async fn register(&self, entry: TopicEntry) -> Result<TopicEntry> {
        unreachable!()
    }
    async fn topics(&self) -> Result<Vec<TopicEntry>> {
        unreachable!()
    }
    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        unreachable!()
    }
    async fn ping(&self) -> Result<UnixMillis> {
        unreachable!()
    }
    fn hints(&self) -> broadcast::Receiver<Hint> {
        unreachable!()
    }
    async fn close(&self) {
        unreachable!()
    }
}
