//! `warpgauge doctor`: what works on this node, what does not, why, and how to mend it.
//!
//! In: the configuration the agent would run with. Out: one [`Check`] for each capability and source.
//! It looks by doing: programs are loaded and taken out again, the log is read, a worker opens the vendor's libraries.
//! What can go wrong: a thing cannot be found out; then the answer is `unknown` with the reason, never a guess.

pub mod capabilities;
pub mod kernel;
pub mod kubelet;
pub mod log_folders;
pub mod map;
pub mod nodes;
pub mod places;
pub mod print;
pub mod probes;
pub mod tracing_files;
pub mod vendor;
mod vendor_checks;

use std::borrow::Cow;
use std::time::Duration;

use crate::config::Config;
use crate::sources::Lack;

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The thing, as one word or two.
    pub name: Cow<'static, str>,
    /// Whether it works.
    pub verdict: Verdict,
    /// What was seen, or what is missing, with the system's own words.
    pub what: String,
    /// What the operator can do; empty where nothing needs doing.
    pub remedy: String,
}

/// Whether something works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It could not be found out.
    Unknown,
    /// It was switched off; that is no problem.
    Off,
}

impl Verdict {
    /// The word in both outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Off => "off",
        }
    }
}

impl Check {
    /// It works.
    pub fn yes(name: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Yes, what: what.into(), remedy: String::new() }
    }

    /// It does not work.
    pub fn no(
        name: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::No, what: what.into(), remedy: remedy.into() }
    }

    /// It could not be found out.
    pub fn unknown(
        name: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::Unknown, what: what.into(), remedy: remedy.into() }
    }

    /// It is switched off.
    pub fn off(name: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Off, what: what.into(), remedy: String::new() }
    }

    /// What a source lacks.
    pub fn lack(name: impl Into<Cow<'static, str>>, lack: &Lack) -> Self {
        let verdict = if lack.reason == "disabled" { Verdict::Off } else { Verdict::No };
        Self { name: name.into(), verdict, what: lack.what.clone(), remedy: lack.remedy.to_owned() }
    }
}

/// Looks at everything at once; must be called on a runtime. Any one look gets `patience`, and in little more than that it
/// ends, whatever hangs.
pub async fn checks(config: &Config, patience: Duration) -> Vec<Check> {
    let visible = std::env::var("NVIDIA_VISIBLE_DEVICES").ok();
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let of_kubernetes = kubelet::is_here(&config.kubelet, in_pod);
    let (host, probes, nodes, vendor, kubelet, logs, state, collector) = tokio::join!(
        within(patience, "kernel", of_thread(config, host_checks)),
        within(patience, "probes", probes::checks(config)),
        within(
            patience,
            "device nodes",
            of_thread(config, move |config| nodes::checks(config, visible.as_deref()))
        ),
        within(patience, "worker", of_thread(config, vendor::checks)),
        within(patience, "kubelet", async { vec![kubelet::check(&config.kubelet, in_pod).await] }),
        within(
            patience,
            "log folders",
            of_thread(config, move |config| vec![log_folders::check(&config.host, of_kubernetes)])
        ),
        within(patience, "state directory", of_thread(config, |config| vec![places::state_dir(config)])),
        within(patience, "collector", async { vec![places::collector(config).await] }),
    );
    [host, probes, nodes, vendor, kubelet, logs, state, collector].concat()
}

fn host_checks(config: &Config) -> Vec<Check> {
    let mut checks = vec![kernel::pid_namespace(&config.host), kernel::cgroups(config)];
    checks.extend(capabilities::checks(&config.host));
    checks.extend(tracing_files::checks(config));
    checks.extend([kernel::kernel_log(config), kernel::driver(&config.host)]);
    checks
}

/// Runs a look that blocks.
async fn of_thread(config: &Config, look: impl FnOnce(&Config) -> Vec<Check> + Send + 'static) -> Vec<Check> {
    let config = config.clone();
    let looked = tokio::task::spawn_blocking(move || look(&config)).await;
    looked.unwrap_or_else(|e| vec![Check::unknown("doctor", e.to_string(), "if it stays, report it")])
}

/// A look, or that it hangs.
async fn within(
    patience: Duration,
    name: &'static str,
    look: impl Future<Output = Vec<Check>>,
) -> Vec<Check> {
    tokio::time::timeout(patience, look).await.unwrap_or_else(|_| {
        let what = format!("the look has not come back within {} s", patience.as_secs());
        vec![Check::unknown(
            name,
            what,
            "look at the kernel log for hung tasks; on a slow machine, give it more by --wait",
        )]
    })
}
