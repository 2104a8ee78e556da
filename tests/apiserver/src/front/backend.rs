//! The server behind the faults.

use std::io;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST};
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use kube::client::Body as KubeBody;
use kube::config::AuthInfo;
use kube::{Client, Config};
use tower::BoxError;

use crate::access::ADMIN_TOKEN;
use crate::answer::Reply;
use crate::api::Api;

#[derive(Clone)]
pub(crate) enum Backend {
    Memory(Arc<Api>),
    Real(Arc<Clients>),
}

pub(crate) struct Clients {
    /// A client with the kubeconfig's credentials.
    admin: Client,
    /// A client without credentials, which passes on the request's own.
    bare: Client,
    /// The test's own client. A connection is served by the runtime that opened it, and a test may block its runtime. A connection of the test
    /// must not carry the agent's requests.
    of_test: Client,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Real(_) => "Real",
        })
    }
}

impl Backend {
    pub(crate) fn real(config: &Config) -> Result<Self> {
        let mut without = config.clone();
        without.auth_info = AuthInfo::default();
        let clients = Clients { admin: client(config)?, bare: client(&without)?, of_test: client(config)? };
        Ok(Self::Real(Arc::new(clients)))
    }

    /// Passes a request on and its answer back.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> io::Result<Reply> {
        let Clients { admin, bare, .. } = match self {
            Self::Memory(api) => return Ok(api.handle(request)),
            Self::Real(clients) => clients.as_ref(),
        };
        let (mut head, body) = request.into_parts();
        for header in [HOST, CONNECTION, ACCEPT_ENCODING] {
            head.headers.remove(header);
        }
        let own = HeaderValue::from_str(&format!("Bearer {ADMIN_TOKEN}")).map_err(io::Error::other)?;
        let client = if head.headers.get(AUTHORIZATION) == Some(&own) {
            head.headers.remove(AUTHORIZATION);
            admin
        } else {
            bare
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = path.parse().map_err(io::Error::other)?;
        let answer = client.send(Request::from_parts(head, KubeBody::from(body))).await.map_err(io::Error::other)?;
        Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }

    pub(crate) fn admin(&self) -> Client {
        match self {
            Self::Real(clients) => clients.of_test.clone(),
            Self::Memory(api) => {
                let api = Arc::clone(api);
                let service = tower::service_fn(move |request: Request<KubeBody>| {
                    let api = Arc::clone(&api);
                    async move {
                        let (mut head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let own = HeaderValue::from_str(&format!("Bearer {ADMIN_TOKEN}"))?;
                        head.headers.insert(AUTHORIZATION, own);
                        Ok::<_, BoxError>(api.handle(Request::from_parts(head, body)))
                    }
                });
                Client::new(service, "default")
            }
        }
    }
}

/// A client without kube's retries of 429, 503 and 504, so that every answer is passed on.
fn client(config: &Config) -> Result<Client> {
    let mut config = config.clone();
    config.default_retry = false;
    Client::try_from(config).context("making a client of the kubeconfig")
}
