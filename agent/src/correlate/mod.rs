//! Signals → facts: what they mean together.
//!
//! In: [`Signal`]s of all sources, roughly in the order of time. Out: [`Fact`]s: readings that pass through, and
//! findings. Pure: no input or output, no clock but the one in the signals. Each rule is a file of its own.
//! What can go wrong: more episodes at once than a rule keeps; the surplus is refused and counted.

pub mod allocations;
pub mod driver_stall;
pub mod host_devices;
pub mod lock_table;
pub mod open_calls;
pub mod samples;
pub mod source_status;
pub mod stall_finding;
pub mod uses;
pub mod xid;
pub mod xid_catalog;
pub mod xid_check;

use crate::config::CorrelateConfig;
use crate::model::{Fact, Signal};
use crate::telemetry::Telemetry;

use allocations::Allocations;
use driver_stall::DriverStalls;
use host_devices::HostDevices;
use samples::SampleChecks;
use source_status::SourceStatus;
use xid::XidFindings;

/// All rules, fed with every signal.
#[derive(Debug)]
pub struct Correlate {
    devices: HostDevices,
    allocations: Allocations,
    driver_stalls: DriverStalls,
    xids: XidFindings,
    samples: SampleChecks,
    status: SourceStatus,
}

impl Correlate {
    /// Rules without any history.
    pub fn new(config: CorrelateConfig, telemetry: &Telemetry) -> Self {
        Self {
            devices: HostDevices::new(telemetry),
            allocations: Allocations::new(telemetry),
            driver_stalls: DriverStalls::new(config, telemetry),
            xids: XidFindings::new(telemetry),
            samples: SampleChecks::new(telemetry),
            status: SourceStatus::new(telemetry),
        }
    }

    /// What `signal` adds, appended to `out`: findings first, then the reading they were drawn from.
    pub fn push(&mut self, mut signal: Signal, out: &mut Vec<Fact>) {
        self.devices.push(&mut signal);
        self.samples.push(&mut signal);
        self.allocations.push(&signal, out);
        self.driver_stalls.push(&signal, out);
        self.xids.push(&signal, out);
        self.status.push(&signal, out);
        if passes(&signal) {
            out.push(Fact::Reading(signal));
        }
    }
}

/// Whether a later stage has a use for the signal as it is.
fn passes(signal: &Signal) -> bool {
    match signal {
        Signal::Gpu { .. }
        | Signal::Driver { .. }
        | Signal::GpuState { .. }
        | Signal::Samples { .. }
        | Signal::Processes { .. }
        | Signal::Health { .. }
        | Signal::Process { .. }
        | Signal::Exec { .. }
        | Signal::Exit { .. }
        | Signal::CallStats { .. }
        | Signal::RmCalls { .. }
        | Signal::LockWaits { .. }
        | Signal::UvmWork { .. }
        | Signal::Scheduling { .. }
        | Signal::VendorCalls { .. }
        | Signal::Allocation { .. }
        | Signal::Source { .. }
        | Signal::Tick { .. } => true,
        Signal::Uses { .. }
        | Signal::OpenNodes { .. }
        | Signal::Call { .. }
        | Signal::Thread { .. }
        | Signal::LockHolders { .. }
        | Signal::Role { .. }
        | Signal::XidReport { .. }
        | Signal::DriverLog { .. }
        | Signal::PodDevices { .. }
        | Signal::JobDevices { .. }
        | Signal::End { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::signal::GpuDetails;
    use crate::model::{
        Field, Gpu, HostField, MonoNs, Origin, Part, PciAddress, Reading, SampleValue, Samples, Subject,
    };
    use std::time::Duration;

    #[test]
    fn samples_of_the_host_go_on_under_the_name_of_their_gpu() {
        let config = CorrelateConfig { call_threshold: Duration::from_secs(1), call_thresholds: [].into() };
        let (mut correlate, mut out) = (Correlate::new(config, &Telemetry::default()), Vec::new());
        let (at, address) = (MonoNs(1), "0000:3b:00.0");
        let gpu = Gpu {
            hw_id: "GPU-1".to_owned(),
            index: None,
            minor: None,
            pci: PciAddress::parse(address),
            model: None,
            parent: None,
            details: Box::<GpuDetails>::default(),
        };
        let samples = |hw_id: &str| {
            let field = Field::Host(HostField::AerFatal);
            let samples = Samples {
                subject: Subject { hw_id: hw_id.into(), part: Part::Whole },
                origin: Origin::Host,
                readings: vec![Reading { at, field, value: SampleValue::Int(3) }],
            };
            Signal::Samples { at, samples: Box::new(samples) }
        };
        correlate.push(Signal::Gpu { at, gpu }, &mut out);
        correlate.push(samples(address), &mut out);
        assert_eq!(out.pop(), Some(Fact::Reading(samples("GPU-1"))));
    }
}
