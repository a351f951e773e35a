//! Whether an XID in a line of /dev/kmsg is the driver's, or text that the kernel printed for somebody else.
//!
//! In: what stands before the mark, and what the line says. Out: yes or no. For /dev/kmsg alone: a line from a file
//! yields what it says. What can go wrong: a driver's line that is glued behind a line of one of [`GIVEN_TEXT`] is
//! refused, and counted; who may load modules or write through a driver can still forge a whole line.
//!
//! The facility says that the kernel printed a line, not that it chose the words: names are printed as they were given.
//! - Task and interface names have 15 bytes; [`super::xid`] takes nothing that fits into one for an XID.
//! - Paths, control groups, keys with values and quoted or bracketed names betray themselves by a character before
//!   the mark. Glued to another driver's unfinished line, a true line has words, numbers and addresses before it.
//! - Names that devices, volumes, servers and the driver's own clients tell are printed bare, by few: [`GIVEN_TEXT`].
//! - Packet-filter rules print a prefix of their author's with nothing before it, but an IP packet's parts behind it.

use crate::model::LineKind;

/// How lines begin in which the kernel prints, bare, 16 bytes or more that somebody gave it.
const GIVEN_TEXT: &[&str] = &[
    "usb ",     // Product, Manufacturer, SerialNumber
    "input: ",  // names of input devices, those made by user space included
    "hid",      // the same
    "uvcvideo", // names of cameras
    "thunderbolt ",
    "Bluetooth",
    "scsi ", // vendor and model, of a target in the network too
    "ata",   // model
    "BTRFS", // volume labels
    "device-mapper: ",
    "DMI: ", // the hypervisor's words
    "Hardware name: ",
    "Command line: ",
    "Kernel command line: ",
    "nfs", // names of servers
    "NFS",
    "RPC",
    "CIFS",
    "ceph",
    "libceph",
    "NVRM: API mismatch", // the version that a client of the driver says it has: 64 bytes, by anybody
];

/// Whether `before`, all that stands before the mark of an XID, and `line`, which follows it, may be the driver's.
pub(super) fn is_credible(before: &str, line: &LineKind) -> bool {
    let LineKind::Xid(xid) = line;
    let plain_words =
        |c: char| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || ".,:;_+-#*@%!?".contains(c);
    before.chars().all(plain_words)
        && !GIVEN_TEXT.iter().any(|begin| before.trim_start().starts_with(begin))
        && !is_packet(&xid.text)
}

/// `IN=eth0 OUT= … PROTO=TCP`. Three marks, since a task's name, which the driver prints, has room for two.
fn is_packet(text: &str) -> bool {
    ["IN=", " OUT=", " PROTO="].iter().all(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::super::xid;
    use super::*;
    use crate::model::LogOrigin;

    const XID: &str = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.";

    #[track_caller]
    fn check(text: &str, want: bool) {
        let (line, place) = xid::driver_line_at(text, LogOrigin::default()).unwrap();
        assert_eq!(is_credible(&text[..place], &line.kind), want, "{text}");
    }

    #[test]
    fn the_driver_is_believed_behind_others_too() {
        for before in [
            "",
            "  ",
            "mlx5_core 0000:ab:00.0: probing ",
            "nvidia 0000:3b:00.0: ",
            "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-1111-2222-3333-444444444444\n",
            "eth0: link up, 100%, lanes 4 + 4; ",
        ] {
            check(&format!("{before}{XID}"), true);
        }
        check("nvidia:nvidia_dev_xid: Xid (PCI:0000:3b:00.0): 79, x", true);
        check("NVRM: Xid (PCI:0000:3b:00): 79, name=IN= OUT= PROTO=, Ch 00000008", true);
        check("NVRM: Xid (PCI:0000:3b:00): 79, name=a, IN= OUT=, Ch 00000008", true);
    }

    #[test]
    fn names_that_others_chose_are_not() {
        for before in [
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,oom_memcg=/kubepods/",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=",
            "oom-kill:x kernel: task_memcg=/kernel: ", // what `message` would take for a logger's prefix
            "Memory cgroup stats for /",
            "Tasks in /kubepods/x kernel: ",
            "cgroup: fork rejected by pids controller in /",
            "overlay: Unknown parameter '",
            "squashfs: Unknown parameter \"",
            "python3: process `",
            "CIFS: Attempting to mount \\\\server\\",
            "usb 1-1: Product: ",
            "usb 1-1.4: SerialNumber: ",
            "input: ",
            "hid-generic 0003:046D:C31C.0001: input,hidraw0: USB HID v1.11 Keyboard [",
            "scsi 3:0:0:0: Direct-Access     ",
            "BTRFS: device label ",
            "BTRFS info: device label ",
            "NFS: server ",
            "audit: type=1400 msg=",
            "NVRM: API mismatch: the client has the version ",
            "NVRM: API mismatch: the client '",
            "volume caf\u{e9} ",
        ] {
            check(&format!("{before}{XID}"), false);
        }
        check("NVRM: Xid (PCI:0000:3b:00): 79, IN=eth0 OUT= MAC=00 SRC=10.0.0.1 LEN=40 PROTO=TCP", false);
    }
}
