//! Values of the host about its devices: the PCIe links and errors of GPUs, and the ports of InfiniBand adapters.
//!
//! In: sysfs. Out: `Signal::Samples` of [`Origin::Host`](crate::model::Origin), under the PCI address (the driver's name
//! of a GPU is not in sysfs; `correlate` knows it) or the adapter's name.
//! What can go wrong: no such device, or no sysfs (`Unavailable`); a file that is missing, refused or odd is a reason of
//! its own value. A read that hangs in a device is said as `slow`, and waited for: nothing else waits for it.
//!
//! Reading order: [`devices`] (which are read) → [`value_file`] (one file, again and again) → [`text`] (what it says).

pub mod devices;
#[cfg(test)]
mod host_tests;
pub mod text;
pub mod value_file;

use std::io;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::HostValuesConfig;
use crate::host::{HostRoot, mono_now};
use crate::model::signal::SourceState;
use crate::model::{Samples, Signal};

use super::{Exit, Lack, Outlet, Source};
use devices::Devices;
use value_file::BUFFER;

/// How often devices are looked for that came or went.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A round takes milliseconds; one that takes this long hangs in a device.
const SLOW: Duration = Duration::from_secs(3);

/// The source.
#[derive(Debug)]
pub struct HostValues {
    config: HostValuesConfig,
    host: HostRoot,
}

impl HostValues {
    /// Touches nothing yet.
    pub fn new(config: HostValuesConfig, host: HostRoot) -> Self {
        Self { config, host }
    }
}

impl Source for HostValues {
    fn name(&self) -> &'static str {
        "host"
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        if !self.config.enabled {
            return unavailable(
                "disabled",
                "values of the host are switched off by the configuration".to_owned(),
                "set host_values.enabled to true",
            );
        }
        let mut round = Some(Box::new(Round::new(self.host.clone())));
        let mut ticks = interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Exit::Stopped,
                _ = ticks.tick() => {}
            }
            let Some(mut this) = round.take() else { return Exit::Failed("a round was lost".into()) };
            let reading = tokio::task::spawn_blocking(move || {
                let read = this.read();
                (this, read)
            });
            let read = tokio::select! {
                biased;
                () = stop.cancelled() => return Exit::Stopped,
                read = in_time(reading, outlet) => read,
            };
            let mut this = match read {
                Ok((this, Ok(()))) => this,
                Ok((_, Err(exit))) => return exit,
                Err(error) => return Exit::Failed(Box::new(error)),
            };
            for samples in this.samples.drain(..) {
                let Some(at) = samples.readings.first().map(|reading| reading.at) else { continue };
                let signal = Signal::Samples { at, samples: Box::new(samples) };
                tokio::select! {
                    biased;
                    // a reason is said once, so it is not dropped
                    sent = outlet.send(signal) => if sent.is_err() { return Exit::Stopped },
                    () = stop.cancelled() => return Exit::Stopped,
                }
            }
            round = Some(this);
        }
    }
}

/// Waits for a round as long as it takes, and says so when that is long.
async fn in_time<T>(mut reading: JoinHandle<T>, outlet: &Outlet) -> Result<T, tokio::task::JoinError> {
    if let Ok(read) = timeout(SLOW, &mut reading).await {
        return read;
    }
    tracing::warn!("A device does not answer a read of its values in sysfs; the round waits for it.");
    tell(outlet, false).await;
    let read = reading.await;
    tell(outlet, true).await;
    read
}

/// Waits for room: it is said once, and must not be lost.
async fn tell(outlet: &Outlet, up: bool) {
    let reason = (!up).then(|| "slow".to_owned());
    let source = SourceState { name: "host".to_owned(), up, reason, late: None };
    // A pipeline that has ended needs to know nothing more.
    let _ = outlet.send(Signal::Source { at: mono_now(), source }).await;
}

/// What is kept from round to round.
#[derive(Debug)]
struct Round {
    host: HostRoot,
    devices: Devices,
    looked: Option<Instant>,
    buffer: [u8; BUFFER],
    samples: Vec<Samples>,
}

impl Round {
    fn new(host: HostRoot) -> Self {
        Self { host, devices: Devices::default(), looked: None, buffer: [0; BUFFER], samples: Vec::new() }
    }

    /// Reads everything; looks for devices first where that is due.
    fn read(&mut self) -> Result<(), Exit> {
        if self.looked.is_none_or(|looked| LOOK_AGAIN <= looked.elapsed()) {
            self.looked = Some(Instant::now());
            self.devices
                .look(&self.host, mono_now(), &mut self.samples)
                .map_err(|error| no_bus(&self.host, &error))?;
        }
        let before = self.devices.len();
        self.devices.read(mono_now, &mut self.buffer, &mut self.samples);
        if self.devices.len() < before {
            self.looked = None; // what is gone may come back under the same name
        }
        if self.devices.is_empty() && self.samples.is_empty() {
            return Err(unavailable(
                "no_device",
                format!(
                    "no NVIDIA GPU in {} and no port in {}",
                    self.host.sys("bus/pci/devices").display(),
                    self.host.sys("class/infiniband").display()
                ),
                "nothing, if this node has none; else mount the host's /sys, or name its place with --host-sys",
            ));
        }
        Ok(())
    }
}

fn no_bus(host: &HostRoot, error: &io::Error) -> Exit {
    let what = format!("{}: {error}", host.sys("bus/pci/devices").display());
    match error.kind() {
        io::ErrorKind::NotFound => {
            unavailable("no_sysfs", what, "mount the host's /sys, or name its place with --host-sys")
        }
        io::ErrorKind::PermissionDenied => {
            unavailable("not_permitted", what, "let the agent read the host's /sys: run it as root")
        }
        _ => Exit::Failed(what.into()),
    }
}

fn unavailable(reason: &'static str, what: String, remedy: &'static str) -> Exit {
    Exit::Unavailable(vec![Lack { reason, what, remedy }])
}
