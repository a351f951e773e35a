//! Supervision by outcome: restarts what failed, looks again now and then for what was missing.
//!
//! In: a [`Source`], and how its runs end; other parts that only run. Out: their end, once told to stop.
//! One source's end never stops another, nor does its panic, which is a fault of the agent's and a failure like others. Each lack is said once, with its remedy, until it changes or is mended.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::host::mono_now;
use crate::model::Signal;
use crate::model::signal::SourceState;
use crate::sources::{Exit, Lack, Outlet, Source};
use crate::telemetry::Telemetry;

/// First wait after a failure; doubles up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// How often something that is missing is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A run that lasts this long found what it needs: the source is up.
const SETTLED: Duration = Duration::from_secs(1);
/// A run of this length is a success: the backoff starts over.
const HEALTHY: Duration = Duration::from_secs(60);

/// A part of the agent panicked: in its own words.
#[derive(Debug, thiserror::Error)]
#[error("a fault of the agent: {0}")]
struct Panicked(String);

/// Runs `part` until it ends by itself; one that panics is started anew, with backoff.
pub async fn keep_up<F: Future<Output = ()>>(
    name: &'static str,
    stop: CancellationToken,
    part: impl Fn() -> F,
) {
    let mut backoff = BACKOFF;
    loop {
        let began = Instant::now();
        let Err(panic) = caught(part()).await else { return };
        if began.elapsed() >= HEALTHY {
            backoff = BACKOFF;
        }
        error!(part = name, cause = %panic, again_in_s = backoff.as_secs(), "A part of the agent failed.");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff) => {}
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// A panic is the future's end. What it shares is used on: locks are taken from whoever died with them, and a source
/// begins each run anew.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(Panicked(words(&*payload)))),
    })
    .await
}

/// What `panic!` was given.
fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_owned()
}

/// Runs `source` until `stop`, again and again.
pub async fn supervise(
    mut source: impl Source,
    outlet: Outlet,
    stop: CancellationToken,
    telemetry: Telemetry,
) {
    let name = source.name();
    let up = telemetry.gauge("warpgauge.source.up", &[("source", name)]);
    let restarts = telemetry.counter("warpgauge.source.restarts", &[("source", name)]);
    let mut said: Vec<Lack> = Vec::new();
    let mut backoff = BACKOFF;
    let mut told_up = false;
    let tells_itself = source.tells_itself();
    loop {
        let began = Instant::now();
        let exit = {
            let run = caught(source.run(&outlet, &stop));
            let mut run = pin!(async { run.await.unwrap_or_else(|panic| Exit::Failed(Box::new(panic))) });
            match timeout(SETTLED, &mut run).await {
                Ok(exit) => exit,
                Err(_still_running) => {
                    if !tells_itself {
                        up.set(1);
                        told_up = true;
                    }
                    publish(&telemetry, name, &said, 0);
                    said.clear();
                    let told = async {
                        if told_up {
                            tell(&outlet, name, None).await;
                        }
                    };
                    // It goes on while the pipeline is full; if it ends first, only that is told.
                    tokio::select! {
                        biased;
                        exit = &mut run => exit,
                        () = told => run.await,
                    }
                }
            }
        };
        up.set(0);
        if std::mem::take(&mut told_up) {
            tokio::select! {
                biased;
                () = tell(&outlet, name, Some(&exit)) => {}
                () = stop.cancelled() => {}
            }
        }
        let wait = match exit {
            Exit::Stopped => return,
            Exit::Unavailable(lacks) => {
                publish(&telemetry, name, &said, 0);
                publish(&telemetry, name, &lacks, 1);
                lacks.iter().filter(|lack| !said.contains(lack)).for_each(|lack| say(name, lack));
                said = lacks;
                LOOK_AGAIN
            }
            Exit::Failed(cause) => {
                if began.elapsed() >= HEALTHY {
                    backoff = BACKOFF;
                }
                restarts.add(1);
                error!(source = name, cause = &*cause, again_in_s = backoff.as_secs(), "A source failed.");
                let wait = backoff;
                backoff = (backoff * 2).min(BACKOFF_MAX);
                wait
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// What the source knew is no longer looked at once it is down: the stages must hear of it.
/// It waits for room in the pipeline, as it is said once.
async fn tell(outlet: &Outlet, name: &str, exit: Option<&Exit>) {
    let reason = exit.map(|exit| match exit {
        Exit::Stopped => "stopped",
        Exit::Unavailable(lacks) => lacks.first().map_or("unavailable", |lack| lack.reason),
        Exit::Failed(_) => "failed",
    });
    let source = SourceState {
        name: name.to_owned(),
        up: exit.is_none(),
        reason: reason.map(str::to_owned),
        late: None,
    };
    // A pipeline that has ended needs to know nothing more.
    let _ = outlet.send(Signal::Source { at: mono_now(), source }).await;
}

fn publish(telemetry: &Telemetry, source: &'static str, lacks: &[Lack], lacking: u64) {
    for lack in lacks {
        telemetry.gauge("warpgauge.source.lack", &[("source", source), ("reason", lack.reason)]).set(lacking);
    }
}

fn say(source: &'static str, lack: &Lack) {
    let Lack { reason, what, remedy } = lack;
    if *reason == "disabled" {
        info!(source, "A source is off by configuration.");
    } else {
        warn!(source, reason, what, remedy, "A source is not available; the rest goes on.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::queue;

    /// Ends as scripted, then as told.
    struct Scripted {
        exits: Vec<Exit>,
        runs: std::sync::mpsc::Sender<Instant>,
    }

    impl Source for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        async fn run(&mut self, _: &Outlet, stop: &CancellationToken) -> Exit {
            self.runs.send(Instant::now()).unwrap();
            match self.exits.pop() {
                Some(Exit::Stopped) => panic!("no such thing"),
                Some(exit) => exit,
                None => {
                    stop.cancelled().await;
                    Exit::Stopped
                }
            }
        }
    }

    /// The same, after it was up for a while.
    struct Late(Scripted);

    impl Source for Late {
        fn name(&self) -> &'static str {
            self.0.name()
        }

        async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
            tokio::time::sleep(SETTLED * 2).await;
            self.0.run(outlet, stop).await
        }
    }

    fn failed() -> Exit {
        Exit::Failed("it broke".into())
    }

    fn missing() -> Exit {
        Exit::Unavailable(vec![Lack { reason: "no_btf", what: "no BTF".into(), remedy: "a kernel with BTF" }])
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_lacks_are_looked_at_again() {
        let telemetry = Telemetry::default();
        let (tx, _rx) = queue(1);
        let stop = CancellationToken::new();
        let (runs_tx, runs) = std::sync::mpsc::channel();
        let source = Scripted { exits: vec![missing(), failed(), failed(), failed()], runs: runs_tx };
        let outlet = Outlet::new(tx, "scripted", &telemetry);
        let began = Instant::now();
        let task = tokio::spawn(supervise(source, outlet, stop.clone(), telemetry.clone()));
        let mut at: Vec<u64> = Vec::new();
        while at.len() < 5 {
            at.extend(runs.try_iter().map(|run| run.duration_since(began).as_secs()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.cancel();
        task.await.unwrap();
        let restarts = telemetry.counter("warpgauge.source.restarts", &[("source", "scripted")]).get();
        assert_eq!(restarts, 3, "a look for something missing is no restart");
        assert_eq!(at, [0, 1, 3, 7, 67], "1, 2 and 4 s after failures, a minute after the lack");
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_panics_is_a_failed_one() {
        let telemetry = Telemetry::default();
        let (tx, mut rx) = queue(8);
        let stop = CancellationToken::new();
        let (runs_tx, runs) = std::sync::mpsc::channel();
        let source = Late(Scripted { exits: vec![Exit::Stopped], runs: runs_tx });
        let outlet = Outlet::new(tx, "scripted", &telemetry);
        let task = tokio::spawn(supervise(source, outlet, stop.clone(), telemetry.clone()));
        let mut said = Vec::new();
        while said.len() < 3 {
            if let Some(Signal::Source { source, .. }) = rx.recv().await {
                said.push((source.up, source.reason));
            }
        }
        stop.cancel();
        task.await.unwrap();
        assert_eq!(said, [(true, None), (false, Some("failed".to_owned())), (true, None)]);
        assert_eq!(telemetry.counter("warpgauge.source.restarts", &[("source", "scripted")]).get(), 1);
        assert_eq!(runs.try_iter().count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_is_started_anew_and_one_that_ends_is_not() {
        let runs = std::cell::Cell::new(0);
        let part = async || {
            runs.set(runs.get() + 1);
            assert!(runs.get() > 2, "no such thing");
        };
        keep_up("scripted", CancellationToken::new(), part).await;
        assert_eq!(runs.get(), 3);
    }
}
