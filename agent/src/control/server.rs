//! The socket itself: opened in a directory of our own, answering whom it may.
//!
//! In: connections. Out: replies. What can go wrong: an unsafe directory, another agent's socket, a client that may not
//! ask, says nonsense, or hangs: it is refused or dropped, counted, and touches no one else.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::message::{REQUEST_MAX, Reply, Request};
use super::{Parts, SOCKET, requests};
use crate::host::state_dir::{Lock, StateDir, StateDirError};
use crate::telemetry::{Counter, Telemetry};

/// Clients at once.
const CLIENTS_MAX: usize = 8;
/// What a client gets to send its request, and to take each reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the next client is accepted after one could not be: descriptors become free again.
const BREATH: Duration = Duration::from_millis(100);
/// Clients beyond these that are told so; further ones are dropped.
const REFUSED_MAX: usize = 8;
/// How often it is looked whether the socket is still there.
const LOOK: Duration = Duration::from_secs(5);
/// What is read of a request that is too long, so that the answer to it arrives. Unit: bytes.
const DRAINED_MAX: usize = 1024 * 1024;
/// Replies on their way to a client.
const REPLIES_MAX: usize = 16;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    /// Another agent has it.
    #[error("another agent has the control socket in {0}")]
    Held(PathBuf),
    /// The directory cannot be made, or is not safe.
    #[error("{0}")]
    Directory(#[from] StateDirError),
    /// The socket cannot be made.
    #[error("{path}: {cause}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

impl ControlError {
    /// What the operator can do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Held(_) => {
                "while two agents run on a node its findings are told twice: end one, or give each its own --run-dir"
            }
            Self::Directory(_) | Self::Socket { .. } => {
                "name a directory by --run-dir that only the agent's user can write to, or none"
            }
        }
    }
}

/// The open socket.
#[derive(Debug)]
pub(super) struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the socket's file.
    file: Option<(u64, u64)>,
    /// Says that the agent of this directory lives; a socket without it is a dead agent's.
    _lock: Lock,
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that stays is replaced by the next agent.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[derive(Clone, Debug)]
struct Refusals {
    not_permitted: Counter,
    too_many: Counter,
    not_understood: Counter,
    hung: Counter,
    not_accepted: Counter,
}

impl Server {
    pub(super) fn open(dir: &Path) -> Result<Self, ControlError> {
        let state = StateDir::new(dir.to_path_buf());
        let lock = match state.lock() {
            Ok(lock) => lock,
            Err(StateDirError::Held { path }) => return Err(ControlError::Held(path)),
            Err(error) => return Err(error.into()),
        };
        state.remove(SOCKET)?;
        let path = dir.join(SOCKET);
        let made = UnixListener::bind(&path).and_then(|listener| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        });
        let listener = made.map_err(|cause| ControlError::Socket { path: path.clone(), cause })?;
        let file = file_of(&path);
        Ok(Self { listener, path, file, _lock: lock })
    }

    /// Serves until `stop`, or until somebody has removed the socket, which is an error.
    pub(super) async fn serve(
        &self,
        parts: &Parts,
        telemetry: &Telemetry,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let removed = async {
            while self.file == file_of(&self.path) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = serve(|| async { Ok(self.listener.accept().await?.0) }, parts, telemetry, stop) => Ok(()),
            () = removed => Err(io::Error::new(io::ErrorKind::NotFound, "somebody removed the socket")),
        }
    }
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Serves whom `accept` gives, until `stop`.
async fn serve<A: Future<Output = io::Result<UnixStream>>>(
    accept: impl Fn() -> A,
    parts: &Parts,
    telemetry: &Telemetry,
    stop: &CancellationToken,
) {
    let counter = |reason| telemetry.counter("warpgauge.control.refused", &[("reason", reason)]);
    let refusals = Refusals {
        not_permitted: counter("not_permitted"),
        too_many: counter("too_many"),
        not_understood: counter("not_understood"),
        hung: counter("hung"),
        not_accepted: counter("not_accepted"),
    };
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let refusing = Arc::new(Semaphore::new(REFUSED_MAX));
    let mut clients = JoinSet::new();
    loop {
        let client = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = clients.join_next() => continue,
            accepted = accept() => accepted,
        };
        // Too many open files, or a client that went meanwhile: neither is a reason to leave the others.
        let Ok(client) = client else {
            refusals.not_accepted.add(1);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(BREATH) => continue,
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refusals.too_many.add(1);
            if let Ok(place) = Arc::clone(&refusing).try_acquire_owned() {
                clients.spawn(async move {
                    turn_away(client).await;
                    drop(place);
                });
            }
            continue;
        };
        let (parts, refusals) = (parts.clone(), refusals.clone());
        clients.spawn(async move {
            converse(client, &parts, &refusals).await;
            drop(place);
        });
    }
}

/// Who comes when all places are taken hears so, once it has asked.
async fn turn_away(mut client: UnixStream) {
    // Whatever it asks, or fails to.
    let _ = timeout(PATIENCE, read_request(&mut client)).await;
    let why = format!("{CLIENTS_MAX} clients are being answered, and no more can be at once; ask again");
    // Nobody to help when it is gone.
    let _ = say(&mut client, &Reply::NotDone(why)).await;
}

/// Takes what a client has sent beyond what was read: a socket that is closed before would lose the answer.
fn drain(client: &UnixStream) {
    let (mut buffer, mut drained) = ([0; 16 * 1024], 0);
    while drained < DRAINED_MAX {
        match client.try_read(&mut buffer) {
            Ok(n) if n > 0 => drained += n,
            _ => return,
        }
    }
}

/// One client: one request, its replies, and the end.
async fn converse(mut client: UnixStream, parts: &Parts, refusals: &Refusals) {
    let uid = client.peer_cred().map(|peer| peer.uid());
    if !uid.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw()) {
        refusals.not_permitted.add(1);
        let why = Reply::NotDone("only root and the agent's own user may ask".to_owned());
        // Nobody to help when it is gone.
        let _ = say(&mut client, &why).await;
        return;
    }
    let request = match timeout(PATIENCE, read_request(&mut client)).await {
        Ok(Ok(request)) => request,
        Ok(Err(why)) => {
            refusals.not_understood.add(1);
            drain(&client);
            let _ = say(&mut client, &Reply::NotDone(why)).await; // nobody to help when it is gone
            drain(&client);
            return;
        }
        Err(_) => return refusals.hung.add(1),
    };
    let (tx, mut replies) = mpsc::channel(REPLIES_MAX);
    let work = requests::fulfil(request, parts, &tx);
    let answer = async {
        while let Some(reply) = replies.recv().await {
            let last = !matches!(reply, Reply::Line(_));
            if say(&mut client, &reply).await.is_err() {
                refusals.hung.add(1);
                break;
            }
            if last {
                break;
            }
        }
        replies.close();
    };
    tokio::join!(work, answer);
}

async fn read_request(client: &mut UnixStream) -> Result<Request, String> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(client.take(REQUEST_MAX as u64 + 1));
    reader.read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
    if line.len() > REQUEST_MAX {
        return Err(format!("a request of more than {REQUEST_MAX} bytes"));
    }
    serde_json::from_slice(&line).map_err(|error| format!("not a request: {error}"))
}

async fn say(client: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    timeout(PATIENCE, client.write_all(&line)).await?
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

#[cfg(test)]
mod worker_tests {
    use super::*;
    use crate::control::client;
    use crate::sources::worker::board::Board;
    use crate::sources::worker::desk::desk;
    use crate::sources::worker::hold::DriverHold;
    use crate::test_dir::TestDir;

    #[tokio::test]
    async fn the_worker_is_asked_and_its_lines_come_through() {
        let dir = TestDir::new();
        let (desk, mut questions) = desk();
        let parts =
            Parts { run_dir: None, hold: DriverHold::default(), desk: Some(desk), board: Board::default() };
        let server = Server::open(dir.path()).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            server.serve(&parts, &Telemetry::default(), &CancellationToken::new()).await.unwrap();
        });
        tasks.spawn(async move {
            let mut pending = crate::sources::worker::desk::Pending::default();
            let asked = questions.recv().await.unwrap();
            pending.order(crate::model::MonoNs(0), asked).unwrap();
            for (text, more) in [("{\"id\":1}\n{\"id\":2}\n", true), ("{\"id\":3}\n", false)] {
                let answer = crate::wire::report::Answer { id: 1, done: true, text: text.to_owned(), more };
                pending.answer(answer);
            }
        });
        let path = dir.path().to_path_buf();
        let asked = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            let last = client::ask(&path, Request::Fields, |line| {
                lines.push(line.to_owned());
                Ok(())
            });
            (lines, last.unwrap())
        });
        let (lines, last) = asked.await.unwrap();
        assert_eq!((lines.join(" "), &*last), ("{\"id\":1} {\"id\":2} {\"id\":3}".to_owned(), ""));
    }
}
