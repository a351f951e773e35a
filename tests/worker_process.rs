//! The worker as a real process: over a socket of our own, and under the real agent.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Pid, Signal, kill_process};
use warpgauge::wire::order::{self, Configure, End};
use warpgauge::wire::report::{Hello, Kind};
use warpgauge::wire::{Decoder, Order, PROTOCOL, Report, encode};
use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;

/// A worker whose agent is this test.
struct Worker {
    child: Child,
    socket: UnixStream,
    decoder: Decoder,
}

impl Worker {
    fn start(lock: &Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let child = Command::new(programs::agent())
            .args(["worker", "--parent", &std::process::id().to_string(), "--lock"])
            .arg(lock)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket: ours, decoder: Decoder::default() }
    }

    fn order(&mut self, kind: order::Kind) {
        let mut bytes = Vec::new();
        encode(&Order { kind: Some(kind) }, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next report; `None` once the socket is closed.
    fn next(&mut self) -> Option<Kind> {
        loop {
            if let Some(report) = self.decoder.take::<Report>().unwrap() {
                return report.kind;
            }
            let mut buffer = [0; 4_096];
            match self.socket.read(&mut buffer) {
                Ok(0) => return None,
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                read => self.decoder.push(&buffer[..read.unwrap()]),
            }
        }
    }

    fn hello(&mut self) -> Hello {
        let first = self.next();
        let hello = if let Some(Kind::Hello(hello)) = &first { Some(hello.clone()) } else { None };
        assert!(hello.is_some(), "{first:?}");
        hello.unwrap()
    }

    fn wait(&mut self) -> ExitStatus {
        wait_for("the worker's end", 10, || self.child.try_wait().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[test]
fn it_greets_beats_and_ends_as_told() {
    let scratch = Scratch::new("worker-told");
    let mut worker = Worker::start(&scratch.path().join("worker.lock"));
    let hello = worker.hello();
    assert_eq!((hello.protocol, hello.abandoned), (PROTOCOL, None));
    assert_eq!(hello.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(hello.rights_given_up, 1, "{}", hello.rights_why);
    for _ in 0..3 {
        assert!(matches!(worker.next(), Some(Kind::Heartbeat(_))));
    }
    worker.order(order::Kind::Configure(Configure::default()));
    worker.order(order::Kind::End(End {}));
    while worker.next().is_some() {}
    assert_eq!(worker.wait().code(), Some(0));
}

#[test]
fn a_library_that_hangs_while_it_is_loaded_holds_up_no_heartbeat_and_no_word_on_the_other() {
    let scratch = Scratch::new("worker-loading");
    let fifo = scratch.path().join("libdcgm.so.4");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let path = |path: &Path| path.display().to_string();
    for _ in 0..4 {
        let mut worker = Worker::start(&scratch.path().join("worker.lock"));
        worker.hello();
        worker.order(order::Kind::Configure(Configure {
            dcgm: true,
            dcgm_library: path(&fifo),
            nvml: true,
            nvml_library: path(&scratch.path().join("none.so")),
            ..Configure::default()
        }));
        // A beat may fall between the end of NVML's call and the word on it: the word is due before the next.
        let (mut said, mut due, mut beats) = (false, false, 0);
        while beats < 4 {
            match worker.next().unwrap() {
                Kind::State(state) => said |= state.name == "nvml",
                Kind::Heartbeat(beat) if beat.in_flight.is_empty() => {}
                Kind::Heartbeat(beat) => {
                    beats += 1;
                    let is = |origin| beat.in_flight.iter().any(|c| c.origin == origin && c.call == "dlopen");
                    assert!(is(1) && (said || is(2) || !due), "{:?}", beat.in_flight);
                    due |= !is(2);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn sigterm_is_an_order_to_end() {
    let scratch = Scratch::new("worker-term");
    let mut worker = Worker::start(&scratch.path().join("worker.lock"));
    worker.hello();
    kill_process(Pid::from_raw(worker.child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(worker.wait().code(), Some(0));
}

#[test]
fn it_does_not_outlive_its_agent() {
    let scratch = Scratch::new("worker-eof");
    let mut worker = Worker::start(&scratch.path().join("worker.lock"));
    worker.hello();
    worker.socket.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(worker.wait().signal(), Some(Signal::KILL.as_raw()));
    let other_parent = Command::new(programs::agent())
        .args(["worker", "--parent", "1"])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(other_parent.signal(), Some(Signal::KILL.as_raw()), "its agent is gone already");
    let by_hand = Command::new(programs::agent()).arg("worker").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&by_hand.stderr).into_owned();
    assert!(by_hand.status.code() == Some(1) && said.contains("started by the agent only"), "{said}");
}

#[test]
fn while_another_has_the_driver_it_says_who_and_ends() {
    let scratch = Scratch::new("worker-lock");
    let lock = scratch.path().join("worker.lock");
    let mut first = Worker::start(&lock);
    first.hello();
    let mut second = Worker::start(&lock);
    assert_eq!(second.hello().abandoned, Some(first.child.id()));
    assert_eq!(second.wait().code(), Some(0));
    drop(first);
    assert_eq!(Worker::start(&lock).hello().abandoned, None, "the kernel let the lock go with the process");
}

#[test]
fn a_lock_that_no_worker_holds_stops_nobody() {
    let scratch = Scratch::new("worker-no-worker");
    let lock = scratch.path().join("worker.lock");
    // This test holds it: a live process of the same user, which is no worker.
    let file = std::fs::File::create(&lock).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(Worker::start(&lock).hello().abandoned, None);
}

#[test]
fn a_state_directory_that_others_may_write_to_has_no_lock() {
    let scratch = Scratch::new("worker-open-state");
    let (state, run) = (scratch.path().join("state"), scratch.path().join("run"));
    std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(&state, 0o777);
    let lock = state.join("worker.lock");
    std::fs::write(&lock, "1\n").unwrap();
    open(&lock, 0o666);
    let file = std::fs::File::options().read(true).write(true).open(&lock).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let agent = start(&scratch);
    wait_for("a worker that holds the lock elsewhere", 10, || {
        std::fs::read_to_string(run.join("worker.lock")).ok().filter(|pid| pid.len() > 1)
    });
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "1\n", "{}", agent.log());
    assert!(agent.terminate().success());
}

/// The pid in the worker's lock, if it lives.
fn worker_of(dir: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(dir.join("state/worker.lock")).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    let folder = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = std::fs::read_to_string(folder).ok()?;
    (!stat.rsplit_once(')')?.1.trim_start().starts_with('Z')).then_some(pid)
}

fn ask(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let out =
        Command::new(programs::agent()).args(args).arg("--run-dir").arg(dir.join("run")).output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn start(scratch: &Scratch) -> Agent {
    let off = ["--probes", "off", "--kernel-log", "off"];
    Setup::new(scratch.path()).args(&off).start()
}

#[test]
fn a_worker_that_crashes_is_replaced_at_once_and_the_agent_stays() {
    let scratch = Scratch::new("worker-crash");
    let mut agent = start(&scratch);
    let first = wait_for("a worker", 10, || worker_of(scratch.path()));
    kill_process(first, Signal::KILL).unwrap();
    let second = wait_for("its replacement", 5, || worker_of(scratch.path()).filter(|pid| *pid != first));
    assert!(agent.is_running(), "{}", agent.log());
    wait_for("the log", 5, || agent.log().contains("signal 9").then_some(()));
    assert!(agent.terminate().success());
    wait_for("the worker's end", 5, || (worker_of(scratch.path()) != Some(second)).then_some(()));
}

#[test]
fn no_worker_is_started_while_one_that_was_given_up_lives() {
    let scratch = Scratch::new("worker-held");
    let state = scratch.path().join("state");
    std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let mut holder = Worker::start(&state.join("worker.lock"));
    holder.hello();
    let given_up = worker_of(scratch.path());
    let mut agent = start(&scratch);
    wait_for("the reason", 10, || agent.log().contains("reason=\"abandoned\"").then_some(()));
    assert!(agent.is_running() && worker_of(scratch.path()) == given_up, "{}", agent.log());
    drop(holder);
    wait_for("a worker of its own", 5, || worker_of(scratch.path()).filter(|pid| Some(*pid) != given_up));
    assert!(agent.terminate().success());
}

#[test]
fn the_worker_does_not_outlive_an_agent_that_is_killed() {
    let scratch = Scratch::new("worker-orphan");
    let agent = start(&scratch);
    wait_for("a worker", 10, || worker_of(scratch.path()));
    agent.kill();
    wait_for("the worker's end", 1, || worker_of(scratch.path()).is_none().then_some(()));
}

#[test]
fn the_driver_is_released_and_taken_by_hand() {
    let scratch = Scratch::new("worker-hold");
    let mut agent = start(&scratch);
    let first = wait_for("a worker", 10, || worker_of(scratch.path()));
    wait_for("the control socket", 10, || scratch.path().join("run/control.sock").exists().then_some(()));
    let (status, said) = ask(scratch.path(), &["driver", "release"]);
    assert_eq!((status, worker_of(scratch.path())), (Some(0), None), "{said}");
    wait_for("the reason", 5, || agent.log().contains("reason=\"released\"").then_some(()));
    let (status, said) = ask(scratch.path(), &["profiling", "pause"]);
    assert!(status == Some(1) && said.contains("`warpgauge driver take` takes it again"), "{said}");
    let (status, said) = ask(scratch.path(), &["driver", "take"]);
    assert_eq!(status, Some(0), "{said}");
    wait_for("a new worker", 5, || worker_of(scratch.path()).filter(|pid| *pid != first));
    assert!(agent.is_running(), "{}", agent.log());
    assert!(agent.terminate().success());
    let (status, said) = ask(scratch.path(), &["driver", "take"]);
    assert!(status == Some(1) && said.contains("no agent answers; start one"), "{said}");
    assert_eq!(ask(scratch.path(), &["driver", "drop"]).0, Some(64));
}

#[test]
fn a_silent_worker_is_slow_and_even_then_the_driver_is_let_go_of() {
    let scratch = Scratch::new("worker-silent");
    let mut agent = start(&scratch);
    let worker = wait_for("a worker", 10, || worker_of(scratch.path()));
    wait_for("the control socket", 10, || scratch.path().join("run/control.sock").exists().then_some(()));
    wait_for("its greeting", 10, || agent.log().contains("nvml").then_some(()));
    kill_process(worker, Signal::STOP).unwrap();
    let slow = |name: &str| {
        let log = agent.log();
        let of = |line: &str| {
            line.contains(&format!("source=\"{name}\" reason=\"slow\"")) && line.contains("worker silent")
        };
        log.lines().any(of)
    };
    wait_for("both to be slow", 5, || (slow("dcgm") && slow("nvml")).then_some(()));
    assert_eq!(worker_of(scratch.path()), Some(worker), "nothing is killed for it");
    let begun = std::time::Instant::now();
    let (status, said) = ask(scratch.path(), &["driver", "release"]);
    assert_eq!((status, worker_of(scratch.path())), (Some(0), None), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(agent.is_running() && agent.terminate().success());
}

#[test]
fn a_second_agent_leaves_the_control_socket_to_the_first() {
    let scratch = Scratch::new("worker-second");
    let mut first = start(&scratch);
    wait_for("the control socket", 10, || scratch.path().join("run/control.sock").exists().then_some(()));
    let other = Scratch::new("worker-second-other");
    let run = scratch.path().join("run").display().to_string();
    let args = ["--probes", "off", "--kernel-log", "off", "--run-dir", &run];
    let mut second = Setup::new(other.path()).args(&args).start();
    wait_for("the reason", 10, || {
        let log = second.log();
        (log.contains("another agent has the control socket") && log.contains("--run-dir")).then_some(())
    });
    assert!(first.is_running() && second.is_running());
    assert!(second.terminate().success());
    assert_eq!(ask(scratch.path(), &["driver", "take"]).0, Some(0), "the first one still answers");
    assert!(first.terminate().success());
}
