//! A longer way to Redis: a TCP proxy that delays each direction by half of a round trip.
//!
//! It reads on while bytes are on their way, so it limits no throughput. It uses threads that
//! sleep: timers of tokio have whole milliseconds, and the runtime of the bench is busy.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use reqwest::Url;

/// The port of a Redis URL without one.
const REDIS_PORT: u16 = 6379;
/// The most bytes of one read.
const READ: usize = 64 << 10;
/// How many reads may be on their way. A reader that is further ahead waits.
const ON_THE_WAY: usize = 4_096;

/// Bytes, and when they arrive. No bytes: the sender has closed the connection.
type Sent = (Instant, Vec<u8>);

/// The URL of a proxy before this Redis, which is started. Without a round trip, the URL itself.
///
/// # Errors
/// If the URL has no host, or no port is free.
pub(crate) fn url(redis: &str, round_trip: Duration) -> anyhow::Result<String> {
    if round_trip.is_zero() {
        return Ok(redis.to_owned());
    }
    let odd = || anyhow!("{redis} names no host and port");
    let mut url = Url::parse(redis).map_err(|_| odd())?;
    let host = url.host_str().ok_or_else(odd)?.trim_matches(['[', ']']).to_owned();
    let server = (host, url.port().unwrap_or(REDIS_PORT));
    let proxy = before(server, round_trip).context("cannot start a proxy before Redis")?;
    url.set_ip_host(proxy.ip()).map_err(|()| odd())?;
    url.set_port(Some(proxy.port())).map_err(|()| odd())?;
    Ok(url.into())
}

/// Starts a proxy before a server, which runs until the process ends. Returns its address.
///
/// # Errors
/// If no port is free.
pub(crate) fn before(server: (String, u16), round_trip: Duration) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // A client whose server is away sees a closed connection.
            let _ = connect(client, &server, round_trip / 2);
        }
    });
    Ok(address)
}

fn connect(client: TcpStream, server: &(String, u16), delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect((server.0.as_str(), server.1))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    carry(client.try_clone()?, server.try_clone()?, delay);
    carry(server, client, delay);
    Ok(())
}

fn carry(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = sync_channel(ON_THE_WAY);
    thread::spawn(move || read(from, &sender, delay));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: TcpStream, on_the_way: &SyncSender<Sent>, delay: Duration) {
    let mut buffer = vec![0; READ];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        let sent = (Instant::now() + delay, buffer[..read].to_vec());
        if on_the_way.send(sent).is_err() || read == 0 {
            return;
        }
    }
}

fn write(mut to: TcpStream, arriving: &Receiver<Sent>) {
    for (at, bytes) in arriving {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    // An error means that the connection has ended already.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests are sent before the first answer: they share one round trip.
    #[test]
    fn requests_that_are_on_their_way_do_not_delay_each_other() {
        const ROUND_TRIP: Duration = Duration::from_millis(200);
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            let mut echoed = client.try_clone().unwrap();
            io::copy(&mut client, &mut echoed)
        });
        let proxy = before(("127.0.0.1".into(), port), ROUND_TRIP).unwrap();
        let mut client = TcpStream::connect(proxy).unwrap();
        let began = Instant::now();
        let mut sent = Vec::new();
        for byte in 0..10 {
            client.write_all(&[byte]).unwrap();
            sent.push(Instant::now());
        }
        for byte in 0..10 {
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [byte]);
            assert!(sent[usize::from(byte)].elapsed() >= ROUND_TRIP, "answer {byte} is early");
        }
        let alone = 10 * ROUND_TRIP;
        assert!(began.elapsed() < alone, "as slow as one after the other");
    }
}
