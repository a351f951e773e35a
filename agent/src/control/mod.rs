//! The control socket: how an operator on the node tells the running agent something.
//!
//! In: one JSON object per line, from root or the agent's own user. Out: what is done: the driver released or taken,
//! profiling paused or resumed, questions to the worker answered.
//! What can go wrong: the directory is not safe or another agent's; the agent runs without, and says so. A client that
//! hangs is dropped; requests are bounded in length, number and time.

pub mod client;
pub mod message;
mod requests;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::sources::worker::board::Board;
use crate::sources::worker::desk::Desk;
use crate::sources::worker::hold::DriverHold;
use crate::telemetry::Telemetry;
use server::Server;

/// Name of the socket in its directory.
pub const SOCKET: &str = "control.sock";
/// How often it is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// What it acts on.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Where the socket is; `None`: none is wanted.
    pub run_dir: Option<PathBuf>,
    /// Who has the driver.
    pub hold: DriverHold,
    /// Where the worker is asked; `None`: it is switched off.
    pub desk: Option<Desk>,
    /// What is said of the worker's sources.
    pub board: Board,
}

/// Serves until `stop`; whatever is in the way is said once and looked at again now and then.
pub async fn run(parts: Parts, telemetry: Telemetry, stop: CancellationToken) {
    let Some(dir) = parts.run_dir.clone() else { return };
    let up = telemetry.gauge("warpgauge.control.up", &[]);
    let mut said = String::new();
    while !stop.is_cancelled() {
        match Server::open(&dir) {
            Ok(server) => {
                up.set(1);
                info!(path = %dir.join(SOCKET).display(), "The control socket is open.");
                said.clear();
                if let Err(error) = server.serve(&parts, &telemetry, &stop).await {
                    warn!(%error, "The control socket failed; it is opened again.");
                    up.set(0);
                    if error.kind() == std::io::ErrorKind::NotFound {
                        drop(server); // and its lock
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
                up.set(0);
            }
            Err(error) => {
                let what = error.to_string();
                if said != what {
                    warn!(what, remedy = error.remedy(), "There is no control socket; the rest goes on.");
                    said = what;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}
