//! A web server of the test's own, on loopback.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinHandle};

/// Serves bytes by path, redirects what begins with `/to`, and notes what was asked for.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Web {
    pub(crate) async fn serve(files: HashMap<&'static str, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (files, noted) = (Arc::new(files), asked.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (files, noted) = (files.clone(), noted.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    noted.lock().unwrap().push(request.uri().to_string());
                    let response = answer(&files, &request);
                    async move { Ok::<_, std::convert::Infallible>(response) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, asked, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Request targets, as they came.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(files: &HashMap<&'static str, Vec<u8>>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let builder = Response::builder();
    let built = if let Some(place) = path.strip_prefix("/to") {
        builder.status(StatusCode::FOUND).header(header::LOCATION, place).body(Full::default())
    } else if let Some(bytes) = files.get(path) {
        builder.body(Full::from(bytes.clone()))
    } else {
        builder.status(StatusCode::NOT_FOUND).body(Full::default())
    };
    built.unwrap()
}
