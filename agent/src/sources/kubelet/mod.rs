//! The kubelet: which container was given which devices.
//!
//! In: its PodResources service (version 1) over a unix socket. Out: `Signal::PodDevices`, the whole of it each time,
//! with device ids as the kubelet has them; what they mean is decided where the devices are known. Each 15 s, and at once
//! when its files say that devices were given or that it was restarted.
//! What can go wrong: no socket (no Kubernetes node: said once, looked for again); a kubelet that is slow, away or
//! answers garbage: what it said before stays, its age and the reason are told.
//!
//! Reading order: [`places`] and [`standing`] (when it is asked) → [`client`] → [`message`] and [`answer`] (what it says)
//! → [`ours`] (what of it is NVIDIA's).

pub mod answer;
#[cfg(test)]
mod answer_tests;
pub mod client;
pub mod failure;
pub mod message;
mod numbers;
pub mod ours;
pub mod places;
mod standing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Exit, Lack, Outlet, Source};
use crate::config::KubeletConfig;
use crate::host::mono_now;
use crate::model::Signal;
use crate::telemetry::Telemetry;
use answer::{Allocatable, Answer};
use client::{Call, Client};
use failure::{Failure, Reason};
use numbers::Numbers;
use ours::Ours;
use places::Seen;
use standing::Standing;

/// How often its files are looked at: what was given is known this much later at most.
const LOOK: Duration = Duration::from_secs(1);

/// The source.
#[derive(Debug)]
pub struct Kubelet {
    config: KubeletConfig,
    ours: Ours,
    standing: Standing,
    numbers: Numbers,
    said: Option<Reason>,
}

impl Kubelet {
    /// Touches nothing yet.
    pub fn new(config: KubeletConfig, telemetry: &Telemetry) -> Self {
        Self {
            ours: Ours::new(config.resource_names.clone()),
            standing: Standing::new(config.interval),
            numbers: Numbers::new(telemetry),
            said: None,
            config,
        }
    }
}

impl Source for Kubelet {
    fn name(&self) -> &'static str {
        standing::NAME
    }

    fn tells_itself(&self) -> bool {
        true
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        let Some(socket) = self.config.socket.clone() else {
            let what = "the kubelet is not asked, by the configuration".to_owned();
            let remedy = "set kubelet.socket to the path of its socket";
            return Exit::Unavailable(vec![Lack { reason: "disabled", what, remedy }]);
        };
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::select! {
            biased;
            () = stop.cancelled() => Exit::Stopped,
            exit = self.watch(&socket, outlet, &mut ticks) => exit,
        }
    }
}

impl Kubelet {
    async fn watch(&mut self, socket: &Path, outlet: &Outlet, ticks: &mut Interval) -> Exit {
        let mut client = None;
        loop {
            ticks.tick().await;
            let Ok(seen) = look(socket.to_path_buf()).await else {
                return Exit::Failed("a look at the kubelet's files was lost".into());
            };
            let now = mono_now();
            self.numbers.age(self.standing.age(now));
            if self.standing.is_other_socket(&seen) {
                client = None;
            }
            if !self.standing.is_due(now, &seen) {
                continue;
            }
            let listed = self.list(socket, &seen, &mut client, ticks).await;
            let is_answer = listed.is_ok();
            let signals = self.conclude(listed, now);
            for signal in signals {
                // What was given is told as a whole, and not again before something happens: it is not dropped.
                if outlet.send(signal).await.is_err() {
                    return Exit::Stopped;
                }
            }
            if !is_answer {
                client = None;
            }
        }
    }

    /// Asks what was given, on a new connection where there is none; its age is told meanwhile.
    async fn list(
        &mut self,
        socket: &Path,
        seen: &Seen,
        client: &mut Option<Client>,
        ticks: &mut Interval,
    ) -> Result<Answer, Failure> {
        if seen.socket.is_none() {
            return Err(Failure::new(Reason::NoSocket, &format!("{}: no such socket", socket.display())));
        }
        self.numbers.call(Call::List);
        let (config, ours) = (&self.config, &self.ours);
        let is_new = client.is_none();
        let mut asked = Box::pin(async {
            let client = match client {
                Some(client) => client,
                None => client.insert(Client::connect(socket, config.timeout).await?),
            };
            let answer = answer::list(client.ask(Call::List).await?, ours)?;
            let allocatable = if is_new { Some(ask_allocatable(client, ours).await) } else { None };
            Ok::<_, Failure>((answer, allocatable))
        });
        let (answer, allocatable) = loop {
            tokio::select! {
                biased;
                done = &mut asked => break done?,
                _ = ticks.tick() => self.numbers.age(self.standing.age(mono_now())),
            }
        };
        drop(asked);
        if let Some(allocatable) = allocatable {
            self.connected(&answer, allocatable);
        }
        Ok(answer)
    }

    /// Once for each connection.
    fn connected(&mut self, answer: &Answer, allocatable: Result<Allocatable, Failure>) {
        self.numbers.call(Call::Allocatable);
        match allocatable {
            Ok(allocatable) => self.numbers.allocatable(&allocatable),
            Err(failure) => {
                // Only a number is missing without it, and kubelets below 1.23 do not have it.
                self.numbers.failure(failure.reason);
                debug!(
                    reason = failure.reason.name(),
                    what = failure.what,
                    "No list of what could be given."
                );
            }
        }
        let others: Vec<&str> = answer.others.iter().map(String::as_str).collect();
        info!(
            pods = answer.pods,
            devices = answer.ids(),
            others = others.join(", "),
            "The kubelet tells who was given which devices."
        );
    }

    fn conclude(&mut self, listed: Result<Answer, Failure>, began: crate::model::MonoNs) -> Vec<Signal> {
        let at = mono_now();
        self.numbers.up(listed.is_ok());
        let signals = match listed {
            Ok(answer) => {
                self.said = None;
                self.numbers.answer(&answer);
                self.standing.answered(at, answer)
            }
            Err(failure) => {
                self.say(&failure);
                self.standing.failed(at, &failure, began).into_iter().collect()
            }
        };
        self.numbers.age(self.standing.age(at));
        signals
    }

    /// Each reason once, until it answers again.
    fn say(&mut self, failure: &Failure) {
        let Failure { reason, what } = failure;
        let is_news = self.said.replace(*reason) != Some(*reason);
        let has_answered = self.standing.has_answered();
        if *reason == Reason::NoSocket && !has_answered {
            if is_news {
                info!(what, "There is no kubelet here, so no pods; it is looked for again.");
            }
            return;
        }
        self.numbers.failure(*reason);
        if is_news {
            let (reason, remedy) = (reason.name(), reason.remedy());
            let kept = if has_answered { "what it said before stays" } else { "no device has a pod" };
            warn!(reason, what, remedy, "The kubelet gives no answer; {kept}.");
        }
    }
}

/// The files may be on a disk that does not answer.
async fn look(socket: PathBuf) -> Result<Seen, tokio::task::JoinError> {
    tokio::task::spawn_blocking(move || Seen::look(&socket)).await
}

async fn ask_allocatable(client: &mut Client, ours: &Ours) -> Result<Allocatable, Failure> {
    Ok(answer::allocatable(client.ask(Call::Allocatable).await?, ours)?)
}

/// What one pod was given, for a person who looks: by one question for it alone where the kubelet has that.
///
/// # Errors
/// [`Failure`] of the question for all pods, which is asked where the first one gave nothing.
pub async fn ask_pod(
    config: &KubeletConfig,
    socket: &Path,
    limit: Duration,
    (namespace, pod): (&str, &str),
) -> Result<Answer, Failure> {
    let ours = Ours::new(config.resource_names.clone());
    let mut client = Client::connect(socket, limit).await?;
    let mut answer = match client.pod(namespace, pod).await {
        Ok(bytes) => answer::list(bytes, &ours)?,
        Err(Failure { reason: Reason::NotServed | Reason::Failed, .. }) => {
            answer::list(client.ask(Call::List).await?, &ours)?
        }
        Err(failure) => return Err(failure),
    };
    answer.devices.grants.retain(|grant| grant.namespace == namespace && grant.pod == pod);
    Ok(answer)
}

/// What one question now gives, for a person who looks: what was given, and what could be.
///
/// # Errors
/// [`Failure`] of the first question; the second one may fail by itself.
pub async fn ask_once(
    config: &KubeletConfig,
    socket: &Path,
    limit: Duration,
) -> Result<(Answer, Result<Allocatable, Failure>), Failure> {
    let ours = Ours::new(config.resource_names.clone());
    let mut client = Client::connect(socket, limit).await?;
    let answer = answer::list(client.ask(Call::List).await?, &ours)?;
    Ok((answer, ask_allocatable(&mut client, &ours).await))
}
