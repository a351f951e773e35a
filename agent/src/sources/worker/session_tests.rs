//! One worker's life, with the test in the worker's place: its process is a real one that does nothing.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::desk::{Question, desk};
use super::ended::{Ended, Why};
use super::hold::{DriverHold, Reason};
use super::session::Session;
use super::spawn::Process;
use super::{Parts, Worker};
use crate::config::{Config, WorkerConfig};
use crate::host::{HostRoot, mono_now};
use crate::model::signal::SourceState;
use crate::model::{MonoNs, Signal};
use crate::sources::{Outlet, queue};
use crate::telemetry::Telemetry;
use crate::wire::order::Configure;
use crate::wire::report::{Answer, Value};
use crate::wire::report::{
    Bind, Content, Device, Heartbeat, Hello, InFlight, Inventory, Kind, Samples, State,
};
use crate::wire::{Decoder, Order, PROTOCOL, Report, encode, order};

struct Played {
    socket: UnixStream,
    decoder: Decoder,
    signals: mpsc::Receiver<Signal>,
    hold: DriverHold,
    desk: super::desk::Desk,
    stop: CancellationToken,
    telemetry: Telemetry,
    session: JoinHandle<Ended>,
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), future).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

impl Played {
    /// A worker that has its first order, and has greeted.
    async fn start(config: WorkerConfig) -> Self {
        let hold = DriverHold::default();
        let mut played = Self::with(config, hold, sleep(), mono_now());
        assert_eq!(played.order().await, order::Kind::Configure(Configure::default()));
        let hello = Hello { protocol: PROTOCOL, rights_given_up: 1, ..Hello::default() };
        played.report(Kind::Hello(hello)).await;
        played
    }

    /// A worker that has been silent since `born`.
    fn with(config: WorkerConfig, hold: DriverHold, child: Child, born: MonoNs) -> Self {
        let telemetry = Telemetry::default();
        let (desk, questions) = desk();
        let stop = CancellationToken::new();
        let parts = Parts {
            config,
            host: HostRoot::default(),
            lock_dir: None,
            hold: hold.clone(),
            questions,
            board: super::board::Board::default(),
        };
        let mut shared = Worker::new(parts, &telemetry).into_shared();
        let (tx, signals) = queue(1_000);
        let outlet = Outlet::new(tx, "worker", &telemetry);
        let (socket, theirs) = UnixStream::pair().unwrap();
        let stopped = stop.clone();
        let session = tokio::spawn(async move {
            let mut process = Process::of(child);
            shared.throttle.started(mono_now());
            let session = Session::new(&mut shared, &mut process, &outlet).born(born);
            session.run(theirs, Configure::default(), &stopped).await
        });
        let decoder = Decoder::default();
        Self { socket, decoder, signals, hold, desk, stop, telemetry, session }
    }

    async fn report(&mut self, kind: Kind) {
        let mut bytes = Vec::new();
        encode(&Report { kind: Some(kind) }, &mut bytes).unwrap();
        self.socket.write_all(&bytes).await.unwrap();
    }

    async fn order(&mut self) -> order::Kind {
        loop {
            if let Some(order) = self.decoder.take::<Order>().unwrap() {
                return order.kind.unwrap();
            }
            let mut buffer = [0; 4_096];
            let n = soon("an order", self.socket.read(&mut buffer)).await.unwrap();
            assert_ne!(n, 0, "the agent hung up");
            self.decoder.push(&buffer[..n]);
        }
    }

    async fn up(&mut self, name: &str) {
        self.report(Kind::State(State { name: name.to_owned(), up: true, ..State::default() })).await;
        let source = self.source().await;
        assert_eq!((&*source.name, source.up), (name, true));
    }

    /// The next change of a source.
    async fn source(&mut self) -> SourceState {
        loop {
            if let Signal::Source { source, .. } = soon("a source", self.signals.recv()).await.unwrap() {
                return source;
            }
        }
    }

    async fn ended(self) -> Ended {
        soon("the session's end", self.session).await.unwrap()
    }
}

fn sleep() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

/// A process that SIGTERM does not end.
fn deaf() -> Child {
    let mut command = Command::new("sh");
    let mut child =
        command.args(["-c", "trap '' TERM; echo; exec sleep 60"]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

fn config() -> WorkerConfig {
    Config::default().worker
}

#[tokio::test]
async fn a_late_call_is_told_within_4_s_and_the_other_library_goes_on() {
    let mut worker = Played::start(config()).await;
    worker.up("dcgm").await;
    worker.up("nvml").await;
    let device = Device { hw_id: "GPU-1".to_owned(), key: 1, kind: 1, ..Device::default() };
    let inventory = Inventory { origin: 2, devices: vec![device], ..Inventory::default() };
    worker.report(Kind::Inventory(inventory)).await;
    let began = mono_now();
    let late = InFlight {
        call: "dcgmGetLatestValues_v2".to_owned(),
        origin: 1,
        hw_id: "GPU-1".to_owned(),
        began_ns: began.0,
    };
    let (mut beat, mut read) = (interval(Duration::from_millis(500)), 0);
    let slow = loop {
        tokio::select! {
            _ = beat.tick() => {
                let in_flight = vec![late.clone()];
                worker.report(Kind::Heartbeat(Heartbeat { in_flight, ..Heartbeat::default() })).await;
                let value = Value { field: 150, content: Some(Content::Int(40)), ..Value::default() };
                let read_ns = mono_now().0;
                let samples = Samples { origin: 2, key: 1, read_ns, values: vec![value], ..Samples::default() };
                worker.report(Kind::Samples(samples)).await;
            }
            signal = worker.signals.recv() => match signal.unwrap() {
                Signal::Source { source, .. } => break source,
                Signal::Samples { .. } => read += 1,
                _ => {}
            }
        }
    };
    let after = mono_now().since(began).unwrap();
    assert!(after <= Duration::from_secs(4), "{after:?}");
    assert_eq!((&*slow.name, slow.up, slow.reason.as_deref()), ("dcgm", false, Some("slow")));
    let call = slow.late.unwrap();
    assert_eq!(
        (&*call.call, call.hw_id.as_deref(), call.began),
        ("dcgmGetLatestValues_v2", Some("GPU-1"), began)
    );
    assert!(read >= 5, "NVML's values go on: {read}");
    worker.report(Kind::Heartbeat(Heartbeat::default())).await;
    let back = worker.source().await;
    assert_eq!((&*back.name, back.up), ("dcgm", true), "it came back, and nothing was killed");
    worker.stop.cancel();
    assert_eq!(worker.order().await, order::Kind::End(order_end()));
    assert_eq!(worker.ended().await, Ended { why: Why::Stopped, abandoned: false });
}

fn order_end() -> order::End {
    order::End {}
}

#[tokio::test]
async fn a_wanted_source_that_nothing_is_heard_of_is_told_and_its_questions_are_refused_at_once() {
    let born = MonoNs(mono_now().0.saturating_sub(2_500_000_000));
    let mut worker = Played::with(config(), DriverHold::default(), sleep(), born);
    worker.order().await;
    worker.up("nvml").await;
    let beat = |in_flight| Kind::Heartbeat(Heartbeat { in_flight, ..Heartbeat::default() });
    worker.report(beat(Vec::new())).await;
    let slow = worker.source().await;
    assert_eq!((&*slow.name, slow.reason.as_deref(), slow.late), ("dcgm", Some("slow"), None));
    let mut answers = worker.desk.ask(Question::Fields).await.unwrap();
    assert!(matches!(worker.order().await, order::Kind::Fields(_)), "NVML may tell them");
    let call = InFlight { call: "dlopen".to_owned(), origin: 1, began_ns: born.0, ..InFlight::default() };
    worker.report(beat(vec![call])).await;
    let late = worker.source().await.late.unwrap();
    assert_eq!(late.call, "dlopen");
    let mut refused = worker.desk.ask(Question::Pause).await.unwrap();
    let said = soon("a refusal", refused.recv()).await.unwrap();
    assert_eq!((said.done, &*said.text), (false, "dcgm: dlopen has not come back; ask again when it has"));
    worker.report(Kind::Answer(Answer { id: 1, done: true, text: "{}".to_owned(), more: false })).await;
    assert_eq!(soon("an answer", answers.recv()).await.unwrap().text, "{}");
    worker.stop.cancel();
    assert_eq!(worker.order().await, order::Kind::End(order_end()), "the worker was never asked to pause");
    worker.ended().await;
}

#[tokio::test]
async fn a_closed_socket_is_told_at_once_and_the_process_does_not_live_on() {
    let mut worker = Played::start(config()).await;
    worker.up("dcgm").await;
    worker.socket.shutdown().await.unwrap();
    let told: Vec<_> = [worker.source().await, worker.source().await].into_iter().collect();
    for (source, name) in told.iter().zip(["dcgm", "nvml"]) {
        assert_eq!((&*source.name, source.reason.as_deref()), (name, Some("down")));
    }
    assert_eq!(worker.ended().await, Ended { why: Why::Crashed, abandoned: false });
}

#[tokio::test]
async fn garbage_ends_it() {
    let mut worker = Played::start(config()).await;
    worker.socket.write_all(&[0xff; 64]).await.unwrap();
    assert_eq!(worker.ended().await, Ended { why: Why::Protocol, abandoned: false });
    let mut worker = Played::start(config()).await;
    worker.report(Kind::Hello(Hello { protocol: PROTOCOL + 1, ..Hello::default() })).await;
    assert_eq!(worker.ended().await, Ended { why: Why::Protocol, abandoned: false });
}

#[tokio::test]
async fn a_bind_event_lets_go_of_the_driver_and_a_hung_worker_is_killed_for_it() {
    let mut worker = Played::start(config()).await;
    worker.report(Kind::Bind(Bind { event: 1 })).await;
    assert_eq!(worker.order().await, order::Kind::End(order_end()));
    let hold = worker.hold.clone();
    assert!(matches!(hold.now().released, Some((Reason::Bind, _))));
    let began = mono_now();
    assert_eq!(worker.ended().await, Ended { why: Why::Released, abandoned: false });
    let took = mono_now().since(began).unwrap();
    assert!(took < Duration::from_secs(3), "it is killed when it does not end: {took:?}");
}

#[tokio::test]
async fn a_release_does_not_wait_for_a_worker_that_is_ended_for_its_silence() {
    let born = MonoNs(mono_now().0.saturating_sub(61_000_000_000));
    let mut worker = Played::with(config(), DriverHold::default(), deaf(), born);
    let slow = worker.source().await;
    assert_eq!(slow.reason.as_deref(), Some("slow"), "SIGTERM was sent in the same look");
    let began = mono_now();
    worker.hold.release(Reason::Manual);
    assert_eq!(worker.ended().await, Ended { why: Why::Hung, abandoned: false });
    let took = mono_now().since(began).unwrap();
    assert!(took < Duration::from_secs(4), "not the 30 s that a hung call has: {took:?}");
}

#[tokio::test]
async fn a_worker_that_is_just_started_at_a_release_is_never_configured() {
    let hold = DriverHold::default();
    hold.release(Reason::Manual);
    let mut worker = Played::with(config(), hold, sleep(), mono_now());
    assert_eq!(worker.order().await, order::Kind::End(order_end()), "the first order is the last");
    assert_eq!(worker.ended().await, Ended { why: Why::Released, abandoned: false });
}

#[tokio::test]
async fn above_its_memory_budget_it_is_ordered_to_end() {
    let mut worker = Played::start(WorkerConfig { memory_limit: 1, ..config() }).await;
    assert_eq!(worker.order().await, order::Kind::End(order_end()));
    assert!(worker.telemetry.gauge("warpgauge.worker.memory.usage", &[]).get() > 1);
    assert_eq!(worker.ended().await, Ended { why: Why::Replaced, abandoned: false });
}

#[tokio::test]
async fn questions_reach_the_worker_and_end_with_it() {
    let mut worker = Played::start(config()).await;
    let mut first = worker.desk.ask(Question::Pause).await.unwrap();
    let order = worker.order().await;
    let order::Kind::Pause(request) = &order else { panic!("{order:?}") };
    assert!(request.id == 1 && request.until_ns > mono_now().0, "{request:?}");
    worker.report(Kind::Answer(Answer { id: 1, done: true, text: "paused".to_owned(), more: false })).await;
    assert_eq!(soon("an answer", first.recv()).await.unwrap().text, "paused");
    let device = Device { hw_id: "GPU-1".to_owned(), kind: 1, minor: Some(3), ..Device::default() };
    let inventory = Inventory { origin: 2, devices: vec![device], ..Inventory::default() };
    worker.report(Kind::Inventory(inventory)).await;
    while !matches!(soon("a GPU", worker.signals.recv()).await.unwrap(), Signal::Gpu { .. }) {}
    let mut devices = worker.desk.ask(Question::Devices).await.unwrap();
    let answer = soon("devices", devices.recv()).await.unwrap();
    assert_eq!((answer.done, &*answer.text, answer.more), (true, r#"{"hw_id":"GPU-1","minor":3}"#, false));
    let mut second = worker.desk.ask(Question::Fields).await.unwrap();
    let asked = worker.order().await;
    assert!(matches!(asked, order::Kind::Fields(_)), "the source knew the devices itself: {asked:?}");
    worker.stop.cancel();
    let answer = soon("an answer", second.recv()).await.unwrap();
    assert_eq!((answer.done, &*answer.text), (false, "the worker ended"));
    worker.ended().await;
}
