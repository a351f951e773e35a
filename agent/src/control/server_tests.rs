//! The control socket with real clients.
//!
//! In: requests, sensible or not, from clients that wait, hang or go. Out: what they hear, and what is counted.
//! What can go wrong: nothing.

use super::*;
use crate::control::client;
use crate::sources::worker::board::Board;
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
    assert!(done.starts_with("{\"done\":\"The driver may be used again"), "a line may end with the request");
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
