//! What a process uses: processor time and memory, from its folder in /proc.
//!
//! In: the folder. Out: [`Usage`]. What can go wrong: the process is gone, or /proc is not readable: `None`.

use std::path::Path;
use std::time::Duration;

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode, all threads. Resolution: 10 ms.
    pub user: Duration,
    /// Time in the kernel, all threads. Resolution: 10 ms.
    pub system: Duration,
    /// Resident memory. Unit: bytes.
    pub resident: u64,
}

/// One clock tick of /proc: USER_HZ is 100 on all supported architectures.
const TICK: Duration = Duration::from_millis(10);

/// Reads `/proc/PID`; never waits for the driver, since neither file needs the memory map's lock.
pub fn read(process: &Path) -> Option<Usage> {
    let read = |file| std::fs::read_to_string(process.join(file)).ok();
    parse(&read("stat")?, &read("status")?)
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The name before the last ')' may hold anything; field 3 follows it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok().map(|n| TICK.saturating_mul(n));
    let (user, system) = (ticks()?, ticks()?);
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Usage { user, system, resident: kib.saturating_mul(1_024) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_a_hostile_process_name() {
        let stat = "12 (a) b) 9) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20";
        let status = "Name:\ta\nVmRSS:\t   20480 kB\nThreads:\t3\n";
        let want = Usage {
            user: Duration::from_millis(1_500),
            system: Duration::from_millis(250),
            resident: 20_480 * 1_024,
        };
        assert_eq!(parse(stat, status), Some(want));
        assert_eq!(parse("12 (a", status), None);
        assert_eq!(parse(stat, "Name:\ta\n"), None);
        assert!(read(Path::new("/proc/self")).is_some_and(|u| u.resident > 0), "this process has memory");
        assert_eq!(read(Path::new("/proc/0")), None);
    }
}
