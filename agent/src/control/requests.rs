//! What each request does.
//!
//! In: a request. Out: replies, the last of which says whether it was done.
//! What can go wrong: the worker is off, gone or does not answer; the reply says which.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Parts;
use super::message::{Reply, Request};
use crate::sources::worker::board::Standing;
use crate::sources::worker::desk::Question;
use crate::sources::worker::hold::Reason;

/// From the release to the end of the worker: 2 s in order, then by force, and 5 s for the kernel.
const LET_GO: Duration = Duration::from_secs(9);
/// Between two answers of the worker.
const ANSWER: Duration = Duration::from_secs(20);

/// Does it; replies go to `to` as they come.
pub(super) async fn fulfil(request: Request, parts: &Parts, to: &mpsc::Sender<Reply>) {
    let last = match request {
        Request::DriverRelease => release(parts).await,
        Request::DriverTake => {
            let already = parts.hold.now().released.is_none();
            parts.hold.take();
            let said = "The driver may be used again";
            Reply::Done(if already {
                format!("{said} (it was already){}.", sources(parts))
            } else {
                format!("{said}.")
            })
        }
        Request::ProfilingPause => ask(parts, Question::Pause, to).await,
        Request::ProfilingResume => ask(parts, Question::Resume, to).await,
        Request::Fields => ask(parts, Question::Fields, to).await,
        Request::Devices => ask(parts, Question::Devices, to).await,
        Request::Status => status(parts, to).await,
    };
    // The client has gone: nobody to tell.
    let _ = to.send(last).await;
}

/// The board, and the worker itself.
async fn status(parts: &Parts, to: &mpsc::Sender<Reply>) -> Reply {
    let hold = parts.hold.now();
    let (up, reason, what) = match (&parts.desk, hold.released, hold.worker) {
        (None, ..) => (false, "disabled", "it is switched off by the configuration".to_owned()),
        (_, Some((why, _)), _) => (false, "released", format!("the driver was let go of ({})", why.name())),
        (_, None, true) => (true, "", "it runs".to_owned()),
        (_, None, false) => (false, "down", "it does not run at the moment".to_owned()),
    };
    let remedy = match reason {
        "disabled" => "set worker.enabled to true",
        "released" => "`warpgauge driver take` takes it again",
        "down" => "look at the agent's log",
        _ => "",
    };
    let worker = Standing {
        source: "worker".to_owned(),
        up,
        reason: reason.to_owned(),
        what,
        remedy: remedy.to_owned(),
        library: String::new(),
    };
    for standing in parts.board.read().into_iter().chain([worker]) {
        let line = match serde_json::to_string(&standing) {
            Ok(line) => line,
            Err(error) => return Reply::NotDone(error.to_string()),
        };
        if to.send(Reply::Line(line)).await.is_err() {
            break; // the client has gone
        }
    }
    Reply::Done(String::new())
}

/// What is said of each source now, such as `; dcgm is down (no_library)`.
fn sources(parts: &Parts) -> String {
    let word = |s: Standing| match s.up {
        true => format!("; {} is up", s.source),
        false => format!("; {} is down ({})", s.source, s.reason),
    };
    parts.board.read().into_iter().map(word).collect()
}

async fn release(parts: &Parts) -> Reply {
    let before = parts.hold.now();
    let already = matches!(before.released, Some((Reason::Manual, _))) && !before.worker;
    parts.hold.release(Reason::Manual);
    let mut hold = parts.hold.subscribe();
    let free = hold.wait_for(|hold| !hold.worker || hold.released.is_none());
    match timeout(LET_GO, free).await {
        Ok(Ok(hold)) if hold.released.is_some() => {
            let was = if already { format!(" (it was already){}", sources(parts)) } else { String::new() };
            Reply::Done(format!("The driver is let go of, until `warpgauge driver take`{was}."))
        }
        Ok(_) => Reply::NotDone("somebody took the driver again meanwhile".to_owned()),
        Err(_) => Reply::NotDone(
            "the worker hangs in the driver and cannot be ended; no new one is started; look at the kernel log, \
             the GPU may need a reset"
                .to_owned(),
        ),
    }
}

async fn ask(parts: &Parts, question: Question, to: &mpsc::Sender<Reply>) -> Reply {
    let off = "the worker is switched off by the configuration; set worker.enabled to true";
    let Some(desk) = &parts.desk else { return Reply::NotDone(off.to_owned()) };
    let asked = timeout(ANSWER, desk.ask(question)).await;
    let Ok(Some(mut answers)) = asked else {
        return Reply::NotDone("the worker takes no questions".to_owned());
    };
    loop {
        match timeout(ANSWER, answers.recv()).await {
            Ok(Some(answer)) if !answer.done && answer.text.is_empty() => {
                return Reply::NotDone("the worker gives no reason; look at the agent's log".to_owned());
            }
            Ok(Some(answer)) if !answer.done => return Reply::NotDone(answer.text),
            Ok(Some(answer)) if matches!(question, Question::Fields | Question::Devices) => {
                for line in answer.text.lines() {
                    if to.send(Reply::Line(line.to_owned())).await.is_err() {
                        return Reply::NotDone(String::new()); // the client has gone
                    }
                }
                if !answer.more {
                    return Reply::Done(String::new());
                }
            }
            Ok(Some(answer)) => return Reply::Done(answer.text),
            Ok(None) => {
                return Reply::NotDone("the worker's answer was too long or came too late".to_owned());
            }
            Err(_) => {
                let late = "the worker has not answered in time, and the request is withdrawn; a call into a vendor's \
                            library may hang: see `warpgauge doctor`";
                return Reply::NotDone(late.to_owned());
            }
        }
    }
}
