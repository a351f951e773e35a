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
mod tests {
    use super::*;
    use crate::control::client;
    use crate::sources::worker::board::Board;
    use crate::sources::worker::desk::desk;
    use crate::sources::worker::hold::{DriverHold, Reason};
    use crate::test_dir::TestDir;

    struct Running {
        dir: TestDir,
        hold: DriverHold,
        telemetry: Telemetry,
        board: Board,
        _server: JoinSet<()>,
    }

    fn start() -> Running {
        let (dir, hold, telemetry) = (TestDir::new(), DriverHold::default(), Telemetry::default());
        let parts = Parts {
            run_dir: Some(dir.path().join("run")),
            hold: hold.clone(),
            desk: None,
            board: Board::default(),
        };
        let board = parts.board.clone();
        let server = Server::open(&dir.path().join("run")).unwrap();
        let mut running = JoinSet::new();
        let counts = telemetry.clone();
        running.spawn(async move {
            server.serve(&parts, &counts, &CancellationToken::new()).await.unwrap();
        });
        Running { dir, hold, telemetry, board, _server: running }
    }

    impl Running {
        fn path(&self) -> PathBuf {
            self.dir.path().join("run").join(SOCKET)
        }

        async fn ask(&self, request: Request) -> Result<String, String> {
            let dir = self.dir.path().join("run");
            let asked = tokio::task::spawn_blocking(move || client::ask(&dir, request, |_| Ok(())));
            asked.await.unwrap().map_err(|error| error.to_string())
        }

        async fn raw(&self, bytes: &[u8]) -> String {
            let mut client = UnixStream::connect(self.path()).await.unwrap();
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            text
        }

        fn refused(&self, reason: &str) -> u64 {
            self.telemetry.counter("warpgauge.control.refused", &[("reason", reason)]).get()
        }
    }

    #[tokio::test]
    async fn the_driver_is_released_once_the_worker_is_gone_and_taken_again() {
        let running = start();
        let hold = running.hold.clone();
        hold.set_worker(true);
        let mut follower = hold.subscribe();
        let worker = tokio::spawn(async move {
            follower.wait_for(|hold| hold.released.is_some()).await.unwrap();
            hold.set_worker(false);
        });
        let said = running.ask(Request::DriverRelease).await.unwrap();
        assert!(worker.is_finished() && said.contains("let go"), "{said}");
        assert!(matches!(running.hold.now().released, Some((Reason::Manual, _))));
        running.ask(Request::DriverTake).await.unwrap();
        assert_eq!(running.hold.now().released, None);
        running.board.put(crate::sources::worker::board::Standing {
            source: "dcgm".to_owned(),
            reason: "no_library".to_owned(),
            ..Default::default()
        });
        let again = running.ask(Request::DriverTake).await.unwrap();
        assert_eq!(again, "The driver may be used again (it was already); dcgm is down (no_library).");
        for already in [false, true] {
            let said = running.ask(Request::DriverRelease).await.unwrap();
            assert_eq!(said.contains("(it was already)"), already, "{said}");
        }
        let refusal = running.ask(Request::ProfilingPause).await.unwrap_err();
        assert!(refusal.contains("switched off by the configuration"), "{refusal}");
    }

    #[tokio::test]
    async fn nonsense_is_refused_and_counted() {
        let running = start();
        assert!(running.raw(b"hello\n").await.starts_with(r#"{"not_done":"not a request"#));
        assert!(running.raw(b"").await.contains("not a request"));
        let long = vec![b'x'; REQUEST_MAX + 1];
        assert!(running.raw(&long).await.contains("more than 4096 bytes"));
        let longer = vec![b'x'; 60_000];
        assert!(running.raw(&longer).await.contains("more than 4096 bytes"), "what is not read does no harm");
        assert_eq!(running.refused("not_understood"), 4);
        let done = running.raw(b"{\"command\":\"driver_take\"}").await;
        assert!(
            done.starts_with("{\"done\":\"The driver may be used again"),
            "a line may end with the request"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_hang_are_dropped_and_hold_up_nobody() {
        let running = start();
        let mut silent = Vec::new();
        for _ in 0..CLIENTS_MAX {
            silent.push(UnixStream::connect(running.path()).await.unwrap());
        }
        for client in &mut silent {
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "");
        }
        assert_eq!(running.refused("hung"), CLIENTS_MAX as u64);
        assert!(running.raw(b"{\"command\":\"driver_take\"}\n").await.contains("done"));
    }

    #[tokio::test]
    async fn who_comes_when_all_places_are_taken_hears_so() {
        let running = start();
        let mut silent = Vec::new();
        for _ in 0..CLIENTS_MAX {
            silent.push(UnixStream::connect(running.path()).await.unwrap());
        }
        let said = running.raw(b"{\"command\":\"driver_take\"}\n").await;
        assert!(said.starts_with(r#"{"not_done":"8 clients are being answered"#), "{said}");
        assert_eq!(running.refused("too_many"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_somebody_removed_is_made_anew() {
        let dir = TestDir::new();
        let run_dir = dir.path().join("run");
        let parts = Parts {
            run_dir: Some(run_dir.clone()),
            hold: DriverHold::default(),
            desk: None,
            board: Board::default(),
        };
        let (stop, socket) = (CancellationToken::new(), run_dir.join(SOCKET));
        let running = tokio::spawn(crate::control::run(parts, Telemetry::default(), stop.clone()));
        let there = async |socket: &Path| {
            while !socket.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(5), there(&socket)).await.unwrap();
        std::fs::remove_file(&socket).unwrap();
        timeout(2 * LOOK, there(&socket)).await.unwrap();
        stop.cancel();
        running.await.unwrap();
        assert!(!socket.exists(), "it is removed at the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_cannot_be_accepted_ends_no_other() {
        let telemetry = Telemetry::default();
        let parts = Parts { run_dir: None, hold: DriverHold::default(), desk: None, board: Board::default() };
        let (mut client, served) = UnixStream::pair().unwrap();
        let (first, stop) = (std::cell::Cell::new(Some(served)), CancellationToken::new());
        // One client, and no descriptor for another.
        let accept = || std::future::ready(first.take().ok_or_else(|| io::ErrorKind::Other.into()));
        let failed = telemetry.counter("warpgauge.control.refused", &[("reason", "not_accepted")]);
        let ask = async {
            while failed.get() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            client.write_all(b"{\"command\":\"driver_take\"}\n").await.unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            stop.cancel();
            text
        };
        let asked = async { timeout(Duration::from_secs(60), ask).await.unwrap() };
        let ((), text) = tokio::join!(serve(accept, &parts, &telemetry, &stop), asked);
        assert!(text.contains("done"), "{text}");
    }

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

    #[tokio::test]
    async fn a_dead_agents_socket_is_replaced_and_a_live_ones_left_alone() {
        let dir = TestDir::new();
        let run = dir.path().join("run");
        let server = Server::open(&run).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&run), mode(&run.join(SOCKET))), (0o700, 0o600));
        let refusal = Server::open(&run).unwrap_err();
        assert!(matches!(&refusal, ControlError::Held(path) if *path == run), "{refusal}");
        assert!(run.join(SOCKET).exists() && refusal.remedy().contains("--run-dir"));
        drop(server);
        assert!(!run.join(SOCKET).exists());
        std::fs::write(run.join(SOCKET), "left behind").unwrap();
        drop(Server::open(&run).unwrap());
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Server::open(&run).unwrap_err(), ControlError::Directory(_)));
    }
}
