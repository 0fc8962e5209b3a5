//! Signatures of databases and caches, each with its source.

use crate::banner::first_bytes_cursor::{FirstBytesCursor, Look, require};

/// `MySQL` Internals, `Protocol::HandshakeV10`: a packet of less than 512 bytes with the number 0, the
/// version 10, and a server version that begins with a digit; or an error before it.
pub(super) fn mysql(start: &mut FirstBytesCursor<'_>) -> Look {
    start.skip(1)?;
    start.within(0..=1)?;
    start.is(&[0, 0])?;
    start.either(&[
        |start| {
            start.is(&[0x0a])?;
            start.digits(1)
        },
        // ER_HOST_NOT_PRIVILEGED, ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED and their neighbours.
        |start| {
            start.is(&[0xff])?;
            start.skip(1)?;
            start.is(&[0x04])
        },
    ])
}

/// `PostgreSQL` section 55.7: `StartupMessage` of version 3, `SSLRequest`, `GSSENCRequest`, `CancelRequest`.
pub(super) fn postgresql(start: &mut FirstBytesCursor<'_>) -> Look {
    start.number(4, 8..=10_000)?;
    start.any_of(&[
        &[0, 3, 0, 0],
        &[0, 3, 0, 2],
        &[0x04, 0xd2, 0x16, 0x2f],
        &[0x04, 0xd2, 0x16, 0x30],
        &[0x04, 0xd2, 0x16, 0x2e],
    ])
}

/// The Redis serialization protocol: an array of bulk strings, or a command in a line.
pub(super) fn redis_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| {
            start.is(b"*")?;
            start.run(1..=7, |octet| octet.is_ascii_digit())?;
            start.is(b"\r\n$")
        },
        |start| start.any_of(&[b"PING\r\n", b"INFO\r\n", b"QUIT\r\n", b"COMMAND\r\n"]),
    ])
}

/// The same protocol: an answer to a `PING`, or an error that only this server spells like this.
pub(super) fn redis_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[
        b"+PONG\r\n",
        b"-NOAUTH ",
        b"-DENIED ",
        b"-ERR unknown command",
        b"-ERR wrong number of",
        b"-LOADING ",
    ])
}

/// memcached's protocol.txt and protocol-binary: commands in lines, or a header of a request.
pub(super) fn memcached_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| start.any_of(&[b"version\r\n", b"stats\r\n", b"stats ", b"gets ", b"flush_all", b"mn\r\n"]),
        |start| {
            start.any_of(&[b"get ", b"set ", b"add "])?;
            require(start.rest().first() != Some(&b'/'))?;
            start.run(1..=250, |octet| octet.is_ascii_graphic())?;
            start.any_of(&[b"\r\n", b" "])
        },
        |start| {
            start.is(&[0x80])?;
            start.within(0..=0x22)?;
            start.skip(2)?;
            start.within(0..=32)?;
            start.is(&[0, 0, 0])
        },
    ])
}

/// The same protocol: answers.
pub(super) fn memcached_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| start.any_of(&[b"VERSION ", b"STAT ", b"VALUE ", b"STORED\r\n", b"END\r\n", b"MN\r\n"]),
        |start| {
            start.is(&[0x81])?;
            start.within(0..=0x22)?;
            start.skip(2)?;
            start.within(0..=32)?;
            start.is(&[0, 0])
        },
    ])
}

/// CQL binary protocol section 2: a request of version 3 to 5 that starts or asks for options.
pub(super) fn cassandra(start: &mut FirstBytesCursor<'_>) -> Look {
    start.within(3..=5)?;
    start.is(&[0])?;
    start.skip(2)?;
    start.among(&[0x01, 0x05])?;
    start.is(&[0, 0]).map(|_| ())
}

/// `MongoDB` wire protocol: a header in little endian and an operation. `answers` is true for a message
/// that answers another.
fn mongodb(start: &mut FirstBytesCursor<'_>, operations: &[&[u8]], answers: bool) -> Look {
    start.skip(3)?;
    start.is(&[0])?;
    start.skip(4)?;
    if answers {
        start.skip(4)?;
    } else {
        start.is(&[0, 0, 0, 0])?;
    }
    start.any_of(operations)
}

pub(super) fn mongodb_client(start: &mut FirstBytesCursor<'_>) -> Look {
    mongodb(start, &[&[0xdd, 0x07, 0, 0], &[0xd4, 0x07, 0, 0]], false)
}

pub(super) fn mongodb_server(start: &mut FirstBytesCursor<'_>) -> Look {
    mongodb(start, &[&[0xdd, 0x07, 0, 0], &[0x01, 0, 0, 0]], true)
}

/// MS-TDS section 2.2.3.1: a header of PRELOGIN, and its first option, the version.
pub(super) fn mssql(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x12, 0x01])?;
    start.number(2, 9..=4096)?;
    start.is(&[0, 0])?;
    start.skip(1)?;
    start.is(&[0, 0])
}
