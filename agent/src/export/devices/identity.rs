//! What is known of each device besides measurements: words, state, health.
//!
//! In: identities, states, health checks. Out: the info series, `hw.status` and `gpu.health.status`, as they stand.
//! What can go wrong: ever new devices; beyond [`Identities::MOST`] they are counted, not told of.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::series::Moment;
use super::standing::{Placed, Standing};
use crate::export::device_catalog::{HEALTH, INFO, STATUS};
use crate::export::point::Value;
use crate::model::signal::{DeviceKind, DeviceState, HealthLevel, Subsystem};
use crate::model::{Gpu, Origin, WallNs};
use crate::telemetry::{Attributes, Counter, Telemetry};

/// All devices.
#[derive(Debug, Default)]
pub struct Identities {
    devices: BTreeMap<Arc<str>, Device>,
    driver: Option<String>,
    /// Whether DCGM and NVML answer, as far as they were heard of.
    dcgm: Option<bool>,
    nvml: Option<bool>,
    /// Times that a device was not told of.
    refused: Counter,
}

#[derive(Debug)]
struct Device {
    gpu: Gpu,
    state: DeviceState,
    health: BTreeMap<Subsystem, HealthLevel>,
}

impl Identities {
    /// No devices yet; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "devices")]);
        Self { refused, ..Self::default() }
    }

    /// Devices that are told of: 16 boards with 8 instances each, switches, CPUs and adapters fit.
    pub const MOST: usize = 512;

    /// A device exists, or is known better.
    pub fn know(&mut self, gpu: &Gpu) {
        let full = self.devices.len() >= Self::MOST;
        match self.devices.get_mut(gpu.hw_id.as_str()) {
            Some(device) => device.gpu.clone_from(gpu),
            None if !full => {
                let (state, health) = (DeviceState::Ok, BTreeMap::new());
                self.devices.insert(gpu.hw_id.as_str().into(), Device { gpu: gpu.clone(), state, health });
            }
            None => self.refused.add(1),
        }
    }

    /// The release of the driver.
    pub fn set_driver(&mut self, version: Option<&String>) {
        self.driver = version.cloned();
    }

    /// A device changed state.
    pub fn set_state(&mut self, hw_id: &str, state: DeviceState) {
        if state == DeviceState::Gone {
            self.devices.remove(hw_id);
        } else if let Some(device) = self.devices.get_mut(hw_id) {
            device.state = state;
        }
    }

    /// A health check had a result.
    pub fn set_health(&mut self, hw_id: &str, subsystem: Subsystem, level: HealthLevel) {
        if let Some(device) = self.devices.get_mut(hw_id) {
            device.health.insert(subsystem, level);
        }
    }

    /// Whether a vendor's library answers.
    pub fn set_answering(&mut self, origin: Origin, up: bool) {
        match origin {
            Origin::Dcgm => self.dcgm = Some(up),
            Origin::Nvml => self.nvml = Some(up),
            Origin::Host => {}
        }
    }

    /// The GPU that a MIG device is part of.
    pub fn parent(&self, hw_id: &str) -> Option<&str> {
        self.devices.get(hw_id)?.gpu.parent.as_deref()
    }

    /// `hw.type` of a device.
    pub fn kind(&self, hw_id: &str) -> &'static str {
        self.devices.get(hw_id).map_or("gpu", |device| match device.gpu.details.kind {
            DeviceKind::Gpu | DeviceKind::Mig => "gpu",
            DeviceKind::Switch => "nvswitch",
            DeviceKind::Cpu => "cpu",
            DeviceKind::Nic => "network",
        })
    }

    /// Everything that stands now; `texts` gives what the fields of a device say in words.
    pub fn collect<'a>(
        &self,
        moment: Moment,
        start: WallNs,
        texts: impl Fn(&Arc<str>) -> Option<&'a BTreeMap<&'static str, Arc<str>>>,
        standing: &mut Standing,
        out: &mut Placed,
    ) {
        let times = (start, moment.at);
        let answering = [self.dcgm, self.nvml];
        // Where nobody answers, nobody knows: no state is better than the last one, and far better than `ok`.
        let known = answering.contains(&Some(true)) || answering == [None; 2];
        for (hw_id, device) in &self.devices {
            let shared = || vec![("hw.id", hw_id.to_string()), ("hw.type", self.kind(hw_id).to_owned())];
            let info = Arc::new(self.words(device, shared(), texts(hw_id)));
            standing.put(&INFO, &info, Value::Count(1), times, out);
            if !known {
                continue;
            }
            // A device does not recover by DCGM's going away: its last results count until there are others.
            let state = overall(device.state, &device.health);
            for word in ["ok", "degraded", "failed"] {
                let attributes = Arc::new([shared(), vec![("hw.state", word.to_owned())]].concat());
                standing.put(&STATUS, &attributes, Value::Count(u64::from(word == state)), times, out);
            }
            let checked = self.dcgm != Some(false);
            for (subsystem, level) in device.health.iter().filter(|_| checked) {
                let name = subsystem.name().to_owned();
                let attributes = Arc::new([shared(), vec![("gpu.health.subsystem", name)]].concat());
                let level = match level {
                    HealthLevel::Pass => 0,
                    HealthLevel::Warn => 1,
                    HealthLevel::Fail => 2,
                };
                standing.put(&HEALTH, &attributes, Value::Count(level), times, out);
            }
        }
    }

    fn words(
        &self,
        device: &Device,
        mut words: Attributes,
        texts: Option<&BTreeMap<&'static str, Arc<str>>>,
    ) -> Attributes {
        let (gpu, details) = (&device.gpu, &device.gpu.details);
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let peers = (!details.nvlink_peers.is_empty()).then(|| details.nvlink_peers.join(","));
        let is_gpu = matches!(details.kind, DeviceKind::Gpu | DeviceKind::Mig);
        for (name, value) in [
            ("hw.name", gpu.model.clone()),
            ("hw.parent", gpu.parent.clone()),
            ("gpu.index", number(gpu.index)),
            ("gpu.minor", number(gpu.minor)),
            ("gpu.pci.address", gpu.pci.map(|pci| pci.to_string())),
            ("hw.serial_number", details.serial.clone()),
            ("gpu.architecture", details.architecture.clone()),
            ("gpu.mig.profile", details.mig_profile.clone()),
            ("gpu.mig.profile.source", details.mig_profile_source.map(str::to_owned)),
            ("gpu.numa.node", number(details.numa_node)),
            ("gpu.cpu.affinity", details.cpu_affinity.clone()),
            ("gpu.nvlink.peers", peers),
            ("hw.driver_version", self.driver.clone().filter(|_| is_gpu)),
        ] {
            words.extend(value.map(|value| (name, value)));
        }
        // The identity is in one form whoever told it; a field's text only fills a gap.
        for (name, text) in texts.into_iter().flatten() {
            if !words.iter().any(|(known, _)| known == name) {
                words.push((name, text.to_string()));
            }
        }
        words
    }
}

/// `hw.state`
fn overall(state: DeviceState, health: &BTreeMap<Subsystem, HealthLevel>) -> &'static str {
    match (state, health.values().max()) {
        (DeviceState::Lost | DeviceState::Gone, _) | (_, Some(HealthLevel::Fail)) => "failed",
        (DeviceState::Resetting, _) | (_, Some(HealthLevel::Warn)) => "degraded",
        (DeviceState::Ok, _) => "ok",
    }
}
