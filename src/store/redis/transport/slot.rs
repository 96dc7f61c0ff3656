//! The slot of a command, of a cluster's 16,384 slots.
//!
//! The slot is the CRC16 (XMODEM) of the key, or of its hash tag: the text between its first
//! braces. A command with several keys is about one lane, so its first key determines the slot.

use deadpool_redis::redis::{Arg, Cmd};

/// The number of slots.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a command's key; `None` for a command without a key.
pub(crate) fn of_command(command: &Cmd) -> Option<u16> {
    key_of(command).map(of_key)
}

/// The first key of a command. A command without a key writes nothing.
pub(crate) fn key_of(command: &Cmd) -> Option<&[u8]> {
    let word = |n: usize| match command.args_iter().nth(n) {
        Some(Arg::Simple(word)) => Some(word),
        _ => None,
    };
    match word(0)? {
        b"EVALSHA" => word(3),
        b"TIME" | b"PUBLISH" | b"CLUSTER" => None,
        _ => word(1),
    }
}

/// Whether a command is the one that has the next executed although its slot has not arrived yet.
pub(crate) fn is_asking(command: &Cmd) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(b"ASKING")))
}

/// The slot of a key.
pub(crate) fn of_key(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS as u16
}

/// The part of a key that determines its slot.
pub(crate) fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    match key[open + 1..].iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &key[open + 1..open + 1 + length],
        _ => key,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::cmd;

    use super::*;

    #[test]
    fn keys_have_the_slots_that_redis_gives_them() {
        // As CLUSTER KEYSLOT answers.
        let check = |key: &str, slot: u16| assert_eq!(of_key(key.as_bytes()), slot, "{key}");
        check("123456789", 0x31c3);
        check("foo", 12_182);
        check("a{foo}b{bar}", 12_182);
        check("{}foo", of_key(b"{}foo"));
        assert_ne!(of_key(b"{}foo"), of_key(b""));
    }

    #[test]
    fn a_command_belongs_to_its_first_key() {
        let script =
            cmd("EVALSHA").arg("sha").arg(2).arg(&["a{foo}", "b{foo}"]).arg("foo{bar}").take();
        assert_eq!(of_command(&script), Some(12_182));
        assert_eq!(of_command(&cmd("HGET").arg("foo").arg("bar").take()), Some(12_182));
        for no_key in [cmd("TIME"), cmd("ASKING"), cmd("CLUSTER").arg("INFO").take()] {
            assert_eq!(of_command(&no_key), None);
        }
    }
}
