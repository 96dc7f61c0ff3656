//! A minimal HTTP/1.1 for the bench and its receiver: a general client would cost more CPU than the
//! service, and measure itself.
//!
//! A request is complete before it is sent with one write. Answers must have a `content-length`,
//! like those of delayd.

use std::io;

use anyhow::Context;
use memchr::memmem;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The initial read buffer of a connection.
const READ: usize = 16 * 1024;
const BROKEN: &str = "a connection to the service failed";

/// The called service, with its token.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Host and port.
    pub(crate) address: String,
    /// The prefix of each path; empty for most.
    pub(crate) base: String,
    pub(crate) token: Option<String>,
}

impl Peer {
    pub(crate) fn at(address: impl ToString) -> Self {
        Self { address: address.to_string(), base: String::new(), token: None }
    }

    /// Returns a complete request.
    pub(crate) fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let (base, address, length) = (&self.base, &self.address, body.len());
        let token = self
            .token
            .as_ref()
            .map(|token| format!("authorization: Bearer {token}\r\n"))
            .unwrap_or_default();
        format!(
            "POST {base}{path} HTTP/1.1\r\nhost: {address}\r\n{token}\
             content-length: {length}\r\n\r\n{body}"
        )
        .into()
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await.context(BROKEN)?;
        stream.set_nodelay(true).context(BROKEN)?;
        Ok(Connection { stream, read: Vec::with_capacity(READ), used: 0 })
    }
}

/// The body of a request.
pub(crate) fn json(request: &impl Serialize) -> String {
    serde_json::to_string(request).expect("requests are plain data")
}

/// A connection with at most one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// The length of the previous answer in `read`.
    used: usize,
}

/// An answer, valid until the next request.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

/// The service refused a part of the load.
#[derive(Debug, thiserror::Error)]
#[error("the service answered {status}: {answer}")]
pub(crate) struct Refused {
    status: u16,
    /// The beginning of the body.
    answer: String,
}

impl Answer<'_> {
    pub(crate) fn refused(&self) -> Refused {
        let answer = String::from_utf8_lossy(self.body).chars().take(300).collect();
        Refused { status: self.status, answer }
    }
}

impl Connection {
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        let (status, frame) = self.answer(request).await.context(BROKEN)?;
        Ok(Answer { status, body: &self.read[frame.body..frame.end] })
    }

    async fn answer(&mut self, request: &[u8]) -> io::Result<(u16, Frame)> {
        self.read.drain(..self.used);
        self.used = 0;
        self.stream.write_all(request).await?;
        let frame = loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(frame) = Frame::of(&self.read)? {
                break frame;
            }
        };
        self.used = frame.end;
        // `HTTP/1.1 200 OK`
        let status =
            self.read.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        Ok((status.ok_or_else(|| invalid("an answer without a status"))?, frame))
    }
}

/// The positions of the body and of the end of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) body: usize,
    pub(crate) end: usize,
}

impl Frame {
    /// `None` while the message is incomplete.
    pub(crate) fn of(read: &[u8]) -> io::Result<Option<Self>> {
        let Some(head) = memmem::find(read, b"\r\n\r\n") else { return Ok(None) };
        let body = head + 4;
        let length = header(&read[..head], "content-length")
            .ok_or_else(|| invalid("a message without its length"))?;
        let end = body + usize::try_from(length).map_err(io::Error::other)?;
        Ok((end <= read.len()).then_some(Self { body, end }))
    }
}

/// The numeric value of a header.
pub(crate) fn header(head: &[u8], name: &str) -> Option<u64> {
    let value = head.split(|byte| *byte == b'\n').find_map(|line| {
        let is_it = line.get(name.len()) == Some(&b':')
            && line[..name.len()].eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| &line[name.len() + 1..])
    })?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_its_length_is_there() {
        let check = |text: &str, expected: Option<(usize, usize)>| {
            let frame = Frame::of(text.as_bytes()).unwrap();
            assert_eq!(frame.map(|frame| (frame.body, frame.end)), expected, "{text:?}");
        };
        check("", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", Some((38, 40)));
        check("HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\n{}HTTP", Some((37, 39)));
        assert!(Frame::of(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn a_header_is_found_by_its_whole_name() {
        let head = b"POST / HTTP/1.1\r\nx-delay-task-id: 1\r\nDelay-Task-Id: 42\r\n";
        assert_eq!(header(head, "delay-task-id"), Some(42));
        assert_eq!(header(head, "task-id"), None);
    }
}
