//! A process that calls the double, and what its calls gave.
//!
//! In: calls, as `driver-caller` reads them. Out: their values and lengths by its own clock; ended when dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use warpgauge_tests::harness::cgroups::PodCgroup;
use warpgauge_tests::harness::programs;

pub(super) const CONTROL_NODE: &str = "/dev/nvidiactl";
pub(super) const GPU_NODE: &str = "/dev/nvidia0";
pub(super) const UVM_NODE: &str = "/dev/nvidia-uvm";

/// `NV_ESC_RM_CONTROL` as the driver's users write it: read and write, 32 bytes.
pub(super) const CONTROL: &str = "0xc020462a";
/// `NV_ESC_RM_ALLOC` with the newer block of 48 bytes.
pub(super) const ALLOC: &str = "0xc030462b";
/// `NV_ESC_RM_VID_HEAP_CONTROL`, 184 bytes.
pub(super) const VID_HEAP: &str = "0xc0b8464a";

/// A running caller.
pub(super) struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its value, or the system's number of the error.
    pub(super) value: Result<i64, i32>,
    /// By the caller's own clock.
    pub(super) took: Duration,
    /// The words of the block that were asked for.
    pub(super) words: Vec<u32>,
}

impl Caller {
    /// In the cgroup of this test.
    pub(super) fn start() -> Self {
        let mut command = Command::new(programs::driver_caller());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut caller = Self { child, input, output };
        assert_eq!(caller.line(), "ready");
        caller
    }

    /// In a pod, with these nodes open.
    pub(super) fn in_pod(pod: &PodCgroup, nodes: &[&str]) -> Self {
        let mut caller = Self::start();
        pod.admit(&caller.child);
        caller.open(nodes);
        caller
    }

    pub(super) fn open(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.call(&format!("open {node}"));
        }
    }

    pub(super) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Begins a call; its [`answer`](Self::answer) is read later.
    pub(super) fn begin(&mut self, call: &str) {
        writeln!(self.input.as_mut().unwrap(), "{call}").unwrap();
    }

    pub(super) fn answer(&mut self) -> Answer {
        let line = self.line();
        let mut words = line.split(' ');
        let is_done = words.next() == Some("done");
        let (value, took) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        let number = |word: &str| u32::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap();
        Answer {
            value: if is_done { Ok(value.parse().unwrap()) } else { Err(value.parse().unwrap()) },
            took: Duration::from_nanos(took),
            words: words.map(number).collect(),
        }
    }

    /// Makes a call that must succeed.
    #[track_caller]
    pub(super) fn call(&mut self, call: &str) -> Answer {
        let answer = self.try_call(call);
        assert!(answer.value.is_ok(), "{call}: {answer:?}");
        answer
    }

    pub(super) fn try_call(&mut self, call: &str) -> Answer {
        self.begin(call);
        self.answer()
    }

    /// It begins anew, as the same process: nothing is open any more.
    pub(super) fn exec(&mut self) {
        self.begin("exec");
        assert_eq!(self.line(), "ready");
    }

    /// SIGKILL, and the wait for its end.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGKILL alone: it may hang in the driver before it ends.
    pub(super) fn kill_unwaited(&mut self) {
        self.child.kill().unwrap();
    }

    /// It ends by itself.
    pub(super) fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.try_wait(); // one that hangs in the driver is not waited for
    }
}
