//! Callers that do not finish the TLS handshake.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Kept;
use crate::certificates::{Authority, Valid};
use crate::https::{LOOPBACK, add, client, sets};

/// Silent callers, and those that stop within the handshake, delay nobody and are cut off.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_do_not_finish_the_handshake_are_cut_off_and_delay_nobody() {
    let authority = Authority::new();
    let pair = authority.issue("port", LOOPBACK, Valid::Now);
    let delayd = Kept::embedded().start_as_shipped(&sets(&pair)).await;
    let mut slow = Vec::new();
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01"].repeat(600) {
        let mut stream = TcpStream::connect(delayd.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        slow.push(stream);
    }
    let caller = client(&[&authority]).build().unwrap();
    // If it waited for one of them, it would wait for the 5 s of a handshake.
    tokio::time::timeout(Duration::from_secs(4), add(&caller, &delayd)).await.unwrap().unwrap();
    for mut stream in slow {
        let mut read = Vec::new();
        let end = stream.read_to_end(&mut read);
        let _ = tokio::time::timeout(Duration::from_secs(20), end).await.expect("it is cut off");
    }
}
