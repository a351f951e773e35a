//! The real OpenTelemetry Collector as a running process.
//!
//! In: a folder. Out: a Collector on loopback whose file exporter writes there; ended when dropped, started again at
//! will on the same port. What can go wrong: its port is taken by somebody else between choosing and listening.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use super::deadline::{try_for, wait_for};
use super::programs;
use super::received::{Point, Record, metrics, records};

/// A Collector, running or not.
#[derive(Debug)]
pub struct Collector {
    dir: PathBuf,
    /// `127.0.0.1:port` of its OTLP receiver (gRPC).
    pub address: String,
    child: Option<Child>,
    program: PathBuf,
    /// A Prometheus' address for what is written to it.
    remote_write: Option<String>,
    /// The metric points read so far: tests look often, and the file grows.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    points: Vec<Point>,
}

impl Collector {
    /// A Collector that is not running yet.
    ///
    /// # Panics
    /// When loopback has no free port.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn stopped(dir: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
        Self {
            dir: dir.to_path_buf(),
            address: free.to_string(),
            child: None,
            program: programs::collector(),
            remote_write: None,
            seen: Mutex::default(),
        }
    }

    /// A running Collector.
    pub fn start(dir: &Path) -> Self {
        let mut collector = Self::stopped(dir);
        collector.run();
        collector
    }

    /// A running Collector that also writes the metrics to a Prometheus.
    pub fn writing(dir: &Path, remote_write: String) -> Self {
        let mut collector = Self::stopped(dir);
        collector.remote_write = Some(remote_write);
        collector.run();
        collector
    }

    /// The small built-in receiver, running: for the demo, and for tests that are about what is sent, not about how.
    pub fn built_in(dir: &Path) -> Self {
        let mut collector = Self::stopped(dir);
        collector.program = programs::receiver();
        collector.run();
        collector
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn run(&mut self) {
        let log =
            File::options().create(true).append(true).open(self.dir.join("collector.log")).expect("its log");
        let folder = programs::workspace().join("tests/collector");
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(folder.join("config.yaml"));
        if let Some(address) = &self.remote_write {
            command.arg("--config").arg(folder.join("config-prometheus.yaml"));
            command.env("WARPGAUGE_REMOTE_WRITE", address);
        }
        let child = command
            .env("WARPGAUGE_COLLECTOR_OTLP", &self.address)
            .env("WARPGAUGE_COLLECTOR_HTTP", "127.0.0.1:0")
            .env("WARPGAUGE_COLLECTOR_LOGS", self.dir.join("logs.jsonl"))
            .env("WARPGAUGE_COLLECTOR_METRICS", self.dir.join("metrics.jsonl"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log)
            .spawn()
            .expect("the Collector starts");
        self.child = Some(child);
        wait_for("the Collector to listen", 60, || TcpStream::connect(&self.address).ok());
    }

    /// SIGKILL: a Collector that is gone from one moment to the next.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// SIGSTOP: a Collector that accepts connections and never answers.
    pub fn hang(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Every log record it received so far, in its order.
    pub fn records(&self) -> Vec<Record> {
        records(&std::fs::read_to_string(self.dir.join("logs.jsonl")).unwrap_or_default())
    }

    /// Every metric point it received so far, in its order.
    pub fn points(&self) -> Vec<Point> {
        self.look(<[Point]>::to_vec)
    }

    /// The latest value of a metric's series with these attributes (a subset), summed over the series.
    pub fn latest(&self, name: &str, attributes: &[(&str, &str)]) -> Option<f64> {
        let latest = self.latest_points(name, attributes);
        (!latest.is_empty()).then(|| latest.iter().map(|point| point.value).sum())
    }

    /// The latest point of each series of a metric with these attributes (a subset), without those that were ended.
    pub fn standing(&self, name: &str, attributes: &[(&str, &str)]) -> Vec<Point> {
        let latest = self.latest_points(name, attributes);
        latest.into_iter().filter(|point| !point.value.is_nan()).collect()
    }

    fn latest_points(&self, name: &str, attributes: &[(&str, &str)]) -> Vec<Point> {
        self.look(|points| {
            let mut latest = BTreeMap::new();
            for point in points.iter().filter(|p| p.name == name && p.has(attributes)) {
                latest.insert(&point.attributes, point);
            }
            latest.into_values().cloned().collect()
        })
    }

    /// Reads on where it stopped, up to the last whole line.
    fn look<T>(&self, of: impl FnOnce(&[Point]) -> T) -> T {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut more = Vec::new();
        if let Ok(mut file) = File::open(self.dir.join("metrics.jsonl"))
            && file.seek(SeekFrom::Start(seen.bytes)).is_ok()
        {
            let _ = file.read_to_end(&mut more); // what it could not read it reads the next time
        }
        let whole = more.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        seen.bytes += whole as u64;
        seen.points.extend(metrics(&String::from_utf8_lossy(more.get(..whole).unwrap_or_default())));
        of(&seen.points)
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|c| i32::try_from(c.id()).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal); // it may have ended by itself
        }
    }

    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        if let Some(mut child) = self.child.take() {
            // Nothing to be done about one that does not end; it is not what is tested.
            let _ = try_for(15, || child.try_wait().ok().flatten());
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}
