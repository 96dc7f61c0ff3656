//! `delayd healthcheck`: checks whether a service is alive. For containers without curl.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::client::{self, Authority, ServerUrl, Trust};
use super::{Code, Configuration, output};

/// How long to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Call GET /healthz of a running service; the exit code is 0 if it is alive, else 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd healthcheck
  delayd healthcheck --server http://10.0.0.5:7799
  delayd healthcheck --server https://delay.example.com --ca authority.pem")]
pub(super) struct Args {
    /// The service; by default, that of the configured http.bind
    #[arg(long, value_name = "URL", env = "DELAYD_SERVER")]
    server: Option<ServerUrl>,
    #[command(flatten)]
    authority: Authority,
}

pub(super) async fn run(args: Args, configuration: &Configuration) -> anyhow::Result<Code> {
    let (base, trust) = match args.server {
        Some(server) => (server.to_string(), args.authority.trust()),
        // The certificate of the port seldom has the address of this machine. Nothing is sent that
        // another process must not see.
        None => {
            let http = configuration.load()?.http;
            (format!("{}://{}", http.scheme(), reachable(http.bind)), Trust::Anyone)
        }
    };
    let url = format!("{base}/healthz");
    let answer = client::http(TIMEOUT, &trust)?.get(&url).send().await;
    let (code, text) = match answer {
        Ok(answer) if answer.status().is_success() => (Code::Done, format!("{base} is alive")),
        Ok(answer) => (Code::Failed, format!("{url} answered {}", answer.status())),
        Err(e) => (Code::Failed, format!("{base} does not answer: {}", client::cause(&e))),
    };
    output::line(&text)?;
    Ok(code)
}

/// The address for a client on this machine of a service that listens on `bind`.
fn reachable(bind: SocketAddr) -> SocketAddr {
    let mut to = bind;
    if bind.ip().is_unspecified() {
        to.set_ip(if bind.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_asked_on_loopback() {
        let check =
            |bind: &str, to: &str| assert_eq!(reachable(bind.parse().unwrap()).to_string(), to);
        check("0.0.0.0:80", "127.0.0.1:80");
        check("[::]:80", "[::1]:80");
        check("10.0.0.5:80", "10.0.0.5:80");
    }
}
