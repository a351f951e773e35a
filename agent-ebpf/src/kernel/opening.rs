//! Opens: known by their path at entry, by the returned descriptor at the end.
//!
//! In: the path argument of open, openat or openat2. Out: an entry, if the path begins with the watched prefix.
//! What can go wrong: the path's page may not be in memory, and a tracepoint must not wait for it. Such an open is
//! followed without a name; its descriptor decides at the end whether it mattered.

use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::programs::TracePointContext;
use warpgauge_ebpf::calls::{NO_FD, NODE_LEN, flags, kind};
use warpgauge_ebpf::prefix::{LONGEST, PATH_LEN};

use super::globals::OPEN_PREFIX;
use super::in_flight::{enter, foreign_thread, of_syscall, pass_over};

/// The first bytes of a path, as words for the comparison and as bytes for the name.
#[repr(C)]
union Path {
    words: [u64; PATH_LEN / 8],
    bytes: [u8; PATH_LEN],
}

#[inline(always)]
pub fn enter_open(ctx: &TracePointContext, syscall: u32, path_address: u64) {
    let Some((key, tgid)) = foreign_thread() else { return };
    let mut path = Path { words: [0; PATH_LEN / 8] };
    // SAFETY: the helper writes at most PATH_LEN bytes, and checks the address it reads from.
    let length =
        unsafe { bpf_probe_read_user_str((&raw mut path).cast(), PATH_LEN as u32, path_address as *const _) };
    let mut call = of_syscall(kind::OPEN, syscall, NO_FD, 0);
    if length < 0 {
        call.flags = flags::PATH_UNREAD;
    } else {
        // SAFETY: both views of the union are plain bytes, all of them written.
        let words = unsafe { [path.words[0], path.words[1], path.words[2], path.words[3]] };
        let prefix = OPEN_PREFIX.load();
        if !prefix.matches(&words) {
            return pass_over(&key);
        }
        let node_at = prefix.node_at() as usize;
        if node_at <= LONGEST {
            // SAFETY: node_at + NODE_LEN is at most PATH_LEN.
            let name = unsafe { (&raw const path.bytes).cast::<u8>().add(node_at) };
            for (i, byte) in call.node.iter_mut().enumerate() {
                // SAFETY: i is below NODE_LEN, see above.
                *byte = unsafe { name.add(i).read() };
            }
            call.node[NODE_LEN - 1] = 0;
        }
    }
    enter(ctx, &key, tgid, &mut call);
}
