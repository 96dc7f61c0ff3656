//! The names of compressions in `content-encoding`.

/// Whether the word names a compression. Other words, such as `utf-8`, are a common mistake: a body
/// with one of them is not compressed.
pub fn is_compression(word: &str) -> bool {
    ["gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "dcb", "dcz"]
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name))
}
