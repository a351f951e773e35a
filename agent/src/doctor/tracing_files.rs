//! The kernel's files that probes are made with, and which probes need each.
//!
//! In: the host's file systems. Out: one check for each. Files are opened as the probes would, which changes nothing.
//! What can go wrong: nothing that is not a check's answer.

use std::path::Path;

use super::Check;
use crate::config::Config;
use crate::host::HostRoot;
use crate::sources::probes::kernel::{self, Kernel, Support};
use crate::sources::probes::refusal::remedy;
use crate::sources::probes::symbols::Symbols;

/// What only the driver's own functions show.
const ONLY_DRIVER: &str = "poll, init_adapter, locks, uvm_*, xid and power, and for close below kernel 6.6";

/// All of them.
pub fn checks(config: &Config) -> Vec<Check> {
    if !config.probes.enabled {
        return vec![Check::off("tracefs", "the probes are switched off")];
    }
    let host = &config.host;
    let kernel = Kernel::look(host, std::iter::empty());
    vec![tracefs(&kernel), kprobe_events(&kernel), perf_kprobes(&kernel), kallsyms(host), lockdown(host)]
}

fn tracefs(kernel: &Kernel) -> Check {
    const NAME: &str = "tracefs";
    match &kernel.tracefs {
        Some(at) => Check::yes(NAME, format!("{} can be read", at.display())),
        None if kernel.tracefs_denied => Check::no(
            NAME,
            "it may not be read; needed for all probes",
            "run as root, or with CAP_DAC_READ_SEARCH (CAP_DAC_OVERRIDE reads and writes)",
        ),
        None => Check::no(NAME, "it is not mounted; needed for all probes", remedy("no_tracefs")),
    }
}

fn kprobe_events(kernel: &Kernel) -> Check {
    const NAME: &str = "kprobe events";
    let need = format!("needed for {ONLY_DRIVER}; other calls are then seen in a worse way");
    let file = kernel.tracefs.as_deref().unwrap_or(Path::new("kernel/tracing")).join("kprobe_events");
    let file = file.display();
    match kernel.tracefs_kprobes {
        Support::Yes => Check::yes(NAME, format!("{file} can be written")),
        Support::No => Check::no(NAME, format!("{file} is not there: {need}"), remedy("no_kprobes")),
        Support::Unknown("unreadable") => {
            Check::unknown(NAME, format!("{file} cannot be opened; {need}"), remedy("not_permitted"))
        }
        Support::Unknown(why) => Check::no(NAME, format!("{file} ({why}): {need}"), remedy(why)),
    }
}

fn perf_kprobes(kernel: &Kernel) -> Check {
    const NAME: &str = "perf kprobes";
    let without = kernel.tracefs_kprobes == Support::Yes;
    match (kernel.perf_kprobes, kernel.kprobe_pmu) {
        (Support::Yes, Some(number)) => Check::yes(NAME, format!("event source {number}")),
        // only used where the better way is not there
        (Support::No, _) if without => {
            Check::off(NAME, "there are none; not needed where kprobe events can be made")
        }
        (Support::No, _) => Check::no(
            NAME,
            "the event source `kprobe` is not there; it would stand in for kprobe events for ioctl, open, close, mmap",
            "run a kernel built with CONFIG_KPROBE_EVENTS and CONFIG_PERF_EVENTS",
        ),
        (Support::Unknown(why), _) => Check::unknown(NAME, why, remedy(why)),
        (Support::Yes, None) => Check::unknown(NAME, "its number cannot be read", "mount the host's /sys"),
    }
}

fn kallsyms(host: &HostRoot) -> Check {
    const NAME: &str = "kernel symbols";
    let path = host.proc("kallsyms");
    let symbols = Symbols::look(&path, Vec::new());
    match symbols.unreadable() {
        None => Check::yes(NAME, format!("{} can be read (its addresses need not be)", path.display())),
        Some(why) => Check::no(NAME, format!("{why}; needed for all kprobes"), remedy("no_kallsyms")),
    }
}

fn lockdown(host: &HostRoot) -> Check {
    const NAME: &str = "lockdown";
    if kernel::locked_down(host) {
        Check::no(NAME, "the kernel is locked down (confidentiality): no probes", remedy("lockdown"))
    } else {
        Check::yes(NAME, "the kernel is not locked down so far that probes are forbidden")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Verdict;
    use super::*;
    use crate::test_dir::TestDir;

    fn verdicts(config: &Config) -> Vec<(String, Verdict)> {
        checks(config).into_iter().map(|check| (check.name.into_owned(), check.verdict)).collect()
    }

    #[test]
    fn each_file_is_opened_as_the_probes_would() {
        let dir = TestDir::new();
        let mut config = Config::default();
        config.host.sys = dir.path().join("sys");
        config.host.proc = dir.path().join("proc");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let check = |want: [Verdict; 5]| {
            let names = ["tracefs", "kprobe events", "perf kprobes", "kernel symbols", "lockdown"];
            let want: Vec<_> = names.map(str::to_owned).into_iter().zip(want).collect();
            assert_eq!(verdicts(&config), want);
        };
        use Verdict::{No, Off, Yes};
        check([No, No, No, No, Yes]);
        write("sys/kernel/tracing/events/sched/sched_switch/id", "1\n");
        write("proc/kallsyms", "0 t do_exit\n");
        check([Yes, No, No, Yes, Yes]);
        write("sys/kernel/tracing/kprobe_events", "");
        check([Yes, Yes, Off, Yes, Yes]);
        write("sys/bus/event_source/devices/kprobe/type", "6\n");
        check([Yes, Yes, Yes, Yes, Yes]);
        write("sys/kernel/debug/kprobes/enabled", "0\n");
        let off = checks(&config);
        assert!(off[1].verdict == No && off[1].remedy.contains("kprobes/enabled"), "{off:?}");
        config.probes.enabled = false;
        assert_eq!(verdicts(&config), [("tracefs".to_owned(), Off)]);
    }
}
