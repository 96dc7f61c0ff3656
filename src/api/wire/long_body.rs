//! Long bodies are read off the runtime, so that they do not delay other requests. Their threads do
//! nothing else, so that nothing else can delay them.

use std::num::NonZero;
use std::sync::LazyLock;

use bytes::Bytes;
use tokio::runtime::{self, Runtime};
use tokio::sync::Semaphore;

/// The longest body, in bytes, that is read on a runtime thread. Everything done with it takes a
/// few milliseconds.
pub(crate) const LONG: usize = 256 << 10;

/// Runs `read`, whose time is proportional to the body: on this thread if the body is short,
/// otherwise on a thread for long bodies. At most half of the CPUs read long bodies at a time.
pub(crate) async fn reading<T: Send + 'static>(
    body: Bytes,
    read: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> T {
    /// The threads, and a turn for each. A request that ends while it waits for a turn leaves
    /// nothing to read.
    static READERS: LazyLock<(Runtime, Semaphore)> = LazyLock::new(|| {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let readers = (processors / 2).max(1);
        let threads = runtime::Builder::new_current_thread()
            .max_blocking_threads(readers)
            .thread_name("long-body")
            .build()
            .expect("a runtime without drivers can be built");
        (threads, Semaphore::new(readers))
    });
    if body.len() <= LONG {
        return read(&body);
    }
    let (threads, turns) = &*READERS;
    let turn = turns.acquire().await.expect("the semaphore is never closed");
    let reading = threads.spawn_blocking(move || {
        let _turn = turn;
        read(&body)
    });
    reading.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// A number of bytes for people, such as `256 KiB`.
pub(crate) fn size(bytes: usize) -> impl std::fmt::Display {
    bytesize::ByteSize::b(bytes as u64).display().iec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long bodies were read by the blocking threads of the runtime, which lookups of names could
    /// fill.
    #[test]
    fn a_full_blocking_pool_holds_up_no_long_body() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async move {
            let _blocking = tokio::task::spawn_blocking(move || released.recv());
            let body = Bytes::from(vec![b'a'; LONG + 1]);
            let reading = reading(body, |bytes| bytes.len());
            let read = tokio::time::timeout(std::time::Duration::from_secs(60), reading).await;
            assert_eq!(read.unwrap(), LONG + 1);
            drop(release);
        });
    }
}
