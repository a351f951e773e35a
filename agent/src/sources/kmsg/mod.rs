//! The kernel log: what the driver says, from /dev/kmsg, each record once per boot.
//!
//! In: the kernel's records, by the device; what the previous run left, by [`StateFile`]. Out: `Signal::DriverLog`.
//! What can go wrong: no device or no right to read it (`Unavailable`, with the remedy); overruns, damaged records and
//! those that are not believed are counted under `warpgauge.kmsg.*`. A full pipeline makes the source wait, not drop.
//!
//! Reading order: [`record`] (one record) → [`xid`] (what its text says) → `credible` (whether the driver says it) →
//! `intake` (skip, count, date) → `follow` (the loop) → [`state`] (across restarts).

mod credible;
mod device;
mod follow;
#[cfg(test)]
mod follow_tests;
mod intake;
pub mod message;
pub mod record;
mod scan;
pub mod state;
pub mod xid;
#[cfg(test)]
mod xid_samples;
mod xid_text;

use std::io;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use state::StateFile;

use self::device::{Device, RecordReader};
use self::follow::FollowError;
use self::intake::{Counts, Intake};
use super::{Exit, Lack, Outlet, Source};
use crate::config::KernelLogConfig;
use crate::host::HostRoot;
use crate::model::Delivery;
use crate::telemetry::Telemetry;

/// Whether the log can be read here; must be called on a runtime.
///
/// # Errors
/// What is missing.
pub fn look(host: &HostRoot) -> Result<(), Lack> {
    let unreadable = |what| Lack { reason: "unreadable", what, remedy: "the message says what is needed" };
    let mut device = Device::open(host).map_err(|exit| match exit {
        Exit::Unavailable(lacks) => lacks.into_iter().next().unwrap_or_else(|| unreadable("?".to_owned())),
        Exit::Failed(cause) => unreadable(cause.to_string()),
        Exit::Stopped => unreadable("stopped".to_owned()),
    })?;
    match device.read(&mut vec![0; follow::BUFFER]) {
        Ok(_) => Ok(()),
        // Nothing in it, or its oldest record was just overwritten: it can be read all the same.
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe) => Ok(()),
        Err(e) => Err(unreadable(format!("{}: {e}", host.dev("kmsg").display()))),
    }
}

/// The kernel-log source.
#[derive(Debug)]
pub struct KernelLog {
    enabled: bool,
    host: HostRoot,
    state: Arc<StateFile>,
    intake: Intake,
    begun: bool,
}

impl KernelLog {
    /// Opens nothing yet. `delivery` hears of every record before its signal is sent.
    pub fn new(
        config: KernelLogConfig,
        host: HostRoot,
        state: Arc<StateFile>,
        delivery: Arc<Delivery>,
        telemetry: &Telemetry,
    ) -> Self {
        let intake = Intake::new(config.facilities, delivery, Counts::new(telemetry));
        Self { enabled: config.enabled, host, state, intake, begun: false }
    }

    async fn read(
        &mut self,
        reader: &mut impl RecordReader,
        outlet: &Outlet,
        stop: &CancellationToken,
    ) -> Result<(), FollowError> {
        let mut buffer = vec![0; follow::BUFFER];
        if !self.begun {
            follow::begin(reader, &mut buffer, &mut self.intake, &self.state).await?;
            self.begun = true;
        }
        follow::follow(reader, &mut buffer, &mut self.intake, outlet, stop).await
    }
}

impl Source for KernelLog {
    fn name(&self) -> &'static str {
        "kmsg"
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        if !self.enabled {
            return Exit::Unavailable(vec![Lack {
                reason: "disabled",
                what: "the kernel log is switched off by the configuration".to_owned(),
                remedy: "set kernel_log.enabled to true",
            }]);
        }
        let mut device = match Device::open(&self.host) {
            Ok(device) => device,
            Err(exit) => return exit,
        };
        match self.read(&mut device, outlet, stop).await {
            Ok(()) => Exit::Stopped,
            Err(error) => Exit::Failed(Box::new(error)),
        }
    }
}
