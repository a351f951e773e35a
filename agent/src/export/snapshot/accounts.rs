//! What is counted for each workload: its time in the driver, its part of the devices' energy.
//!
//! In: driver calls, shares of energy. Out: changed series. What can go wrong: series beyond the limit, refused and
//! counted.

use std::sync::Arc;
use std::time::Duration;

use super::Snapshot;
use crate::export::series_key::Key;
use crate::export::whose::Whose;
use crate::export::workload_catalog;
use crate::model::{CallStats, Layer, MonoNs};

impl Snapshot {
    /// Only system calls: the other layers are nested in them, and would count twice.
    pub(super) fn driver_time(&mut self, whose: &Arc<Whose>, at: MonoNs, stats: &CallStats) {
        if stats.kind.layer() == Layer::Syscall {
            let (key, time) =
                (Key::DriverTime(Arc::clone(whose)), Duration::from_nanos(stats.latency.sum_ns));
            self.table.add_time(&workload_catalog::DRIVER_TIME, key, at, time, || whose.attributes());
        }
    }

    /// Books what was shared out since the batch of readings before.
    pub(super) fn share_energy(&mut self) {
        for share in self.devices.shares() {
            let whose = self.workloads.known(share.whose, share.at);
            self.rename();
            let key = Key::Energy(Arc::clone(&whose), Arc::clone(&share.hw_id));
            self.table.add_part(&workload_catalog::ENERGY, key, share.at, share.joules, || {
                let mut attributes = vec![("hw.id", share.hw_id.to_string())];
                attributes.extend(whose.attributes());
                attributes
            });
        }
    }
}
