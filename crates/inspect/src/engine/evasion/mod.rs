//! The promise about forbidden banners, the attacker that it holds against, and its limits.
//!
//! # Against whom
//!
//! *Honest software*, vulnerable or unwanted, sends what its stack makes of a conversation: segments of
//! any size, lost, repeated, late and in any order. *Whoever means to get content through* sends anything:
//! bytes that the receiver will ignore, other bytes for the same place, halves with hours between them,
//! and floods. He may sit at one end of the connection, and may send any number of other packets. He does
//! not hold both ends (those can encrypt), and does not forge packets of an end from that end's own side of
//! the guard.
//!
//! # What is promised, with `--enforce`
//!
//! 1. **Bytes once passed are fixed.** Until its receiver has acknowledged a byte, a segment with another
//!    one for the same place is dropped, in order or ahead of its turn. No policy turns that off. A segment
//!    that is refused leaves no trace.
//! 2. **A decision rests on what was received.** A flow passes, and is left to the kernel, when both ends
//!    have acknowledged the bytes that were judged. A receiver may ignore a decoy for whatever reason (old
//!    time stamps, signatures, hop limits, extension headers, a path's MTU …): it never acknowledges it, and
//!    the bytes that it does take fall under the first rule. A block needs no acknowledgement.
//!    In a direction whose SYN was not seen, or is forgotten, bytes pass from the number on that the
//!    receiver's last acknowledgement names. Until a segment begins there, the guard forwards it without its
//!    data (`src/engine/segment/probe_receiver.rs`): the receiver answers, and the sender sends its data
//!    again.
//! 3. **Who is not confirmed owns nothing.** Flows begun in their middle, and SYNs without an answer, have a
//!    short time and a small share of the table, and give way before others, whatever `--on-failure` says.
//!    What matches there is dropped; connections are blocked and reset only when the other end has
//!    acknowledged numbers that were seen.
//! 4. **Time passes no banner.** A side that has said nothing may take days. One that stands within a banner
//!    has 120 s, then the flow is blocked (`inspection_budget_spent`), also when nothing more comes. Blocked
//!    and idle flows are remembered for as long as Linux tracks connections, or until the table has no other
//!    place. A connection is over when both ends say so, by a FIN that the other acknowledges or by resets.
//!    One that a single end calls over is inspected for 20 s; then its verdict alone is kept, outside of the
//!    table, and nothing more of it passes before a SYN is answered. So dead connections take no place from
//!    others.
//! 5. **A budget counts what is inspected.** 256 KiB without a decision block the flow; a body counts a
//!    sixteenth, a side that is done nothing, and neither does one that speaks alone: logs, backups and films
//!    come to no end, and what the other end may say is awaited.
//! 6. **Full buffers are paid for by who fills them**: unconfirmed flows first, then whoever holds most of
//!    those that were silent for longest. Under `--on-failure open` he then passes, under `closed` he is
//!    blocked.
//! 7. **What opens a connection is judged** whatever the kernel's mark says, and the mark is taken off.
//! 8. **No request goes by unseen** where every transaction is read. What the kernel lets by of such a flow
//!    is what the server sends within a body whose end is known and whose head its client has acknowledged,
//!    as long as nothing else is asked, and segments of the client without a byte
//!    (`src/engine/body_offload.rs`); where every request is read and one response, all that the server sends
//!    behind that one (`src/engine/response_offload.rs`).
//!
//! A monitor and a replay tell the same and change nothing; a replay of one direction does not wait for
//! acknowledgements that it can't have.
//!
//! # What each trick meets
//!
//! *Dropped* is the default with `--enforce` and follows `--on-anomaly`; *reported* is an event. Every
//! anomaly is reported once a flow, by the name given here, and counted each time. *Ignored* means: not taken
//! into account, as the receiver will not.
//!
//! - other bytes for a place that was let through: dropped, always (`overlap_different_data`)
//! - overlapping IP fragments with different data: dropped (`fragment_overlap_different_data`)
//! - data beyond the receiver's window or before the first byte, a FIN where none is due: ignored and dropped
//!   (`out_of_window`)
//! - a wrong IP or TCP checksum, however long the segment: ignored and dropped (`bad_checksum`)
//! - urgent data, however it is announced: the urgent pointer is taken off, so that the receiver reads what
//!   was judged; dropped where that can't be done (a fragment, a packet that was cut) (`urgent_data`)
//! - a signature (TCP MD5, TCP-AO) in a connection without: dropped (`unexpected_signature`)
//! - an acknowledgement that lies too far back: dropped (`old_acknowledgement`)
//! - an acknowledgement of what was never sent: ignored and dropped (`ack_of_unsent_data`)
//! - data before the SYN that it would follow: ignored and dropped (`data_before_handshake`)
//! - a decoy that the receiver has acknowledged before, in a connection whose SYN was not seen; an
//!   acknowledgement by which its receiver pretends to expect other bytes: only a probe goes on
//! - data without ACK, SYN with FIN: ignored and dropped (`data_without_ack`, `contradictory_flags`)
//! - headers that contradict themselves, more than 16 IPv6 extension headers: dropped (`malformed_packet`)
//! - more out of order, or unacknowledged, than is held: dropped, and sent again (`reorder_limit`)
//! - Multipath TCP, whose mappings put bytes into another order: its options are taken off each SYN and
//!   SYN-ACK, so that both ends fall back to TCP; dropped where that can't be done
//! - a further path of a Multipath TCP connection (`--on-anomaly mptcp_join=alert` lets it pass): dropped
//!   (`mptcp_join`)
//! - data in a SYN (Fast Open): inspected with the SYN
//! - data in a SYN for ports that are in use: dropped, always: senders try again without
//!   (`data_in_reopening_syn`)
//! - data in a SYN that the server refuses: forgotten; what comes instead is read afresh
//!   (`fast_open_refused`)
//! - a mere reset of a blocked connection: goes on, so that the other end learns of it; the connection stays
//!   blocked
//! - a reset with a wrong sequence number: reported; the flow goes on (`reset_wrong_sequence`)
//! - a reset or FIN that never arrives, or is not taken: reported; what follows within 20 s is inspected,
//!   behind that dropped (`data_after_reset`, `data_after_fin`)
//! - data with a hop limit too small to arrive: reported; never acknowledged, it decides nothing
//!   (`hop_limit_drop`)
//! - a handshake split over more segments, or begun with its answer: reported; the first sender of a SYN
//!   stays the client (`split_handshake`)
//! - a SYN of the server's, when the client's is forgotten: whoever answers by SYN and ACK is the server;
//!   without such an answer ports and content tell
//! - a connection whose SYN was not seen, between ports that suggest the wrong client: read in both roles
//!   until one end has asked and the other answered by HTTP or TLS. Rules judge both roles. Events and
//!   policies follow the ports, and the true roles from that answer on
//! - a second answer to a SYN, with another number: reported; read afresh, and nothing behind it passes
//!   before the client says which one it took (`syn_in_connection`)
//! - a SYN inside a connection, to reset the inspector: reported; nothing is forgotten before the other end
//!   answers it (`syn_in_connection`)
//! - a packet of a forged connection that matches a rule: dropped, always; reported as a bounded anomaly. The
//!   alerts follow once the other end acknowledges (`unconfirmed_match`)
//! - tiny segments, any order: put together; the one that completes a banner is stopped
//! - half a banner, and a long wait; more lines than the budget to an end that has spoken: blocked
//!   (`inspection_budget_spent`)
//! - a banner behind other lines, whatever bytes they hold: lines are gone over up to the budget
//! - a banner behind more than 64 KiB or 1,024 lines: reported; the same (`ssh_long_preamble`)
//! - a banner where some clients cut a longer line, or with CRs before or in it, which some leave out:
//!   reported; judged, too (`ssh_disputed_identification`)
//! - an SSH identification within a hello of TLS: reported; stopped (`tls_disputed_hello`)
//! - header folding, NULs, mixed line ends, chunk tricks: reported; read as most servers would (`http_…`)
//! - a request whose length or chunks servers have to refuse (RFC 9112 sections 6.3 and 7.1), where what
//!   follows it is read: dropped (`http_framing_lost`)
//! - a response whose end clients disagree on: as for requests, and chunks of HTTP/1.0, a body behind a
//!   granted `CONNECT`: the same (`http_framing_lost`)
//! - chunk extensions beyond 4 KiB, trailers beyond 64 KiB: reported; gone over to their end, however long
//!   (`http_chunk_extension_too_long`, `http_trailer_too_long`)
//! - a request line that only some server takes for one: long or unknown words, odd white space, other
//!   versions: read as a request; what is odd is reported (`http_…`)
//! - what a server answers by HTTP and was not read as a request: reported (`http_unknown_request`)
//! - what a server answers to a request and was not read as a response (`HTTP 200`, a NUL before it):
//!   reported (`http_unknown_response`)
//! - much white space before a message: reported; overlooked, up to 64 KiB (`http_long_leading`)
//! - fields behind a bare CR, with `_` for `-`, with other white space: read in each way that applications do
//! - fields behind 64 KiB of a head, or behind a request without a version: reported; judged one by one, and
//!   what they say of the message's end holds (`http_head_too_long`, `http_version_missing`)
//! - more than 2,048 fields: reported; all are judged (`http_too_many_headers`)
//! - a head cut behind the field that matters: a field is judged when its line is whole, unless a later one
//!   may change that (`absent`, `unless`, accept rules, bodies)
//! - a response before its request, interim ones, odd status lines: judged like others; the request is read
//!   all the same
//! - an answer in the server's name to half a request: the request is read on
//! - SSH beside HTTP: reported; both are read on as far as either can be (`protocol_mismatch`)
//! - a head without an end, before a FIN: reported; what there is of it is judged (`http_unfinished_head`)
//! - a banner behind the handshake of a proxy (`CONNECT`, SOCKS 4 and 5): what is relayed is inspected, sent
//!   before the proxy agrees or behind
//! - a banner behind `101` to anything but WebSocket, or where the client has not asked for that: what
//!   follows is inspected, sent before the server agrees or behind
//! - a banner behind an upgrade (`STARTTLS`, `STLS`, `AUTH TLS`) that is none: what follows is inspected, as
//!   soon as the client asks
//! - a hello of TLS, a request or an identification behind a PROXY header, alerts, or an upgrade of a
//!   protocol that is not read: the first MiB of the client's bytes is searched for a hello, whatever is
//!   before it
//! - an SSH identification behind `SSH-` alone, a request, the preface of HTTP/2 or SOCKS bytes: judged, too
//!   (`ssh_disputed_identification`)
//! - an upgrade behind which a MiB follows without a hello: reported; blocked under `--on-failure closed`
//!   (`upgrade_not_followed`)
//! - a hello of TLS in records and segments of any size, behind empty records; a second one, where the server
//!   asks for it: put together; the segment with its last byte is stopped
//! - a hello with a session id of unusual length, unusual versions, or bytes behind its extensions; a name in
//!   capitals, with a port or a final dot: read as the most lenient server reads it
//! - a `Host` in capitals, with a port or a final dot, in a list or in brackets, or another host in the
//!   target: judged in each way, and as a URL is read (percent-encoding, user information, backslashes, wide
//!   letters)
//! - a hello that contradicts itself: reported; its bytes are read as anything else (`tls_malformed`)
//! - bytes between two messages, where every transaction is read: reported; left out up to the line's end
//!   (`http_unexpected_data`)
//!
//! What is only reported by default is dropped under `--on-anomaly drop`, the flow where a message is odd.
//!
//! # What is not
//!
//! * `--http-inspect first` reads the first transaction of a connection, and so does `auto` where no rule in
//!   force would block a request: a second response is not judged then. `requests` reads all requests and the
//!   first response. What a later `CONNECT` opens is read as requests there, and as nothing else.
//! * A hello behind the first MiB of a client's bytes in a protocol that is not read is not judged.
//! * What a server sends behind the end of such a body before its client asks for more goes by. It answers
//!   nothing: a client that takes it for the answer to what it asks next has been told so by a server that
//!   answers before it is asked, which ends that agree can do in other ways. It is reported once the client
//!   has acknowledged it (`http_unexpected_data`), and what answers a request is read.
//! * A server that answers a request and leaves its body unread (handlers of Python's `http.server` may)
//!   takes that body for its next request. By RFC 9112 it is none: it is judged as a body.
//! * Behind a request that announces no end of what it sends (`SOURCE`, `PUT` without a length) or by RTSP,
//!   what is no message is left out, however long that is, as in a tunnel; requests in it are judged.
//! * A field of a response that stands behind a chunked body is not judged; Perl's `HTTP::Tiny` takes it for
//!   one of the head's. A header line that the end of the connection cuts has passed when that end is seen.
//! * A greeting of mail or FTP is judged up to 16 KiB or 100 lines; some clients read on.
//! * HTTP/2 is not read, neither by prior knowledge nor by `Upgrade`.
//! * An SSH identification is judged when its line is whole: a reader that does not wait for the CR LF has
//!   all before it by then.
//! * Of a client that offers Encrypted Client Hello the name in the open is judged, which may be another
//!   one's; from TLS 1.3 on certificates are not seen. QUIC and DTLS are not read.
//! * A program on the guard's own machine that may set marks (`CAP_NET_RAW`) can send with the guard's mark,
//!   which passes the output chain; nfqws does so by chance. `--mark` chooses other bits.
//! * Of a packet of more than 65,531 bytes (the longest of loopback, or segments of chosen sizes that an
//!   interface puts together) a queue does not show the last four at most: a line that begins in them is not
//!   read.
//! * Where the guard sees one direction of a connection only, nothing is ever acknowledged: what is seen is
//!   judged and matches are dropped, and after 120 s the rest passes. A connection whose SYN the guard has
//!   not seen counts as one only after its other end has answered none of three probes.
//! * Somebody who can send packets in the name of an end, from anywhere that leads through the guard, and
//!   sees its sequence numbers, can acknowledge for it: filter such packets (`rp_filter`).
//! * A Multipath TCP connection whose handshake the guard has not seen may map its bytes to another order
//!   than it sends them in. Linux does so only with further paths, which are refused; a made-up sender could.
//! * Under `--on-failure open` what the queue has no room for passes unseen, and a gap in a connection is
//!   reported (`gap`) and read on behind.
//! * A policy of a connection whose SYN was not seen is that of the lower port, until an answer by HTTP or
//!   TLS shows which end is the server. SSH and what is not read never show it: both ends begin alike.
//! * Bytes behind a beginning that the guard has not seen, or has forgotten (a table full of others), are
//!   read as if a connection began there.
//! * If the guard has forgotten the client's SYN, the server can pass for the client by a SYN of its own (a
//!   simultaneous open). The guard forgets it after 120 s, if other connections fill the table, or with a
//!   restart.

#[cfg(test)]
mod closed_connections;
#[cfg(test)]
mod dialogues;
#[cfg(test)]
mod ignored_segments;
#[cfg(test)]
mod midstream;
#[cfg(test)]
mod tests;
