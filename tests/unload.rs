//! Somebody who may do so unloads the driver: the kernel program sees it at once, and nobody else can make it believe so.
//!
//! The program reads one argument, a name. Where the kernel has no modules it stands on `chdir`, whose argument is the
//! same: a path that does not exist.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;
use warpgauge::host::HostRoot;
use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge::sources::probes::attached::Driver;
use warpgauge::sources::probes::btf::Btf;
use warpgauge::sources::probes::groups::Group;
use warpgauge::sources::probes::hooks::{Event, Hook, tracepoints};
use warpgauge::sources::probes::kernel::Kernel;
use warpgauge::sources::probes::object::{Loaded, Settings};
use warpgauge::sources::probes::offsets::Offsets;
use warpgauge::sources::probes::tactics::{self, Probe};
use warpgauge::sources::probes::unload::{self, UnloadAttempt};
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

#[test]
fn an_unload_is_seen_by_the_programs_stand_in() {
    needs!(Root, Probes);
    check("syscalls/sys_enter_chdir", "chdir");
}

#[test]
fn an_unload_is_seen_where_there_are_modules() {
    needs!(Root, Probes, Modules);
    let Event::Tracepoint(event) = tracepoints(Probe::Unload)[0].event else { panic!("a tracepoint") };
    check(event, "unload");
}

/// Programs loaded as the agent does it, but only this one at work.
fn load(event: &'static str) -> Loaded {
    let kernel = Kernel::look(&HostRoot::default(), tactics::events());
    let btf = Btf::parse(fs::read("/sys/kernel/btf/vmlinux").unwrap()).unwrap();
    let settings = Settings {
        slow_ns: u64::MAX,
        own_pid: std::process::id(),
        hierarchy: Version::V2,
        open_prefix: Prefix::new(b"/dev/nvidia").unwrap(),
        foreign_types: TypeSet::FOREIGN,
    };
    let offsets = Offsets::resolve(&btf, Version::V2).unwrap();
    let group = Group::own(&HostRoot::default(), std::process::id());
    let driver = Driver::default();
    let mut loaded =
        Loaded::new(&kernel, &driver, &[], group, &offsets, &settings, Default::default()).unwrap();
    loaded.attach(Hook::tracepoint(tracepoints(Probe::Unload)[0].program, event)).unwrap();
    loaded
}

/// Somebody who makes the call; no such thing exists, so it fails.
struct Callers {
    _scratch: Scratch,
    program: PathBuf,
    call: &'static str,
}

impl Callers {
    fn new(call: &'static str) -> Self {
        let scratch = Scratch::new(&format!("unload-by-{call}"));
        // the checkout may lie where only root can look
        let program = scratch.path().join("ioctl-victim");
        fs::copy(programs::victim(), &program).unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self { _scratch: scratch, program, call }
    }

    /// Gives the number of the process.
    fn call(&self, wrapper: &[&str], name: &str) -> u32 {
        let words = [wrapper, &[self.program.to_str().unwrap(), self.call, name]].concat();
        let mut command = Command::new(words[0]);
        let spawned = command.args(&words[1..]).stderr(Stdio::piped()).spawn();
        let child: Child = spawned.unwrap();
        let pid = child.id();
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.starts_with("ioctl-victim: ") && said.contains("os error"), "{name}: {said}");
        pid
    }
}

fn check(event: &'static str, call: &'static str) {
    let mut loaded = load(event);
    let callers = Callers::new(call);
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    callers.call(&[&nobody[..], &["--bounding-set=-all"]].concat(), "nvidia_of_nobody_none");
    callers.call(&["setpriv", "--inh-caps=-sys_module", "--bounding-set=-sys_module"], "nvidia_without_none");
    if Path::new("/proc/self/ns/user").exists() {
        // all capabilities, but only in a namespace of its own
        callers.call(&["unshare", "--user", "--map-root-user"], "nvidia_in_a_namespace_none");
    }
    callers.call(&[], "vfat_none");
    callers.call(&[], "nvidiafb_none");
    let pids = [callers.call(&[], "nvidia_uvm_none"), callers.call(&[], "nvidia_none")];

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen: Vec<UnloadAttempt> = runtime.block_on(async {
        let (tx, mut rx) = mpsc::channel(16);
        let watch = tokio::spawn(unload::watch(loaded.unloads.take().unwrap(), Some(tx)));
        let mut seen = Vec::new();
        let within = tokio::time::timeout(Duration::from_secs(10), rx.recv_many(&mut seen, 16));
        assert_eq!(within.await.ok(), Some(2), "{seen:?}");
        // and one that comes while the ring is being waited for
        callers.call(&[], "nvidia_late_none");
        let late = tokio::time::timeout(Duration::from_secs(10), rx.recv()).await.unwrap();
        seen.extend(late);
        watch.abort();
        seen
    });
    let names: Vec<&str> = seen.iter().map(|attempt| attempt.module.as_str()).collect();
    assert_eq!(names, ["nvidia_uvm_none", "nvidia_none", "nvidia_late_none"]);
    assert_eq!([seen[0].pid.0, seen[1].pid.0], pids);
    assert!(seen.iter().all(|attempt| attempt.comm == "ioctl-victim"), "{seen:?}");
    assert!(seen.is_sorted_by_key(|attempt| attempt.at) && 0 < seen[0].at.0, "{seen:?}");
}
