//! The real OpenTelemetry Collector, built from `tests/collector`.
//!
//! In: its Go module. Out: `target/collector/otelcol-test`. What can go wrong: see [`crate::go`].

use std::path::PathBuf;

use crate::go::Program;

const COLLECTOR: Program = Program {
    title: "the OpenTelemetry Collector",
    module: "tests/collector",
    package: ".",
    binary: "target/collector/otelcol-test",
};

/// The Collector; `None` where it cannot be built, which is said.
pub(crate) fn build() -> Option<PathBuf> {
    COLLECTOR.build()
}
