//! The upper limit for adds: the same requests and answers without delayd.

use bytes::Bytes;

use super::options;
use crate::error::Error;
use crate::figures::Figures;
use crate::load::{self, Pace};
use crate::server::Instance;
use crate::stage::Stage;
use crate::task::{Template, When};
use crate::wire::Peer;
use delayd_wire::Span;

/// Requests per connection before the measurement begins.
const WARM_UP: u64 = 20;

/// Send the same adds to a bare axum server that reads each and answers like delayd, but stores
/// nothing (closed loop): the limit of HTTP and JSON on this machine.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Concurrent requests; 1 sends one after the other
    #[arg(long, value_name = "N", default_value = "64", value_parser = options::connections())]
    connections: usize,
    /// How long to measure
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "3s",
        value_parser = options::span
    )]
    span: Span,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
    /// Run only that server
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let server = Instance::start(&["bench", "bare", "--serve"].map(str::to_owned)).await?;
    let peer = Peer::at(server.address());
    let template = Template::push("bench.bare", stage.service(), params.bytes)?;
    let request = Bytes::from(peer.post("/delay/task/add", &template.task(When::Tomorrow)));
    let adds = |pace| {
        let request = request.clone();
        load::adds(&peer, params.connections, pace, move |_| request.clone(), &stage.progress)
    };
    adds(Pace::Count(params.connections as u64 * WARM_UP)).await?;
    stage.progress.step("requests", 0);
    let load = adds(Pace::For(params.span.0)).await?;
    let mut figures = Figures::default();
    figures.put_load("requests", &load);
    Ok(figures)
}
