//! What the driver calls a GPU that the host knows by its PCI address.
//!
//! In: GPUs with their addresses, and the host's samples, whose subject is an address. Out: the same samples, whose
//! subject is the GPU's `hw.id`. What can go wrong: the driver (or the worker) is not there, so the GPU has no other
//! name: its address stays. More GPUs than are kept: the surplus is refused and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::signal::DeviceState;
use crate::model::{Origin, Part, PciAddress, Signal};
use crate::telemetry::{Counter, Telemetry};

/// The GPUs of this node by address.
#[derive(Debug)]
pub struct HostDevices {
    names: BTreeMap<PciAddress, Arc<str>>,
    refused: Counter,
}

impl HostDevices {
    /// Most GPUs kept.
    const GPUS_MAX: usize = 256;

    /// No GPU yet; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "host_devices")]);
        Self { names: BTreeMap::new(), refused }
    }

    /// Learns from a signal, or gives its subject the right name.
    pub fn push(&mut self, signal: &mut Signal) {
        match signal {
            // a MIG instance has its parent's address, and no link of its own
            Signal::Gpu { gpu, .. } if gpu.parent.is_none() => {
                if let Some(pci) = gpu.pci {
                    self.learn(pci, &gpu.hw_id);
                }
            }
            Signal::GpuState { hw_id, state: DeviceState::Gone, .. } => {
                self.names.retain(|_, name| **name != **hw_id);
            }
            Signal::Samples { samples, .. }
                if samples.origin == Origin::Host && samples.subject.part == Part::Whole =>
            {
                let address = PciAddress::parse(&samples.subject.hw_id);
                if let Some(name) = address.and_then(|address| self.names.get(&address)) {
                    samples.subject.hw_id = Arc::clone(name);
                }
            }
            Signal::Samples { .. }
            | Signal::Gpu { .. }
            | Signal::GpuState { .. }
            | Signal::Driver { .. }
            | Signal::Processes { .. }
            | Signal::Health { .. }
            | Signal::Uses { .. }
            | Signal::Process { .. }
            | Signal::Exec { .. }
            | Signal::OpenNodes { .. }
            | Signal::Exit { .. }
            | Signal::Call { .. }
            | Signal::Thread { .. }
            | Signal::CallStats { .. }
            | Signal::RmCalls { .. }
            | Signal::LockWaits { .. }
            | Signal::UvmWork { .. }
            | Signal::Scheduling { .. }
            | Signal::LockHolders { .. }
            | Signal::Role { .. }
            | Signal::XidReport { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::PodDevices { .. }
            | Signal::JobDevices { .. }
            | Signal::Source { .. }
            | Signal::Tick { .. }
            | Signal::End { .. } => {}
        }
    }

    fn learn(&mut self, pci: PciAddress, hw_id: &str) {
        if let Some(name) = self.names.get_mut(&pci) {
            if **name != *hw_id {
                *name = hw_id.into(); // the board was replaced
            }
        } else if self.names.len() < Self::GPUS_MAX {
            self.names.insert(pci, hw_id.into());
        } else {
            self.refused.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Field, Gpu, HostField, MonoNs, Reading, SampleValue, Samples, Subject};

    const AT: MonoNs = MonoNs(1);

    fn gpu(hw_id: &str, pci: Option<&str>, parent: Option<&str>) -> Signal {
        let gpu = Gpu {
            hw_id: hw_id.to_owned(),
            index: None,
            minor: None,
            pci: pci.and_then(PciAddress::parse),
            model: None,
            parent: parent.map(str::to_owned),
            details: Box::default(),
        };
        Signal::Gpu { at: AT, gpu }
    }

    fn gone(hw_id: &str) -> Signal {
        Signal::GpuState { at: AT, hw_id: hw_id.to_owned(), state: DeviceState::Gone }
    }

    /// Whose the samples of `subject` are after these signals.
    fn whose(before: Vec<Signal>, origin: Origin, subject: &str, part: Part) -> String {
        let mut devices = HostDevices::new(&Telemetry::default());
        for mut signal in before {
            let said = signal.clone();
            devices.push(&mut signal);
            assert_eq!(signal, said, "only samples are changed");
        }
        let field = Field::Host(HostField::PcieLinkWidth);
        let readings = vec![Reading { at: AT, field, value: SampleValue::Int(16) }];
        let samples = Samples { subject: Subject { hw_id: subject.into(), part }, origin, readings };
        let mut signal = Signal::Samples { at: AT, samples: Box::new(samples) };
        devices.push(&mut signal);
        let Signal::Samples { samples, .. } = signal else { panic!("still samples") };
        assert_eq!((samples.subject.part, samples.readings.len()), (part, 1));
        samples.subject.hw_id.as_ref().to_owned()
    }

    #[test]
    fn an_address_becomes_the_name_that_the_driver_gave_last() {
        let (pci, whole) = ("0000:3b:00.0", Part::Whole);
        let known = || vec![gpu("GPU-a", Some("00000000:3B:00.0"), None), gpu("GPU-b", Some("5e:00"), None)];
        let with = |more: Signal| [known(), vec![more]].concat();
        for (before, origin, subject, part, want) in [
            (vec![], Origin::Host, pci, whole, pci),
            (known(), Origin::Host, pci, whole, "GPU-a"),
            (known(), Origin::Host, "0000:5e:00.0", whole, "GPU-b"),
            (known(), Origin::Host, "0001:3b:00.0", whole, "0001:3b:00.0"),
            (known(), Origin::Host, "mlx5_0", Part::Port(1), "mlx5_0"),
            (known(), Origin::Dcgm, pci, whole, pci),
            (with(gpu("MIG-1", Some(pci), Some("GPU-a"))), Origin::Host, pci, whole, "GPU-a"),
            (with(gpu("GPU-c", Some(pci), None)), Origin::Host, pci, whole, "GPU-c"),
            (with(gpu("GPU-a", None, None)), Origin::Host, pci, whole, "GPU-a"),
            (with(gone("GPU-b")), Origin::Host, pci, whole, "GPU-a"),
            (with(gone("GPU-a")), Origin::Host, pci, whole, pci),
        ] {
            assert_eq!(whose(before.clone(), origin, subject, part), want, "{before:?}");
        }
    }

    #[test]
    fn more_gpus_than_are_kept_are_counted() {
        let telemetry = Telemetry::default();
        let mut devices = HostDevices::new(&telemetry);
        for domain in 0..=HostDevices::GPUS_MAX {
            devices.push(&mut gpu("GPU-x", Some(&format!("{domain:x}:01:00.0")), None));
        }
        assert_eq!((devices.names.len(), devices.refused.get()), (HostDevices::GPUS_MAX, 1));
    }
}
