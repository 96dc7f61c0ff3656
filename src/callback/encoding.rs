//! Decodes the body of an answer that a receiver compressed.
//!
//! Calls ask for plain answers (`accept-encoding: identity`). Some gateways compress all the same,
//! and a `dm_error` in such an answer must not be missed.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::model::coding::is_compression;

/// A body as its sender meant it.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded<'a> {
    /// The beginning of the body, or what could be decoded of it.
    pub(super) body: Cow<'a, [u8]>,
    /// Whether the body is longer.
    pub(super) is_cut: bool,
    /// Whether more of it is there, in an encoding that is not known or is damaged.
    pub(super) is_unreadable: bool,
}

/// The encodings that can be decoded.
#[derive(Clone, Copy)]
enum Encoding {
    Gzip,
    Deflate,
}

/// The first bytes of everything in gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Decodes up to `most` bytes of the body. `ends_early`: it has more than the given bytes.
pub(super) fn decoded<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
    ends_early: bool,
    most: usize,
) -> Decoded<'a> {
    let plain = |body, is_unreadable| Decoded { body, is_cut: ends_early, is_unreadable };
    // An answer without a body may have the header, such as a 204 of a gateway.
    if body.is_empty() {
        return plain(Cow::Borrowed(body), false);
    }
    let encoding = match encoding(headers) {
        Ok(None) => return plain(Cow::Borrowed(body), false),
        Ok(Some(encoding)) => encoding,
        Err(Unknown) => return plain(Cow::Borrowed(&[]), true),
    };
    // A gateway that decompresses may leave the header.
    if matches!(encoding, Encoding::Gzip) && !body.starts_with(&GZIP) {
        return plain(Cow::Borrowed(body), false);
    }
    let reader: Box<dyn Read + '_> = match encoding {
        Encoding::Gzip => Box::new(MultiGzDecoder::new(body)),
        Encoding::Deflate if has_zlib_header(body) => Box::new(ZlibDecoder::new(body)),
        // Some servers leave out the header that the standard asks for.
        Encoding::Deflate => Box::new(DeflateDecoder::new(body)),
    };
    let mut plain = Vec::new();
    // On an error, the bytes before it are there.
    let is_whole = reader.take(most as u64 + 1).read_to_end(&mut plain).is_ok();
    let is_longer = plain.len() > most;
    plain.truncate(most);
    Decoded {
        body: Cow::Owned(plain),
        is_cut: is_longer || ends_early,
        is_unreadable: !is_whole && !is_longer && !ends_early,
    }
}

/// There is an encoding that cannot be decoded, or there are several.
struct Unknown;

/// The encoding of the body; `None` if it is plain.
fn encoding(headers: &HeaderMap) -> Result<Option<Encoding>, Unknown> {
    let mut found = None;
    for value in headers.get_all(CONTENT_ENCODING) {
        for word in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            let is = |name: &str| word.eq_ignore_ascii_case(name);
            if !is_compression(word) {
                continue;
            }
            let encoding = if is("gzip") || is("x-gzip") {
                Encoding::Gzip
            } else if is("deflate") {
                Encoding::Deflate
            } else {
                return Err(Unknown);
            };
            if found.replace(encoding).is_some() {
                return Err(Unknown);
            }
        }
    }
    Ok(found)
}

/// Whether the bytes begin as RFC 1950 says: the method 8, and a check of both bytes.
fn has_zlib_header(body: &[u8]) -> bool {
    matches!(body, [first, second, ..]
        if first & 0x0f == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const MOST: usize = 1_000;

    pub(in crate::callback) fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn decode<'a>(encodings: &[&str], body: &'a [u8], ends_early: bool) -> Decoded<'a> {
        let mut headers = HeaderMap::new();
        for encoding in encodings {
            headers.append(CONTENT_ENCODING, encoding.parse().unwrap());
        }
        decoded(&headers, body, ends_early, MOST)
    }

    #[test]
    fn what_is_compressed_is_read_all_the_same() {
        let check = |encodings: &[&str], body: &[u8], expected: Option<&[u8]>| {
            let read = decode(encodings, body, false);
            assert_eq!(read.is_unreadable, expected.is_none(), "{encodings:?}");
            assert_eq!(&*read.body, expected.unwrap_or_default(), "{encodings:?}");
            assert!(!read.is_cut);
        };
        let plain = br#"{"dm_error":7}"#.as_slice();
        check(&[], plain, Some(plain));
        check(&["identity"], plain, Some(plain));
        check(&[""], plain, Some(plain));
        check(&["gzip"], &gzip(plain), Some(plain));
        check(&["X-GZip"], &gzip(plain), Some(plain));
        check(&["identity, gzip"], &gzip(plain), Some(plain));
        check(&["gzip"], &[gzip(b"{\"dm_"), gzip(b"error\":7}")].concat(), Some(plain));
        check(&["deflate"], &zlib(plain), Some(plain));
        check(&["deflate"], &raw_deflate(plain), Some(plain));
        check(&["gzip"], b"", Some(b""));
        check(&["br"], b"", Some(b""));
        check(&["br"], plain, None);
        check(&["gzip, br"], plain, None);
        check(&["gzip", "gzip"], &gzip(&gzip(plain)), None);
        // Headers that are wrong, on plain bodies.
        check(&["gzip"], plain, Some(plain));
        check(&["utf-8"], plain, Some(plain));
        check(&["UTF-8, none"], plain, Some(plain));
    }

    #[test]
    fn a_long_or_damaged_body_is_decoded_as_far_as_possible() {
        let long = vec![b'x'; 100 * MOST];
        let packed = gzip(&long);
        let read = decode(&["gzip"], &packed, false);
        assert_eq!((read.body.len(), read.is_cut, read.is_unreadable), (MOST, true, false));
        let exact = decode(&["gzip"], &gzip(&long[..MOST]), false).body.len();
        assert_eq!(exact, MOST);
        // Bytes that no compression shortens.
        let noise: Vec<u8> = (0..500_u32).map(|n| (n * n % 251) as u8).collect();
        let packed = gzip(&noise);
        let half = &packed[..packed.len() / 2];
        let read = decode(&["gzip"], half, true);
        assert!(read.is_cut && !read.is_unreadable, "our own limit cut it");
        assert!(decode(&["gzip"], half, false).is_unreadable);
        let mut damaged = packed.clone();
        let checksum = damaged.len() - 6;
        damaged[checksum] ^= 1;
        assert!(decode(&["gzip"], &damaged, false).is_unreadable);
    }
}
