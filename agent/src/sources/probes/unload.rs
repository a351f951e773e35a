//! The watch for somebody who unloads the driver: the agent then lets go of it, so that the next attempt succeeds.
//!
//! In: events of the kernel program on `delete_module`. Out: an [`UnloadAttempt`] to whoever holds the driver.
//! What can go wrong: the ring cannot be waited for (said, and the watch ends); nobody takes the attempts (said once
//! each). Trap: kmod's rmmod and modprobe ask for a module's use count first, and do not even try while it is not 0.
//! They are seen by the modules that nobody uses (nvidia_drm, nvidia_uvm), which are unloaded before nvidia itself.

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use warpgauge_ebpf::unload::Unload;

use crate::model::{MonoNs, Pid};

use super::call_signal::printable;

/// Somebody who may do so tries to unload the driver, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnloadAttempt {
    /// When.
    pub at: MonoNs,
    /// Who, in the host's pid namespace.
    pub pid: Pid,
    /// Name of the thread. Printable.
    pub comm: String,
    /// The module, such as `nvidia_uvm`. Printable.
    pub module: String,
}

/// Passes on every attempt until the receiver is gone. A full channel takes no more: its reader is about to let go of
/// the driver anyway.
pub async fn watch(ring: RingBuf<MapData>, attempts: Option<mpsc::Sender<UnloadAttempt>>) {
    if let Err(error) = follow(ring, attempts).await {
        tracing::warn!(
            %error,
            "Unloads of the driver cannot be watched: release it by hand before (`warpgauge driver release`)."
        );
    }
}

async fn follow(
    ring: RingBuf<MapData>,
    attempts: Option<mpsc::Sender<UnloadAttempt>>,
) -> std::io::Result<()> {
    #[expect(deprecated, reason = "a ring keeps its descriptor, which is all the unsafe successor asks for")]
    let mut ring = AsyncFd::with_interest(ring, Interest::READABLE)?;
    loop {
        while let Some(item) = ring.get_mut().next() {
            let Some(attempt) = Unload::from_bytes(&item).as_ref().and_then(attempt) else { continue };
            let UnloadAttempt { pid, comm, module, .. } = &attempt;
            tracing::info!(pid = pid.0, comm, module, "Somebody unloads the GPU driver.");
            match attempts.as_ref().map(|attempts| attempts.try_send(attempt)) {
                Some(Err(mpsc::error::TrySendError::Closed(_))) => return Ok(()),
                None | Some(Ok(()) | Err(mpsc::error::TrySendError::Full(_))) => {}
            }
        }
        ring.readable().await?.clear_ready();
    }
}

/// `None` for a module that is no part of the driver.
fn attempt(event: &Unload) -> Option<UnloadAttempt> {
    let module = printable(&event.module);
    is_of_the_driver(&module).then(|| UnloadAttempt {
        at: MonoNs(event.at_ns),
        pid: Pid(event.tgid),
        comm: printable(&event.comm),
        module,
    })
}

/// `nvidia`, `nvidia_uvm`, `nvidia-drm` …, but not `nvidiafb`, which is a driver of the kernel's own for old displays.
fn is_of_the_driver(module: &str) -> bool {
    module.strip_prefix("nvidia").is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(module: &[u8]) -> Unload {
        let mut event = Unload {
            at_ns: 5,
            tgid: 77,
            reserved: 0,
            comm: *b"rmmod\0\0\0\0\0\0\0\0\0\0\0",
            module: [0; 64],
        };
        event.module[..module.len()].copy_from_slice(module);
        event
    }

    #[test]
    fn only_modules_of_the_driver_count() {
        for (module, want) in [
            (&b"nvidia"[..], Some("nvidia")),
            (b"nvidia_uvm", Some("nvidia_uvm")),
            (b"nvidia-drm", Some("nvidia-drm")),
            (b"nvidia_uvm\0left over", Some("nvidia_uvm")),
            (b"nvidiafb", None),
            (b"nvidi", None),
            (b"", None),
            (b"nvidia_\x1b[31m\xff", Some("nvidia_[31m\u{fffd}")),
        ] {
            let attempt = attempt(&event(module));
            assert_eq!(attempt.as_ref().map(|a| a.module.as_str()), want, "{module:?}");
            if let Some(attempt) = attempt {
                assert_eq!((attempt.pid, attempt.at, attempt.comm.as_str()), (Pid(77), MonoNs(5), "rmmod"));
            }
        }
        assert_eq!(attempt(&event(&[b'x'; 64])), None);
    }
}
