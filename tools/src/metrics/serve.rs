//! Figures for whoever asks at an address. Whoever can reach it may be slow, broken or hostile: nobody holds up another one's scrape, and
//! what a connection may take of memory and time is bounded.
//!
//! One thread answers all. A connection is for one request: it is read up to [`HEADER`] bytes, answered, and closed, all within
//! [`PATIENCE`]. Of more than [`OPEN`] at a time the oldest makes room.

use crate::background::spawn;
use crate::say;
use crossbeam_channel::Receiver;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use strandline::report::metrics::Metrics;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Bytes of a request's line and headers.
const HEADER: usize = 8 << 10;
/// Connections at a time.
const OPEN: usize = 32;
/// From the beginning of a connection to its end. Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// After an error of the system's, such as no descriptor being left.
const PAUSE: Duration = Duration::from_millis(100);

/// The figures as they are answered.
type Latest = Arc<Mutex<String>>;

/// Answers until there are no more figures.
pub(super) fn serve(listener: TcpListener, figures: &Receiver<Metrics>) {
    let latest = Latest::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let shared = latest.clone();
    let answer = move || {
        if let Err(e) = answer_all(listener, shared, stopped) {
            say::line(format!("no metrics: {e}"));
        }
    };
    let answering = spawn("sl-metrics-http", answer);
    for new in figures {
        let text = new.prometheus();
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
    drop(stop);
    let _ = answering.map(std::thread::JoinHandle::join);
}

fn answer_all(listener: TcpListener, latest: Latest, stopped: oneshot::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        tokio::spawn(accept(tokio::net::TcpListener::from_std(listener)?, latest));
        // Whatever is still open then is closed with the runtime.
        let _ = stopped.await;
        Ok(())
    })
}

async fn accept(listener: tokio::net::TcpListener, latest: Latest) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= OPEN
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(connection(stream, latest.clone())).abort_handle());
        // Whoever has asked already is answered before the next one is let in.
        tokio::task::yield_now().await;
    }
}

async fn connection(stream: TcpStream, latest: Latest) {
    let answer = service_fn(move |request| {
        let response = response(&request, &latest);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever asked and went away, or does not read, is nobody's problem.
    let _ = tokio::time::timeout(PATIENCE, served).await;
}

fn response(request: &Request<Incoming>, latest: &Latest) -> Response<String> {
    let is_ours = matches!(request.uri().path(), "/metrics" | "/");
    let (status, text) = match *request.method() {
        Method::GET | Method::HEAD if is_ours => {
            (StatusCode::OK, latest.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
        Method::GET | Method::HEAD => (StatusCode::NOT_FOUND, "see /metrics\n".to_string()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_string()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    /// A server that is stopped with the test.
    struct Served {
        address: SocketAddr,
        figures: Option<crossbeam_channel::Sender<Metrics>>,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Served {
        fn start() -> Served {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (send, figures) = crossbeam_channel::bounded(1);
            let thread = std::thread::spawn(move || serve(listener, &figures));
            send.send(Metrics::default()).unwrap();
            Served { address, figures: Some(send), thread: Some(thread) }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            stream
        }

        fn ask(&self, request: &str) -> String {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        }

        #[track_caller]
        fn is_answered(&self) {
            let began = Instant::now();
            let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            drop(self.figures.take());
            let _ = self.thread.take().unwrap().join();
        }
    }

    #[test]
    fn what_is_asked_for_is_answered_and_nothing_else() {
        let served = Served::start();
        served.is_answered();
        let is = |request: &str, status: &str| {
            let answer = served.ask(request);
            assert!(answer.starts_with(status), "{request}: {answer}");
        };
        is("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404");
        is("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 405");
        is("\0\0\0\0\r\n\r\n", "HTTP/1.1 400");
        let answer = served.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "a connection is for one request");
    }

    #[test]
    fn a_header_without_an_end_is_cut_off() {
        let served = Served::start();
        let mut stream = served.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        let piece = [b'a'; 64 << 10];
        let taken = (0..4096).take_while(|_| stream.write_all(&piece).is_ok()).count();
        assert!(taken < 256, "{taken} times 64 KiB were taken: more than the sockets hold");
        served.is_answered();
    }

    #[test]
    fn who_pipelines_and_never_reads_holds_up_nobody() {
        let served = Served::start();
        let mut hostile: Vec<TcpStream> = (0..8).map(|_| served.connect()).collect();
        for stream in &mut hostile {
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
            (0..200).take_while(|_| stream.write_all(&request).is_ok()).for_each(drop);
        }
        served.is_answered();
    }

    #[test]
    fn hundreds_of_requests_that_never_end_hold_up_nobody() {
        let served = Served::start();
        let half: Vec<TcpStream> = (0..400)
            .map(|_| {
                let mut stream = served.connect();
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n");
                stream
            })
            .collect();
        for _ in 0..10 {
            served.is_answered();
        }
        let open = half.iter().filter(|s| {
            s.set_nonblocking(true).unwrap();
            let mut stream = *s;
            matches!(stream.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
        });
        assert!(open.count() <= OPEN, "the oldest have made room");
    }
}
