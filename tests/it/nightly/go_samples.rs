//! The programs in Go of `docs/samples`: the tests of those in Python and Node, with a compiler
//! that not every machine has.

use crate::{client_samples, receiver_samples};

#[tokio::test(flavor = "multi_thread")]
async fn the_producer_in_go_adds_one_task_although_answers_are_lost() {
    client_samples::check_producer("go", "producer.go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_go_extends_settles_and_stops() {
    client_samples::check_consumer("go", "consumer.go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_in_go_takes_what_is_signed_once_and_nothing_else() {
    receiver_samples::check("go", "receiver.go").await;
}
