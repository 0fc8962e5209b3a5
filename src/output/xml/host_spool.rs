//! Store for ports that come in any order; it returns them host by host.
//!
//! A complete host is returned at once, so a scan of one port holds nothing. The other ports are held up
//! to a limit of bytes. Beyond it, they go to an unnamed temporary file, in the order of their addresses;
//! all such runs are merged at the end. So memory is bounded for every scan.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, Ipv6Addr};

use crate::event::Timestamp;

/// Number of bytes held in memory: ports and their overhead.
const HELD: usize = 32 * 1024 * 1024;
/// Approximate overhead of a port, in bytes.
const OVERHEAD: usize = 96;

/// One port of a host as XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XmlPort {
    /// Time at which it was seen.
    pub(super) timestamp: Timestamp,
    pub(super) number: u16,
    /// True if the host answered, even with a refusal.
    pub(super) answered: bool,
    /// Its element.
    pub(super) element: Vec<u8>,
}

/// A host with its ports in order.
pub(super) type SpooledHost = (IpAddr, Vec<XmlPort>);

/// Hosts that are not complete.
#[derive(Debug)]
pub(super) struct HostSpool {
    held: BTreeMap<IpAddr, Vec<XmlPort>>,
    octets: usize,
    limit: usize,
    /// Number of ports of a complete host.
    ports: usize,
    file: Option<File>,
    /// End of each run in the file.
    ends: Vec<u64>,
    merge: Option<SpoolMerge>,
}

impl HostSpool {
    /// Creates a spool for hosts with `ports` ports each.
    pub(super) fn new(ports: usize) -> Self {
        Self::with_limit(ports, HELD)
    }

    fn with_limit(ports: usize, limit: usize) -> Self {
        Self { held: BTreeMap::new(), octets: 0, limit, ports, file: None, ends: Vec::new(), merge: None }
    }

    /// Adds a port; returns the host if it is complete now.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub(super) fn add(&mut self, address: IpAddr, port: XmlPort) -> io::Result<Option<SpooledHost>> {
        self.octets += port.element.len() + OVERHEAD;
        let ports = self.held.entry(address).or_default();
        ports.push(port);
        if ports.len() >= self.ports {
            let ports = self.held.remove(&address).unwrap_or_default();
            self.octets -= ports.iter().map(|port| port.element.len() + OVERHEAD).sum::<usize>();
            return Ok(Some(in_order(address, ports)));
        }
        if self.octets > self.limit {
            self.spill()?;
        }
        Ok(None)
    }

    /// Writes the held ports as one run.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let mut writer = BufWriter::new(&mut *file);
        for (address, ports) in std::mem::take(&mut self.held) {
            for port in ports {
                write_record(&mut writer, address, &port)?;
            }
        }
        writer.flush()?;
        drop(writer);
        self.octets = 0;
        self.ends.push(file.stream_position()?);
        Ok(())
    }

    /// Returns the next of the incomplete hosts, in the order of addresses. Call it only after the last
    /// port.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Option<SpooledHost>> {
        if self.file.is_none() {
            return Ok(self.held.pop_first().map(|(address, ports)| in_order(address, ports)));
        }
        if self.merge.is_none() {
            self.spill()?;
            let file = self.file.as_ref().map(File::try_clone).transpose()?;
            self.merge = file.map(|file| SpoolMerge::new(&file, &self.ends)).transpose()?;
        }
        self.merge.as_mut().map_or(Ok(None), SpoolMerge::next)
    }
}

fn in_order(address: IpAddr, mut ports: Vec<XmlPort>) -> SpooledHost {
    ports.sort_by_key(|port| port.number);
    (address, ports)
}

/// Merge of the file's sorted runs.
#[derive(Debug)]
struct SpoolMerge {
    file: File,
    runs: Vec<SpoolRun>,
}

#[derive(Debug)]
struct SpoolRun {
    from: u64,
    end: u64,
    /// Bytes that were read from the file and not used yet.
    buffer: io::Cursor<Vec<u8>>,
    front: Option<(IpAddr, XmlPort)>,
}

/// Number of bytes that are read of a run at once.
const CHUNK: u64 = 128 * 1024;

impl SpoolMerge {
    fn new(file: &File, ends: &[u64]) -> io::Result<Self> {
        let mut merge = Self { file: file.try_clone()?, runs: Vec::with_capacity(ends.len()) };
        let mut from = 0;
        for end in ends {
            let mut run = SpoolRun { from, end: *end, buffer: io::Cursor::default(), front: None };
            run.advance(&mut merge.file)?;
            merge.runs.push(run);
            from = *end;
        }
        Ok(merge)
    }

    fn next(&mut self) -> io::Result<Option<SpooledHost>> {
        let fronts = self.runs.iter().filter_map(|run| run.front.as_ref());
        let Some(address) = fronts.map(|(address, _)| *address).min() else { return Ok(None) };
        let mut ports = Vec::new();
        for run in &mut self.runs {
            while run.front.as_ref().is_some_and(|(other, _)| *other == address) {
                ports.extend(run.front.take().map(|(_, port)| port));
                run.advance(&mut self.file)?;
            }
        }
        Ok(Some(in_order(address, ports)))
    }
}

impl SpoolRun {
    fn advance(&mut self, file: &mut File) -> io::Result<()> {
        self.front = None;
        if self.at_end() {
            return Ok(());
        }
        let mut source = SpoolRunReader { run: self, file };
        let record = read_record(&mut source)?;
        self.front = Some(record);
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.from >= self.end && self.buffer.position() >= self.buffer.get_ref().len() as u64
    }
}

/// The bytes of one run.
struct SpoolRunReader<'a> {
    run: &'a mut SpoolRun,
    file: &'a mut File,
}

impl Read for SpoolRunReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let SpoolRun { from, end, buffer, .. } = self.run;
        if buffer.position() >= buffer.get_ref().len() as u64 && from < end {
            let length = CHUNK.min(*end - *from);
            let mut octets = std::mem::take(buffer).into_inner();
            octets.clear();
            self.file.seek(SeekFrom::Start(*from))?;
            BufReader::with_capacity(0, &mut *self.file).take(length).read_to_end(&mut octets)?;
            *from += length;
            *buffer = io::Cursor::new(octets);
        }
        buffer.read(into)
    }
}

/// Writes address (16 bytes, mapped for IPv4), port, whether it answered, time, length, element.
fn write_record(writer: &mut impl io::Write, address: IpAddr, port: &XmlPort) -> io::Result<()> {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    writer.write_all(&[u8::from(address.is_ipv4())])?;
    writer.write_all(&mapped.octets())?;
    writer.write_all(&port.number.to_le_bytes())?;
    writer.write_all(&[u8::from(port.answered)])?;
    writer.write_all(&port.timestamp.as_nanos().to_le_bytes())?;
    writer.write_all(&(port.element.len() as u64).to_le_bytes())?;
    writer.write_all(&port.element)
}

fn read_record(reader: &mut impl Read) -> io::Result<(IpAddr, XmlPort)> {
    let [is_ipv4] = read_octets(reader)?;
    let address = Ipv6Addr::from(read_octets::<16>(reader)?);
    let mapped = address.to_ipv4_mapped().filter(|_| is_ipv4 == 1);
    let address = mapped.map_or(IpAddr::V6(address), IpAddr::V4);
    let number = u16::from_le_bytes(read_octets(reader)?);
    let [answered] = read_octets(reader)?;
    let timestamp = Timestamp::from_nanos(u64::from_le_bytes(read_octets(reader)?));
    let length = u64::from_le_bytes(read_octets(reader)?);
    let mut element = Vec::new();
    reader.take(length).read_to_end(&mut element)?;
    Ok((address, XmlPort { timestamp, number, answered: answered == 1, element }))
}

fn read_octets<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    reader.read_exact(&mut octets)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn port(number: u16, octets: usize) -> XmlPort {
        let element = format!("<{number}{}>", "x".repeat(octets)).into_bytes();
        let timestamp = Timestamp::from_nanos(u64::from(number) * 7);
        XmlPort { timestamp, number, answered: number.is_multiple_of(2), element }
    }

    fn address(host: u8) -> IpAddr {
        match host % 2 {
            0 => IpAddr::V4([192, 0, 2, host].into()),
            _ => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())),
        }
    }

    proptest! {
        /// Whatever comes in whatever order, and however little fits into memory, each host comes back with
        /// all of its ports, once where none is missing.
        #[test]
        fn every_port_comes_back_with_its_host(
            order in Just((0..240_usize).collect::<Vec<_>>()).prop_shuffle(),
            limit in 200..40_000_usize,
            octets in 0..500_usize,
            missing in 0..12_usize,
        ) {
            // Twenty hosts of twelve ports each, some of which lack the last ones.
            let mut spool = HostSpool::with_limit(12, limit);
            let mut back = BTreeMap::<IpAddr, Vec<XmlPort>>::new();
            let mut times = 0;
            let mut take = |(address, ports): SpooledHost| {
                times += 1;
                back.entry(address).or_default().extend(ports);
            };
            let wanted = |number: usize| !(number / 12 == 3 && number % 12 < missing);
            for number in order.iter().copied().filter(|number| wanted(*number)) {
                let (host, number) = (u8::try_from(number / 12).expect("few"), number % 12);
                let port = port(u16::try_from(number).expect("few"), octets);
                if let Some(host) = spool.add(address(host), port).expect("a file") {
                    take(host);
                }
                prop_assert!(spool.octets <= limit + octets + 200);
            }
            while let Some(host) = spool.next().expect("a file") {
                take(host);
            }
            prop_assert_eq!((back.len(), times), (20, 20));
            for (host, ports) in back {
                let first = if host == address(3) { missing } else { 0 };
                let numbers = u16::try_from(first).expect("few")..12;
                let expected: Vec<_> = numbers.map(|number| port(number, octets)).collect();
                prop_assert_eq!(ports, expected);
            }
        }
    }
}
