//! Long bodies are read beside the runtime, so that no request keeps the others waiting.

use std::num::NonZero;
use std::sync::LazyLock;

use bytes::Bytes;
use tokio::sync::Semaphore;

/// The longest body, in bytes, that is read on a thread of the runtime. All that is done with it
/// there takes a few milliseconds.
pub(crate) const LONG: usize = 256 << 10;

/// Does what takes time in proportion to the body: on this thread if the body is short, else on a
/// thread beside the runtime.
///
/// A long body so keeps no other request waiting, however much it costs to read. At most half of
/// the processors read long bodies at a time.
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
    let turn = READERS.acquire().await.expect("nobody closes it");
    let reading = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        read(&body)
    });
    reading.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// A number of bytes, as people write it.
pub(crate) fn size(bytes: usize) -> impl std::fmt::Display {
    bytesize::ByteSize::b(bytes as u64).display().iec()
}
