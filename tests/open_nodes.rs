//! A process that had a device node open before the agent began: its GPU is known all the same.

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::live::Live;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::tty::{MAJOR, Tty};
use warpgauge_tests::needs;

use crate::hung_call::wait_for_probes;

/// The terminal's node has minor 0, which is that of the second GPU: its index does not tell.
#[test]
fn a_node_that_was_open_before_the_agent_began_tells_the_gpu() {
    needs!(Root, Tty0, Probes);
    let tty = Tty::hold();
    let mut victim = tty.holder();
    let pid = victim.id().to_string();
    let node = Node::of_text("open-nodes", "version: 1\ngpus: [{minor: 5}, {minor: 0}]\n");
    let collector = Collector::built_in(node.path());
    let text = format!(
        "probes: {{majors: [{MAJOR}], scan_interval: 50ms}}\nkernel_log: {{enabled: false}}\nworker:\n  \
         engine: embedded\n  groups: [{{name: few, interval: 1s, fields: [155]}}]\n"
    );
    let mut agent = node.configured(&text).to(&collector.address).start();
    wait_for_probes(&mut agent, &collector);
    wait_for("both GPUs", 60, || (collector.standing("hw.power", &[]).len() == 2).then_some(()));
    wait_for("a look at all processes", 60, || {
        collector.latest("warpgauge.open_nodes.processes", &[]).filter(|processes| 1.0 <= *processes)
    });
    tty.hang(&mut victim);
    let begin = wait_for("the stall", 60, || {
        collector.records().into_iter().find(|r| r.event == "gpu.stall" && r.get("process.pid") == pid)
    });
    assert_eq!((begin.get("hw.id"), begin.get("gpu.device.evidence")), (&*Live::gpu(1), "open_fd"));
    tty.release();
    assert!(victim.wait().unwrap().success());
    assert!(agent.terminate().success());
}
