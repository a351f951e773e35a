//! XID lines in this kernel's real /dev/kmsg → records in the real Collector; each once, across restarts.
//!
//! The lines are written from user space, so they carry the user facility, which these agents are told to believe.

use std::collections::BTreeMap;
use std::io::Write;

use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

/// Lines of one test, told from those of others by a word in their text.
pub(crate) struct Lines {
    word: String,
    written: u32,
}

impl Lines {
    pub(crate) fn new(test: &str) -> Self {
        Self { word: format!("{test}-{}", std::process::id()), written: 0 }
    }

    /// Writes `count` more XID 31 lines.
    pub(crate) fn write(&mut self, count: u32) {
        for _ in 0..count {
            // With its line end, or the kernel keeps it open for more. Opened anew for each line: the kernel drops what one descriptor writes beyond ten lines in five seconds.
            let mut kmsg = std::fs::File::options().write(true).open("/dev/kmsg").unwrap();
            let (word, number) = (&self.word, self.written);
            let line = format!("<4>NVRM: Xid (PCI:0000:9b:00): 31, Ch 00000008, intr {number:08x}. {word}\n");
            kmsg.write_all(line.as_bytes()).unwrap();
            self.written += 1;
        }
    }

    pub(crate) fn written(&self) -> usize {
        self.written as usize
    }

    /// The records of these lines that the Collector has.
    pub(crate) fn received(&self, collector: &Collector) -> Vec<Record> {
        self.found(&collector.records())
    }

    /// Those of these lines among records.
    pub(crate) fn found(&self, records: &[Record]) -> Vec<Record> {
        records.iter().filter(|r| r.get("gpu.xid.text").ends_with(&self.word)).cloned().collect()
    }

    /// Text and uids of each line.
    pub(crate) fn by_text(&self, collector: &Collector) -> BTreeMap<String, Vec<String>> {
        let mut by_text = BTreeMap::new();
        for record in self.received(collector) {
            let uids: &mut Vec<String> = by_text.entry(record.get("gpu.xid.text").to_owned()).or_default();
            uids.push(record.get("log.record.uid").to_owned());
        }
        by_text
    }

    pub(crate) fn wait_for_all(&self, collector: &Collector) {
        wait_for("every line at the Collector", 30, || {
            (self.by_text(collector).len() == self.written()).then_some(())
        });
    }
}

pub(crate) fn setup(scratch: &Scratch, collector: &Collector) -> Setup {
    let args = ["--probes", "off", "--kernel-log-facilities", "kernel,user"];
    Setup::new(scratch.path()).to(&collector.address).args(&args)
}

#[test]
fn an_xid_arrives_with_severity_class_and_action() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("kmsg-one");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("one");
    lines.write(1); // before the agent's first start: backlog
    let agent = setup(&scratch, &collector).start();
    lines.wait_for_all(&collector);
    lines.write(1);
    lines.wait_for_all(&collector);
    let received = lines.received(&collector);
    for (record, backlog) in received.iter().zip(["true", "false"]) {
        assert_eq!((record.event.as_str(), record.severity), ("gpu.xid", 17), "ERROR");
        assert_eq!(record.get("gpu.xid.code"), "31");
        assert_eq!(record.get("gpu.xid.class"), "application");
        assert_eq!(record.get("gpu.xid.action"), "restart_app");
        assert_eq!(record.get("gpu.pci.address"), "0000:9b:00.0");
        assert_eq!(record.get("gpu.xid.backlog"), backlog);
        assert!(record.observed.abs_diff(record.time) < 60_000_000_000, "{record:?}");
    }
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(received[0].get("log.record.uid").starts_with(boot_id.trim()), "{received:?}");
    assert!(agent.terminate().success());
}

#[test]
fn a_line_of_user_space_is_not_believed_by_default() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("kmsg-facility");
    let collector = Collector::start(scratch.path());
    let mut agent = Setup::new(scratch.path()).to(&collector.address).args(&["--probes", "off"]).start();
    wait_for("the kernel log", 30, || {
        (collector.latest("warpgauge.source.up", &[("source", "kmsg")]) == Some(1.0)).then_some(())
    });
    let ignored = || collector.latest("warpgauge.kmsg.ignored", &[("reason", "facility")]).unwrap_or(0.0);
    let before = ignored();
    let mut lines = Lines::new("user");
    lines.write(3);
    wait_for("three refused lines", 30, || (before + 3.0 <= ignored()).then_some(()));
    assert_eq!(lines.received(&collector), []);
    assert!(agent.is_running());
}

#[test]
fn restarted_by_sigterm_each_record_arrives_once() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("kmsg-term");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("term");
    let mut setup = setup(&scratch, &collector);
    lines.write(20);
    for _ in 0..3 {
        let agent = setup.start();
        lines.write(20);
        // In the middle: some are on their way, some are not read yet.
        wait_for("a first record", 30, || (!lines.received(&collector).is_empty()).then_some(()));
        assert!(agent.terminate().success());
        lines.write(20);
    }
    let agent = setup.start();
    lines.wait_for_all(&collector);
    assert!(agent.terminate().success());
    let repeated: Vec<_> =
        lines.by_text(&collector).into_iter().filter(|(_, uids)| uids.len() != 1).collect();
    assert_eq!(repeated, [], "each of {} lines once", lines.written());
    assert_eq!(collector.latest("warpgauge.restart.gaps", &[]).unwrap_or(0.0), 0.0, "no gap");
}

#[test]
fn restarted_by_sigkill_none_is_missing_and_repeats_carry_the_same_uid() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("kmsg-kill");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("kill");
    let mut setup = setup(&scratch, &collector);
    for _ in 0..3 {
        let agent = setup.start();
        lines.write(50);
        wait_for("a first record", 30, || (!lines.received(&collector).is_empty()).then_some(()));
        lines.write(50);
        agent.kill();
    }
    let agent = setup.start();
    lines.wait_for_all(&collector);
    let uids = lines.by_text(&collector);
    let different: Vec<_> = uids.values().filter(|uids| uids.iter().any(|uid| *uid != uids[0])).collect();
    assert_eq!(different, [] as [&Vec<String>; 0], "repeats carry the same uid");
    let distinct: std::collections::BTreeSet<_> = uids.values().map(|uids| &uids[0]).collect();
    assert_eq!(distinct.len(), lines.written(), "each line has its own uid");
    let gaps = wait_for("the gap as a record", 30, || {
        let gaps: Vec<_> =
            collector.records().into_iter().filter(|r| r.event == "warpgauge.restart").collect();
        (gaps.len() == 3).then_some(gaps)
    });
    assert!(gaps.iter().all(|gap| gap.get("warpgauge.restart.reason") == "killed"), "{gaps:?}");
    assert!(agent.terminate().success());
}
