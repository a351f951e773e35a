//! The client's side: `warpgauge driver`, `profiling` and `fields` ask the running agent.
//!
//! In: a request. Out: the lines of the answer, and whether it was done.
//! What can go wrong: no agent, no right, an agent that hangs or hangs up; each error names the socket and a remedy.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SOCKET;
use super::message::{Reply, Request};

/// What the agent gets for each line: longer than anything it waits for itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest line of an answer in bytes.
const LINE_MAX: u64 = 4 * 1024 * 1024;

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket, or nobody behind it.
    #[error("{0}: no agent answers; start one (`warpgauge run`), or name its directory by --run-dir")]
    NoAgent(PathBuf),
    /// Not for this user.
    #[error("{0}: not permitted; ask as root, or as the user that the agent runs as")]
    NotPermitted(PathBuf),
    /// It answers, but not sensibly.
    #[error("{path}: {cause}; look at the agent's log")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        cause: io::Error,
    },
    /// The agent says why.
    #[error("{0}")]
    NotDone(String),
    /// The lines of the answer could not be handed on.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

/// Asks the agent whose socket is in `run_dir`; `line` takes each line that comes before the last one, which is returned.
///
/// # Errors
/// [`ClientError`]: it was not done.
pub fn ask(
    run_dir: &Path,
    request: Request,
    line: impl FnMut(&str) -> io::Result<()>,
) -> Result<String, ClientError> {
    ask_within(run_dir, request, PATIENCE, line)
}

/// The same; the agent gets `patience` for each line. Range: more than 0.
///
/// # Errors
/// [`ClientError`]: it was not done.
pub fn ask_within(
    run_dir: &Path,
    request: Request,
    patience: Duration,
    mut line: impl FnMut(&str) -> io::Result<()>,
) -> Result<String, ClientError> {
    let path = run_dir.join(SOCKET);
    let broken = |cause| match ErrorKind::PermissionDenied == io::Error::kind(&cause) {
        true => ClientError::NotPermitted(path.clone()),
        false => ClientError::Broken { path: path.clone(), cause },
    };
    let socket = UnixStream::connect(&path).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoAgent(path.clone()),
        _ => broken(cause),
    })?;
    let mut replies = start(socket, request, patience).map_err(broken)?;
    loop {
        match next(&mut replies).map_err(broken)? {
            Reply::Line(text) => line(&text).map_err(ClientError::Output)?,
            Reply::Done(text) => return Ok(text),
            Reply::NotDone(why) => return Err(ClientError::NotDone(why)),
        }
    }
}

fn start(mut socket: UnixStream, request: Request, patience: Duration) -> io::Result<BufReader<UnixStream>> {
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    let mut bytes = serde_json::to_vec(&request)?;
    bytes.push(b'\n');
    socket.write_all(&bytes)?;
    Ok(BufReader::new(socket))
}

fn next(replies: &mut BufReader<UnixStream>) -> io::Result<Reply> {
    let mut line = Vec::new();
    let read = replies.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
    match read {
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the agent hung up")),
        Ok(_) => Ok(serde_json::from_slice(&line)?),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::TimedOut, "the agent does not answer"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn where_no_agent_runs_the_error_says_what_to_do() {
        let dir = TestDir::new();
        let ask = || ask(dir.path(), Request::DriverTake, |_| Ok(())).unwrap_err().to_string();
        assert!(
            ask().ends_with(
                "no agent answers; start one (`warpgauge run`), or name its directory by --run-dir"
            )
        );
        drop(std::os::unix::net::UnixListener::bind(dir.path().join(SOCKET)).unwrap()); // a dead agent's
        assert!(ask().contains("no agent answers"));
    }
}
