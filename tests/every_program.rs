//! Every kernel program of the object is one that this kernel takes, whether or not this machine has a place for it.

use std::fs;

use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge::sources::probes::btf::Btf;
use warpgauge::sources::probes::object::Settings;
use warpgauge::sources::probes::offsets::Offsets;
use warpgauge::sources::probes::verify::{Size, Verdict, every_program};
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_ebpf::program::PROGRAMS;
use warpgauge_tests::needs;

/// The kernel gives up at a million; far below it there is room for a kernel that counts in another way.
const MOST_INSTRUCTIONS: u32 = 100_000;
/// The most that kernels below 5.2 took without rights; none of ours comes near it.
const MOST_LONG: u32 = 4_096;

#[test]
fn is_taken_with_the_unified_cgroup_hierarchy() {
    needs!(Root, Probes);
    check(Version::V2);
}

#[test]
fn is_taken_with_a_v1_cgroup_hierarchy() {
    needs!(Root, Probes);
    check(Version::V1);
}

#[expect(clippy::print_stdout, clippy::panic, reason = "the counts are for docs/; a test fails by panicking")]
pub(crate) fn check(hierarchy: Version) {
    let btf = Btf::parse(fs::read("/sys/kernel/btf/vmlinux").unwrap()).unwrap();
    let settings = Settings {
        slow_ns: 1,
        own_pid: std::process::id(),
        hierarchy,
        open_prefix: Prefix::new(b"/dev/nvidia").unwrap(),
        foreign_types: TypeSet::FOREIGN,
    };
    let offsets = Offsets::resolve(&btf, hierarchy).unwrap();
    let verdicts = every_program(&offsets, &settings).unwrap();
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_string_lossy();
    for Verdict { program, outcome } in &verdicts {
        match outcome {
            Ok(Size { verified, instructions, machine_code }) => {
                println!(
                    "verified {kernel} {hierarchy:?} {program} {verified:?} {instructions:?} {machine_code}"
                )
            }
            Err(error) => println!("refused {kernel} {hierarchy:?} {program}: {error}"),
        }
    }
    let names: Vec<&str> = verdicts.iter().map(|verdict| verdict.program).collect();
    assert_eq!(names, PROGRAMS.map(|program| program.name));
    for Verdict { program, outcome } in verdicts {
        let size = outcome.unwrap_or_else(|error| panic!("{program}: {error}"));
        // kernels below 5.16 do not say
        assert!(
            size.verified.is_none_or(|count| (2..MOST_INSTRUCTIONS).contains(&count)),
            "{program}: {size:?}"
        );
        assert!(size.instructions.is_none_or(|count| (2..MOST_LONG).contains(&count)), "{program}: {size:?}");
    }
}
