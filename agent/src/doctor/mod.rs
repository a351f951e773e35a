//! `warpgauge doctor`: what works on this node, what does not, why, and how to mend it.
//!
//! In: the configuration the agent would run with. Out: one [`Check`] for each capability and source.
//! It looks by doing: programs are loaded and taken out again, the log is read, a worker opens the vendor's libraries.
//! What can go wrong: a thing cannot be found out; then the answer is `unknown` with the reason, never a guess.

pub mod capabilities;
pub mod kernel;
pub mod places;
pub mod print;

use std::borrow::Cow;

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

/// Looks at everything but the vendor's libraries; must be called on a runtime. Takes up to some seconds.
pub async fn checks(config: &Config) -> Vec<Check> {
    let mut checks = vec![kernel::pid_namespace(&config.host), kernel::cgroups(config)];
    checks.extend(capabilities::checks(&config.host));
    checks.push(kernel::kernel_log(config));
    checks.extend(kernel::probes(config).await);
    checks.push(kernel::driver(&config.host));
    checks.push(places::state_dir(config));
    checks.push(places::collector(config).await);
    checks
}
