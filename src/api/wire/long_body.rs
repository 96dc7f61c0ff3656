//! Long bodies are read off the runtime, so that they do not delay other requests.

use std::num::NonZero;
use std::sync::LazyLock;

use bytes::Bytes;
use tokio::sync::Semaphore;

/// The longest body, in bytes, that is read on a runtime thread. Everything done with it takes a
/// few milliseconds.
pub(crate) const LONG: usize = 256 << 10;

/// Runs `read`, whose time is proportional to the body: on this thread if the body is short,
/// otherwise on a blocking thread. At most half of the CPUs read long bodies at a time.
pub(crate) async fn reading<T: Send + 'static>(
    body: Bytes,
    read: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> T {
    static READERS: LazyLock<Semaphore> = LazyLock::new(|| {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Semaphore::new((processors / 2).max(1))
    });
    if body.len() <= LONG {
        return read(&body);
    }
    let turn = READERS.acquire().await.expect("the semaphore is never closed");
    let reading = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        read(&body)
    });
    reading.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// A number of bytes for people, such as `256 KiB`.
pub(crate) fn size(bytes: usize) -> impl std::fmt::Display {
    bytesize::ByteSize::b(bytes as u64).display().iec()
}
