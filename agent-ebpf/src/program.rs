//! Every program of the object, by the name user space asks for: `build-ebpf` compares the object with this table.
//!
//! In: nothing. Out: names and kinds.
//! What can go wrong: a program in the object and not here, or the other way round; then the object is refused.

/// How a program is put to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a tracepoint.
    Tracepoint,
    /// At the entry of a function.
    Entry,
    /// At the return of a function.
    Return,
}

impl Kind {
    /// The section of the object that such programs are in.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Tracepoint => "tracepoint",
            Self::Entry => "kprobe",
            Self::Return => "kretprobe",
        }
    }
}

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
}

const fn tracepoint(name: &'static str) -> Program {
    Program { name, kind: Kind::Tracepoint }
}

const fn entry(name: &'static str) -> Program {
    Program { name, kind: Kind::Entry }
}

const fn end(name: &'static str) -> Program {
    Program { name, kind: Kind::Return }
}

/// All of them.
pub const PROGRAMS: [Program; 43] = [
    // system calls
    tracepoint("ioctl_enter"),
    tracepoint("close_enter"),
    tracepoint("mmap_enter"),
    tracepoint("open_enter"),
    tracepoint("openat_enter"),
    tracepoint("call_exit"),
    tracepoint("delete_module_enter"),
    // processes and the scheduler
    tracepoint("process_exit"),
    tracepoint("process_exec"),
    tracepoint("sched_switch"),
    tracepoint("sched_wakeup"),
    // the driver's file operations; `kr_call` ends all five
    entry("kp_ioctl"),
    entry("kp_open"),
    entry("kp_close"),
    entry("kp_mmap"),
    entry("kp_poll"),
    end("kr_call"),
    // the resource manager
    entry("kp_rm_ioctl"),
    end("kr_rm_ioctl"),
    entry("kp_init_adapter"),
    end("kr_driver"),
    // unified memory
    entry("kp_uvm_register_gpu"),
    entry("kp_uvm_register_va_space"),
    entry("kp_uvm_register_channel"),
    end("kr_uvm_register"),
    entry("kp_uvm_unregister_gpu"),
    entry("kp_fault"),
    end("kr_fault"),
    entry("kp_service"),
    end("kr_service"),
    entry("kp_evict"),
    end("kr_evict"),
    // locks; `kr_lock` ends the first four
    entry("kp_lock_read"),
    entry("kp_lock_write"),
    entry("kp_lock_mutex"),
    entry("kp_lock_semaphore"),
    end("kr_lock"),
    entry("kp_try_lock"),
    end("kr_try_lock"),
    entry("kp_unlock"),
    // what the driver reports
    entry("kp_report_error"),
    entry("kp_power"),
    // an unload of a module
    entry("kp_delete_module"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_said_twice() {
        for (i, program) in PROGRAMS.iter().enumerate() {
            let same = PROGRAMS.iter().skip(i + 1).find(|other| other.name == program.name);
            assert_eq!(same, None);
        }
    }
}
