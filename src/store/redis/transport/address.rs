//! The address of a server, a socket to it, and the login.

use std::fmt;
use std::io;

use deadpool_redis::redis::io::tcp::TcpSettings;
use deadpool_redis::redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use futures_util::future::select_ok;
use tokio::net::TcpStream;

use super::fault::{cause, of_redis};
use crate::dns::Dns;
use crate::store::{Error, Result};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `host:port` from a redirection. Without a host, it is that of the server that was
    /// asked.
    pub(crate) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Connects to the first address of the host that answers.
pub(super) async fn tcp(at: &Address, dns: &Dns) -> io::Result<TcpStream> {
    let addresses = dns.look_up(&at.host, at.port).await?;
    let attempts = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(attempts).await?;
    // See `Login::client`.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// User, password and database. `Debug` shows none of them.
#[derive(Clone, Default)]
pub(crate) struct Login(RedisConnectionInfo);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

impl Login {
    /// A login with a user and a password, if they are set.
    pub(crate) fn of(username: Option<&str>, password: Option<&str>) -> Self {
        let mut info = RedisConnectionInfo::default();
        if let Some(username) = username {
            info = info.set_username(username);
        }
        if let Some(password) = password {
            info = info.set_password(password);
        }
        Self(info)
    }

    /// The login, for a connection that was made already.
    pub(crate) fn settings(&self) -> &RedisConnectionInfo {
        &self.0
    }

    /// The client of one server without TLS, not connected yet.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for an invalid address.
    pub(crate) fn client(&self, at: &Address) -> Result<Client> {
        let info =
            (at.host.as_str(), at.port).into_connection_info().map_err(|error| of_redis(&error))?;
        // Otherwise the kernel holds a pipeline back until the server has acknowledged the previous
        // one, which takes a round trip (Nagle's algorithm).
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Client::open(info.set_redis_settings(self.0.clone())).map_err(|error| of_redis(&error))
    }
}

/// An address of the configuration.
#[derive(Debug)]
pub(crate) struct Url {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) is_tls: bool,
}

/// Reads `redis://[user:password@]host[:port][/db]`; `rediss://` means TLS.
///
/// # Errors
/// [`Error::Misconfigured`] for anything else; it does not repeat the URL, which may hold a
/// password.
pub(crate) fn read_url(url: &str) -> Result<Url> {
    let wrong = |text: String| Error::Misconfigured(format!("store.redis.urls: {text}"));
    let (is_tls, plain) = match url.strip_prefix("rediss://") {
        Some(rest) => (true, format!("redis://{rest}")),
        None => (false, url.to_owned()),
    };
    let info = plain.into_connection_info().map_err(|error| wrong(cause(&error)))?;
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let address = Address { host: host.trim_matches(['[', ']']).to_owned(), port: *port };
            Ok(Url { address, login: Login(info.redis_settings().clone()), is_tls })
        }
        _ => Err(wrong("only redis:// and rediss:// addresses can be used".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_host_or_means_the_one_that_was_asked() {
        let asked = Address { host: "10.0.0.1".into(), port: 1 };
        let check = |text: &str, expected: &str| {
            assert_eq!(Address::read(text, &asked).unwrap().to_string(), expected)
        };
        check("10.0.0.2:7001", "10.0.0.2:7001");
        check("node.example:7001", "node.example:7001");
        check(":7001", "10.0.0.1:7001");
        check("::1:7001", "[::1]:7001");
        assert_eq!(Address::read("nowhere", &asked), None);
    }

    /// After a lost connection to a server with a name, every add was refused for as long as the
    /// resolver was silent.
    #[tokio::test]
    async fn a_server_is_reached_again_while_the_resolver_issender() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, answers) = std::sync::mpsc::sync_channel(1);
        sender.send(address).unwrap();
        let answers = std::sync::Mutex::new(answers);
        let dns = Dns::asking(1, move |_| {
            let answer = answers.lock().unwrap().recv();
            answer.map(|address| vec![address]).map_err(io::Error::other)
        });
        let at = Address { host: "redis.example".into(), port: address.port() };
        for _ in 0..3 {
            assert_eq!(tcp(&at, &dns).await.unwrap().peer_addr().unwrap(), address);
        }
    }

    /// Each pipeline waited for the acknowledgement of the one before it.
    #[test]
    fn the_kernel_sends_each_pipeline_at_once() {
        let Url { address, login, .. } = read_url("redis://host:7").unwrap();
        assert!(login.client(&address).unwrap().get_connection_info().tcp_settings().nodelay());
    }

    #[test]
    fn an_address_is_read_and_its_secrets_stay_hidden() {
        let Url { address, login, is_tls } = read_url("rediss://me:secret@host:7/3").unwrap();
        assert_eq!((address.to_string().as_str(), is_tls), ("host:7", true));
        assert_eq!(
            (login.0.username(), login.0.password(), login.0.db()),
            (Some("me"), Some("secret"), 3)
        );
        assert!(!format!("{login:?}").contains("secret"));
        assert_eq!(read_url("redis://[::1]:7").unwrap().address.to_string(), "[::1]:7");
        let error = read_url("http://me:secret@host").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
