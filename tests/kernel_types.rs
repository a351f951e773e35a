//! The running kernel's description of its own types has everything that the kernel programs look up.

use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge::sources::probes::btf::Btf;
use warpgauge::sources::probes::offsets::Offsets;
use warpgauge_tests::needs;

#[test]
fn every_offset_is_found() {
    needs!(Btf);
    let btf = Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux").unwrap()).unwrap();
    for version in [Version::V1, Version::V2] {
        Offsets::resolve(&btf, version).unwrap_or_else(|e| panic!("{version:?}: {e}"));
    }
}
