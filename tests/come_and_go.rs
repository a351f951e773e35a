//! Pods that come and go leave nothing: the agent's own stages through 20,000 short lives, alone in a process of its own.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use warpgauge_tests::harness::programs;

/// Removed when dropped.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // the system's own cleaning takes what stays
    }
}

#[test]
fn twenty_thousand_pods_leave_nothing() {
    // Of what stands for the cgroups no number may be used again, as the kernel never does; a tmpfs keeps that.
    let folder = Folder(Path::new("/dev/shm").join(format!("warpgauge-churn-{}", std::process::id())));
    let out = Command::new(programs::churn()).arg(&folder.0).arg("20000").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let told: Value = serde_json::from_str(&text).unwrap();
    let number = |name: &str| told[name].as_i64().unwrap();
    let grown = number("end") - number("tenth");
    assert!(grown.abs() < 64 * 1_024, "live bytes grew by {grown} between a tenth and all of them: {told}");
    // Each tenth pod hangs once. Half of those never return, and their pids go to others.
    assert_eq!((number("stalls"), number("strange")), (2_000, 0), "a finding is of who hung: {told}");
    assert!(0 < number("series") && number("named") == number("series"), "{told}");
    assert_eq!(number("files"), 20, "those alive: {told}");
}
