//! The end of the machine, with an exit status for whoever started it.
//!
//! In: whether all is well. Out: QEMU's exit status by its device `isa-debug-exit`: (value << 1) | 1.
//! What can go wrong: the device is not there; then the machine is turned off, and QEMU ends with 0, which counts as failed.

use crate::lines::Lines;

/// Where `isa-debug-exit` listens; the command line of QEMU has the same number.
#[cfg(target_arch = "x86_64")]
const PORT: u16 = 0xf4;

/// Ends the machine.
pub fn off(why: &str, lines: Option<&Lines>, passed: bool) {
    // the first serial port, for those who read the console
    let _ = std::fs::write("/dev/console", format!("vm-init: {why}\n"));
    if let Some(lines) = lines {
        lines.drain();
    }
    rustix::fs::sync();
    exit(u8::from(!passed));
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}

#[cfg(target_arch = "x86_64")]
fn exit(status: u8) {
    // SAFETY: takes numbers only; it lets this process reach four ports that no driver uses.
    let allowed = unsafe { libc::ioperm(PORT.into(), 4, 1) };
    if allowed == 0 {
        // SAFETY: the port was made reachable above; writing it ends the virtual machine and touches no memory.
        unsafe {
            std::arch::asm!("out dx, al", in("dx") PORT, in("al") status, options(nomem, nostack, preserves_flags));
        }
    }
}

/// Only x86 has ports; elsewhere the machine is turned off, which counts as failed.
#[cfg(not(target_arch = "x86_64"))]
fn exit(_status: u8) {}
