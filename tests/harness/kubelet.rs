//! Kubelets on a socket of their own: one inside the test that behaves as told, and one made of Kubernetes' own code.
//!
//! In: a file of answers, or answers; how to behave. Out: the PodResources service, until it is dropped.
//! What can go wrong: the second one was not built; who needs it says so.

use std::convert::Infallible;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::{Code, Request, Response, Status};

use super::kubelet_message::{self, Answers, GetPodResourcesRequest, GetPodResourcesResponse};
use super::programs;

const SERVICE: &str = "v1.PodResourcesLister";

/// How a kubelet treats a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It answers.
    #[default]
    Well,
    /// It takes the call and never answers.
    Slow,
    /// It answers with bytes that are no message.
    Garbage,
    /// It answers with this error.
    Error(Code),
}

/// A kubelet inside the test. Dropped, it ends as a killed one does: its socket stays and nobody listens.
#[derive(Debug)]
pub struct Kubelet {
    shared: Arc<Shared>,
    _runtime: Runtime,
}

#[derive(Debug, Default)]
struct Shared {
    answers: Mutex<Answers>,
    manner: Mutex<Manner>,
    lists: AtomicUsize,
    gets: AtomicUsize,
    has_no_get: AtomicBool,
}

impl Kubelet {
    /// Serves on a new socket.
    ///
    /// # Panics
    /// When the socket cannot be made.
    pub fn start(socket: &Path, answers: Answers) -> Self {
        let shared = Arc::new(Shared { answers: Mutex::new(answers), ..Shared::default() });
        let runtime = runtime();
        let listener = listen(&runtime, socket);
        let service = PodResources(Arc::clone(&shared));
        runtime.spawn(async move {
            let incoming = Incoming(listener);
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
        });
        Self { shared, _runtime: runtime }
    }

    /// From now on it behaves so.
    pub fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// From now on it says this.
    pub fn say(&self, answers: Answers) {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// How often it was asked for one pod.
    pub fn gets(&self) -> usize {
        self.shared.gets.load(Ordering::Relaxed)
    }

    /// From now on it is one that cannot be asked for one pod, as those below 1.27.
    pub fn without_get(&self) {
        self.shared.has_no_get.store(true, Ordering::Relaxed);
    }

    /// How often it was asked who was given what.
    pub fn lists(&self) -> usize {
        self.shared.lists.load(Ordering::Relaxed)
    }
}

/// Something on the kubelet's socket that is none.
#[derive(Debug)]
pub struct Stranger {
    _runtime: Runtime,
}

impl Stranger {
    /// It takes connections, says these bytes, and then nothing.
    pub fn start(socket: &Path, bytes: &'static [u8]) -> Self {
        let runtime = runtime();
        let listener = listen(&runtime, socket);
        runtime.spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(bytes).await; // who has gone again needs no answer
                open.push(stream);
            }
        });
        Self { _runtime: runtime }
    }
}

/// A kubelet of Kubernetes' own types and Google's own server.
#[derive(Debug)]
pub struct Judge(Child);

impl Judge {
    /// Serves the file's answers.
    ///
    /// # Panics
    /// When it does not start.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn start(socket: &Path, file: &Path) -> Self {
        let mut command = Command::new(programs::kubelet_judge());
        command.arg(socket).arg(file).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the judge starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("its output");
        let judge = Self(child);
        BufReader::new(out).read_line(&mut said).expect("its output");
        assert_eq!(said, "ready\n", "the judge listens");
        judge
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended already
        let _ = self.0.wait();
    }
}

/// The answers of `tests/fixtures/kubelet/NAME.json`, and the file.
///
/// # Panics
/// When there is no such file, or it has other fields.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
pub fn answers(name: &str) -> (Answers, PathBuf) {
    let path = programs::workspace().join(format!("tests/fixtures/kubelet/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("a file of answers");
    (serde_json::from_str(&text).expect("answers"), path)
}

#[expect(clippy::expect_used, reason = "a test fails by panicking")]
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

/// As the kubelet does it: the socket of the one before is removed.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
fn listen(runtime: &Runtime, socket: &Path) -> UnixListener {
    std::fs::create_dir_all(socket.parent().expect("a folder")).expect("a folder for the socket");
    let _ = std::fs::remove_file(socket); // there may be none
    let _inside = runtime.enter();
    UnixListener::bind(socket).expect("a socket")
}

/// Connections as they come.
struct Incoming(UnixListener);

impl Stream for Incoming {
    type Item = std::io::Result<tokio::net::UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

/// The service, by path.
#[derive(Clone)]
struct PodResources(Arc<Shared>);

impl tonic::server::NamedService for PodResources {
    const NAME: &'static str = SERVICE;
}

impl<B> Service<http::Request<B>> for PodResources
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let asked = Asked { shared: Arc::clone(&self.0), path: request.uri().path().to_owned() };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(asked, request).await) })
    }
}

/// One call.
struct Asked {
    shared: Arc<Shared>,
    path: String,
}

impl tonic::server::UnaryService<Bytes> for Asked {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let manner = *shared.manner.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = {
            let answers = shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
            match self.path.strip_prefix(&format!("/{SERVICE}/")) {
                Some("List") => {
                    shared.lists.fetch_add(1, Ordering::Relaxed);
                    Ok(answers.list.encode_to_vec())
                }
                Some("Get") if !shared.has_no_get.load(Ordering::Relaxed) => {
                    shared.gets.fetch_add(1, Ordering::Relaxed);
                    get(&answers, request.into_inner())
                }
                Some("GetAllocatableResources") => Ok(answers.allocatable.encode_to_vec()),
                _ => Err(Status::unimplemented(self.path.clone())),
            }
        };
        Box::pin(async move {
            match manner {
                Manner::Well => answer.map(|bytes| Response::new(bytes.into())),
                Manner::Slow => std::future::pending().await,
                Manner::Garbage => Ok(Response::new(Bytes::from_static(b"\x0a\xff\xff\xff\xff\xffpods"))),
                Manner::Error(code) => Err(Status::new(code, "as told")),
            }
        })
    }
}

/// As the kubelet says it: for a pod that is not there it has no code of its own.
fn get(answers: &Answers, question: Bytes) -> Result<Vec<u8>, Status> {
    let asked = GetPodResourcesRequest::decode(question)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let is_it = |pod: &&kubelet_message::PodResources| {
        (&pod.name, &pod.namespace) == (&asked.pod_name, &asked.pod_namespace)
    };
    let pod = answers.list.pod_resources.iter().find(is_it).cloned();
    let pod = pod.ok_or_else(|| Status::unknown(format!("pod {} not found", asked.pod_name)))?;
    Ok(GetPodResourcesResponse { pod_resources: Some(pod) }.encode_to_vec())
}

/// Bytes as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, bytes: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
