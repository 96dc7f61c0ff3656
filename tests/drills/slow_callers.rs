//! Slow callers, which send a header or a body byte by byte or do not read their answer, and
//! callers that do not speak HTTP. Other callers must not be affected.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::account::Account;
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::resident_kib;
use crate::program::folder;
use crate::receiver::Receiver;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{is_long, quick_settings, rounds};

/// How much memory the slow callers may take: for each reader a task of 200 KiB and its answer
/// while it is written, and some MiB for the rest.
fn most_kib(each: usize) -> u64 {
    each as u64 * 500 + (32 << 10)
}

/// The time from one slow caller of each kind to the next.
const BETWEEN: Duration = Duration::from_millis(20);

const GARBAGE: [&[u8]; 10] = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: -1\r\n\r\n",
    b"POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n\
      content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    b"POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n\
      transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"POST /delay/task/add HTTP/1.1\r\n: \r\n\0\0\0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\r\n\r\n\r\n\r\n \r\n\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn and_healthy_ones_beside_them() {
    let each = rounds(60, 400);
    let mut row = Row::new(format!(
        "slowloris: {each} callers each drip a head, drip a body, read no answer; malformed HTTP"
    ));
    let (folder, receiver, account) = (folder(), Receiver::start().await, Account::open());
    let mut sets = quick_settings(&receiver.endpoint(), Duration::from_secs(30));
    // Calls must not be given up because the machine is busy with the slow callers.
    sets.push("callback.timeout=\"20s\"".into());
    let fleet = Fleet::start(fleet::embedded(folder.path()), sets, 1).await;
    let delayd = fleet.member(0);
    let large = json!({"topic": "large", "delay": "1h", "content": {"pad": "x".repeat(200 << 10)}});
    let large = delayd.add(large).await.id();
    let before = resident_kib(delayd.pid());
    let mut slow = JoinSet::new();
    for _ in 0..each {
        // One after the other. Requests of all readers at once would be a flood of large answers,
        // and again each time when all connections are closed together.
        tokio::time::sleep(BETWEEN).await;
        slow.spawn(drip(delayd.address, "POST /delay/task/add HTTP/1.1\r\nx-slow: "));
        slow.spawn(drip(
            delayd.address,
            "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 5000\r\n\r\n{",
        ));
        slow.spawn(read_nothing(delayd.address, large));
    }
    slow.spawn(speak_garbage(delayd.address));
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    let mut most = before;
    for _ in 0..if is_long() { 120 } else { 40 } {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(resident_kib(delayd.pid()));
    }
    load.stop().await;
    slow.shutdown().await;
    row.settle(Verdict::of(&account, delayd, || receiver.seen()).await);
    row.promise(row.duplicates() == 0, "the slow callers caused duplicates");
    row.promise(
        account.refusals() == 0,
        format!("{} adds of healthy callers were refused", account.refusals()),
    );
    row.promise(account.without_answer() == 0, "healthy callers got no answer");
    row.promise(!delayd.log().contains("panicked"), delayd.log());
    row.note(format!(
        "memory {before} → {most} KiB; slowest answer to a healthy caller {} ms",
        account.slowest_answer().as_millis()
    ));
    row.promise(most - before < most_kib(each), format!("memory grew by {} KiB", most - before));
    row.promise_in_time(
        account.slowest_answer() < Duration::from_secs(2),
        "a healthy caller waited too long",
    );
    row.finish();
}

/// Begins a request and goes on byte by byte, again and again.
async fn drip(address: SocketAddr, beginning: &'static str) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { return };
        let mut written = stream.write_all(beginning.as_bytes()).await;
        while written.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            written = stream.write_all(b" ").await;
        }
    }
}

/// Asks for a large task again and again, and reads none of the answers. Its receive buffer is
/// small, so that the kernel does not read for it.
async fn read_nothing(address: SocketAddr, id: u64) {
    let body = json!({"topic": "large", "task_id": id}).to_string();
    let question = format!(
        "POST /delay/task/get HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let Ok(mut stream) = socket.connect(address).await else { return };
        // The answers are larger than the server's buffer.
        let _ = stream.write_all(question.repeat(100).as_bytes()).await;
        let _ = stream.ready(Interest::ERROR).await;
    }
}

async fn speak_garbage(address: SocketAddr) {
    loop {
        for garbage in GARBAGE {
            let Ok(mut stream) = TcpStream::connect(address).await else { return };
            let _ = stream.write_all(garbage).await;
            let mut answer = [0; 1024];
            let _ = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut answer)).await;
        }
    }
}
