//! `delayd openapi`: prints the OpenAPI document.

use super::{Code, out};
use crate::api;

/// Print the API as an OpenAPI 3.1 document, as /openapi.json of a running service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd openapi > openapi.json")]
pub(super) struct Args {}

pub(super) fn run() -> anyhow::Result<Code> {
    out::line(&serde_json::to_string_pretty(&api::document())?)?;
    Ok(Code::Done)
}
