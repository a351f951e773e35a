//! Whose a hung call is: processes in cgroups of every form on this machine's own hierarchies, with names from prepared
//! links; the real Collector hears of the right pod, namespace, container, job or unit. Case `cgroup-path-forms`.

use std::collections::BTreeMap;
use std::process::Child;

use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::cgroups::{Cgroup, Version};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::log_links::LogLinks;
use warpgauge_tests::harness::received::{Attributes, Point, Record};
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::harness::tty::{MAJOR, Tty};
use warpgauge_tests::needs;

use crate::driver_calls::Caller;
use crate::hung_call::wait_for_probes;

#[test]
fn in_a_v1_pids_hierarchy() {
    needs!(Root, Tty0, Probes, Collector, CgroupV1);
    check(Version::V1, "v1");
}

#[test]
fn in_a_v2_hierarchy() {
    needs!(Root, Tty0, Probes, Collector, CgroupV2);
    check(Version::V2, "v2");
}

/// All that says whose something is.
const WHOSE: [&str; 8] = [
    "container.id",
    "k8s.container.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "slurm.job.id",
    "slurm.step.id",
    "systemd.unit",
];

/// A cgroup of some form, and who is in it.
struct Form {
    title: &'static str,
    path: String,
    /// Namespace, name and uid of the pod.
    pod: Option<[String; 3]>,
    /// The container's id; its name is `main`.
    container: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl Form {
    /// What must be said, the pod's names only where they are `known`.
    fn whose(&self, known: bool) -> BTreeMap<&'static str, String> {
        let mut whose: BTreeMap<_, _> = self.others.iter().cloned().collect();
        whose.extend(self.container.clone().map(|id| ("container.id", id)));
        if let Some([namespace, pod, uid]) = self.pod.clone() {
            whose.insert("k8s.pod.uid", uid);
            if known {
                whose.extend([("k8s.namespace.name", namespace), ("k8s.pod.name", pod)]);
                whose.insert("k8s.container.name", "main".to_owned());
            }
        }
        whose
    }

    fn link(&self, links: &LogLinks) {
        if let (Some(pod), Some(id)) = (&self.pod, &self.container) {
            links.add(pod.each_ref().map(String::as_str), "main", id);
        }
    }
}

/// What is said of it.
fn said(attributes: &Attributes) -> BTreeMap<&'static str, String> {
    WHOSE.iter().filter_map(|name| Some((*name, attributes.get(*name)?.clone()))).collect()
}

/// A uid and a container's id that no other test of this machine has just now.
fn ids(number: u32) -> (String, String) {
    let run = std::process::id();
    (format!("{run:08x}-0003-4000-8000-{number:012x}"), format!("{run:08x}00aa{number:04x}").repeat(4))
}

fn pod(title: &'static str, number: u32, path: &str) -> Form {
    let (uid, id) = ids(number);
    let path = path.replace("UID_", &uid.replace('-', "_")).replace("UID", &uid).replace("ID", &id);
    let pod = Some(["ml".to_owned(), format!("train-{number}"), uid]);
    Form { title, path, pod, container: Some(id), others: Vec::new() }
}

fn no_pod(title: &'static str, path: String, others: &[(&'static str, String)]) -> Form {
    Form { title, path, pod: None, container: None, others: others.to_vec() }
}

const SYSTEMD: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice";

/// Every form at once; the second value is a pod whose cgroup's name is forged inside another one.
fn forms() -> (Vec<Form>, Form) {
    let run = std::process::id();
    let (_, docker) = ids(100);
    let victim = pod("the one that is forged", 90, "");
    let [_, _, other] = victim.pod.as_ref().unwrap();
    let inner = format!("kubepods-pod{}.slice/cri-containerd-{}.scope", other.replace('-', "_"), ids(90).1);
    let forged = format!("kubepods/besteffort/podUID/ID/kubepods.slice/{inner}");
    let mut fixed = pod("a static pod", 5, "");
    let uid = ids(5).0.replace('-', "");
    fixed.path = format!("kubepods/burstable/pod{uid}/{}", ids(5).1);
    fixed.pod.as_mut().unwrap()[2] = uid;
    let mut plain = no_pod("a container of docker", format!("system.slice/docker-{docker}.scope"), &[]);
    plain.container = Some(docker.clone());
    let unit = format!("warpgauge-{run}.service");
    let forms = vec![
        pod("containerd, systemd", 1, &format!("{SYSTEMD}/cri-containerd-ID.scope")),
        pod("containerd, cgroupfs", 2, "kubepods/besteffort/podUID/ID"),
        pod("cri-o", 3, "kubepods.slice/kubepods-podUID_.slice/crio-ID.scope/container"),
        pod("docker below the kubelet", 4, &format!("{SYSTEMD}/docker-ID.scope")),
        fixed,
        pod("a node in a container", 6, &format!("docker/{docker}/kubelet/kubepods/burstable/podUID/ID")),
        pod("a forged pod inside", 7, &forged),
        plain,
        no_pod(
            "a step of a job",
            format!("system.slice/slurmstepd.scope/job_{run}/step_0/user/task_0"),
            &[("slurm.job.id", run.to_string()), ("slurm.step.id", "0".to_owned())],
        ),
        no_pod("a service", format!("system.slice/{unit}"), &[("systemd.unit", unit.clone())]),
        no_pod("a user", format!("user.slice/user-1000.slice/session-{run}.scope"), &[]),
    ];
    (forms, victim)
}

/// A process of a form that hangs in the driver.
struct Hung {
    form: Form,
    cgroup: Cgroup,
    child: Child,
}

impl Hung {
    fn start(version: Version, form: Form, tty: &Tty) -> Self {
        let cgroup = Cgroup::at(version, &form.path);
        let mut child = tty.victim();
        cgroup.admit(&child);
        tty.hang(&mut child);
        Self { form, cgroup, child }
    }

    /// The record of its call's begin or end.
    #[track_caller]
    fn record(&self, collector: &Collector, state: &str) -> Record {
        let pid = self.child.id().to_string();
        let is = |r: &Record| r.get("process.pid") == pid && r.get("gpu.stall.state") == state;
        wait_for(&format!("the {state} of {}", self.form.title), 30, || {
            collector.records().into_iter().find(is)
        })
    }

    #[track_caller]
    fn check(&self, collector: &Collector, state: &str, named: bool) {
        let record = self.record(collector, state);
        let what = format!("{} {state}", self.form.title);
        assert_eq!(said(&record.attributes), self.form.whose(named), "{what}");
        assert_eq!(record.get("process.linux.cgroup"), self.cgroup.path(), "{what}");
    }

    /// Its one call, in the series that says whose it is.
    #[track_caller]
    fn check_series(&self, collector: &Collector) {
        let mut whose = self.form.whose(true);
        // Which step of a job it was stays with the record.
        whose.remove("slurm.step.id");
        let path = self.cgroup.path();
        let is_own = |p: &Point| {
            p.name == "gpu.driver.call.duration"
                && p.value == 1.0
                && said(&p.attributes) == whose
                && (self.form.container.is_some() || p.has(&[("process.linux.cgroup", &path)]))
        };
        wait_for(&format!("the series of {}", self.form.title), 30, || {
            collector.points().into_iter().any(|p| is_own(&p)).then_some(())
        });
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[track_caller]
fn check(version: Version, forced: &str) {
    let scratch = Scratch::new(&format!("whose-{forced}"));
    let collector = Collector::start(scratch.path());
    let links = LogLinks::new(scratch.path());
    let (forms, forged) = forms();
    forms.iter().chain([&forged]).for_each(|form| form.link(&links));
    let mut agent = Setup::new(scratch.path())
        .to(&collector.address)
        .args(&["--probe-majors", &MAJOR.to_string(), "--cgroup", forced, "--kernel-log", "off"])
        .args(&["--host-var-log", &links.path().to_string_lossy()])
        .start();
    wait_for_probes(&mut agent, &collector);

    let tty = Tty::hold();
    let mut all: Vec<Hung> = forms.into_iter().map(|form| Hung::start(version, form, &tty)).collect();
    for hung in &all {
        hung.check(&collector, "begin", true);
    }

    all.push(named_late(version, &collector, &links, &tty));
    let (first, second) = made_again(version, &collector, &links, &tty);
    all.push(second);

    tty.release();
    for hung in &mut all {
        assert!(hung.child.wait().unwrap().success());
        hung.check(&collector, "end", true);
    }
    all.push(first);
    all.iter().for_each(|hung| hung.check_series(&collector));
    assert!(agent.terminate().success());
}

/// Names that come after a call began: the series without a name ends, and one under the name goes on counting.
#[track_caller]
fn named_late(version: Version, collector: &Collector, links: &LogLinks, tty: &Tty) -> Hung {
    let form = pod("a pod that is named late", 8, "kubepods/burstable/podUID/ID");
    let late = Hung::start(version, form, tty);
    let mut caller = Caller::start(&late.cgroup);
    assert_eq!(caller.call("open /dev/tty0"), "done\n");
    let mut call = || assert_eq!(caller.call("ioctl 56832"), "failed 25\n");
    late.check(collector, "begin", false);
    let uid = late.form.whose(false)["k8s.pod.uid"].clone();
    let errors = |named: bool| -> Vec<Point> {
        let of_it = [("k8s.pod.uid", uid.as_str()), ("gpu.driver.call", "ioctl")];
        let is = |p: &Point| p.name == "gpu.driver.call.errors" && p.has(&of_it);
        let is_named = |p: &Point| p.has(&[("k8s.pod.name", "train-8"), ("k8s.container.name", "main")]);
        collector.points().into_iter().filter(|p| is(p) && is_named(p) == named).collect()
    };
    (0..3).for_each(|_| call());
    wait_for("its failed calls without a name", 30, || {
        errors(false).iter().find(|p| p.value == 3.0).cloned()
    });
    late.form.link(links);
    // Names are looked for when something is heard of the workload, at most once a second.
    let mut calls = 3.0;
    wait_for("its name", 60, || {
        call();
        calls += 1.0;
        errors(true).pop()
    });
    wait_for("each of its calls once, under its name or before it had one", 30, || {
        let before = errors(false).iter().map(|p| p.value).filter(|v| !v.is_nan()).fold(0.0, f64::max);
        (before + errors(true).pop()?.value == calls).then_some(())
    });
    wait_for("the end of the series without a name", 30, || {
        errors(false).pop()?.value.is_nan().then_some(())
    });
    caller.end();
    late
}

/// A pod that is deleted and made again under its name is another one. The first of them has ended.
#[track_caller]
fn made_again(version: Version, collector: &Collector, links: &LogLinks, tty: &Tty) -> (Hung, Hung) {
    let again = |title, number| {
        let mut form = pod(title, number, "kubepods/besteffort/podUID/ID");
        form.pod.as_mut().unwrap()[1] = "web-0".to_owned();
        form.link(links);
        Hung::start(version, form, tty)
    };
    let mut first = again("the first of a name", 9);
    first.check(collector, "begin", true);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    first.check(collector, "end", true);
    links.remove(first.form.pod.as_ref().unwrap().each_ref().map(String::as_str));
    let second = again("the second of a name", 10);
    second.check(collector, "begin", true);
    (first, second)
}
