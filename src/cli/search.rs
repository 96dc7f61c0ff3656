//! `delayd search`: lists the tasks of a topic whose content contains a text.

use delayd_wire::{ListOrder, SearchRequest, TaskState};

use super::args::one_of;
use super::client::ServerArgs;
use super::paging::Paging;
use super::{Code, list};
use crate::model::task::Topic;

/// List the tasks of a topic in one state whose content contains a text, the latest first.
///
/// The contents are read one after the other. It needs a token with the scope admin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd search orders 'order-42'
  delayd search orders '\"customer\":7' --state delivered --all")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The text, byte for byte
    text: String,
    /// The state
    #[arg(
        long,
        value_name = "STATE",
        default_value = "scheduled",
        value_parser = one_of(&TaskState::ALL, TaskState::as_str)
    )]
    state: TaskState,
    /// The earliest tasks first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let Args { topic, text, state, oldest, paging, server } = args;
    let client = server.client()?;
    let read = async |limit, cursor| {
        let body = SearchRequest {
            topic: topic.clone(),
            state,
            text: text.clone(),
            limit,
            cursor,
            order: oldest.then_some(ListOrder::Oldest),
        };
        let page: delayd_wire::Page = client.call("/delay/task/search", &body).await?;
        Ok((page.tasks, page.cursor))
    };
    paging.show(&client, read, list::shown).await
}
