//! One connection to the kubelet's PodResources service.
//!
//! In: the socket's path. Out: the bytes of an answer, which [`super::answer`] reads: the library would make a message
//! of them whose size in memory nothing bounds.
//! What can go wrong: everything of [`Failure`]; each call ends within its time, whatever the other side does.

use std::path::Path;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::answer::ANSWER_MAX;
use super::failure::{Failure, Reason};
use super::message;

/// What can be asked without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Which container was given which devices.
    List,
    /// Which devices could be given.
    Allocatable,
}

impl Call {
    /// The service's name of it, for people and `warpgauge.kubelet.calls{call}`.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "List",
            Self::Allocatable => "GetAllocatableResources",
        }
    }

    fn path(self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Self::List => message::LIST,
            Self::Allocatable => message::ALLOCATABLE,
        })
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    grpc: Grpc<Channel>,
    timeout: Duration,
}

impl Client {
    /// Connects within `limit`, which each call then has too.
    ///
    /// # Errors
    /// [`Failure`]: no socket, no right, nobody who listens, nobody who speaks HTTP/2.
    pub async fn connect(socket: &Path, limit: Duration) -> Result<Self, Failure> {
        let Some(path) = socket.to_str() else {
            return Err(Failure::new(Reason::NoSocket, "the socket's path is not UTF-8"));
        };
        let endpoint = Endpoint::from_shared(format!("unix://{path}"))
            .map_err(|error| Failure::of_connecting(&error))?
            .user_agent(concat!("warpgauge/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| Failure::of_connecting(&error))?;
        let channel = timeout(limit, endpoint.connect())
            .await
            .map_err(|_| Failure::slow("the connection", limit))?
            .map_err(|error| Failure::of_connecting(&error))?;
        Ok(Self { grpc: Grpc::new(channel).max_decoding_message_size(ANSWER_MAX), timeout: limit })
    }

    /// Asks once.
    ///
    /// # Errors
    /// [`Failure`]; after one that is not the kubelet's own answer the connection is of no use.
    pub async fn ask(&mut self, call: Call) -> Result<Bytes, Failure> {
        self.unary(call.name(), call.path(), Bytes::new()).await
    }

    /// Asks for one pod; the answer reads like that to [`Call::List`].
    ///
    /// # Errors
    /// The same; `NotServed` or `Failed` where the kubelet does not have this call, has it switched off, or not the pod:
    /// it has no words of its own for any of these.
    pub async fn pod(&mut self, namespace: &str, name: &str) -> Result<Bytes, Failure> {
        let (pod_name, pod_namespace) = (name.to_owned(), namespace.to_owned());
        let question = message::GetPodResourcesRequest { pod_name, pod_namespace }.encode_to_vec();
        self.unary("Get", PathAndQuery::from_static(message::GET), question.into()).await
    }

    async fn unary(
        &mut self,
        name: &'static str,
        path: PathAndQuery,
        question: Bytes,
    ) -> Result<Bytes, Failure> {
        let asked = async {
            // The library asks for this before each call; its error has no words of its own.
            let ready = self.grpc.ready().await;
            ready.map_err(|error| Failure::of_connecting(&error))?;
            let answer = self.grpc.unary(Request::new(question), path, Raw).await;
            answer.map(tonic::Response::into_inner).map_err(|status| Failure::of_status(&status))
        };
        timeout(self.timeout, asked).await.unwrap_or_else(|_| Err(Failure::slow(name, self.timeout)))
    }
}

/// Bytes out, bytes in.
#[derive(Clone, Copy, Debug)]
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

    fn encode(&mut self, question: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(question);
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
