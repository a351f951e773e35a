//! Tests of the source over trees that look like sysfs.
//!
//! In: files. Out: what the source says of them, round by round.
//! That the running kernel's files have these forms is not shown here: no test machine has a GPU in its PCI tree.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::model::{Absence, Field, HostField, Origin, Part, SampleValue};
use crate::sources::queue;
use crate::telemetry::Telemetry;
use crate::test_dir::TestDir;

const GPU: &str = "bus/pci/devices/0000:3b:00.0";
const PORT: &str = "class/infiniband/mlx5_0/ports/1";

struct Tree(TestDir);

impl Tree {
    fn new() -> Self {
        Self(TestDir::new())
    }

    fn put(&self, folder: &str, files: &[(&str, &str)]) -> &Self {
        for (name, text) in files {
            let path = self.0.path().join(folder).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self
    }

    fn gpu(&self, folder: &str) -> &Self {
        self.put(
            folder,
            &[
                ("vendor", "0x10de\n"),
                ("class", "0x030200\n"),
                ("current_link_speed", "2.5 GT/s PCIe\n"),
                ("max_link_speed", "32.0 GT/s PCIe\n"),
                ("current_link_width", "8\n"),
                ("max_link_width", "16\n"),
                ("aer_dev_correctable", "RxErr 4\nTOTAL_ERR_COR 4\n"),
                ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 1\n"),
                ("aer_dev_fatal", "TOTAL_ERR_FATAL 0\n"),
            ],
        )
    }

    fn host(&self) -> HostRoot {
        HostRoot { sys: self.0.path().into(), ..HostRoot::default() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }
}

/// What a round says, in a form that is easy to write down.
fn said(round: &mut Round) -> Vec<(String, String)> {
    round.read().unwrap();
    let mut said = Vec::new();
    for samples in round.samples.drain(..) {
        assert_eq!(samples.origin, Origin::Host);
        let mut whose = samples.subject.hw_id.as_ref().to_owned();
        if let Part::Port(port) = samples.subject.part {
            whose = format!("{whose}/{port}");
        }
        for reading in samples.readings {
            let Field::Host(field) = reading.field else { panic!("a field of the host") };
            let value = match reading.value {
                SampleValue::Int(value) => value.to_string(),
                SampleValue::Absent(absence) => absence.name().to_owned(),
                other => panic!("{other:?}"),
            };
            said.push((whose.clone(), format!("{} {value}", field.name())));
        }
    }
    said
}

fn of(whose: &str, values: &[&str]) -> Vec<(String, String)> {
    values.iter().map(|value| (whose.to_owned(), (*value).to_owned())).collect()
}

const ALL_OF_GPU: [&str; 7] = [
    "pcie.link.speed 2500000000",
    "pcie.link.speed.max 32000000000",
    "pcie.link.width 8",
    "pcie.link.width.max 16",
    "pcie.aer.correctable 4",
    "pcie.aer.nonfatal 1",
    "pcie.aer.fatal 0",
];

#[test]
fn gpus_and_ports_are_read_and_nothing_else() {
    let tree = Tree::new();
    tree.gpu(GPU);
    tree.gpu("bus/pci/devices/0000:3b:00.4").put("bus/pci/devices/0000:3b:00.4/physfn", &[("vendor", "")]);
    let others = [("0000:00:1f.0", "0x8086", "0x030000"), ("0000:3b:00.1", "0x10de", "0x040300")];
    for (address, vendor, class) in others {
        let folder = format!("bus/pci/devices/{address}");
        tree.gpu(&folder).put(&folder, &[("vendor", vendor), ("class", class)]);
    }
    tree.gpu("bus/pci/devices/not-an-address");
    tree.put(
        PORT,
        &[("state", "4: ACTIVE\n"), ("phys_state", "5: LinkUp\n"), ("rate", "400 Gb/sec (4X NDR)\n")],
    );
    tree.put(PORT, &[("counters/link_downed", "2\n"), ("counters/symbol_error", "N/A (no PMA)\n")]);
    tree.put("class/infiniband/mlx5_0/ports/x", &[("state", "4: ACTIVE\n")]);
    tree.put("class/infiniband/\u{1b}[31m/ports/1", &[("state", "4: ACTIVE\n")]);
    let port = [
        "infiniband.port.state 4",
        "infiniband.port.phys_state 5",
        "infiniband.port.rate 400000000000",
        "infiniband.port.link_downed 2",
        "infiniband.port.symbol_errors not_supported",
    ];
    let want = [of("0000:3b:00.0", &ALL_OF_GPU), of("mlx5_0/1", &port)].concat();
    assert_eq!(said(&mut Round::new(tree.host())), want);
}

#[test]
fn a_value_without_a_file_is_said_once_and_the_others_every_round() {
    let tree = Tree::new();
    tree.gpu(GPU);
    for file in ["aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"] {
        fs::remove_file(tree.path(GPU).join(file)).unwrap();
    }
    let mut round = Round::new(tree.host());
    let absent = ["pcie.aer.correctable", "pcie.aer.nonfatal", "pcie.aer.fatal"]
        .map(|name| format!("{name} {}", Absence::NotSupported.name()));
    let absent = absent.each_ref().map(String::as_str);
    let first = [of("0000:3b:00.0", &ALL_OF_GPU[..4]), of("0000:3b:00.0", &absent)].concat();
    assert_eq!(said(&mut round), first);
    tree.put(GPU, &[("current_link_width", "16\n"), ("current_link_speed", "Unknown\n")]);
    let second = ["pcie.link.speed blank", ALL_OF_GPU[1], "pcie.link.width 16", ALL_OF_GPU[3]];
    assert_eq!(said(&mut round), of("0000:3b:00.0", &second));
    let third = [ALL_OF_GPU[1], "pcie.link.width 16", ALL_OF_GPU[3]];
    assert_eq!(said(&mut round), of("0000:3b:00.0", &third), "the speed's absence was said");
}

#[test]
fn a_device_that_goes_is_told_once_and_one_that_comes_is_read() {
    let tree = Tree::new();
    tree.gpu(GPU);
    let mut round = Round::new(tree.host());
    assert_eq!(said(&mut round).len(), ALL_OF_GPU.len());
    fs::remove_dir_all(tree.path(GPU)).unwrap();
    tree.gpu("bus/pci/devices/0000:5e:00.0");
    round.looked = None;
    let gone = HostField::ALL[..7].iter().map(|field| format!("{} not_found", field.name()));
    let gone: Vec<_> = gone.map(|value| ("0000:3b:00.0".to_owned(), value)).collect();
    assert_eq!(said(&mut round), [gone, of("0000:5e:00.0", &ALL_OF_GPU)].concat());
    round.looked = None;
    assert_eq!(said(&mut round), of("0000:5e:00.0", &ALL_OF_GPU));
}

#[test]
fn more_devices_than_are_read_are_left_out() {
    let tree = Tree::new();
    for bus in 0..70 {
        tree.gpu(&format!("bus/pci/devices/0000:{bus:02x}:00.0"));
    }
    let mut round = Round::new(tree.host());
    assert_eq!(said(&mut round).len(), 64 * ALL_OF_GPU.len());
}

async fn reason(enabled: bool, sys: &Path) -> &'static str {
    let telemetry = Telemetry::default();
    let (tx, _rx) = queue(8);
    let outlet = Outlet::new(tx, "host", &telemetry);
    let config = HostValuesConfig { enabled, interval: Duration::from_secs(1) };
    let host = HostRoot { sys: sys.into(), ..HostRoot::default() };
    match HostValues::new(config, host).run(&outlet, &CancellationToken::new()).await {
        Exit::Unavailable(lacks) => lacks[0].reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_keeps_it_from_working_is_said() {
    let tree = Tree::new();
    assert_eq!(reason(false, tree.0.path()).await, "disabled");
    assert_eq!(reason(true, tree.0.path()).await, "no_sysfs");
    fs::create_dir_all(tree.path("bus/pci/devices")).unwrap();
    assert_eq!(reason(true, tree.0.path()).await, "no_device");
}

#[tokio::test]
async fn it_reads_until_it_is_told_to_stop() {
    let tree = Tree::new();
    tree.gpu(GPU);
    let telemetry = Telemetry::default();
    let (tx, mut rx) = queue(8);
    let outlet = Outlet::new(tx, "host", &telemetry);
    let config = HostValuesConfig { enabled: true, interval: Duration::from_millis(1) };
    let stop = CancellationToken::new();
    let (mut source, told) = (HostValues::new(config, tree.host()), stop.clone());
    let task = tokio::spawn(async move { source.run(&outlet, &told).await });
    for _ in 0..3 {
        let Some(Signal::Samples { samples, .. }) = rx.recv().await else { panic!("samples") };
        assert_eq!((samples.subject.hw_id.as_ref(), samples.readings.len()), ("0000:3b:00.0", 7));
    }
    stop.cancel();
    assert!(matches!(task.await, Ok(Exit::Stopped)));
}

#[tokio::test(start_paused = true)]
async fn a_round_that_hangs_is_said_and_waited_for() {
    let telemetry = Telemetry::default();
    let (tx, mut rx) = queue(8);
    let outlet = Outlet::new(tx, "host", &telemetry);
    let (device_answers, hanging) = tokio::sync::oneshot::channel::<u32>();
    let reading = tokio::spawn(hanging);
    let waiting = tokio::spawn(async move { in_time(reading, &outlet).await });
    let mut told = async || match rx.recv().await {
        Some(Signal::Source { source, .. }) => (source.name, source.up, source.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(told().await, ("host".to_owned(), false, Some("slow".to_owned())));
    device_answers.send(7).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Ok(7));
    assert_eq!(told().await, ("host".to_owned(), true, None));
}
