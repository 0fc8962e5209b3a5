//! HTTP requests by a forbidden client, bent in random ways; the same for the same seed.

use fastrand::Rng;

/// What a request is made of; joined in this order.
struct Head {
    lead: Vec<u8>,
    method: Vec<u8>,
    gap: Vec<u8>,
    target: Vec<u8>,
    second_gap: Vec<u8>,
    version: Vec<u8>,
    end: Vec<u8>,
    before: Vec<u8>,
    name: Vec<u8>,
    colon: Vec<u8>,
    value: Vec<u8>,
    after: Vec<u8>,
    last: Vec<u8>,
}

/// A bent request and what was done to it.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// What a client sends.
    pub octets: Vec<u8>,
    /// In words.
    pub bends: Vec<&'static str>,
}

/// What the forbidden client calls itself, in an honest request.
pub const AGENT: &[u8] = b"sqlmap/1.7";

/// The mutant of this seed; seed 0 is the honest request.
pub fn mutant(seed: u64) -> Mutant {
    let mut random = Rng::with_seed(seed);
    let mut head = Head {
        lead: Vec::new(),
        method: b"GET".to_vec(),
        gap: b" ".to_vec(),
        target: b"/x".to_vec(),
        second_gap: b" ".to_vec(),
        version: b"HTTP/1.1".to_vec(),
        end: b"\r\n".to_vec(),
        before: b"Host: a.example\r\n".to_vec(),
        name: b"User-Agent".to_vec(),
        colon: b": ".to_vec(),
        value: AGENT.to_vec(),
        after: b"\r\nAccept: */*".to_vec(),
        last: b"\r\n\r\n".to_vec(),
    };
    let mut bends = Vec::new();
    if seed != 0 {
        for _ in 0..random.usize(1..=3) {
            bends.push(bend(&mut head, &mut random));
        }
    }
    let parts = [
        head.lead,
        head.method,
        head.gap,
        head.target,
        head.second_gap,
        head.version,
        head.end,
        head.before,
        head.name,
        head.colon,
        head.value,
        head.after,
        head.last,
    ];
    Mutant { octets: parts.concat(), bends }
}

fn pick<'a>(random: &mut Rng, from: &[&'a [u8]]) -> &'a [u8] {
    from[random.usize(..from.len())]
}

const SPACES: &[&[u8]] =
    &[b" ", b"\t", b"  ", b" \t ", b"\x0b", b"\x0c", b"\r", b"\x1c", b"\x1f", b"\x85", b"\xa0", b"\0", b""];

const ENDS: &[&[u8]] = &[b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\r", b"\0\r\n", b" \r\n", b"\t\n"];

fn bend(head: &mut Head, random: &mut Rng) -> &'static str {
    match random.u8(..24) {
        0 => {
            let unit =
                pick(random, &[b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"\r\r\n", b"\x0b", b"\x01"]);
            let count = [1, 2, 9, 127, 129, 260, 1030][random.usize(..7)];
            head.lead = unit.repeat(count);
            "leading octets"
        }
        1 => {
            let methods: &[&[u8]] = &[
                b"POST",
                b"HEAD",
                b"OPTIONS",
                b"TRACE",
                b"get",
                b"FOO",
                b"M-SEARCH",
                b"G3T",
                b"GE\0T",
                b"G(T",
                b"PRI",
                b"\"GET",
                b"CONNECT",
                b"PROPFIND",
                b"PUT",
                b"DELETE",
            ];
            head.method = pick(random, methods).to_vec();
            "another method"
        }
        2 => {
            let count = [20, 33, 63, 64, 65, 100, 300, 5000][random.usize(..8)];
            head.method = b"M".repeat(count);
            "long method"
        }
        3 => {
            head.gap = pick(random, SPACES).to_vec();
            "space behind the method"
        }
        4 => {
            head.second_gap = pick(random, SPACES).to_vec();
            "space behind the target"
        }
        5 => {
            let targets: &[&[u8]] = &[
                b"*",
                b"http://a.example/x",
                b"x",
                b"/x y",
                b"/\x01",
                b"/\x7f",
                b"/\xff",
                b"/\0",
                b"?",
                b"//x",
                b"/x#y",
                b"a:1",
                b"/xHTTP/1.1",
                b"https://[::1]/",
                b"/a\tb",
                b"/%zz",
                b"",
            ];
            head.target = pick(random, targets).to_vec();
            "another target"
        }
        6 => {
            let length = [300, 4000, 8000, 17_000, 33_000][random.usize(..5)];
            head.target = [b"/", b"x".repeat(length).as_slice()].concat();
            "long target"
        }
        7 | 8 => {
            let versions: &[&[u8]] = &[
                b"HTTP/1.0",
                b"HTTP/1.2",
                b"HTTP/1.10",
                b"HTTP/0.9",
                b"HTTP/2.0",
                b"HTTP/1.1 ",
                b"http/1.1",
                b"HTTP/ 1.1",
                b"HTTP/1",
                b"HTTP/01.1",
                b"RTSP/1.0",
                b"ICY/1.1",
                b"HTTP/1.1\0",
                b"HTTP/1.1x",
                b"HTTP/3.0",
                b"SSH-2.0",
                b"HTTP/+1.1",
                b"",
                b"HTTP /1.1",
                b"HTTP/1.1\t",
            ];
            head.version = pick(random, versions).to_vec();
            "another version"
        }
        9 => {
            head.end = pick(random, ENDS).to_vec();
            "line end of the request line"
        }
        10 | 11 => {
            let fields: &[&[u8]] = &[
                b"",
                b"X\r\n",
                b"X: a\r\n b\r\n",
                b" X: a\r\n",
                b": a\r\n",
                b"X : a\r\n",
                b"X: a\0b\r\n",
                b"X: \xff\r\n",
                b"X: a\rb\r\n",
                b"X: a\n",
                b"X\0: a\r\n",
                b"X(: a\r\n",
                b"\tX: a\r\n",
                b"X:\r\n\r",
                b"Host: b\r\nHost: c\r\n",
                b"Content-Length: 0\r\n",
                b"Content-Length: +0\r\n",
                b"Transfer-Encoding: identity\r\n",
                b"Expect: 100-continue\r\n",
                b"Upgrade: h2c\r\n",
                b"Connection: close\r\n",
                b"User-Agent: ok\r\n",
                b"GET / HTTP/1.1\r\n",
                b"X: a\r\n\r b\r\n",
            ];
            let field = pick(random, fields);
            let at = if random.bool() { head.before.len() } else { 0 };
            head.before.splice(at..at, field.iter().copied());
            "another field before it"
        }
        12 => {
            let length = [900, 4000, 8000, 16_000, 40_000, 66_000][random.usize(..6)];
            head.before = [b"Host: a.example\r\nX: ", b"x".repeat(length).as_slice(), b"\r\n"].concat();
            "long field before it"
        }
        13 => {
            let count = [90, 110, 250, 1100, 2100][random.usize(..5)];
            head.before = [b"Host: a.example\r\n", b"A: b\r\n".repeat(count).as_slice()].concat();
            "many fields before it"
        }
        14 | 15 => {
            let names: &[&[u8]] = &[
                b"user-agent",
                b"USER-AGENT",
                b"User_Agent",
                b"User-Agent ",
                b" User-Agent",
                b"\tUser-Agent",
                b"User-Agent\t",
                b"User-Agent\0",
                b"\0User-Agent",
                b"User-Agent\x0b",
                b"User\r-Agent",
                b"X: a\rUser-Agent",
                b"X: a\nUser-Agent",
                b"\rUser-Agent",
                b"\x0cUser-Agent",
                b"X\r\n\rUser-Agent",
                b"User-Agent\xa0",
                b"\xa0User-Agent",
            ];
            head.name = pick(random, names).to_vec();
            "another name"
        }
        16 => {
            let colons: &[&[u8]] = &[
                b":",
                b":\t",
                b":  ",
                b" : ",
                b":\r\n ",
                b":\n ",
                b":\0",
                b":\x0b",
                b":\x0c",
                b":\x85",
                b":\xa0",
                b": \r\n\t",
                b"::",
                b":\r ",
                b":\r\n \r\n ",
                b": \x1f",
                b"=",
                b":\x7f",
            ];
            head.colon = pick(random, colons).to_vec();
            "another colon"
        }
        17 => {
            head.colon = [b":", b" ".repeat([100, 600, 5000][random.usize(..3)]).as_slice()].concat();
            "much space behind the colon"
        }
        18 | 19 => {
            let values: &[&[u8]] = &[
                b"sqlmap/1.7 ",
                b"sqlmap/1.7\0",
                b"sqlmap/\xff",
                b"sqlmap/\r\n 1.7",
                b"sqlmap/1.7\r\nUser-Agent: ok",
                b"ok\r\nUser-Agent: sqlmap/1.7",
                b"sqlmap/\t1",
                b"sqlmap/1\rX: y",
                b"sqlmap/\x01",
                b"sqlmap/1.7, ok",
            ];
            head.value = pick(random, values).to_vec();
            "another value"
        }
        20 => {
            head.value = [AGENT, b"x".repeat([500, 5000, 9000][random.usize(..3)]).as_slice()].concat();
            "long value"
        }
        21 => {
            head.after = [pick(random, ENDS), b"Accept: */*"].concat();
            "line end of the field"
        }
        22 => {
            let lasts: &[&[u8]] = &[
                b"\n\n",
                b"\r\n\n",
                b"\n\r\n",
                b"\r\r\n\r\n",
                b"\r\n \r\n",
                b"\r\n\r\r\n",
                b"\r\n",
                b"\r\r",
                b"\n\r",
                b"\r\n\0\r\n\r\n",
                b"\r\nX: y\r\n\r\n",
                b"\r\n\r\nbody",
            ];
            head.last = pick(random, lasts).to_vec();
            "another end"
        }
        _ => {
            let at = random.usize(..head.before.len().max(1));
            let octet = random.u8(..);
            head.before.insert(at.min(head.before.len()), octet);
            "a random octet before it"
        }
    }
}
