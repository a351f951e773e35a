//! The worker's loop with scripted collectors, over a real socket.

use std::future::Future;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::io::{Ended, serve};
use super::link::{Ask, Asks, Link};
use super::threads::{Collector, Collectors};
use crate::model::Origin;
use crate::wire::order::{Configure, End, Request};
use crate::wire::report::{Answer, Heartbeat, Hello, Kind, Samples, State};
use crate::wire::{Decoder, Order, Report, encode, order};

/// The agent's end of the socket.
struct Agent {
    stream: UnixStream,
    decoder: Decoder,
    worker: JoinHandle<std::io::Result<Ended>>,
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), future).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

impl Agent {
    fn start(dcgm: Collector, nvml: Collector, hello: Hello) -> Self {
        let (ours, theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let worker = tokio::spawn(serve(theirs, Collectors { dcgm, nvml }, hello));
        Self { stream: UnixStream::from_std(ours).unwrap(), decoder: Decoder::default(), worker }
    }

    async fn order(&mut self, kind: order::Kind) {
        let mut bytes = Vec::new();
        encode(&Order { kind: Some(kind) }, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn configure(&mut self) {
        let configure = Configure { dcgm: true, nvml: true, ..Configure::default() };
        self.order(order::Kind::Configure(configure)).await;
    }

    async fn next(&mut self) -> Kind {
        loop {
            if let Some(report) = self.decoder.take::<Report>().unwrap() {
                return report.kind.unwrap();
            }
            let mut buffer = vec![0; 64 * 1024];
            let n = soon("a report", self.stream.read(&mut buffer)).await.unwrap();
            assert_ne!(n, 0, "the worker hung up");
            self.decoder.push(&buffer[..n]);
        }
    }

    /// The first report that `pick` takes.
    async fn until<T>(&mut self, mut pick: impl FnMut(Kind) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(self.next().await) {
                return picked;
            }
        }
    }

    async fn ended(self) -> Ended {
        soon("the worker's end", self.worker).await.unwrap().unwrap()
    }
}

/// Answers every question with its own name.
fn answering(name: &'static str) -> Collector {
    Box::new(move |_: &Configure, link: &Link, asks: &Asks, loading| {
        loading.end(true);
        link.send(Kind::State(State { name: name.to_owned(), up: true, ..State::default() }));
        while let Ok(ask) = asks.recv() {
            match ask {
                Ask::End => return,
                Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id) => {
                    let text = format!("{name} {ask:?}");
                    link.send(Kind::Answer(Answer { id, done: true, text, more: false }));
                }
            }
        }
    })
}

fn heartbeat(kind: Kind) -> Option<Heartbeat> {
    if let Kind::Heartbeat(beat) = kind { Some(beat) } else { None }
}

fn answer(kind: Kind) -> Option<Answer> {
    if let Kind::Answer(answer) = kind { Some(answer) } else { None }
}

#[tokio::test]
async fn it_greets_beats_answers_and_ends_in_order() {
    let hello = Hello { protocol: 1, version: "v".to_owned(), ..Hello::default() };
    let mut agent = Agent::start(answering("dcgm"), answering("nvml"), hello.clone());
    assert_eq!(agent.next().await, Kind::Hello(hello));
    agent.until(heartbeat).await; // before it is configured
    agent.configure().await;
    agent.until(|kind| matches!(&kind, Kind::State(s) if s.name == "dcgm").then_some(())).await;
    for (kind, want) in [
        (order::Kind::Pause(Request { id: 1, until_ns: 0 }), "dcgm Pause(1)"),
        (order::Kind::Resume(Request { id: 2, until_ns: 0 }), "dcgm Resume(2)"),
        (order::Kind::Fields(Request { id: 3, until_ns: 0 }), "dcgm Fields(3)"),
    ] {
        agent.order(kind).await;
        assert_eq!(agent.until(answer).await.text, want);
    }
    agent.order(order::Kind::End(End {})).await;
    assert_eq!(agent.ended().await, Ended::InOrder);
}

#[tokio::test]
async fn fields_are_answered_by_nvml_where_dcgm_is_down() {
    let down: Collector = Box::new(|_: &Configure, link: &Link, asks: &Asks, loading| {
        loading.end(true);
        link.send(Kind::State(State { name: "dcgm".to_owned(), ..State::default() }));
        while asks.recv().is_ok_and(|ask| ask != Ask::End) {}
    });
    let mut agent = Agent::start(down, answering("nvml"), Hello::default());
    agent.configure().await;
    agent.order(order::Kind::Fields(Request { id: 7, until_ns: 0 })).await;
    assert_eq!(agent.until(answer).await.text, "nvml Fields(7)");
}

#[tokio::test]
async fn a_call_that_hangs_is_in_every_heartbeat_and_the_other_library_goes_on() {
    let (release, hold) = std::sync::mpsc::channel::<()>();
    let hanging: Collector = Box::new(move |_: &Configure, link: &Link, _: &Asks, loading| {
        loading.end(true);
        let call = link.begin(Origin::Dcgm, "dcgmGetLatestValues_v2", "GPU-1");
        let _ = hold.recv();
        call.end(true);
    });
    let mut agent = Agent::start(hanging, answering("nvml"), Hello::default());
    agent.configure().await;
    let late = |kind| heartbeat(kind)?.in_flight.into_iter().find(|call| call.call != "dlopen");
    let first = agent.until(late).await;
    assert_eq!((&*first.call, first.origin, &*first.hw_id), ("dcgmGetLatestValues_v2", 1, "GPU-1"));
    agent.order(order::Kind::Fields(Request { id: 1, until_ns: 0 })).await;
    assert_eq!(agent.until(answer).await.text, "nvml Fields(1)");
    assert_eq!(agent.until(late).await, first, "with the time it began");
    agent.order(order::Kind::End(End {})).await;
    assert_eq!(agent.ended().await, Ended::Hung);
    drop(release);
}

#[tokio::test]
async fn what_loads_a_library_is_in_flight_from_the_first_heartbeat_on() {
    let (release, hold) = std::sync::mpsc::channel::<()>();
    let loads: Collector = Box::new(move |_: &Configure, _: &Link, _: &Asks, loading| {
        let _ = hold.recv();
        loading.end(true);
    });
    let waits: Collector = Box::new(|_: &Configure, _: &Link, asks: &Asks, loading| {
        while asks.recv().is_ok_and(|ask| ask != Ask::End) {}
        loading.end(true);
    });
    let mut agent = Agent::start(loads, waits, Hello::default());
    agent.configure().await;
    let beat = agent.until(|kind| heartbeat(kind).filter(|beat| !beat.in_flight.is_empty())).await;
    let calls: Vec<_> = beat.in_flight.iter().map(|call| (&*call.call, call.origin)).collect();
    assert_eq!(calls, [("dlopen", 1), ("dlopen", 2)]);
    drop(release);
}

#[tokio::test]
async fn what_is_withdrawn_before_the_thread_takes_it_is_not_done() {
    let (release, hold) = std::sync::mpsc::channel::<()>();
    let busy: Collector = Box::new(move |_: &Configure, link: &Link, asks: &Asks, loading| {
        loading.end(true);
        let _ = hold.recv();
        while let Ok(ask) = asks.recv() {
            let (Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id)) = ask else { return };
            link.send(Kind::Answer(Answer { id, done: true, ..Answer::default() }));
        }
    });
    let mut agent = Agent::start(busy, answering("nvml"), Hello::default());
    agent.configure().await;
    agent.order(order::Kind::Pause(Request { id: 1, until_ns: 1 })).await;
    agent.order(order::Kind::Resume(Request { id: 2, until_ns: u64::MAX })).await;
    drop(release);
    assert_eq!(agent.until(answer).await.id, 2);
}

#[tokio::test]
async fn an_agent_that_does_not_read_costs_values_and_the_next_heartbeat_says_how_many() {
    const SENT: u32 = 20_000;
    let (sent, all_sent) = std::sync::mpsc::channel();
    let flood: Collector = Box::new(move |_: &Configure, link: &Link, asks: &Asks, loading| {
        loading.end(true);
        for key in 0..SENT {
            link.send(Kind::Samples(Samples {
                key,
                values: vec![Default::default(); 100],
                ..Default::default()
            }));
        }
        sent.send(()).unwrap();
        while asks.recv().is_ok_and(|ask| ask != Ask::End) {}
    });
    let mut agent = Agent::start(flood, answering("nvml"), Hello::default());
    agent.configure().await;
    soon("the flood", tokio::task::spawn_blocking(move || all_sent.recv())).await.unwrap().unwrap();
    let (mut got, mut dropped, mut others) = (0_u64, 0, 0);
    while got + dropped < u64::from(SENT) {
        match agent.next().await {
            Kind::Samples(_) => got += 1,
            Kind::Heartbeat(beat) => (dropped, others) = (beat.dropped_values, others + 1),
            _ => {}
        }
    }
    assert_eq!(got + dropped, u64::from(SENT));
    assert!(dropped > 10_000 && others < 20, "{dropped} dropped, {others} heartbeats");
    agent.order(order::Kind::End(End {})).await;
    assert_eq!(agent.ended().await, Ended::InOrder);
}

#[tokio::test]
async fn it_ends_when_the_agent_is_gone_talks_nonsense_or_a_thread_returns() {
    let mut agent = Agent::start(answering("dcgm"), answering("nvml"), Hello::default());
    agent.configure().await;
    drop(agent.stream);
    assert_eq!(soon("the end", agent.worker).await.unwrap().unwrap(), Ended::AgentGone);

    let mut agent = Agent::start(answering("dcgm"), answering("nvml"), Hello::default());
    agent.stream.write_all(&[0xff; 8]).await.unwrap();
    assert!(matches!(agent.ended().await, Ended::Fault(what) if what.contains("frame of")));

    let mut agent = Agent::start(Box::new(|_, _, _, _| {}), answering("nvml"), Hello::default());
    agent.configure().await;
    assert!(
        matches!(agent.ended().await, Ended::Fault(what) if what == "the dcgm thread returned by itself")
    );
}

#[tokio::test]
async fn where_another_worker_has_the_driver_it_says_so_and_touches_nothing() {
    let never = || -> Collector { Box::new(|_, _, _, _| panic!("must not run")) };
    let hello = Hello { abandoned: Some(77), ..Hello::default() };
    let mut agent = Agent::start(never(), never(), hello.clone());
    agent.configure().await;
    assert_eq!(agent.next().await, Kind::Hello(hello));
    assert_eq!(agent.ended().await, Ended::InOrder);
}
