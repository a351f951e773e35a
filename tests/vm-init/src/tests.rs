//! The tests' process and what it says.
//!
//! In: the packed name, arguments and environment of the program; the tests, or a benchmark. Out: their lines as they come, their skips at the end, and whether they passed.
//! What can go wrong: they cannot be started, or end by a signal.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::about;
use crate::lines::{Kind, Lines};

const FOLDER: &str = "/warpgauge";
const SKIPPED: &str = "/run/skipped-tests";
/// How long output may still come after the tests have ended: a process that hangs in the driver may hold it open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the tests to their end.
pub fn run(lines: &Arc<Lines>) -> io::Result<bool> {
    let mut child = start()?;
    let (over, ended) = channel();
    forward(child.stdout.take(), Kind::Output, lines, &over);
    forward(child.stderr.take(), Kind::Errors, lines, &over);
    drop(over);
    let passed = reap_until(&child)?;
    kill_the_rest();
    for _stream in 0..2 {
        let _ = ended.recv_timeout(LAST_WORDS); // then what is still to come is not waited for
    }
    for skip in fs::read_to_string(SKIPPED).unwrap_or_default().lines() {
        lines.write(Kind::Skip, skip);
    }
    Ok(passed)
}

fn start() -> io::Result<Child> {
    let read = |name: &str| {
        let path = format!("{FOLDER}/{name}");
        fs::read_to_string(&path).map_err(|e| about(&path, e))
    };
    let (arguments, environment) = (read("arguments")?, read("environment")?);
    let program = format!("{FOLDER}/{}", read("program")?);
    let mut command = Command::new(&program);
    command.args(arguments.lines()).current_dir("/").env_clear();
    command.envs(environment.lines().filter_map(|line| line.split_once('=')));
    command.env("WARPGAUGE_SKIPPED", SKIPPED);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|e| about(&program, e))
}

/// Gives a stream on, line by line, in a thread of its own, which may never end.
fn forward(from: Option<impl Read + Send + 'static>, kind: Kind, to: &Arc<Lines>, over: &Sender<()>) {
    let (to, over) = (Arc::clone(to), over.clone());
    let Some(mut from) = from else { return };
    thread::spawn(move || {
        let (mut begun, mut block) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = from.read(&mut block) {
            begun.extend_from_slice(block.get(..read).unwrap_or_default());
            while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                let rest = begun.split_off(end + 1);
                to.write(kind, String::from_utf8_lossy(&begun).trim_end_matches('\n'));
                begun = rest;
            }
            if !begun.is_empty() && matches!(kind, Kind::Output) {
                to.write(Kind::Begun, &String::from_utf8_lossy(&begun));
            }
        }
        if !begun.is_empty() {
            to.write(kind, &String::from_utf8_lossy(&begun));
        }
        let _ = over.send(()); // nobody waits any more
    });
}

/// Process 1 inherits every orphan, and lets each go. Ends with the child: whether it was well.
fn reap_until(child: &Child) -> io::Result<bool> {
    let wanted = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        if let Some((pid, status)) = wait(WaitOptions::empty())?
            && Some(pid) == wanted
        {
            return Ok(status.exit_status() == Some(0));
        }
    }
}

/// What the tests left running; what hangs in the kernel stays.
fn kill_the_rest() {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|pid| !pid.is_init()) {
            let _ = kill_process(pid, Signal::KILL); // kernel threads do not mind, and others may have ended
        }
    }
}
