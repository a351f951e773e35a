//! The real Prometheus as a running process, which takes what is written to it and scrapes nobody.
//!
//! In: a folder. Out: a server on loopback, and answers to queries; ended when dropped.
//! What can go wrong: its port is taken by somebody else between choosing and listening.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::deadline::wait_for;
use super::programs;

/// A sample of an instant query: labels and value.
pub type Sample = (BTreeMap<String, String>, f64);

/// A running server.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn start(dir: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
        let config = dir.join("prometheus.yml");
        // Late samples are taken, as Prometheus' guide for OpenTelemetry has it.
        std::fs::write(&config, "storage: {tsdb: {out_of_order_time_window: 10m}}\n").expect("its file");
        let log = File::create(dir.join("prometheus.log")).expect("its log");
        let child = Command::new(programs::prometheus())
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("prometheus").display()))
            .arg(format!("--web.listen-address={free}"))
            .args(["--web.enable-remote-write-receiver", "--enable-feature=native-histograms"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log)
            .spawn()
            .expect("Prometheus starts");
        let server = Self { child, address: free.to_string() };
        wait_for("Prometheus to be ready", 60, || server.get("/-/ready").filter(|(ok, _)| *ok));
        server
    }

    /// Where it takes what is written to it.
    pub fn remote_write(&self) -> String {
        format!("http://{}/api/v1/write", self.address)
    }

    /// The answer to an instant query, in order of labels; the metric's name is among the labels as `__name__`.
    ///
    /// # Panics
    /// When the query is refused.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn query(&self, query: &str) -> Vec<Sample> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (ok, body) = self.get(&format!("/api/v1/query?query={escaped}")).expect("an answer");
        assert!(ok, "{query}: {body}");
        let answer: Value = serde_json::from_str(&body).expect("an answer in JSON");
        let mut samples: Vec<Sample> =
            answer["data"]["result"].as_array().expect("a vector").iter().map(sample).collect();
        samples.sort_by(|(a, _), (b, _)| a.cmp(b));
        samples
    }

    /// Whether it was fine, and the body. Version 1.0: the body ends with the connection.
    fn get(&self, path: &str) -> Option<(bool, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1) == Some("200"), body.to_owned()))
    }
}

#[expect(clippy::expect_used, reason = "a test fails by panicking")]
fn sample(of: &Value) -> Sample {
    let labels = of["metric"].as_object().expect("labels").iter();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let value = of["value"][1].as_str().and_then(|value| value.parse().ok());
    (labels.collect(), value.expect("a value"))
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
