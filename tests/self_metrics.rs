//! The agent's numbers about itself, and the form of everything it sends.

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::received::Point;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

use crate::kernel_log::{Lines, setup};

#[test]
fn the_first_xid_of_a_code_is_seen_by_increase() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("first-xid");
    let collector = Collector::start(scratch.path());
    let agent = setup(&scratch, &collector).start();
    wait_for("metrics", 30, || collector.latest("warpgauge.source.up", &[("source", "kmsg")]));
    let mut lines = Lines::new("first-xid");
    lines.write(1);
    let series = [("gpu.pci.address", "0000:9b:00.0"), ("gpu.xid.code", "31")];
    let counted = || {
        let points = collector.points().into_iter();
        points.filter(|p| p.name == "gpu.xid.errors.by_code" && p.has(&series)).collect::<Vec<_>>()
    };
    let is_old = |p: &Point| p.has(&[("gpu.xid.backlog", "true")]);
    wait_for("the counter", 30, || counted().iter().any(|p| !is_old(p) && 1.0 <= p.value).then_some(()));
    let (old, points): (Vec<_>, Vec<_>) = counted().into_iter().partition(is_old);
    assert!(old.iter().all(|p| 0.0 < p.value), "what was in the log before looks like nothing new: {old:?}");
    assert_eq!(points[0].value, 0.0, "an explicit 0 comes first");
    assert!(points.iter().all(|p| p.start == points[0].start), "one start for all: {points:?}");
    assert!(points[0].start <= points[0].time, "{points:?}");
    let interval = points[1].time - points[0].time;
    assert!((100_000_000..=20_000_000_000).contains(&interval), "one interval earlier, not {interval} ns");
    let ordered =
        points.windows(2).all(|pair| pair[0].time <= pair[1].time && pair[0].value <= pair[1].value);
    assert!(ordered, "{points:?}");
    assert!(agent.terminate().success());
}

#[test]
fn every_series_has_the_nodes_resource_and_a_name_of_the_catalogue() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("resource");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("resource");
    let agent = setup(&scratch, &collector)
        .env("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east,host.name=node-7")
        .env("OTEL_SERVICE_NAME", "gpu-agent")
        .start();
    lines.write(1);
    lines.wait_for_all(&collector);
    wait_for("metrics", 30, || collector.latest("warpgauge.source.up", &[("source", "kmsg")]));
    assert!(agent.terminate().success());
    for point in collector.points() {
        // The one that also has the devices' metrics.
        let metric = warpgauge::export::catalog::find(&point.name).map(|(_, metric)| metric);
        let metric = metric.unwrap_or_else(|| panic!("{} is not in the catalogue", point.name));
        assert_eq!(metric.unit, point.unit, "{}", point.name);
        for name in point.attributes.keys() {
            assert!(metric.attributes.contains(&name.as_str()), "{} has an attribute {name}", point.name);
        }
        assert_resource(&point.resource);
    }
    for record in collector.records().iter().filter(|r| r.event.starts_with("gpu.")) {
        assert_resource(&record.resource);
        assert_eq!(record.scope, "warpgauge");
        assert!(!record.get("log.record.uid").is_empty());
    }
}

#[track_caller]
fn assert_resource(resource: &warpgauge_tests::harness::received::Attributes) {
    for (name, want) in [("service.name", "gpu-agent"), ("k8s.cluster.name", "east"), ("host.name", "node-7")]
    {
        assert_eq!(resource.get(name).map(String::as_str), Some(want), "{resource:?}");
    }
    assert!(resource.contains_key("service.instance.id"), "{resource:?}");
}
