//! The page of metrics for people: `docs/metrics.md`.
//!
//! In: the catalogue. Out: [`to_markdown`]. What can go wrong: the page in the tree is old; a test finds it.

use std::fmt::Write;

use super::catalog::all;
use super::device_catalog;

/// The text of `docs/metrics.md`.
pub fn to_markdown() -> String {
    let mut text = String::from(
        "# Metrics\n\nMade from the catalogue by `cargo xtask docs`; do not edit.\n\n\
         Counters and histograms are cumulative. Names that begin with `warpgauge.` are about the agent itself.\n\
         `hw.id` is `GPU-…` or `MIG-…`; where it is not known, `gpu.pci.address` names the device.\n\
         Of `container.id` and `process.linux.cgroup` a series has at most one. Names of pods and containers may be\n\
         learned after a series has begun: it then ends, and goes on from 0 as a series with the names whose start is\n\
         the time of the other's last point, so that both together count everything once.\n\n\
         A point has the time of the latest sample in it, or of the export where nothing has changed since the export\n\
         before; points about the agent itself have the time of the export. When the wall clock is set back by more\n\
         than 5 minutes, all series begin anew.\n\n\
         Measured values of devices have the time of their sample and leave once per sample; the metrics of the single\n\
         fields are on [their own page](fields.md). A series that ends, because its device or its workload is gone or its\n\
         value is not there any more, sends one last point without a value (OTLP's \"no recorded value\"). Levels of a\n\
         workload end with it; its sums are sent for five minutes more (half a minute where series are nearly too many),\n\
         and end when their last value has arrived.\n\n\
         | name | kind | unit | attributes | meaning |\n|---|---|---|---|---|\n",
    );
    // The single fields' metrics are the last, and on a page of their own.
    let shown = all().len() - device_catalog::from_fields().len();
    for metric in all().iter().take(shown) {
        let attributes: Vec<String> = metric.attributes.iter().map(|a| format!("`{a}`")).collect();
        let (name, kind, unit, help) = (metric.name, metric.kind.name(), metric.unit, metric.help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | `{unit}` | {} | {help} |", attributes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_metrics_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, to_markdown()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(written, to_markdown(), "docs/metrics.md is old: run `cargo xtask docs`");
    }
}
