//! Places the agent writes to: the state directory and the collector.
//!
//! In: the configuration. Out: checks. What can go wrong: nothing that is not a check's answer.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tokio::net::TcpStream;

use super::Check;
use crate::config::Config;
use crate::host::state_dir::{StateDir, StateDirError, Use};

/// What is written for a try, which a full disk has no room for. Unit: bytes.
const TRIED: usize = 8 * 1024;
const NAME: &str = "state directory";
/// A collector on the same network answers in milliseconds.
const CONNECT: Duration = Duration::from_secs(3);

/// Whether state can be kept.
pub fn state_dir(config: &Config) -> Check {
    let Some(path) = &config.state_dir else {
        return Check::off(NAME, "none is kept, as configured");
    };
    let dir = StateDir::new(path.clone());
    // Some bytes: an empty file may still be made on a full disk.
    let tried = || dir.write("doctor", &[b'.'; TRIED]).and_then(|()| dir.remove("doctor"));
    match dir.look() {
        Err(e) => refused(&e),
        Ok(Use::Held) => match tried() {
            Ok(()) => Check::yes(NAME, format!("{}: an agent uses it", path.display())),
            Err(e) => refused(&e),
        },
        Ok(Use::Missing) => match dir.can_be_made() {
            Ok(()) => Check::yes(NAME, format!("{} is missing; the agent will make it", path.display())),
            Err(e) => refused(&e),
        },
        Ok(Use::Free) => match tried() {
            Ok(()) => Check::yes(NAME, format!("{} can be written", path.display())),
            Err(e) => refused(&e),
        },
    }
}

/// A state directory that cannot be used, or at least not by who asks.
fn refused(error: &StateDirError) -> Check {
    let what = error.to_string();
    let denied = |cause: &std::io::Error| cause.kind() == ErrorKind::PermissionDenied;
    match error {
        // Root looks at the directory of an agent that is not root: what is right for that one cannot be tried.
        StateDirError::Unsafe { path, owner, mode, me: 0 } if *owner != 0 && mode & 0o022 == 0 => {
            let what =
                format!("{} belongs to user {owner}, as is right for an agent of that user", path.display());
            Check::unknown(
                NAME,
                what,
                "ask as the user that the agent runs as; an agent of root would refuse it",
            )
        }
        StateDirError::Directory { cause, .. } | StateDirError::File { cause, .. } if denied(cause) => {
            Check::no(NAME, what, "run as root, or name another directory by --state-dir DIR")
        }
        _ => Check::no(NAME, what, "the message says what is needed"),
    }
}

/// Whether somebody listens where findings go.
pub async fn collector(config: &Config) -> Check {
    const NAME: &str = "collector";
    const REMEDY: &str = "start an OpenTelemetry Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT";
    let Some(otlp) = &config.export.otlp else {
        return Check::off(NAME, "no endpoint is set; findings go to the console");
    };
    let endpoint = otlp.endpoint.clone();
    let resolved = tokio::task::spawn_blocking(move || resolve(&endpoint)).await;
    let addresses = match resolved {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(what)) => return Check::no(NAME, what, REMEDY),
        Err(e) => return Check::unknown(NAME, e.to_string(), REMEDY),
    };
    let mut why = "no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Check::yes(NAME, format!("{}: {address} takes connections", otlp.endpoint)),
            Ok(Err(e)) => why = format!("{address}: {e}"),
            Err(_) => why = format!("{address}: no answer within {} s", CONNECT.as_secs()),
        }
    }
    Check::no(NAME, format!("{}: {why}", otlp.endpoint), REMEDY)
}

fn resolve(endpoint: &str) -> Result<Vec<SocketAddr>, String> {
    let uri: tonic::transport::Uri = endpoint.parse().map_err(|e| format!("{endpoint}: {e}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let addresses = (host, port).to_socket_addrs().map_err(|e| format!("{endpoint}: {e}"))?;
    Ok(addresses.take(4).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::super::Verdict;
    use super::*;
    use crate::config::OtlpConfig;
    use crate::test_dir::TestDir;

    #[test]
    fn a_state_directory_is_tried_and_left_as_it_was() {
        let dir = TestDir::new();
        let path = dir.path().join("state");
        let mut config = Config { state_dir: Some(path.clone()), ..Config::default() };
        let missing = state_dir(&config);
        assert!(missing.verdict == Verdict::Yes && missing.what.contains("will make it"), "{}", missing.what);
        assert!(!path.exists(), "nothing is made by looking");
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let free = state_dir(&config);
        assert!(free.verdict == Verdict::Yes && free.what.contains("can be written"), "{}", free.what);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        let lock = StateDir::new(path.clone()).lock().unwrap();
        let held = state_dir(&config);
        assert!(held.verdict == Verdict::Yes && held.what.contains("an agent uses it"), "{}", held.what);
        drop(lock);
        std::fs::write(dir.path().join("file"), "").unwrap();
        config.state_dir = Some(dir.path().join("file"));
        assert_eq!(state_dir(&config).verdict, Verdict::No);
        config.state_dir = Some(dir.path().join("file/deep"));
        let nowhere = state_dir(&config);
        assert!(nowhere.verdict == Verdict::No && nowhere.what.contains("/file"), "{}", nowhere.what);
        config.state_dir = None;
        assert_eq!(state_dir(&config).verdict, Verdict::Off);
        let left = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
        let left: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| left(entry.unwrap())).collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn what_is_refused_says_who_has_to_do_what() {
        let path = || "/var/lib/warpgauge".into();
        let io = |kind| std::io::Error::from(kind);
        for (error, verdict, remedy) in [
            (
                StateDirError::Unsafe { path: path(), owner: 999, mode: 0o700, me: 0 },
                Verdict::Unknown,
                "ask as the user",
            ),
            (
                StateDirError::Unsafe { path: path(), owner: 999, mode: 0o770, me: 0 },
                Verdict::No,
                "the message",
            ),
            (
                StateDirError::Unsafe { path: path(), owner: 0, mode: 0o700, me: 999 },
                Verdict::No,
                "the message",
            ),
            (
                StateDirError::Directory { path: path(), cause: io(ErrorKind::PermissionDenied) },
                Verdict::No,
                "run as root, or name another directory by --state-dir DIR",
            ),
            (
                StateDirError::File { path: path(), cause: io(ErrorKind::StorageFull) },
                Verdict::No,
                "the message",
            ),
        ] {
            let check = refused(&error);
            assert!(check.verdict == verdict && check.remedy.starts_with(remedy), "{check:?}");
        }
    }

    #[test]
    fn a_held_directory_that_cannot_be_written_is_no_good() {
        let dir = TestDir::new();
        let path = dir.path().join("state");
        let config = Config { state_dir: Some(path.clone()), ..Config::default() };
        let _lock = StateDir::new(path.clone()).lock().unwrap();
        std::fs::create_dir(path.join("doctor.new")).unwrap(); // in the way, as a full disk would be
        let held = state_dir(&config);
        assert!(held.verdict == Verdict::No && held.what.contains("doctor"), "{held:?}");
    }

    #[tokio::test]
    async fn a_collector_is_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = Config::default();
        assert_eq!(collector(&config).await.verdict, Verdict::Off);
        config.export.otlp = Some(OtlpConfig::to(format!("http://{address}")));
        assert_eq!(collector(&config).await.verdict, Verdict::Yes);
        drop(listener);
        let gone = collector(&config).await;
        assert!(gone.verdict == Verdict::No && gone.what.contains("refused"), "{}", gone.what);
    }
}
