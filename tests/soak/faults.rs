//! What happens to the guard.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bannerwall_test_support::raw::{Cargo, Flags, Packet};
use bannerwall_test_support::{Signal, eventually};

use super::audit::Audit;
use super::load::Load;
use super::place::{METRICS, Metrics, Place, sum};
use super::report::{Report, Window};
use super::watch::{Watch, look};

/// How often event files are rotated.
const ROTATION: Duration = Duration::from_secs(2);

/// Something that happens to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Restart,
    Kill,
    Clock,
    Reload,
    BadReload,
    Overflow,
    FullDisk,
    SlowReader,
    MetricsClient,
    Flood,
    Stop,
}

impl Fault {
    /// What a guard does not outlive.
    pub const RESTARTS: [Self; 3] = [Self::Kill, Self::Clock, Self::Restart];

    /// What it does.
    pub const OTHERS: [Self; 8] = [
        Self::Reload,
        Self::BadReload,
        Self::Overflow,
        Self::FullDisk,
        Self::SlowReader,
        Self::MetricsClient,
        Self::Flood,
        Self::Stop,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart (SIGTERM)",
            Self::Kill => "restart (SIGKILL)",
            Self::Clock => "clock jumps (+1 h, -1 day)",
            Self::Reload => "reload",
            Self::BadReload => "reload of bad rules",
            Self::Overflow => "queue overflow",
            Self::FullDisk => "full disk for events",
            Self::SlowReader => "reader of events stops",
            Self::MetricsClient => "stopped metrics clients",
            Self::Flood => "flow table exhausted",
            Self::Stop => "SIGSTOP for 5 s",
        }
    }

    /// Whether packets may go by uninspected under `open`.
    pub const fn may_lose(self) -> bool {
        matches!(self, Self::Restart | Self::Kill | Self::Clock | Self::Overflow | Self::Flood | Self::Stop)
    }

    /// Whether nobody can count what goes by.
    pub const fn is_unaccounted(self) -> bool {
        matches!(self, Self::Kill)
    }
}

/// Has things happen.
pub struct Faults<'a> {
    place: &'a Place,
    load: &'a Load,
    watch: &'a Watch,
    audit: Audit,
}

impl<'a> Faults<'a> {
    pub fn new(place: &'a Place, load: &'a Load, watch: &'a Watch) -> Self {
        Self { place, load, watch, audit: Audit::default() }
    }

    /// Lets time go by, as logrotate's timer does.
    pub fn calm(&self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.place.rotate();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(ROTATION));
        }
    }

    /// Has one thing happen.
    pub fn inflict(&mut self, fault: Fault, report: &mut Report) {
        let (begun, before, life) = (Instant::now(), self.losses(), self.life());
        let done = match fault {
            Fault::Restart => self.restart(Signal::TERM),
            Fault::Kill => self.restart(Signal::KILL),
            Fault::Clock => self.jump(),
            Fault::Reload => self.reload(true),
            Fault::BadReload => self.reload(false),
            Fault::Overflow => self.overflow(),
            Fault::FullDisk => self.fill(),
            Fault::SlowReader => self.ignore_events(),
            Fault::MetricsClient => self.hang_on_metrics(),
            Fault::Flood => self.flood(),
            Fault::Stop => self.stop(),
        };
        let ended = Instant::now();
        // The hook's counters are read every five seconds.
        self.calm(Duration::from_secs(7));
        let after = self.losses();
        // Of a guard of its own all that was lost is new.
        let lost = if self.life() == life { after - before } else { after };
        if let Err(why) = &done {
            report.fail(format!("{}: {}: {why}", self.place.mode, fault.name()));
        }
        report.window(Window {
            mode: self.place.mode,
            fault,
            begun,
            ended,
            lost,
            skipped: done == Ok(false),
        });
    }

    /// Compares accounts while nothing is on its way.
    pub fn audit(&mut self, report: &mut Report) {
        self.audit.compare(self.place, self.load, report);
    }

    /// Ends the last guard as its service does.
    pub fn end(&self, report: &mut Report) {
        self.load.pause();
        let told = self.place.restart(Signal::TERM, false);
        if told.contains("panicked") {
            report.fail(format!("{}: {told}", self.place.mode));
        }
    }

    fn life(&self) -> u64 {
        self.place.life.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn metrics(&self) -> Metrics {
        eventually("metrics", || self.place.metrics())
    }

    /// Packets and flows of which the guard says that it did not inspect them.
    fn losses(&self) -> f64 {
        let metrics = self.metrics();
        let evicted: f64 = ["undecided", "blocked"]
            .iter()
            .map(|state| sum(&metrics, &format!("flow_evictions_total{{state=\"{state}\"}}")))
            .sum();
        let families = [
            "uninspected_packets_total",
            "late_verdicts_total",
            "no_room_packets_total",
            "socket_overruns_total",
            "budget_spent_flows_total",
        ];
        evicted + families.iter().map(|family| sum(&metrics, family)).sum::<f64>()
    }

    fn restart(&self, signal: Signal) -> Result<bool, String> {
        let told = self.place.restart(signal, false);
        if told.contains("panicked") { Err(told) } else { Ok(true) }
    }

    /// A guard whose clock goes wrong, and right again; the next restart ends it. What it says to have lost
    /// is what went by before it came.
    fn jump(&self) -> Result<bool, String> {
        if !Place::has_clock() {
            return Ok(false);
        }
        self.place.set_clock("+0");
        self.place.restart(Signal::TERM, true);
        let outcome = ["+3600", "-86400", "+0"].iter().try_for_each(|clock| {
            self.place.set_clock(clock);
            self.calm(Duration::from_secs(2));
            let before = sum(&self.metrics(), "packets_total");
            self.calm(Duration::from_secs(1));
            let after = sum(&self.metrics(), "packets_total");
            if after > before { Ok(()) } else { Err(format!("no packet is judged at {clock}")) }
        });
        outcome.map(|()| true)
    }

    fn reload(&self, is_good: bool) -> Result<bool, String> {
        let result = if is_good { "success" } else { "failure" };
        let series = format!("reloads_total{{result=\"{result}\"}}");
        let before = sum(&self.metrics(), &series);
        if !is_good {
            self.place.write_rules("[[rule]]\nid = \"half\"\nmatch.soft");
        }
        self.place.guard().signal(Signal::HUP);
        let until = Instant::now() + Duration::from_secs(20);
        while sum(&self.metrics(), &series) <= before {
            if Instant::now() > until {
                return Err(format!("no reload with {result}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !is_good {
            // Traffic goes on by the old rules.
            self.calm(Duration::from_secs(2));
            self.place.write_rules(Cargo::RULES);
        }
        Ok(true)
    }

    /// More packets than fit while the guard does not look, a few times.
    fn overflow(&self) -> Result<bool, String> {
        let before = self.queue_losses();
        for round in 0..4_u32 {
            self.place.guard().signal(Signal::STOP);
            for number in 0..6_000 {
                let [_, a, b, c] = (round * 6_000 + number).to_be_bytes();
                let source = SocketAddr::from(([203, 0, 113, 251 + (a & 3)], u16::from_be_bytes([b, c])));
                let packet = Packet::new(source, ([198, 51, 100, 200], 81).into()).flags(Flags::SYN);
                self.place.field.inject(&packet.build());
            }
            std::thread::sleep(Duration::from_millis(100));
            self.place.guard().signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(700));
        }
        self.calm(Duration::from_secs(7));
        let lost = self.queue_losses() - before;
        if lost > 0.0 { Ok(true) } else { Err("a queue that overflows is counted nowhere".to_owned()) }
    }

    fn queue_losses(&self) -> f64 {
        let metrics = self.metrics();
        sum(&metrics, "uninspected_packets_total") + sum(&metrics, "queue_dropped_total")
    }

    fn fill(&self) -> Result<bool, String> {
        let before = sum(&self.metrics(), "events_dropped_total");
        self.place.fill();
        std::thread::sleep(Duration::from_secs(5));
        self.place.empty();
        self.calm(Duration::from_secs(2));
        let lost = sum(&self.metrics(), "events_dropped_total") - before;
        if lost > 0.0 { Ok(true) } else { Err("events of a full disk are counted nowhere".to_owned()) }
    }

    fn ignore_events(&self) -> Result<bool, String> {
        let reads = &self.place.reads;
        reads.store(false, std::sync::atomic::Ordering::Relaxed);
        self.calm(Duration::from_secs(6));
        reads.store(true, std::sync::atomic::Ordering::Relaxed);
        self.calm(Duration::from_secs(2));
        Ok(true)
    }

    /// Clients that ask half a question, and clients that do not read the answer.
    fn hang_on_metrics(&self) -> Result<bool, String> {
        let id = self.place.guard().id();
        let before = look(id).unwrap_or_default().descriptors;
        let clients: Vec<TcpStream> = (0..60)
            .filter_map(|number| {
                let mut stream = self.place.field.router.connect(SocketAddr::from(METRICS)).ok()?;
                let whole = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
                let asked = if number % 2 == 0 { whole } else { &whole[..20] };
                stream.write_all(asked.as_bytes()).ok().map(|()| stream)
            })
            .collect();
        self.calm(Duration::from_secs(3));
        let during = look(id).unwrap_or_default().descriptors;
        drop(clients);
        self.calm(Duration::from_secs(1));
        self.metrics();
        if during <= before + 24 {
            return Ok(true);
        }
        Err(format!("{during} descriptors instead of {before}"))
    }

    /// Flows that nobody answers, more than the table has room for.
    fn flood(&self) -> Result<bool, String> {
        let evicted = || sum(&self.metrics(), "flow_evictions_total");
        let before = evicted();
        let until = Instant::now() + Duration::from_secs(6);
        let head = [b"GET / HTTP/1.1\r\nHost: a.example\r\nX: ".as_slice(), &[b'x'; 600]].concat();
        for number in 1_u32.. {
            let [_, _, b, c] = number.to_be_bytes();
            let host = 251 + u8::try_from(number >> 16 & 3).unwrap_or(0);
            let source = SocketAddr::from(([203, 0, 113, host], u16::from_be_bytes([b, c]) | 1024));
            let mut packet = Packet::new(source, ([198, 51, 100, 200], 80).into());
            packet.sequence = number.wrapping_mul(2_654_435_761);
            self.place.field.inject(&packet.clone().flags(Flags::SYN).build());
            packet.sequence = packet.sequence.wrapping_add(1);
            packet.payload.clone_from(&head);
            self.place.field.inject(&packet.build());
            // As many as the guard can judge: what does not fit into the queue is another fault.
            while number.is_multiple_of(64) && self.place.queue().is_some_and(|line| line[2] > 300) {
                std::thread::sleep(Duration::from_millis(2));
            }
            if Instant::now() > until {
                break;
            }
        }
        self.calm(Duration::from_secs(2));
        if evicted() > before { Ok(true) } else { Err("the flow table was not full".to_owned()) }
    }

    fn stop(&self) -> Result<bool, String> {
        self.place.guard().signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(5));
        self.place.guard().signal(Signal::CONT);
        let _ = self.watch;
        let until = Instant::now() + Duration::from_secs(10);
        while self.place.queue().is_some_and(|line| line[2] > 500) {
            if Instant::now() > until {
                return Err("the queue does not become empty".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    }
}
