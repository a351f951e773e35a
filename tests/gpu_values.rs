//! Values of simulated GPUs at the real Collector.

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::needs;

#[test]
fn every_gpu_has_its_temperature_and_its_power_at_the_collector() {
    needs!(Collector);
    let node = Node::new("gpu-values", "h100x8");
    let collector = Collector::start(node.path());
    let agent = node.agent("").to(&collector.address).start();
    for metric in ["hw.temperature", "hw.power"] {
        wait_for(metric, 20, || {
            let points = collector.points();
            let gpus: std::collections::BTreeSet<String> = points
                .iter()
                .filter(|p| p.name == metric)
                .filter_map(|p| p.attributes.get("hw.id").cloned())
                .collect();
            (gpus.len() == 8).then_some(())
        });
    }
    assert!(agent.terminate().success());
}
