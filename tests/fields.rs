//! `warpgauge fields` on simulated nodes, with and without an agent.

use serde_json::Value;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;

const GPU: &str = "GPU-00000000-0000-4000-8000-000000000001";
/// A group of our own: one field of the table, one that no DCGM has.
const GROUPS: &str = "engine: embedded\ngroups:\n- {name: mine, interval: 1s, fields: [150, 1002, 64321]}";

fn run(node: &Node, words: &[&str]) -> (Option<i32>, String, String) {
    let sys = node.path().join("sys");
    for (pci, numa) in [("0000:10:00.0", "0\n"), ("0000:20:00.0", "1\n")] {
        let folder = sys.join("bus/pci/devices").join(pci);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("numa_node"), numa).unwrap();
    }
    let sys = sys.to_string_lossy().into_owned();
    let out = node.command(&[words, &["--host-sys", &sys]].concat(), GROUPS).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn lines(node: &Node, words: &[&str]) -> Vec<Value> {
    let (status, out, err) = run(node, words);
    assert_eq!(status, Some(0), "{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(lines: &[Value], numa: bool) {
    let field = |id: u64| lines.iter().find(|line| line["id"] == id).unwrap();
    let temperature = field(150);
    assert_eq!(temperature["status"][GPU]["value"], 46, "{temperature}");
    assert_eq!((&temperature["group"], &temperature["interval_s"]), (&"mine".into(), &1.0.into()));
    assert!(field(1002)["status"][GPU]["value"].is_number(), "{}", field(1002));
    assert_eq!(field(155)["status"][GPU]["watched"], false);
    let unknown = field(64_321);
    assert_eq!((&unknown["known"], &unknown["group"]), (&false.into(), &"mine".into()), "{unknown}");
    let device = lines.iter().find(|line| line["device"] == GPU).unwrap();
    assert_eq!((&device["pci"], &device["state"]), (&"0000:20:00.0".into(), &0.into()), "{device}");
    if numa {
        assert_eq!(device["numa_node"], 1, "{device}");
    }
}

#[test]
fn without_an_agent_a_worker_of_its_own_tells_values_and_topology() {
    let node = Node::new("fields-own", "h100x4");
    check(&lines(&node, &["fields", "--json"]), true);
}

#[test]
fn devices_and_fields_are_chosen_and_the_table_is_for_people() {
    let node = Node::new("fields-chosen", "h100x4");
    let chosen = lines(&node, &["fields", "--json", "--gpu", "0000:20:00.0", "temp"]);
    let of = |id: u64| chosen.iter().find(|line| line["id"] == id).unwrap();
    assert_eq!(of(150)["status"].as_object().unwrap().keys().collect::<Vec<_>>(), [GPU]);
    assert!(chosen.iter().all(|line| line["id"] != 155 && line.get("device").is_none()));
    let (status, table, _) = run(&node, &["fields", "--gpu", GPU]);
    assert_eq!(status, Some(0));
    let row = |start: &str| {
        let line = table.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("150 "), "150 DEV_GPU_TEMP_CELSIUS Cel gpu mine 1 s 46", "{table}");
    assert!(row("PCI ").starts_with("PCI 0000:20:00.0, NUMA node 1"), "{table}");
    let (status, _, err) = run(&node, &["fields", "--gpu", "GPU-none"]);
    assert_eq!((status, err.contains("no device GPU-none; there are: GPU-")), (Some(1), true), "{err}");
}

#[test]
fn a_running_agent_answers_in_its_place() {
    let node = Node::new("fields-agent", "h100x4");
    let agent = node.agent(GROUPS).start();
    // The simulator's first profiling value comes with the second sample.
    let told = wait_for("a profiling value", 20, || {
        let (status, out, _) = run(&node, &["fields", "--json"]);
        let lines: Vec<Value> = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let field = lines.iter().find(|line| line["id"] == 1002)?;
        (status == Some(0) && field["status"][GPU]["value"].is_number()).then_some(lines)
    });
    check(&told, false);
    assert!(agent.terminate().success());
}

#[test]
fn with_nothing_to_ask_the_error_says_why() {
    let node = Node::new("fields-none", "h100x4");
    let worker = "dcgm_library: /nowhere/libdcgm.so.4\nnvml_library: /nowhere/libnvidia-ml.so.1";
    let out = node.command(&["fields"], worker).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    for part in ["dcgm: ", "nvml: ", "/nowhere/libdcgm.so.4", "/nowhere/libnvidia-ml.so.1"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}
